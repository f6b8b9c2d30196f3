"""Complete the lines that `dstui render --only code` prints to a script that runs and reports what happened.

The printed lines go between BEFORE and AFTER; the lines for later use (inference) become a separate script.
"""

from __future__ import annotations

from dstui.render.code_parts import LATER

LIGHTNING = "# ---- with Lightning"
BEFORE = """\
import torch
torch.set_num_threads(1)

def tiny(seed=0):
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(seed)
    config = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32, n_positions=16, bos_token_id=0, eos_token_id=0, tie_word_embeddings=False)
    config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = 0.0
    return GPT2LMHeadModel._from_config(config)

class ReturnsTheLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    def forward(self, batch):
        return torch.nn.functional.mse_loss(self.layers(batch["x"].to(self.layers[0].weight.dtype)).float(), batch["y"])

def build_model():
    return KIND()

def build_student():
    return KIND()

build_critic = build_teacher = build_student

def load_data():
    generator = torch.Generator().manual_seed(0)
    if KIND is ReturnsTheLoss:
        return [{"x": torch.randn(8, generator=generator), "y": torch.randn(1, generator=generator)} for _ in range(64)]
    ids = [torch.randint(0, 32, (8,), generator=generator) for _ in range(64)]
    return [{"input_ids": one, "labels": one.clone()} if TRAINS else {"input_ids": one} for one in ids]

def schedule(step):
    return 1 / (1 + step)

def loss_of(*outputs):
    return outputs[0] if isinstance(outputs[0], torch.Tensor) else outputs[0].loss

"""
AFTER = """

import json, os
import deepspeed
RANK = int(os.environ.get("RANK", 0))

def weights(model):
    parameters = list(model.parameters())
    with deepspeed.zero.GatheredParameters(parameters if hasattr(parameters[0], "ds_id") else []):
        return {name: value.detach().float().clone() for name, value in model.named_parameters()}

def tell(**what):
    if RANK == 0:
        print("TOLD", json.dumps(what), flush=True)

def engine_summary(engine):
    after = weights(engine.module)
    if RANK == 0:
        torch.save(after, "trained.pt")
    groups = engine.optimizer.param_groups
    return {"steps": engine.global_steps, "micro": engine.micro_steps, "lr": groups[0]["lr"], "stage": engine.zero_optimization_stage()}

"""
LOADED = """

import json
trained = torch.load("trained.pt")
before, after = dict(KIND().named_parameters()), {**dict(model.named_parameters())}
plain = {name.replace("base_model.model.", "").replace(".base_layer", ""): value for name, value in after.items()}
print("TOLD", json.dumps({
    "equal": sorted(after) == sorted(trained) and all(torch.equal(after[n].float(), trained[n]) for n in trained),
    "in the file": all(torch.equal(state_dict[n].float(), trained[n]) for n in trained),
    "changed": any(not torch.equal(plain[n], before[n]) for n in before) or any("lora_B" in n and value.any() for n, value in after.items()),
}))
"""


GPUS_ONLY = """
import lightning.pytorch.strategies.deepspeed as of_lightning
from lightning.pytorch.accelerators import CPUAccelerator
of_lightning.CUDAAccelerator = CPUAccelerator
CPUAccelerator.get_parallel_devices = staticmethod(lambda devices: [torch.device("cpu", index) for index in range(int(devices))])
import lightning.pytorch as pl

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = ReturnsTheLoss()
    def training_step(self, batch, _):
        return self.inner(batch)
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)

def build_lightning_module():
    pl.seed_everything(0)
    return Module()

"""
"""CPU devices in place of the GPUs that Lightning's strategy requires."""


def lightning_script(text: str, after: str) -> str:
    """Return the Lightning training script made of the printed code."""
    head = text.partition("\n\ndeepspeed.init_distributed()")[0]
    lines = text.partition(LIGHTNING)[2].partition("\n")[2]
    return BEFORE + "KIND, TRAINS = ReturnsTheLoss, True\n" + GPUS_ONLY + head + "\n" + lines + AFTER + after + "\n"


def scripts(text: str, after: str = "tell(**engine_summary(engine))", *, kind: str = "tiny", trains: bool = True) -> tuple[str, str]:
    """Return the training script and the script for later use; `after` reports the result of the training."""
    text = text.partition(LIGHTNING)[0]
    training, _, later = text.partition(LATER)
    before = BEFORE + f"KIND, TRAINS = {kind}, {trains}\n"
    return before + training + AFTER + after + "\n", before + later + LOADED
