"""A pasted launch as a Plan: the launcher's options under `cluster:`, the script under `job:`, the configuration that it names read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dstui.adopt.command_line import CommandLine
from dstui.adopt.dsconfig import ConfigError, read_dsconfig
from dstui.adopt.from_accelerate import Given, plan_of_accelerate
from dstui.adopt.new_plan import Imported, plan_text, suited
from dstui.adopt.script import CONFIG, OPTIONS, ScriptFacts
from dstui.limits import MAX_SLOTS
from dstui.plan.accelerate_keys import DEFAULT_CONFIG, PLUGIN, TOP, AccelerateKey
from dstui.plan.launchers import LAUNCHERS
from dstui.plan.parallelism import PARALLELISM
from dstui.plan.scalars import resolve

ReadNamed = Callable[[str], str | None]
"""The text of a file that a command names; None where it cannot be read."""
CLUSTER = ("hostfile", "include", "exclude", "num_nodes", "num_gpus", "master_addr", "master_port")
"""Options of the deepspeed launcher that are keys of `cluster:`."""


def plan_of_command(line: CommandLine, source: str, read_named: ReadNamed, facts: ScriptFacts | None = None) -> Imported:
    """The Plan of a launch. Raises ConfigError."""
    notes = list(line.notes)
    args, config, reader = _configuration(line, read_named, notes)
    job = {"module" if line.module else "script": line.script, "args": args}
    if line.launcher == "accelerate":
        return _accelerate(line, source, read_named, job, notes)
    cluster = _of_deepspeed(line, notes) if line.launcher == "deepspeed" else _of_torchrun(line, notes)
    if line.env:
        cluster["env"] = dict(line.env)
    for path, value in suited(reader, facts, builds="optimizer" in config).items():
        section, _, name = path.partition(".")
        (job if section == "job" else cluster)[name] = value
    job = {name: value for name, value in job.items() if value}
    return Imported(plan_text(source, {"job": job, "cluster": cluster, "deepspeed": config}, notes), notes)


def _configuration(line: CommandLine, read_named: ReadNamed, notes: list[str]) -> tuple[list[str], dict[str, Any], str]:
    """The script's arguments with the configuration's path made a placeholder, the configuration, and who seems to read it."""
    args, config, reader = list(line.args), dict[str, Any](), "deepspeed"
    for at, word in enumerate(args):
        option, equals, value = word.partition("=")
        if option not in OPTIONS or not (value if equals else args[at + 1 : at + 2]):
            continue
        name = value if equals else args[at + 1]
        if name.startswith("-") or not name.endswith((".json", ".hjson")):
            continue
        text = read_named(name)
        if text is None:
            notes.append(f"{name} is not here: the deepspeed section is to be filled from it")
        else:
            read = read_dsconfig(text)
            config, reader = _spelled(text, read.config), read.integration
        args[at : at + (1 if equals else 2)] = [f"{option}={CONFIG}"] if equals else [option, CONFIG]
        return args, config, "trainer" if option == "--deepspeed" and reader == "deepspeed" and not config else reader
    return args, config, reader


def _spelled(text: str, config: dict[str, Any]) -> dict[str, Any]:
    """The same values with the spelling of their numbers, where the text is strict JSON."""
    try:
        found = json.loads(text, parse_int=resolve, parse_float=resolve)
    except ValueError:
        return config
    return found if isinstance(found, dict) else config


def _of_deepspeed(line: CommandLine, notes: list[str]) -> dict[str, Any]:
    """The deepspeed launcher's options; those without a key of their own are kept as they were typed."""
    found: dict[str, Any] = {}
    for name, value in line.options.items():
        if name in CLUSTER and isinstance(value, str):
            found[name] = resolve(value) if value.isdecimal() else value
        elif name == "launcher" and str(value).lower() in LAUNCHERS:
            found["launcher"] = str(value).lower()
        elif name == "bind_cores_to_rank":
            found["cpu_binding"] = "deepspeed"
        elif name == "no_ssh":
            found["launcher"] = "nossh"
        elif name == "node_rank":
            notes.append(f"--node_rank {value} is left out: the Plan is one for all hosts, and each gets its own")
        else:
            found.setdefault("launcher_args", []).extend([f"--{name}"] if value is True else [f"--{name}", str(value)])
    return found


def _of_torchrun(line: CommandLine, notes: list[str]) -> dict[str, Any]:
    """torchrun's options, said as DeepSpeed's launcher has them."""
    found: dict[str, Any] = {}
    options = {**line.options}
    ranks, nodes = options.pop("nproc_per_node", None), str(options.pop("nnodes", "1"))
    endpoint, _, port = str(options.pop("rdzv_endpoint", "")).partition(":")
    address, port = str(options.pop("master_addr", endpoint)), str(options.pop("master_port", port))
    if isinstance(ranks, str) and ranks.isdecimal() and 1 <= int(ranks) <= MAX_SLOTS:
        found["hosts" if nodes == "1" else "num_gpus"] = {"localhost": int(ranks)} if nodes == "1" else int(ranks)
    if nodes != "1":
        notes.append(f"--nnodes {nodes}: torchrun is told on each host which one it is; write their names under cluster.hosts")
        found |= {"master_addr": address} if address and "$" not in address else {}
    if port.isdecimal() and 1 <= int(port) <= 65535:
        found["master_port"] = int(port)
    notes += [
        f"--{name} is torchrun's own and is left out: DeepSpeed's launcher starts the ranks" for name in options if name != "standalone"
    ]
    return found


def _accelerate(line: CommandLine, source: str, read_named: ReadNamed, job: Mapping[str, Any], notes: list[str]) -> Imported:
    """`accelerate launch`: its YAML, over which its options win."""
    options = {**line.options}
    name = options.pop("config_file", None)
    if name is None and read_named(DEFAULT_CONFIG) is not None:
        name = DEFAULT_CONFIG
        notes.append(f"without --config_file accelerate takes its {DEFAULT_CONFIG} from its cache, and so does this Plan")
    text = read_named(str(name)) if name is not None else None
    if name is not None and text is None:
        notes.append(f"{name} is not here: the command's own options are all that is known")
    parallel = {name: resolve(str(options.pop(name))) for name in list(options) if name.startswith(f"{PARALLELISM}_")}
    if options.pop(f"use_{PARALLELISM}", False):
        notes.append(
            f"--use_{PARALLELISM}: accelerate refuses it on the command line without --use_fsdp; "
            f"here, and in its YAML, the section {PARALLELISM} says the same"
        )
    flags = {
        option: _value(value, PLUGIN.get(option) or TOP[option]) for option, value in options.items() if option in PLUGIN or option in TOP
    }
    if options.pop("use_deepspeed", False) or text is None:
        flags["distributed_type"] = "DEEPSPEED"
        if text is None and not line.options.get("use_deepspeed"):
            notes.append(
                "neither a YAML nor --use_deepspeed: accelerate would take its default_config.yaml; this Plan trains with DeepSpeed"
            )
    notes += [f"--{option} has no key in an accelerate YAML and is left out" for option in options if option not in flags]
    given = Given(job, flags, line.env, tuple(notes), parallel)
    try:
        return plan_of_accelerate(text or "distributed_type: DEEPSPEED\n", source, given, read_named)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}", error.line, error.column) from None


def _value(value: str | bool, key: AccelerateKey) -> Any:
    """An option's text as the value that the YAML would hold."""
    if value is True or key.kind == "bool":
        return value if value is True else str(value).lower() == "true"
    found = resolve(str(value)) if key.kind in ("int", "number") else value
    return found
