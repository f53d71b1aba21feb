"""A stock script: torchrun --nproc-per-node=2 stock.py DATA"""

# mypy: disable-error-code="no-untyped-call,var-annotated"
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms


def main(data: str, epochs: int = 4, batch: int = 32) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    augmented = [transforms.RandomCrop(32, padding=4), transforms.ToTensor()]
    train_set = datasets.ImageFolder(f"{data}/train", transforms.Compose(augmented))
    val_set = datasets.ImageFolder(f"{data}/val", transforms.ToTensor())
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch // dist.get_world_size(), sampler=sampler, num_workers=2)
    model = DistributedDataParallel(models.resnet18(num_classes=len(train_set.classes)))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in train_loader:
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()
        model.eval()
        with torch.no_grad():
            right = sum((model.module(images).argmax(1) == labels).sum() for images, labels in DataLoader(val_set, 256))
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {right / len(val_set):.4f}", flush=True)
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, "checkpoint.pth")


if __name__ == "__main__":
    main(sys.argv[1])
