"""SSH into a job's worker, without an open port: `ebb ssh`, and through it VS Code, scp and forwarded ports.

    ssh digits  ->  ProxyCommand `ebb ssh --stdio digits`  ->  exec through the API server  ->  server.py in the worker

authority.py   the keys by which this machine's OpenSSH knows that it speaks to the worker that was asked for
hosts.py       what OpenSSH is told of a job: options of one call, or an entry of its configuration
carrier.py     one connection, from here to the server that it starts in the worker
server.py      that server; it is sent to the worker and runs there
"""
