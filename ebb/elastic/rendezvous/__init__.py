"""The membership of a job's machines, through etcd's v3 API: torchrun's `etcd3` backend.

handler.py is the interface to torch, which finds it by entry_point.py, member.py one machine with its threads, participant.py
its next action, membership.py the rules (pure), state.py the keys in etcd, etcd.py the client and wire.py its messages,
peer_liveness.py notices a dead process at once, and who does not answer, store.py holds the TCPStore of a generation,
generation.py describes it to a worker process, and places.py gives those that live through a change their ranks in the next one.
"""
