"""Text: a small language model on bytes (python -m trainer.text DIR writes some)."""
