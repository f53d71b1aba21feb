"""The process that a pod starts: `python -m ebb.elastic.launch`.

__main__.py is its edge, reclaim.py its ear, settings.py its flags. machine.py leads from there to the exit code: meeting.py
chooses how the machines meet, agent.py starts and stops the workers, judge.py knows what their ends mean. worker.py and
program.py are the first lines of a worker process, warm.py those of the process that workers are forked from.
"""
