"""The first lines of a worker in an image that is not ours: `python3 FOLDER/python ...`, with the launcher's arguments.

Any Python 3 of the last ten years can read this file, so that one that is too old says so in a sentence.
"""

import os
import runpy
import sys
from pathlib import Path

OLDEST = (3, 9)
EXIT_NO_PROGRAM = 78  # of ebb/elastic/contract.py: no machine and no other try could start it


def main() -> int:
    if sys.version_info < OLDEST:
        sys.stderr.write(
            f"ebb: the image's Python is {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable}), and Ebb's launcher "
            "needs 3.9 or newer: take an image with such a Python, or name another one of this image, as in "
            "`-- /opt/conda/bin/python train.py`\n"
        )
        return EXIT_NO_PROGRAM
    here = str(Path(__file__).resolve().parent)
    # After the folder where the program starts, as `python -m` has it; what the workers start finds `ebb` as well.
    sys.path[:1] = [str(Path.cwd()), here]
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    runpy.run_module("ebb.elastic.launch", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
