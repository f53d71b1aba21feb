"""A week of a busy cluster in an hour, with the right end demanded of every job: `python -m benchmarks.week`.

actions.py   all that may happen to a job        scenarios.py   the life of one job
kinds.py     draws the jobs of a week            model.py       the end of each, predicted
play.py      acts it out on one job, by the API  controller.py  the real controller, killed now and then
groups.py    the stack: its node groups          cloud.py       machines, zones, reclaims
kubelets.py  kwok                                exits.py       workers that were asked to leave
seen.py      list and watch                      workers.py     the programs inside the workers
ledger.py    all real losses, with their times   judge.py       conditions that must hold at every moment
presence.py  times at which a controller acted   bill.py        the real cost of every job
run.py       all of it together, the summary      event_log.py  everything seen, for whoever asks why

The API server, the scheduler and Kubernetes' own controllers are real; machines and containers pretend. Not shown here: training,
and how long real machines and containers take.
"""
