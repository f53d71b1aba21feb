"""Text: a small GPT on bytes (python -m trainer.text DIR writes some)."""
