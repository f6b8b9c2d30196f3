"""Train a small layer in one of several unusual ways, named by the argument, and print the losses."""

import math
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import deepspeed
import torch

deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
KIND = next(word.partition("=")[2] for word in sys.argv if word.startswith("kind="))
torch.manual_seed(0)


def config() -> dict:
    optimizer = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    found = {"train_micro_batch_size_per_gpu": 2, "optimizer": optimizer, "zero_optimization": {"stage": 1}}
    if KIND == "hybrid":
        found["hybrid_engine"] = {"enabled": True}
    return found


class OwnEngine(deepspeed.DeepSpeedEngine):
    """An engine of the script's own, made without deepspeed.initialize."""

    def step(self, *args: object, **kwargs: object) -> None:
        super().step(*args, **kwargs)


def make_engine() -> deepspeed.DeepSpeedEngine:
    model = torch.nn.Linear(8, 8)
    if KIND == "subclass":
        deepspeed.init_distributed()
        judged = deepspeed.DeepSpeedConfig(config())
        return OwnEngine(args=None, model=model, model_parameters=model.parameters(), config=config(), config_class=judged)
    if KIND == "compile":
        model = torch.compile(model, backend="eager")
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config())[0]


def train() -> None:
    for step in range(5):
        for engine in engines:
            out = engine(torch.ones(2, 8) * (step + 1))
            if KIND == "nan":
                out = out * (math.nan if step == 2 else math.inf if step == 3 else 1.0)
            loss = out.pow(2).mean() if KIND != "vector" else out.pow(2).mean(dim=1)
            if KIND == "vector":
                engine.backward(loss.sum())
            else:
                engine.backward(loss)
            engine.step()
            print(f"mine {loss.mean().item()!r}", flush=True)
        if step == 2:
            disturb()


def disturb() -> None:
    """Do, after the third step, what this kind does to the hook."""
    if KIND == "gone" and os.environ["RANK"] == "0":
        shutil.rmtree(sys.argv[-1])
    elif KIND == "kill" and os.environ["RANK"] == "1":
        while '"step": 3' not in Path(sys.argv[-1]).read_text():  # its line was written
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    elif KIND == "fork":
        child = os.fork()
        if not child:
            engines[0](torch.ones(2, 8))
            os._exit(0)  # after sys.exit, gloo itself ends by SIGSEGV in a forked child
        assert os.waitpid(child, 0)[1] == 0
        assert sum(batch.sum() for batch in torch.utils.data.DataLoader(list(range(8)), num_workers=2)) == 28
    elif KIND == "exec":
        os.execvp("python", ["python", "-c", "print('another program')"])


engines = [make_engine() for _ in range(2 if KIND == "several" else 1)]
if KIND == "thread":
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
else:
    train()
