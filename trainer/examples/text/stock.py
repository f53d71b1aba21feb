"""A stock script: torchrun --nproc-per-node=2 stock.py DATA"""

# mypy: disable-error-code="no-untyped-call,var-annotated"
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from trainer.text.decoder import SIZES, Decoder, losses
from trainer.text.windows import Windows


def main(data: str, epochs: int = 1, batch: int = 32) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    windows = Windows(Path(data) / "train.bin", context=64)
    sampler = DistributedSampler(windows)
    loader = DataLoader(windows, batch // dist.get_world_size(), sampler=sampler)
    model = DistributedDataParallel(Decoder(SIZES["tiny"]))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, targets, _ in loader:
            loss = losses(model(inputs), targets).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
            torch.save(model.module.state_dict(), "checkpoint.pth")


if __name__ == "__main__":
    main(sys.argv[1])
