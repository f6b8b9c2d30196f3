"""Import a launch command: the launcher's options go under `cluster:`, the script under `job:`, its configuration is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dstui.adopt.command_line import GPUS, CommandLine
from dstui.adopt.dsconfig import ConfigError, read_dsconfig
from dstui.adopt.from_accelerate import Given, plan_of_accelerate
from dstui.adopt.from_framework import plan_of_framework
from dstui.adopt.literal_configuration import about_literal
from dstui.adopt.model_options import model_section, names_model
from dstui.adopt.new_plan import Imported, doubts, plan_text, suited
from dstui.adopt.rank_starters import cluster_of_starter
from dstui.adopt.script import ScriptFacts
from dstui.adopt.script_options import options_of, options_of_yamls
from dstui.base.limits import MAX_SLOTS
from dstui.plan.accelerate_keys import DEFAULT_CONFIG, PARALLELISM, PLUGIN, TOP, AccelerateKey
from dstui.plan.handed_over import CONFIG, CONFIG_FILES, CONFIG_OPTIONS
from dstui.plan.holes import HOLE
from dstui.plan.launchers import LAUNCHERS
from dstui.plan.scalars import resolve

ReadNamed = Callable[[str], str | None]
"""Returns the text of a file that a command names; None if it cannot be read."""
ACCELERATES_OWN = {"config_file", "use_deepspeed", "deepspeed_config_file", "zero_stage", "deepspeed_hostfile"}
"""Options of `accelerate launch` that configure DeepSpeed directly."""
STARTERS = re.compile(r"verl\..+|openrlhf\.cli\.\w+_ray|(?:axolotl|swift)\.cli\.main|trl\.cli(?:\.main)?|llamafactory\.cli")
"""Modules of frameworks that start their ranks themselves."""
OWN_KEY, MAX_BEFORE_KEY = '"zero_optimization"', 20_000
"""The key that only a DeepSpeed configuration has, and the characters in which it is looked for."""
OWN = "with its own configuration"
"""The end of what shows that a script builds its configuration."""
LOCAL = ("localhost", "127.0.0.1", "0.0.0.0", "::1")
OF_EACH_HOST = "is left out: one Plan is for all hosts, and each gets its own"
USE_DEEPSPEED = "ACCELERATE_USE_DEEPSPEED"
"""The variable with which `accelerate launch` makes accelerate use DeepSpeed."""
CLUSTER = ("hostfile", "include", "exclude")
NUMBERS = ("num_nodes", "num_gpus", "master_port")
"""Options of the deepspeed launcher that are keys of `cluster:`, as is master_addr."""


def plan_of_command(line: CommandLine, source: str, read_named: ReadNamed, facts: ScriptFacts | None) -> Imported:
    """Return the Plan of a launch. Raises ConfigError."""
    line = _with_own_ranks(line, facts)
    if line.command:
        return plan_of_framework(line, source, read_named)
    notes = list(line.notes)
    args, config, reader = _configuration(line, read_named, notes)
    options = {**options_of_yamls(line.args, read_named), **options_of(line.args)}
    if facts is not None and facts.model and not names_model(options):
        options["model_name_or_path"] = facts.model
        notes.append(f"model.source is {facts.model}: {facts.model_why} of {line.script}")
    model, about = model_section(options, line.folder, line.script)
    notes += about
    job: dict[str, Any] = {"module" if line.module else "script": line.script, "args": args, "workdir": line.folder, "python": line.python}
    if facts is not None and not facts.finds and facts.why.endswith(OWN) and not reader:
        notes.append(f"{line.script} has its DeepSpeed configuration in itself ({facts.why}): change it there")
        if line.launcher != "accelerate":
            config = json.loads(facts.configuration.text) if facts.configuration.complete else config
            notes += about_literal(facts.configuration)
    absent = _absent_yaml(line, read_named)
    if absent:
        notes.append(f"{absent} does not exist here: accelerate will read it itself, and its content is unknown")
        reader = "accelerate"
    elif line.launcher == "accelerate" and (not reader or (ACCELERATES_OWN - {"use_deepspeed"}) & line.options.keys()):
        if reader:  # with --use_deepspeed alone, that is the whole configuration
            job["args"] = list(line.args)
            notes.append(
                f"{line.script} itself reads the configuration that its arguments name: "
                "the deepspeed section is that of accelerate, and edits do not change the file"
            )
        return _accelerate(line, source, read_named, {"job": job, "model": model}, notes)
    cluster = OPTIONS_OF[line.launcher](line, notes)
    if env := {**line.env, **cluster.pop("env", {})}:
        cluster["env"] = env
    if absent:
        facts = None  # whatever reads the configuration gets it from accelerate
        if (count := line.options.get("num_processes")) is not None:
            cluster["launcher_args"] += ["--num_processes", str(count)]  # overrides the YAML
    for path, value in _settings(line, reader, facts, notes, builds="optimizer" in config).items():
        section, _, name = path.partition(".")
        if section == "job" or line.launcher not in ("torchrun", "accelerate"):  # these give no rank --local_rank
            of_launch = cluster.get(name, ()) if name == "launcher_args" else ()
            (job if section == "job" else cluster)[name] = [*of_launch, *value] if of_launch else value
    job = {name: value for name, value in job.items() if value}
    return Imported(plan_text(source, {"job": job, "model": model, "cluster": cluster, "deepspeed": config}, notes), notes)


def _with_own_ranks(line: CommandLine, facts: ScriptFacts | None) -> CommandLine:
    """Return the launch; as a whole command if python starts a program that is known to start the ranks itself."""
    found = facts.starts_ranks if facts is not None else ""
    if line.module and STARTERS.fullmatch(line.script):
        found = found or "a module of a framework"
    if line.launcher != "python" or not found:
        return line
    words = ("python", *(("-m",) if line.module else ()), line.script, *line.args)
    return replace(
        line, command=words, notes=(*line.notes, f"{line.script} starts its ranks itself ({found}): the Plan runs the command as it is")
    )


def _settings(line: CommandLine, reader: str, facts: ScriptFacts | None, notes: list[str], *, builds: bool) -> dict[str, Any]:
    """Return the settings that the Plan needs for the script. Nothing makes accelerate use DeepSpeed that the launch does not."""
    found = suited(reader or "deepspeed", facts, builds=builds)
    if not reader and found.get("job.integration") == "accelerate" and USE_DEEPSPEED not in line.env:
        del found["job.integration"]
        notes.append(
            f"{line.script} uses accelerate, which {line.launcher} does not tell to use DeepSpeed: this launch trains without it, "
            "and so does the Plan (job.integration: accelerate changes that)"
        )
    return found


def _absent_yaml(line: CommandLine, read_named: ReadNamed) -> str:
    """Return the YAML that `accelerate launch` names if it cannot be read here; else ""."""
    name = line.options.get("config_file") if line.launcher == "accelerate" else None
    return name if isinstance(name, str) and read_named(name) is None else ""


def _configuration(line: CommandLine, read_named: ReadNamed, notes: list[str]) -> tuple[list[str], dict[str, Any], str]:
    """Return the script's arguments with a placeholder for the configuration's path, the configuration, and its likely reader.

    The reader is "" if no argument names a configuration.
    """
    args = list(line.args)
    for at, option, equals, name in _files_in_options(args, read_named):
        text = read_named(name)
        if text is None:
            notes.append(f"{name} does not exist here: the script will read it itself, and its content is unknown")
            return args, {}, "trainer" if option == "--deepspeed" else "deepspeed"
        read = read_dsconfig(text)
        notes += doubts(read, name)
        args[at : at + (1 if equals else 2)] = [f"{option}={CONFIG}"] if equals else [option, CONFIG]
        return args, read.config, read.integration
    return args, {}, ""


def _files_in_options(args: list[str], read_named: ReadNamed) -> Iterator[tuple[int, str, str, str]]:
    """Yield the options that name a DeepSpeed configuration: those of the usual names, then any whose file is one.

    A file with "auto" in an option of another name is left alone: the script fills it in before DeepSpeed reads it.
    """
    found = list[tuple[int, str, str, str]]()
    for at, word in enumerate(args):
        option, equals, value = word.partition("=")
        name = value if equals else next(iter(args[at + 1 : at + 2]), "")
        if option.startswith("--") and not name.startswith("-") and name.endswith(CONFIG_FILES):
            found.append((at, option, equals, name))
    yield from (one for one in found if one[1] in CONFIG_OPTIONS)
    for one in found:
        text = (read_named(one[3]) or "")[:MAX_BEFORE_KEY] if one[1] not in CONFIG_OPTIONS else ""
        if OWN_KEY in text and '"auto"' not in text:
            yield one


def _deepspeed_options(line: CommandLine, notes: list[str]) -> dict[str, Any]:
    """Convert the options of the deepspeed launcher; those without a key of their own are kept as typed."""
    found: dict[str, Any] = {}
    for name, value in line.options.items():
        if value == GPUS:
            notes.append(f"--{name} is the number of GPUs (nvidia-smi, device_count): left out, which is every GPU of the machine")
        elif name in NUMBERS and isinstance(value, str):
            _number(found, name, name, value, notes)
        elif name == "master_addr" and isinstance(value, str):
            _address(found, value, notes)
        elif name == "hostfile" and line.hosts:
            found["hosts"] = dict(line.hosts)
        elif name in CLUSTER and isinstance(value, str):
            found[name] = value
        elif name == "launcher" and str(value).lower() in LAUNCHERS:
            found["launcher"] = str(value).lower()
        elif name == "bind_cores_to_rank":
            found["cpu_binding"] = "deepspeed"
        elif name == "no_ssh":
            found["launcher"] = "nossh"
        elif name == "node_rank":
            notes.append(f"--node_rank {value} {OF_EACH_HOST}")
        else:
            found.setdefault("launcher_args", []).extend([f"--{name}"] if value is True else [f"--{name}", str(value)])
    return found


def _torchrun_options(line: CommandLine, notes: list[str]) -> dict[str, Any]:
    """Convert torchrun's options. It stays the launcher."""
    found: dict[str, Any] = {"launcher": "torchrun"}
    options = {**line.options}
    least, _, most = str(options.pop("nnodes", "1")).partition(":")
    nodes = least if most in ("", least) else f"{least}:{most}"
    ranks = options.pop("nproc_per_node", "1")
    options.pop("standalone", None)  # how ranks of one machine meet anyway
    if options.pop("use_env", False):
        notes.append("--use_env is left out: torchrun always passes on the local rank this way")
    if options.pop("pass_local_rank", False):
        notes.append(
            "torch.distributed.launch adds --local-rank=N to the script's arguments, torchrun does not: the script has to read LOCAL_RANK"
        )
    several = nodes != "1"
    _ranks(found, "nproc_per_node", ranks, notes, several=several)
    if several:
        _number(found, "num_nodes", "nnodes", nodes, notes)
    _rendezvous(found, options, notes, several=several)
    for name, value in options.items():
        found.setdefault("launcher_args", []).extend([f"--{name}"] if value is True else [f"--{name}", str(value)])
    return found


def _rendezvous(found: dict[str, Any], options: dict[str, str | bool], notes: list[str], *, several: bool) -> None:
    """Convert the rendezvous: to keys of the cluster, or for several machines as typed."""
    address, port, rank = (str(options.pop(name, "")) for name in ("master_addr", "master_port", "node_rank"))
    if not several:
        endpoint = str(options.pop("rdzv_endpoint", ""))
        host, _, own = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
        port = port or (own if host in LOCAL and own != "0" else "")
        dropped = [f"--{name}" for name in ("rdzv_backend", "rdzv_id") if options.pop(name, None) is not None]
        if host and host not in LOCAL:
            notes.append(f"{', '.join([*dropped, '--rdzv_endpoint'])} left out: ranks of one host meet without")
    if rank not in (("",) if several else ("", "0")):
        notes.append(f"--node_rank {rank} {OF_EACH_HOST}")
    if address and not (address in LOCAL and not several):
        _address(found, address, notes)
    if port == "0":
        notes.append("--master_port 0, which lets torchrun take a free port, is left out")
    elif port:
        _number(found, "master_port", "master_port", port, notes)


def _ranks(found: dict[str, Any], option: str, value: str | bool, notes: list[str], *, several: bool) -> None:
    """Convert the ranks per host; all GPUs if the launch says so."""
    if value == GPUS:
        notes.append(f"--{option} is the number of GPUs (nvidia-smi, device_count): left out, which is every GPU of the machine")
    elif value not in ("gpu", "auto") and _number({}, "num_gpus", option, str(value), notes):
        found["num_gpus" if several else "hosts"] = int(str(value)) if several else {"localhost": int(str(value))}


def _address(found: dict[str, Any], value: str, notes: list[str]) -> None:
    """Convert the address where the ranks meet; note one that is still open, which no key accepts."""
    if HOLE.search(value):
        notes.append(f"--master_addr {value} is open: write the address under cluster.master_addr; without it, the first host is taken")
    else:
        found["master_addr"] = value


def _number(found: dict[str, Any], key: str, option: str, value: str, notes: list[str]) -> bool:
    """Convert a number that a Plan accepts; otherwise note its option and key."""
    if value.isdecimal() and 1 <= int(value) <= (65535 if key == "master_port" else MAX_SLOTS):
        found[key] = int(value)
        return True
    notes.append(f"--{option} {value} is open: write the number under cluster.{key}")
    return False


def _accelerate_options(line: CommandLine, notes: list[str]) -> dict[str, Any]:
    """Convert `accelerate launch` of a script that gets its DeepSpeed configuration as an argument."""
    found: dict[str, Any] = {"launcher": "accelerate"}
    options = {**line.options}
    machines = str(options.pop("num_machines", "1"))
    if machines != "1":
        _number(found, "num_nodes", "num_machines", machines, notes)
    if (processes := options.pop("num_processes", None)) is not None and _number({}, "hosts", "num_processes", str(processes), notes):
        each = int(str(processes)) // (int(machines) if machines.isdecimal() else 1)
        found |= {"hosts": {"localhost": each}} if machines == "1" else {"num_gpus": each}
    for option, key in (("main_process_ip", "master_addr"), ("main_process_port", "master_port")):
        if (value := options.pop(option, None)) is not None:
            found[key] = resolve(str(value)) if str(value).isdecimal() else value
    if (rank := str(options.pop("machine_rank", "0"))) != "0":
        notes.append(f"--machine_rank {rank} {OF_EACH_HOST}")
    for name, value in options.items():
        if name != "multi_gpu":
            found.setdefault("launcher_args", []).extend([f"--{name}"] if value is True else [f"--{name}", str(value)])
    return found


def _python_options(line: CommandLine, notes: list[str]) -> dict[str, Any]:
    """Return the ranks that a starter in front of python starts; note that the Plan otherwise starts one on every GPU."""
    if line.starter:
        return cluster_of_starter(line.starter, notes)
    notes.append("python starts one process, this Plan one on every GPU: for a single one write `hosts: {localhost: 1}` under cluster")
    return {}


OPTIONS_OF: Mapping[str, Callable[[CommandLine, list[str]], dict[str, Any]]] = {
    "deepspeed": _deepspeed_options,
    "torchrun": _torchrun_options,
    "accelerate": _accelerate_options,
    "python": _python_options,
}
"""Launcher -> the function that converts its options to `cluster:`."""


def _accelerate(line: CommandLine, source: str, read_named: ReadNamed, sections: Mapping[str, Any], notes: list[str]) -> Imported:
    """Convert `accelerate launch` with its YAML, which its options override. `sections`: job and model of the command."""
    options = {**line.options}
    name = options.pop("config_file", None)
    if name is None and read_named(DEFAULT_CONFIG) is not None:
        name = DEFAULT_CONFIG
        notes.append(f"without --config_file accelerate takes its {DEFAULT_CONFIG} from its cache, and so does this Plan")
    text = read_named(str(name)) if name is not None else None
    parallel = {name: resolve(str(options.pop(name))) for name in list(options) if name.startswith(f"{PARALLELISM}_")}
    if options.pop(f"use_{PARALLELISM}", False):
        notes.append(
            f"--use_{PARALLELISM}: accelerate refuses it on the command line without --use_fsdp; "
            f"here, and in its YAML, the section {PARALLELISM} has the same effect"
        )
    flags = {
        option: _value(value, PLUGIN.get(option) or TOP[option]) for option, value in options.items() if option in PLUGIN or option in TOP
    }
    if flags.get("num_processes") == GPUS:
        del flags["num_processes"], options["num_processes"]
        notes.append("--num_processes is the number of GPUs (nvidia-smi, device_count): write it under cluster.hosts, or leave the file's")
    if options.pop("use_deepspeed", False) or text is None:
        flags["distributed_type"] = "DEEPSPEED"
        if text is None and not line.options.get("use_deepspeed"):
            notes.append(
                "neither a YAML nor --use_deepspeed: accelerate would take its default_config.yaml; this Plan trains with DeepSpeed"
            )
    left = {option: value for option, value in options.items() if option not in flags}
    given = Given(sections["job"], flags, line.env, tuple(notes), _only_accelerates(left), parallel, sections["model"])
    try:
        return plan_of_accelerate(text or "distributed_type: DEEPSPEED\n", source, given, read_named)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}", error.line, error.column) from None


def _only_accelerates(options: Mapping[str, str | bool]) -> dict[str, Any]:
    """Return options that no YAML has. With one of them, accelerate itself must be the launcher."""
    words = [word for name, value in options.items() for word in ([f"--{name}"] if value is True else [f"--{name}", str(value)])]
    return {"launcher": "accelerate", "launcher_args": words} if words else {}


def _value(value: str | bool, key: AccelerateKey) -> Any:
    """Convert an option's text to the value that the YAML would have."""
    if value is True or key.kind == "bool":
        return value if value is True else str(value).lower() == "true"
    found = resolve(str(value)) if key.kind in ("int", "number") else value
    return found
