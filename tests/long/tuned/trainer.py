"""Train with transformers' Trainer and its own argument parser."""

import deepspeed
import torch
import transformers

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
(arguments,) = transformers.HfArgumentParser(transformers.TrainingArguments).parse_args_into_dataclasses(
    ["--use_cpu", "--max_steps", "10000", "--report_to", "none", "--disable_tqdm", "true", *__import__("sys").argv[1:]]
)
transformers.set_seed(0)
config = transformers.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
data = [{"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)} for ids in torch.randint(0, 64, (512, 32))]
transformers.Trainer(model=transformers.LlamaForCausalLM(config), args=arguments, train_dataset=data).train()
