"""A tiny Llama with random weights and a tokenizer trained on the spot, in Hugging Face's layout: python base.py FOLDER"""

import sys

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from benchmarks.adapters.programs.data import WORDS


def main(folder: str) -> None:
    set_seed(0)
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{number}": number for number in range(3, WORDS)}}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))  # noqa: S106  # a word of the vocabulary
    tokenizer.pre_tokenizer = Whitespace()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, **shape, **special)).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
