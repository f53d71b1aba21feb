"""Speed of the trainer beside the original example that it replaces, and what each of its choices brings.

contenders.py says how each is run, shim.py lets the original run where there is no GPU, folder.py makes the images, figures.py
reads what they print and write and makes the last line of it (pure).
"""
