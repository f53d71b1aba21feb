"""etcd, where the workers meet: certificates.py says who may, alarm.py warns people when it refuses writes, maintenance.py keeps
it small, legacy.py makes the folders that torch's own rendezvous cannot keep in an etcd 3.5."""
