"""What a user would start with torchrun, knowing nothing of us: the ranks meet, and step until a file appears."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
total = torch.tensor([1])
dist.all_reduce(total)
line = f"{os.environ['RANK']} {int(total)} {os.getpid()}\n"
(folder / f"world-{os.getpid()}").write_text(line)
done = torch.zeros(1)
while not done:
    time.sleep(0.05)
    done.fill_(dist.get_rank() == 0 and (folder / "finish").exists())
    dist.broadcast(done, 0)
(folder / f"finished-{os.getpid()}").touch()
dist.destroy_process_group()
