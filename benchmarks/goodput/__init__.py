"""Goodput of a job whose machines come and go, once a minute: ours beside stock torchrun.

    goodput = steps that count / steps that the job would have made undisturbed

both in the same time, from the first event on. It is the runtime part of Google's "ML productivity goodput" (blog of 2024-04-10;
docs.cloud.google.com/tpu/docs/goodput): the share of the time that was spent on productive training progress that was preserved.

- A step counts once, if the job's weights at the end have it in them. One that was done again counts once, one that was thrown
  away and not done again does not count, nor does one after the end.
- Undisturbed are as many steps as that time has room for, at the rate before the first event in the same run.
- A step lasts at least STEP_SECONDS of benchmarks/recovery/systems.py. So the rate does not depend on the number of machines, and
  a step is a measure of time: those of stock torchrun, whose global batch grows with the machines, count like ours.
- A job that ends before its time makes no steps in the rest of it. All of its steps until then count, those that no checkpoint
  holds too.

The goodput that Ebb shows of a job (ebb/client/jobs/goodput.py) is weighted by paid machines, and starting is part of it.

play.py draws the events and lets them happen, account.py makes figures of the steps that were written down (pure). The jobs are
those of benchmarks/recovery.
"""
