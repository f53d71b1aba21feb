"""The launcher with another program in the place of its burn-in's children: with_burn_in.py COMMAND launcher's arguments..."""

import json
import sys

from ebb.elastic.launch import __main__ as launcher
from ebb.elastic.launch import burn_in

if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    burn_in.COMMAND = json.loads(command) or burn_in.COMMAND
    sys.argv = [launcher.__file__, *arguments]
    sys.exit(launcher.main(arguments))
