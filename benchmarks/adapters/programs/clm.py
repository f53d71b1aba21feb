"""Causal language modelling with Hugging Face's Trainer, as transformers' run_clm.py does it: python clm.py OUTPUT"""

import os
import sys

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from benchmarks.adapters.programs.data import EPOCHS, GLOBAL_BATCH, WORDS, batch, lines
from ebb.elastic.adapters.huggingface import make_elastic


def main(output: str) -> None:
    set_seed(0)
    shape = {
        "vocab_size": WORDS,
        "n_positions": 16,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = GPT2LMHeadModel(GPT2Config(**shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    arguments = TrainingArguments(
        output,
        per_device_train_batch_size=3,
        num_train_epochs=EPOCHS,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to=os.environ.get("REPORT_TO", "none"),
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Dataset.from_list(lines()), data_collator=batch)
    make_elastic(trainer, global_batch=GLOBAL_BATCH)
    trainer.train()
    if trainer.is_world_process_zero():
        torch.save(model.state_dict(), f"{output}/final.pt")


if __name__ == "__main__":
    main(sys.argv[1])
