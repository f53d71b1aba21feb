"""`python -m trainer.images -a resnet50 -b 32 /mnt/data/imagenet`: one worker; alone, or started by ebb.elastic.launch."""

import sys

from ebb.elastic import end_process
from trainer.images.options import parse
from trainer.images.train import main

if __name__ == "__main__":
    end_process(main(sys.argv[1:], parse))
