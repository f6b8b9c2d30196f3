"""Import the command of a framework (llamafactory-cli, axolotl, swift): it is kept, with the DeepSpeed file that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dstui.adopt.command_line import CommandLine
from dstui.adopt.dsconfig import read_dsconfig
from dstui.adopt.model_options import model_section
from dstui.adopt.new_plan import Imported, doubts, plan_text
from dstui.adopt.script_options import options_of, options_of_yamls
from dstui.adopt.sizes_in_options import is_on

YAML = (".yaml", ".yml")
NAMES_CONFIG = re.compile(r"""(?m)^deepspeed(?:_config(?:_file)?)?[ \t]*:[ \t]*(['"]?)(?P<path>[^\s'"#]+)\1[ \t]*(?:\#.*)?$""")
"""The keys with which the YAML of a framework names its DeepSpeed file."""
SWIFTS = {"tuner_type": "lora", "gradient_checkpointing": "true"}
DEFAULTS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("swift", "sft"): SWIFTS,
    ("swift", "rlhf"): SWIFTS,
    ("llamafactory-cli", "train"): {"finetuning_type": "lora", "gradient_checkpointing": "true", "cutoff_len": "2048"},
}
"""Command of a framework -> defaults of its options that a forecast rests on (swift/arguments, llamafactory/hparams)."""
BUILT_IN = re.compile(r"(?:deepspeed_)?zero(?P<stage>[0-3])(?P<offload>_offload)?")
"""The configurations that swift, xtuner and trl have by name."""


def plan_of_framework(line: CommandLine, source: str, read_named: Callable[[str], str | None]) -> Imported:
    """Return the Plan of a framework's command. Raises ConfigError."""
    notes, config = list(line.notes), dict[str, Any]()
    program = line.script if line.launcher == "python" else line.launcher
    name = next(_config_files(line.command, read_named), None)
    name = name or next((word for word in line.command if word.endswith(YAML) and read_named(word) is None), None)
    if name is not None and (built_in := BUILT_IN.fullmatch(name)) and read_named(name) is None:
        config = _built_in_configuration(int(built_in["stage"]), offload=bool(built_in["offload"]))
        notes.append(f"{name} is built into {program}: the deepspeed section has its ZeRO stage for the checks, edits do not change it")
    elif name is not None and (text := read_named(name)) is not None:
        read = read_dsconfig(text)
        config = read.config
        notes.append(f"{program} reads {name} itself: the deepspeed section has a copy for the checks, edits do not change the file")
        notes += doubts(read, name)
    elif name is not None:
        notes.append(f"{name} does not exist here: {program} will read it itself, and its content is unknown")
    options = {**DEFAULTS.get(line.command[:2], {}), **options_of_yamls(line.command, read_named), **options_of(line.command)}
    if is_on(options, "disable_gradient_checkpointing"):
        options["gradient_checkpointing"] = "false"
    model, about = model_section(options, line.folder)
    notes += about
    job: dict[str, Any] = {"command": list(line.command), "workdir": line.folder, "integration": "trainer"}
    cluster = {"env": dict(line.env)} if line.env else {}
    sections = {"job": {key: value for key, value in job.items() if value}, "model": model, "cluster": cluster, "deepspeed": config}
    return Imported(plan_text(source, sections, notes), notes)


def _built_in_configuration(stage: int, *, offload: bool) -> dict[str, Any]:
    """Return the configuration that the built-in ones of frameworks have in common; "auto" is filled from the command."""
    zero: dict[str, Any] = {"stage": stage}
    if offload:
        zero |= {key: {"device": "cpu"} for key in ("offload_optimizer", "offload_param")[: stage - 1]}
    precision = {name: {"enabled": "auto"} for name in ("bf16", "fp16")}
    sizes = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    return {**precision, "zero_optimization": zero, **dict.fromkeys(sizes, "auto")}


def _config_files(command: tuple[str, ...], read_named: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the DeepSpeed files that a command names in its words or its YAML; for built-in ones (`zero2`) only the name."""
    for at, word in enumerate(command):
        option, equals, value = word.partition("=")
        given = value if equals else next(iter(command[at + 1 : at + 2]), "")
        if option.lstrip("-") in ("deepspeed", "deepspeed_config") and option != word[:1]:
            if given and not given.startswith("-"):
                yield given
        elif option == "--accelerate_config" and BUILT_IN.fullmatch(given):
            yield given
        elif word.endswith(YAML) and (text := read_named(word)) is not None and (named := NAMES_CONFIG.search(text)):
            yield named["path"]
