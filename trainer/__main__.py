"""`python -m trainer --data DIR --output DIR ...`: one worker; alone, or started by ebb.elastic.launch on every machine."""

import sys

from ebb.elastic import end_process
from trainer.images.train import main

if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
