"""A training script as a stock example has it: DDP, a DistributedSampler, a checkpoint at the end of each epoch. It knows
nothing of us, catches nothing, and writes a line per epoch to <folder>/epochs: "epoch world last-loss pid".
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, STEP_SECONDS = 12, 0.1


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
    sampler: DistributedSampler[torch.Tensor] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)

    epoch, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        epoch = saved["epoch"]
        model.load_state_dict(saved["model"])
    while epoch < EPOCHS:
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            time.sleep(STEP_SECONDS)
        epoch += 1
        if rank == 0:
            part = checkpoint.with_suffix(".part")
            torch.save({"epoch": epoch, "model": model.state_dict()}, part)
            part.replace(checkpoint)
            with (folder / "epochs").open("a") as lines:
                lines.write(f"{epoch} {dist.get_world_size()} {loss.item():.5f} {os.getpid()}\n")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
