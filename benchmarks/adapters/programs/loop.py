"""A loop of one's own on Accelerate: python loop.py OUTPUT"""

import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

from benchmarks.adapters.programs.data import EPOCHS, GLOBAL_BATCH, LONGEST, WORDS, Lines, batch
from ebb.elastic.adapters.accelerate import Elastic


def main(output: str) -> None:
    set_seed(0)
    accelerator = Accelerator(cpu=True, log_with=os.environ.get("REPORT_TO"))
    elastic = Elastic(accelerator, output=output, global_batch=GLOBAL_BATCH, epochs=EPOCHS)
    accelerator.init_trackers("programs")
    model = torch.nn.Sequential(torch.nn.Embedding(WORDS, 16), torch.nn.Flatten(), torch.nn.Linear(16 * LONGEST, WORDS))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    for tokens in elastic.batches(DataLoader(Lines(), batch_size=3, collate_fn=batch)):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(tokens["input_ids"]), tokens["input_ids"][:, 0])
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            accelerator.log({"loss": loss.item()}, step=elastic.step)
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), f"{output}/final.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
