"""Cost and time of a job on spot machines that come and go by a trace: our controller beside other ways to buy.

Each way gets the same machines at the same times (market.py): as many spot machines per zone as the trace says, and on-demand
ones at any time. A machine is paid from the moment at which it is asked for, and until its end where the cloud takes it back.

A job's *work* is the time that it would take undisturbed on all of its machines. With n of N it is done at speed(n) / speed(N)
of that rate, where speed is the curve of the article that the project comes from (curve.py). *Saving* is the part of the price of
the same work on on-demand machines, started at the same time, that was not paid.
"""
