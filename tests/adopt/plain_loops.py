"""Plain torch training loops in different styles, with the lines that show whether their conversion put every line in its place.

Each trains a tiny model on numbers derived from its seed, and prints `loss N` per micro-batch.
"""

from __future__ import annotations

from typing import NamedTuple


class Loop(NamedTuple):
    """A script, the lines that its converted text must have, the lines that must be gone, and words of the notes."""

    text: str
    has: tuple[str, ...]
    removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
x = torch.randn(64, 4)
dataset = TensorDataset(x, x.sum(1, keepdim=True))
"""
FLAT = (
    HEAD
    + """\
model = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(dataset, batch_size=4)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        print("loss", loss.item(), flush=True)
"""
)
FUNCTIONS = (
    HEAD
    + """\

def train(net, opt, loader):
    for inputs, targets in loader:
        opt.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        opt.step()
        print("loss", loss.item(), flush=True)


def main():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(params=model.parameters(), lr=1e-2)
    for _ in range(2):
        train(model, optimizer, DataLoader(dataset, batch_size=4))


if __name__ == "__main__":
    main()
"""
)
ACCUMULATED = (
    HEAD
    + """\
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
accumulate = 2
for step, (inputs, targets) in enumerate(DataLoader(dataset, batch_size=4)):
    loss = nn.functional.mse_loss(model(inputs), targets) / accumulate
    loss.backward()
    print("loss", loss.item(), flush=True)
    if (step + 1) % accumulate == 0:
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
"""
)
CLASS = (
    HEAD
    + """\
class Learner:
    def __init__(self):
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def fit(self, loader):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(self.model(inputs), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print("loss", loss.item(), flush=True)


loader = DataLoader(dataset, batch_size=4, shuffle=True)
Learner().fit(loader)
"""
)
SCALED = (
    HEAD
    + """\
model = nn.Linear(4, 1).to("cuda")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler()
for inputs, targets in DataLoader(dataset, 4, shuffle=True):
    with torch.autocast("cuda"):
        loss = nn.functional.mse_loss(model(inputs.to("cuda")), targets.to("cuda"))
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    print("loss", loss.item(), flush=True)
"""
)
SAVED = FLAT + 'torch.save(model.state_dict(), "model.pt")\n'
NORM = FLAT.replace(
    "        optimizer.step()\n", "        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()\n"
)
JOINED = (
    HEAD.replace(
        "import torch\n", "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
    )
    + """\
dist.init_process_group("gloo")
model = nn.Linear(4, 1)
model = DDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
sampler = torch.utils.data.DistributedSampler(dataset, shuffle=False)
for inputs, targets in DataLoader(dataset, batch_size=4, sampler=sampler):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), flush=True)
"""
)
ONLY_GUARD = ACCUMULATED.replace("        scheduler.step()\n", "").replace(
    "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)\n", ""
)
BY_HAND = (
    HEAD
    + """\
model = nn.Linear(4, 1); criterion = nn.MSELoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
i = 0
while i < 8:
    loss = criterion(model(x[i : i + 4]), x[i : i + 4].sum(1, keepdim=True))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print("loss", loss.item(), flush=True)
    i += 1
"""
)
INLINE = (
    HEAD.replace("import torch\n", "import argparse\nimport torch\n")
    + """\
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int, default=2)
args = parser.parse_args()
model = nn.Linear(4, 1); optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for inputs, targets in DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=args.batch_size):
    optimizer.zero_grad(); loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    print("loss", loss.item(), flush=True)
"""
)
MICRO_BATCHES = (
    HEAD
    + """\
def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


micro_batches = 1 * 2
model = nn.Linear(4, 1)
optimizer = make_optimizer(model)
batches = iter(DataLoader(dataset, batch_size=4))
for step in range(4):
    for _ in range(micro_batches):
        inputs, targets = next(batches)
        loss = nn.functional.mse_loss(model(inputs), targets) / micro_batches
        print("loss", loss.item(), flush=True)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
CHOICE = FLAT.replace(
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)\n",
    """groups = [{"params": [p for _, p in model.named_parameters()], "weight_decay": 0.01}]
if len(groups) > 1:
    optimizer = torch.optim.SGD(groups, lr=1e-2)
else:
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
options = {"batch_size": 4}
saved = {}
if saved:
    model.load_state_dict(saved)
    optimizer.load_state_dict(saved)
model = torch.compile(model, disable=True)
""",
).replace("batch_size=4)\nfor", "**options)\nfor")
VALUES = FLAT.replace(
    "        optimizer.step()\n", "        nn.utils.clip_grad_value_(model.parameters(), 1.0)\n        optimizer.step()\n"
)
GIVEN_TO_A_CLASS = (
    HEAD.replace("import torch\n", "import os\nimport torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n")
    + """\
class Trainer:
    def __init__(self, model, loader, optimizer):
        self.rank = int(os.environ["RANK"])
        self.model = model.to("cpu")
        self.loader = loader
        self.optimizer = optimizer
        self.criterion = nn.MSELoss()
        self.model = DDP(self.model)

    def run_batch(self, inputs, targets):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        print("loss", loss.item(), flush=True)

    def train(self):
        for inputs, targets in self.loader:
            self.run_batch(inputs, targets)


def main():
    if os.name == "nt":
        torch.distributed.init_process_group("gloo", use_libuv=False)
    else:
        torch.distributed.init_process_group("gloo")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler = torch.utils.data.DistributedSampler(dataset, shuffle=False)
    Trainer(model, DataLoader(dataset, batch_size=4, sampler=sampler), optimizer=optimizer).train()


if __name__ == "__main__":
    main()
"""
)
WRAPPED_APART = (
    HEAD.replace(
        "import torch\n",
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\n",
    )
    + """\
def run(shard):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW([{"params": model.parameters()}], lr=1e-2)
    wrapped = FSDP(model) if shard else DDP(model.to("cpu"))

    def train():
        for inputs, targets in DataLoader(dataset, batch_size=4):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(wrapped(inputs), targets)
            loss.backward()
            optimizer.step()
            print("loss", loss.item(), flush=True)

    train()
    print(sum(one.numel() for one in model.parameters()))


run(shard=False)
if __name__ == "__main__":
    print("trained")
"""
)
NAMED_PART = (
    HEAD
    + """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, inputs):
        return self.head(inputs)


model = Net()
optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-2)
accumulate = 4
accumulate //= 4
for inputs, targets in DataLoader(dataset, batch_size=4):
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item(), flush=True)
"""
)
INITIALIZED = 'model, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=os.environ["DSTUI_DS_CONFIG"])\n'
GONE = ("optimizer.step()", "zero_grad", "loss.backward()")
SAMPLED = "sampler=torch.utils.data.DistributedSampler(dataset, shuffle=False)"
LOOPS = {
    "flat": Loop(FLAT, (INITIALIZED, "        model.backward(loss)\n        model.step()\n", SAMPLED), GONE),
    "functions": Loop(
        FUNCTIONS, (f"    {INITIALIZED}", "        net.backward(loss)\n        net.step()\n", SAMPLED), (*GONE, "opt.step()")
    ),
    "accumulated": Loop(
        ACCUMULATED,
        (
            "    model.backward(loss, scale_wrt_gas=False)\n",
            "    model.step()  #",
            "    if (step + 1) % accumulate == 0:\n        scheduler.step()\n",
        ),
        GONE,
        ("16: the script accumulates", "gradient_accumulation_steps must be accumulate (2)", "the script keeps its scheduler"),
    ),
    "class": Loop(
        CLASS,
        (
            "        self.model, *_ = deepspeed.initialize(model=self.model, optimizer=self.optimizer,",
            "            self.model.backward(loss)\n",
            "shuffle=True)",
        ),
        ("self.optimizer.step()", "zero_grad"),
        ("set_epoch",),
    ),
    "scaled": Loop(
        SCALED,
        ("    model.backward(loss)\n    model.step()\n", "DistributedSampler(dataset, shuffle=True)"),
        ("scaler.step", "scaler.update", "unscale_", "clip_grad", "zero_grad"),
        ("DeepSpeed clips", "zero_allow_untested_optimizer", "autocast is kept"),
    ),
    "saved": Loop(SAVED, (INITIALIZED, 'torch.save(model.state_dict(), "model.pt")\n'), GONE, ("every rank saves here",)),
    "norm": Loop(
        NORM, ("        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        model.step()\n",), GONE, ("get_global_grad_norm",)
    ),
    "joined": Loop(
        JOINED, (INITIALIZED, "    model.backward(loss)\n"), ("DDP(model)", "init_process_group"), ("the script's own sampler",)
    ),
    "only guard": Loop(ONLY_GUARD, ("    model.step()  #",), (*GONE, "if (step")),
    "tabs": Loop(FUNCTIONS.replace("    ", "\t"), (f"\t{INITIALIZED}", "\t\tnet.backward(loss)\n\t\tnet.step()\n"), (*GONE, "opt.step()")),
    "inline": Loop(
        INLINE,
        (
            "train_dataset = TensorDataset(x, x.sum(1, keepdim=True))\nfor inputs, targets in DataLoader(train_dataset, ",
            "sampler=torch.utils.data.DistributedSampler(train_dataset, shuffle=False)",
            "    loss = nn.functional.mse_loss(model(inputs), targets)\n    model.backward(loss); model.step()\n",
        ),
        GONE,
    ),
    "micro-batches": Loop(
        MICRO_BATCHES,
        (
            "        model.backward(loss, scale_wrt_gas=False)\n        model.step()  #",
            f"optimizer = make_optimizer(model)\n{INITIALIZED}",
        ),
        GONE,
        ("gradient_accumulation_steps must be micro_batches (2)", "the class of the optimizer is not seen"),
    ),
    "choice": Loop(
        CHOICE,
        (
            'DataLoader(dataset, **{**options, "shuffle": False, "sampler": torch.utils.data.DistributedSampler(dataset, '
            'shuffle=options.get("shuffle", False))})',
            f"disable=True)\n{INITIALIZED}",
            "        model.backward(loss)\n        model.step()\n",
        ),
        GONE,
        ("set_epoch", "DeepSpeed knows no SGD", "DeepSpeed keeps the optimizer's state"),
    ),
    "given to a class": Loop(
        GIVEN_TO_A_CLASS,
        (
            "        self.criterion = nn.MSELoss()\n        self.model, *_ = deepspeed.initialize(model=self.model, optimizer=self.optimizer,",
            "        self.model.backward(loss)\n        self.model.step()\n",
            'if os.name == "nt":\n        pass\n    else:\n        pass\n',
        ),
        ("self.optimizer.step()", "zero_grad", "DDP(", "init_process_group("),
        ("the script's own sampler",),
    ),
    "wrapped apart": Loop(
        WRAPPED_APART,
        (
            'wrapped = model if shard else model.to("cpu")\n    wrapped, *_ = deepspeed.initialize(model=wrapped, optimizer=optimizer,',
            "            wrapped.backward(loss)\n            wrapped.step()\n",
            "deepspeed.init_distributed()\n\ntorch.manual_seed",
        ),
        (*GONE, "FSDP(", "DDP("),
    ),
    "named part": Loop(NAMED_PART, (INITIALIZED, "    model.backward(loss)\n    model.step()\n", SAMPLED), GONE),
    "values": Loop(VALUES, (INITIALIZED,), (*GONE, "clip_grad_value_"), ("16: DeepSpeed clips the norm of all gradients",)),
    "by hand": Loop(BY_HAND, ("model.backward(loss); model.step()",), GONE, ("no DataLoader",)),
}
