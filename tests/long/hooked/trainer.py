"""Train with transformers' Trainer and gradient accumulation; rank 0 prints the mean over all ranks."""

import os

import deepspeed
import torch
import transformers

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
transformers.set_seed(0)
config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
data = [{"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)} for ids in torch.randint(0, 64, (64, 16))]


class Print(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"mine {float(logs['loss'])!r}", flush=True)


arguments = transformers.TrainingArguments(
    output_dir="out",
    deepspeed=os.environ["DSTUI_DS_CONFIG"],
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    max_steps=6,
    logging_steps=1,
    save_strategy="no",
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
)
transformers.Trainer(model=transformers.LlamaForCausalLM(config), args=arguments, train_dataset=data, callbacks=[Print()]).train()
