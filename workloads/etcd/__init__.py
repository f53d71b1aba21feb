"""etcd, where the workers meet: alarm.py tells people when it refuses writes, maintenance.py keeps it small."""
