"""`python -m trainer --data DIR --output DIR ...`: one worker; alone, or started by trainer.launch on every machine."""

import sys

from trainer.run.edge import end_process
from trainer.vision.train import main

if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
