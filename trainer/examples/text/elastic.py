"""The same, elastic: python -m ebb.elastic.launch --nnodes=1:8 --nproc-per-node=2 ... elastic.py DATA"""

# mypy: disable-error-code="no-untyped-call,var-annotated"
import sys
from pathlib import Path

import torch

from ebb import elastic
from trainer.text.decoder import SIZES, Decoder, losses
from trainer.text.windows import Windows


def main(data: str, epochs: int = 1, batch: int = 32) -> None:
    with elastic.start(global_batch=batch, epochs=epochs, seed=0) as run:
        windows = Windows(Path(data) / "train.bin", context=64)
        model = run.distribute(Decoder(SIZES["tiny"]))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        run.register_state(model=model, optimizer=optimizer)
        for step in run.steps(run.loader(windows)):
            for inputs, targets, _ in step:
                loss = losses(model(inputs), targets).mean()
                step.backward(loss)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1])
