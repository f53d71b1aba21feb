"""A week of a busy cluster in an hour: does every job come to the end that it must come to? `python -m benchmarks.week`.

acts.py      what may happen to a job            fates.py       what becomes of one job
kinds.py     draws the jobs of a week            model.py       the end of each, predicted
play.py      does it to one job, by the API      controller.py  the real controller, killed now and then
groups.py    the stack: its node groups          cloud.py       machines, zones, reclaims
kubelets.py  kwok                                exits.py       workers that were asked to leave
                                                 crew.py        the programs inside the workers
seen.py      list and watch                      judge.py       what must hold at every moment
ledger.py    what was really lost, and when      bill.py        what every job really cost
presence.py  when a controller acted             diary.py       what was seen, for those who ask why
run.py       all of it together, and the summary

The API server, the scheduler and Kubernetes' own controllers are real; machines and containers pretend. Not shown here: training,
and how long real machines and containers take.
"""
