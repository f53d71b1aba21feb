"""The launcher on a machine that seems to have GPUs: with_gpus.py FOLDER SILENT_SECONDS TEST_PROGRAM launcher's arguments..."""

import sys
from pathlib import Path

from ebb.elastic.launch import __main__ as launcher
from ebb.elastic.launch import hardware_check

if __name__ == "__main__":
    folder, silent, program, *arguments = sys.argv[1:]
    (Path(folder) / "nvidia0").touch()
    hardware_check.DEVICES = Path(folder)
    hardware_check.SILENT_SECONDS = float(silent)
    hardware_check.COMMAND = (sys.executable, "-c", program)
    sys.argv = [launcher.__file__, *arguments]
    sys.exit(launcher.main(arguments))
