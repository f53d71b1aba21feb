"""Jobs in plain words: records (view.py), now and as they change (watch.py), beside the machines (top.py)."""
