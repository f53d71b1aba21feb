"""Reference programs, on the public API of ebb.elastic alone: images/ and text/, their data sets, and examples/ to copy from.

python -m trainer --data DIR --output DIR ...        # image folders: images/train.py; alone, or under the launcher
python -m trainer.text.train ...                     # a small GPT on bytes
"""
