"""The cloud of the development cluster: its machines, autoscaler, spot market and shared volumes.

`daemon.run` is the process behind `python -m devcluster run`; `verbs` holds reclaim, exhaust and restore, which only leave a wish
for it. Pure decisions are in scaling, reclaim and volumes; records is what they read; daemon and its helpers alone act.
It does not make machines or a control plane: that is devcluster.machines and devcluster.up.
"""
