"""`make demo`: the main job on the local stack, from nothing to a tested model, while machines are taken away.

story.py prints what happens as it happens, figures.py turns what the job wrote into numbers (pure), __main__.py is the
play itself. It uses what users use: `python -m devcluster`, `pulumi`, `ebb`; it reads the API server and the shared volume to
know when to go on.
"""
