"""`python -m trainer.vision -a resnet50 -b 32 /mnt/data/imagenet`: one worker; alone, or started by trainer.launch."""

import sys

from trainer.run.edge import end_process
from trainer.vision.options import parse
from trainer.vision.train import main

if __name__ == "__main__":
    end_process(main(sys.argv[1:], parse))
