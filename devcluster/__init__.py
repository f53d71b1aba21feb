"""The development cluster: a real Kubernetes on one Linux machine, whose machines are network namespaces.

`python -m devcluster --help` says what it does. Read in this order: settings.py (one box), control_plane/, machines/,
cloud/ (the autoscaler and the reclaims), pulumi/ (the engine where the official one cannot be had).
"""
