"""The rehearsal's job: says if torch sees its GPU, and then holds the machine until that is reclaimed or a while has passed."""

import sys
import time

import torch

print("torch.cuda.is_available():", torch.cuda.is_available(), flush=True)
print("torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
time.sleep(60 * float(sys.argv[1]))
