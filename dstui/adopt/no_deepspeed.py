"""Detect programs that train without DeepSpeed: a plain torch loop, or Lightning's Trainer with another strategy. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from dstui.adopt.program import ScriptProgram
from dstui.adopt.pycode import Call, Code
from dstui.base.dataclass import dataclass

LIGHTNING = ("lightning", "pytorch_lightning")
LIGHTNING_TRAINER = re.compile(r"\.Trainer(?:\.from_argparse_args)?$")
ENGINE = re.compile(
    r"deepspeed(?:$|\.(?!add_config_arguments$|init_distributed$|comm\b|ops\b|utils\b|zero\b|checkpointing\b|get_accelerator))"
)
"""Names of deepspeed that may train, excluding helpers and those that only prepare a model."""
WITHOUT_ACCELERATOR = frozenset(
    {
        "cpu_offload",
        "disk_offload",
        "dispatch_model",
        "find_executable_batch_size",
        "get_balanced_memory",
        "get_logger",
        "infer_auto_device_map",
        "init_empty_weights",
        "init_on_device",
        "load_checkpoint_and_dispatch",
        "load_checkpoint_in_model",
        "set_seed",
    }
)
"""Functions of accelerate that need no Accelerator: a script with nothing else of it does not train with accelerate."""
OPTIMIZER = re.compile(
    r"(?:torch\.optim|bitsandbytes\.optim|bnb\.optim|apex\.optimizers|deepspeed\.ops\.\w+|transformers|lion_pytorch|torch_optimizer)"
    r"\.(?:\w+\.)?(?!lr_scheduler)[A-Z]\w*$"
)
NOT_ONE = re.compile(r"lr_scheduler|Scheduler|\.Optimizer$|^transformers\.(?!AdamW$|Adafactor$|optimization\.A)")
TRAINERS = re.compile(
    r"(?:accelerate|trl)(?:\.|$)|transformers\.(?:.*\.)?(?:\w*Trainer|\w*TrainingArguments|trainer|integrations|deepspeed)\b"
)
"""Calls that train instead of a loop."""
TOGETHER = re.compile(r"(?:^|\.)(?:DistributedDataParallel|DDP|FullyShardedDataParallel|FSDP|fully_shard)$")
"""Calls that synchronise the ranks of a plain torch loop."""
BY_HAND = re.compile(r"(?:^torch\.distributed|^dist)\.(?:all_reduce|reduce_scatter\w*|all_gather(?!_object)\w*|reduce)$")
"""Calls with which a script may average gradients itself."""
HIDDEN = re.compile(
    r"importlib\.import_module$|__import__$|runpy\.run_\w+$|exec$|eval$|os\.(?:system|popen|exec\w+|spawn\w+|posix_spawn\w*)$"
    r"|subprocess\.(?:run|call|check_call|check_output|Popen)$"
)
"""Calls that may run arbitrary other code."""
HARMLESS = ("git", "nvidia-smi", "hostname", "tar", "unzip", "wget", "curl", "mkdir", "rm", "cp", "df", "free", "lscpu")
"""Programs that start no training."""


@dataclass(frozen=True, slots=True)
class WithoutDeepSpeed:
    """A training without DeepSpeed."""

    what: Literal["torch", "joined", "lightning"]
    """A loop with independent ranks; one whose ranks torch synchronises; Lightning's Trainer."""
    why: str
    """The line that shows it."""
    doubt: str = ""
    """The parts that could not be read, so that DeepSpeed may be used there; empty if it is certain."""


def without_deepspeed(program: ScriptProgram) -> WithoutDeepSpeed | None:
    """Return what trains in a program without DeepSpeed; None if something may use DeepSpeed, or nothing is known to train."""
    code = program.code
    if any(ENGINE.match(name) and name != "deepspeed" for name in code.names) or any(map(_may_train, code.used)):
        return None
    if any(_may_train(name) for name in code.names if not name.startswith("transformers")):
        return None
    trainer = next((call for call in code.calls if call.name.partition(".")[0] in LIGHTNING and LIGHTNING_TRAINER.search(call.name)), None)
    doubt = next((f"{code.place(line)} {what}" for line, what in sorted(_hidden(program))), "")
    if trainer is not None:
        return (
            None
            if _deepspeed_strategies(code)
            else WithoutDeepSpeed("lightning", f"{code.place(trainer.node.lineno)}: Lightning's Trainer", doubt)
        )
    backward = next((call for call in code.calls if call.name.rpartition(".")[2] == "backward"), None)
    if backward is None or "torch" not in {name.partition(".")[0] for name in code.names}:
        return None
    if backward.node.args:
        doubt = doubt or f"{code.place(backward.node.lineno)} gives the loss to backward() of an object that is not known"
    joined = next(((name, line) for name, line in code.names.items() if name in code.used and _joins(name)), None)
    if joined:
        return WithoutDeepSpeed("joined", f"{code.place(joined[1])}: {joined[0]}", doubt)
    return WithoutDeepSpeed("torch", f"{code.place(backward.node.lineno)}: {ast.unparse(backward.node)[:60]}", doubt)


def _steps_torch_optimizer(code: Code) -> bool:
    """Return whether the code steps an optimizer of torch that it builds itself, so that no engine of an unknown package trains instead."""
    if any("deepspeed" in text.lower() for text in (*code.texts, *code.names)):
        return False
    names = {id(call.node): call.name for call in code.calls}
    built, before = set[str](), -1

    def is_built(value: ast.expr) -> bool:
        if isinstance(value, ast.IfExp):
            return is_built(value.body) and is_built(value.orelse)
        if isinstance(value, ast.Call):
            return is_optimizer(names[id(value)])
        return isinstance(value, (ast.Name, ast.Attribute)) and ast.unparse(value) in built

    while len(built) > before:  # self.optimizer = optimizer
        before = len(built)
        for name in code.assigned.keys() - code.unpacked - built:
            values = [one for one in code.assigned[name] if not (isinstance(one, ast.Constant) and one.value is None)]
            if values and all(map(is_built, values)):
                built.add(name)
    stepped = {
        ast.unparse(one)
        for call in code.calls
        if isinstance(method := call.node.func, ast.Attribute) and method.attr == "step"
        for one in (method.value, *call.node.args)  # scaler.step(optimizer)
    }
    return not built.isdisjoint(stepped)


def is_optimizer(name: str) -> bool:
    """Return whether the full name of a class is that of an optimizer."""
    return OPTIMIZER.match(name) is not None and not NOT_ONE.search(name)


def _may_train(name: str) -> bool:
    """Return whether a name may be that of a Trainer, or of accelerate's part in a training."""
    return TRAINERS.match(name) is not None and not (name.startswith("accelerate.") and name.rpartition(".")[2] in WITHOUT_ACCELERATOR)


def deepspeed_strategy(call: Call) -> bool:
    """Return whether a call gives Lightning's Trainer a strategy named after DeepSpeed."""
    value = call.value("strategy")
    return isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.startswith("deepspeed")


def _deepspeed_strategies(code: Code) -> bool:
    return any("DeepSpeed" in name for name in code.names) or any(map(deepspeed_strategy, code.calls))


def _joins(name: str) -> bool:
    return TOGETHER.search(name) is not None or BY_HAND.search(name) is not None


def _hidden(program: ScriptProgram) -> Iterator[tuple[int, str]]:
    """Yield calls that may use DeepSpeed out of sight: the line, and a few words."""
    yield from program.unread
    if not _steps_torch_optimizer(program.code):
        yield from program.foreign
    for call in program.code.calls:
        if HIDDEN.match(call.name) and not _harmless(call):
            yield call.node.lineno, f"calls {call.name}()"
        if LIGHTNING_TRAINER.search(call.name) is None:
            continue
        strategy = call.value("strategy")
        if strategy is not None and not isinstance(strategy, ast.Constant):
            yield call.node.lineno, "takes a strategy that is not written there"
        if not call.name.endswith(".Trainer") or any(keyword.arg is None for keyword in call.node.keywords):
            yield call.node.lineno, "takes arguments that are not written there"


def _harmless(call: Call) -> bool:
    """Return whether a program that is started by name starts no training."""
    first = call.node.args[0] if call.node.args else None
    if isinstance(first, (ast.List, ast.Tuple)) and first.elts:
        first = first.elts[0]
    words = first.value.split() if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
    return bool(words) and words[0].rpartition("/")[2] in HARMLESS
