"""Does `ebb logs` show every line that reached the output volume, once, when pods are lost? Real launchers, judged from outside.

program.py is what the ranks run, pods.py starts and kills launchers, cluster.py is as much of an API server as the client asks,
watching/ writes down which writes to the volume have returned, judge.py (pure) says what is missing, double or out of order,
run.py plays it. The launcher is known by its command line and by what it writes alone.
"""
