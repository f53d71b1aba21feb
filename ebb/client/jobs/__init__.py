"""Jobs in plain words (view.py), now (watch.py, top.py) and while they change (live.py, waiting.py)."""
