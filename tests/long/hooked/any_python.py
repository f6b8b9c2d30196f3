"""Train with the fake modules of without_torch/ for 1.5 seconds, then ask for stacks, fork, and exec another program."""

import json
import os
import sys
import time
import warnings
from pathlib import Path

import deepspeed
import torch

warnings.simplefilter("ignore")  # about the fork below
engine, *_ = deepspeed.initialize(torch.Module(), {"train_batch_size": 1})
began = time.time()
while time.time() - began < 1.5:
    loss = engine(float(engine.global_steps))
    engine.backward(loss)
    engine.step()
    time.sleep(0.0005)  # a thread that waits for the GIL gets it
print("steps", engine.global_steps, flush=True)
folder = sys.argv[1] + "/engine/rank_0"
os.kill(os.getpid(), json.loads(Path(folder + ".json").read_text())["signal"])
print("stacks", "any_python.py" in Path(folder + ".stacks").read_text(), flush=True)
if os.fork() == 0:
    engine.step()
    sys.exit(0)
os.wait()
os.execv(sys.executable, [sys.executable, "-c", "import os; print('became', 'DSTUI_HOOK' in os.environ, os.environ.get('PYTHONPATH'))"])
