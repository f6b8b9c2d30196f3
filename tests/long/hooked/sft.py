"""Train with trl's SFTTrainer on generated texts; rank 0 prints the mean over all ranks."""

import os

import datasets
import deepspeed
import pyarrow
import tokenizers
import transformers
import trl

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
transformers.set_seed(0)
words = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(61))])}
model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
rows = [[words[f"w{(n * k) % 61}"] for k in range(1, 13)] for n in range(1, 49)]
data = datasets.Dataset(datasets.table.InMemoryTable(pyarrow.table({"input_ids": rows})), fingerprint="made")
config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)


class Print(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"mine {float(logs['loss'])!r}", flush=True)


arguments = trl.SFTConfig(
    output_dir="out",
    deepspeed=os.environ["DSTUI_DS_CONFIG"],
    per_device_train_batch_size=2,
    max_steps=6,
    logging_steps=1,
    save_strategy="no",
    use_cpu=True,
    bf16=False,
    report_to=[],
    disable_tqdm=True,
    max_length=16,
    dataset_kwargs={"skip_prepare_dataset": True},
)
trl.SFTTrainer(
    model=transformers.LlamaForCausalLM(config), args=arguments, train_dataset=data, processing_class=tokenizer, callbacks=[Print()]
).train()
