"""The proof of a cloud's stack without an account: the real Pulumi engine over providers that answer like it and do nothing.

    python -m testing.pulumi.mocks preview --stack dev     # what `pulumi up` of Pulumi.dev.yaml would make
    python -m testing.pulumi.mocks graph --stack dev       # the same as data and as a picture, in build/

Read in this order: engine.py (runs the engine; what tests use), server.py and package.py (the plugin processes), tabled.py with
rows.py and tables/ (what is known of each type of a cloud), aws.py with kind.py, gcp.py, azure.py (what a cloud's provider does
beside), wheel.py and models.py (values, by the SDK's classes and botocore's models), kubernetes.py, eks.py (the remote component
of pulumi_eks), command.py, docker_build.py; preview.py, graph.py and page.py are for people.

It can never touch a real stack: the plugins are outside PATH, want EBB_PULUMI_ECHO=1, and refuse every backend but a folder
under build/ of this checkout. They open no connection but the engine's.

Not proven by it, and left to a real account: that a cloud accepts a combination of values that its API allows (quotas, types that
a zone has not, names that are taken, permissions), what it changes by itself, how long anything takes, and replacements that the
tables get wrong: each says where its rules come from and which are derived.
"""
