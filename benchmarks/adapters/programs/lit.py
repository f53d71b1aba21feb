"""A LightningModule: python lit.py OUTPUT"""

import os
import sys

import lightning as L
import torch
from torch.utils.data import DataLoader

from benchmarks.adapters.programs.data import EPOCHS, GLOBAL_BATCH, LONGEST, WORDS, Lines, batch
from ebb.elastic.adapters.lightning import fit, trainer_options


class Model(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Embedding(WORDS, 16), torch.nn.Flatten(), torch.nn.Linear(16 * LONGEST, WORDS)
        )

    def training_step(self, batch: dict[str, torch.Tensor], _number: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.network(batch["input_ids"]), batch["input_ids"][:, 0])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.Adam(self.parameters(), 1e-3)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main(output: str) -> None:
    L.seed_everything(0)
    logger = L.pytorch.loggers.WandbLogger(offline=True, save_dir=output) if os.environ.get("REPORT_TO") else False
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        default_root_dir=output,
        accelerator="cpu",
        logger=logger,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        **trainer_options(),
    )
    model = Model()
    fit(trainer, model, DataLoader(Lines(), batch_size=3, collate_fn=batch), global_batch=GLOBAL_BATCH)
    if trainer.is_global_zero:
        torch.save(model.state_dict(), f"{output}/final.pt")


if __name__ == "__main__":
    main(sys.argv[1])
