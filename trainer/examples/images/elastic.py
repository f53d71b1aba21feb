"""The same, elastic: python -m ebb.elastic.launch --nnodes=1:8 --nproc-per-node=2 ... elastic.py DATA"""

# mypy: disable-error-code="no-untyped-call,var-annotated"
import sys

import torch
from torch.nn.functional import cross_entropy
from torchvision import datasets, models, transforms

from ebb import elastic


def main(data: str, epochs: int = 4, batch: int = 32) -> None:
    with elastic.start(global_batch=batch, epochs=epochs, seed=0) as run:
        augmented = [transforms.RandomCrop(32, padding=4), transforms.ToTensor()]
        train_set = datasets.ImageFolder(f"{data}/train", transforms.Compose(augmented))
        val_set = datasets.ImageFolder(f"{data}/val", transforms.ToTensor())
        train_loader = run.loader(train_set, workers=2)
        model = run.distribute(models.resnet18(num_classes=len(train_set.classes)))
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        run.register_state(model=model, optimizer=optimizer, schedule=schedule)
        for step in run.steps(train_loader):
            for images, labels in step:
                loss = cross_entropy(model(images), labels)
                step.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if step.ends_epoch:
                schedule.step()
                found = run.evaluate(val_set, lambda batch: {"accuracy": (model(batch[0]).argmax(1) == batch[1]).sum()})
                run.log(f"epoch {step.epoch}: accuracy {found['accuracy']:.4f}")
                run.best(found["accuracy"])


if __name__ == "__main__":
    main(sys.argv[1])
