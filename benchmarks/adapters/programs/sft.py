"""Supervised fine-tuning with TRL and LoRA: python sft.py OUTPUT BASE. BASE is a model in Hugging Face's layout."""

import os
import sys
import time
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer

from benchmarks.adapters.programs.data import BATCH_SECONDS, EPOCHS, GLOBAL_BATCH, texts
from ebb.elastic.adapters.huggingface import make_elastic


class Slow(TrainerCallback):
    """So that machines can come and go between steps."""

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        time.sleep(2 * BATCH_SECONDS)


def main(output: str, base: str) -> None:
    arguments = SFTConfig(
        output,
        per_device_train_batch_size=3,
        num_train_epochs=EPOCHS,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to=os.environ.get("REPORT_TO", "none"),
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        max_length=16,
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(base),
        args=arguments,
        train_dataset=Dataset.from_list(texts()),
        processing_class=PreTrainedTokenizerFast.from_pretrained(base),
        callbacks=[Slow()],
        peft_config=LoraConfig(r=4, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    make_elastic(trainer, global_batch=GLOBAL_BATCH)
    trainer.train()
    if trainer.is_world_process_zero():
        adapters = {name: each for name, each in trainer.model.state_dict().items() if "lora" in name}
        torch.save(adapters, f"{output}/final.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
