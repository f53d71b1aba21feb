"""How the machines of a job agree on who they are, through etcd's v3 API: torchrun's `etcd3` backend.

handler.py is what torch sees, member.py one machine's life, membership.py the rules (pure), etcd.py the client and wire.py its
words, generation.py what a worker process learns of it all.
"""
