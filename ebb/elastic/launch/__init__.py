"""The process that a pod starts: `python -m ebb.elastic.launch`.

__main__.py is its entry point, reclaim.py listens for signals, settings.py reads its flags. node_agent.py leads from there to
the exit code: code.py and packages.py bring the job's code, locate.py looks for the program in it, agent.py meets the other
machines, starts and stops the workers, exit_policy.py decides on their exits. worker.py and program.py are the first lines of a
worker process, preload.py those of the process that workers are forked from, logs/ what becomes of their output.
"""
