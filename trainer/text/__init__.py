"""Language models: a Llama-style decoder, for pretraining and for LoRA fine-tuning of Llama's own weights.

corpus.py    files of tokens: one's own texts, or a corpus that any machine can make by itself
windows.py   fixed-length windows of them, addressed by sample number
decoder.py   the network
weights.py   weights as Hugging Face stores them
lora.py      adapters beside frozen weights, as PEFT stores them
flops.py     model FLOP utilisation
train.py     the program, on the public API
"""
