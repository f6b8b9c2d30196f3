"""Recipes: Plans for one script on one machine, from the fastest to the one for the largest model. Pure.

The cost of each is a rule of thumb for Adam in mixed precision and only for the model's states: 16 bytes per parameter, which ZeRO's stages
divide among the GPUs (arXiv:1910.02054, section 5; arXiv:2101.06840 for host RAM). Activations come on top.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

import yaml

from dstui.adopt.literal_configuration import LiteralConfiguration, about_literal
from dstui.adopt.script import ScriptFacts
from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.machine.snapshot import Gpu, Machine, known
from dstui.plan.scalars import yaml_scalar

ROOM = 0.7
"""Share of the memory for the model's states. The rest is for activations, buffers and fragmentation."""


@dataclass(frozen=True, slots=True)
class Script:
    """A training script. One with an optimizer needs none in the configuration."""

    name: str
    facts: ScriptFacts
    has_optimizer: bool = False
    model: str = ""
    """The hub id or the folder of its model, if the script names one."""
    needs: Mapping[str, float] = field(default_factory=dict)
    """Keys of the configuration whose values a plain loop decides, such as its batch size."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Plan to start from: its title, its cost on this machine, and its text."""

    name: str
    speed: str
    """Its relative speed, in a word or two."""
    says: str
    text: str


@dataclass(frozen=True, slots=True)
class Way:
    """A distribution of the model's states. `gpu`: bytes per parameter on each of n GPUs; `host`: bytes per parameter in host RAM."""

    name: str
    zero: tuple[str, ...]
    gpu: Callable[[int], float]
    host: float
    speed: str


WAYS = (
    Way("ZeRO-1", ("stage: 1",), lambda n: 4 + 12 / n, 0, "fastest"),
    Way("ZeRO-2", ("stage: 2",), lambda n: 2 + 14 / n, 0, "as fast, mostly"),
    Way("ZeRO-3", ("stage: 3",), lambda n: 16 / n, 0, "1.5x traffic"),
    Way("ZeRO-2, optimizer in RAM", ("stage: 2", "offload_optimizer: {device: cpu, pin_memory: true}"), lambda n: 2 + 2 / n, 16, "slower"),
    Way(
        "ZeRO-3, all in RAM",
        ("stage: 3", "offload_optimizer: {device: cpu, pin_memory: true}", "offload_param: {device: cpu, pin_memory: true}"),
        lambda _n: 0.5,
        18,
        "slowest",
    ),
)
"""From fast to large. One that allows no larger model than an earlier one is left out."""
OWN = ("its own configuration", "as it is", "a copy of what the script passes to DeepSpeed itself")
"""The first recipe for a script with a literal configuration, which takes no other unless it is changed."""
ON_CPU = Way("2 ranks on the CPU", ("stage: 2",), lambda _n: 0, 16, "slow: to see it run")
"""For machines without a GPU."""


def recipes(script: Script, machine: Machine) -> list[Recipe]:
    """Return the recipes for a script on a machine, the fastest first."""
    gpus = [gpu for gpu in machine.gpus if gpu.problem is None]
    own = script.facts.configuration
    first = [Recipe(*OWN, _text(script, WAYS[0] if gpus else ON_CPU, "bf16", own))] if own.complete else []
    if not gpus:
        return [*first, Recipe(ON_CPU.name, ON_CPU.speed, ON_CPU.speed, _text(script, ON_CPU, "bf16"))]
    room = ROOM * min(known(gpu.memory_total, 0) for gpu in gpus)
    ram = ROOM * known(machine.host.memory, 0)
    precision = "bf16" if all(map(_has_bf16, gpus)) else "fp16"
    return first + [
        Recipe(way.name, way.speed, f"{way.speed}; to {billions(most)}", _text(script, way, precision))
        for way, most in _choices(len(gpus), room, ram)
    ]


def _choices(gpus: int, room: float, ram: float) -> Iterator[tuple[Way, float]]:
    """Yield the ways that fit, each with the largest number of parameters."""
    largest = 0.0
    for way in WAYS:
        most = min(room / way.gpu(gpus), ram / way.host if way.host else float("inf"))
        if most > 1.05 * largest:
            largest = most
            yield way, most


OLDER = re.compile(r"\b(?:[VPKM]\d{2,3}|T4|P4|GTX|TITAN|Quadro|RTX[ -]?(?:20\d\d|[4568]000)(?!.*Ada))\b")
"""Names of GPUs before compute capability 8.0, for machines that were pasted or named: they lack the capability."""


def _has_bf16(gpu: Gpu) -> bool:
    if isinstance(gpu.compute_capability, str):
        return float(gpu.compute_capability) >= 8
    return not OLDER.search(known(gpu.name, ""))


def billions(parameters: float) -> str:
    """Format a number of parameters."""
    if parameters < 1e9:
        return f"{parameters / 1e6:.2g}M parameters" if parameters < 99e6 else f"{parameters / 1e6:.0f}M parameters"
    return f"{parameters / 1e9:.2g}B parameters" if parameters < 99e9 else f"{parameters / 1e9:.0f}B parameters"


def _builds_its_own(script: Script) -> bool:
    """Return whether the script builds its optimizer: by its code, else by the word "optimizer" in it."""
    return script.facts.optimizer == "script" or (script.facts.optimizer is None and script.has_optimizer)


def _precision(script: Script, precision: str, cpu: bool) -> list[str]:
    """Return the lines of the 16-bit type. A plain loop feeds float32, which a model with 16-bit weights refuses."""
    if script.facts.without is None:
        return [f"  {precision}: {{enabled: {'auto' if script.facts.integration == 'trainer' else 'true'}}}"]
    if cpu:
        return []
    return ["  torch_autocast: {enabled: true, dtype: bfloat16}" if precision == "bf16" else "  fp16: {enabled: true, auto_cast: true}"]


def _text(script: Script, way: Way, precision: str, own: LiteralConfiguration | None = None) -> str:
    """Return the text of the Plan."""
    facts, cpu = script.facts, way is ON_CPU
    trainer = facts.integration == "trainer"  # the Trainer's own arguments fill in "auto", and conflict with other values
    size = "auto" if trainer else 1
    words = [*facts.suggested_args, *([f"--{precision}", *(["--use_cpu"] if cpu else [])] if trainer and facts.suggested_args else [])]
    args = ", ".join(f'"{word}"' if "{" in word else word for word in words)
    torch_adam = ", torch_adam: true" if cpu else ""  # DeepSpeed's own CPU Adam would be compiled first
    offloads_its_own = facts.optimizer == "script" and facts.integration == "deepspeed" and any("offload_opt" in line for line in way.zero)
    strict = facts.refuses_local_rank and facts.reader != "accelerate"
    cluster = [*(["  cpu_ranks: 2"] if cpu else []), *(["  launcher_args: [--no_local_rank]"] if strict else [])]
    lines = [
        f"# {OWN[0] if own else way.name}, made by dstui for {sanitise(script.name)}",
        "version: 1",
        f"name: {yaml_scalar(script.name.rpartition('/')[2].removesuffix('.py'))}",
        "job:",
        f"  script: {yaml_scalar(script.name)}",
        *([f"  args: [{args}]"] if args else []),
        *([f"  integration: {facts.reader}"] if facts.reader else []),
        *(["  optimizer: script"] if facts.optimizer == "script" or facts.reader != facts.integration else []),
        *(["cluster:", *cluster] if cluster else []),
        *([f"model: {{source: {yaml_scalar(script.model)}}}"] if script.model else []),
        *(f"# {one}" for one in (about_literal(own) if own else ())),
        "deepspeed:",
        f"  train_micro_batch_size_per_gpu: {script.needs.get('train_micro_batch_size_per_gpu', size)}",
        f"  gradient_accumulation_steps: {script.needs.get('gradient_accumulation_steps', size)}",
        f"  gradient_clipping: {'auto' if trainer else script.needs.get('gradient_clipping', 1.0)}",
        *_precision(script, precision, cpu),
        "  zero_optimization:",
        *(f"    {line}" for line in way.zero),
        *(["  zero_force_ds_cpu_optimizer: false"] if offloads_its_own else []),
        *(["  zero_allow_untested_optimizer: true"] if script.needs.get("zero_allow_untested_optimizer") else []),
        *([] if trainer or _builds_its_own(script) else [f"  optimizer: {{type: AdamW, params: {{lr: 1e-4{torch_adam}}}}}"]),
    ]
    if own:
        section = yaml.safe_dump(json.loads(own.text), sort_keys=False, default_flow_style=False, allow_unicode=True)
        lines[lines.index("deepspeed:") + 1 :] = textwrap.indent(section, "  ").splitlines()
    return "\n".join(lines) + "\n"
