"""`python -m ebb.cli`: the command `ebb` where no script of that name is on the PATH, as for a ProxyCommand of OpenSSH."""

from ebb.cli import main

main()
