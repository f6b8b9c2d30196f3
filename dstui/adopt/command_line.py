"""A command that starts training, pasted as text: `deepspeed …`, `accelerate launch …`, `torchrun …`. Pure: text in, words out.

A shell script may stand around it: lines are joined at their backslashes, assignments are put in where they are used.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dstui.adopt.dsconfig import ConfigError

SWITCHES: Mapping[str, frozenset[str]] = {
    "deepspeed": frozenset(
        (
            *("no_python", "no_local_rank", "module", "m", "no_ssh", "no_ssh_check", "force_multi", "save_pid", "elastic_training"),
            "bind_cores_to_rank",
        )
    ),
    "accelerate": frozenset(
        (
            *("cpu", "multi_gpu", "tpu", "ipex", "module", "m", "no_python", "debug", "quiet", "q", "use_deepspeed", "use_fsdp"),
            *("use_parallelism_config", "use_megatron_lm", "use_xpu", "same_network", "enable_cpu_affinity", "tpu_use_cluster"),
            *("no_tpu_cluster", "tpu_use_sudo", "dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation"),
            *("standalone", "use_mps_device"),
        )
    ),
    "torchrun": frozenset(("standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank")),
}
"""Launcher -> its options that take no value. Every other option takes one."""
SHORT = {"H": "hostfile", "i": "include", "e": "exclude", "m": "module", "num_accelerators": "num_gpus"}
ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::[-=][^}]*)?\}|(\w+))")
PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
LAUNCHER = re.compile(r"(?:.*/)?(?:deepspeed|accelerate|torchrun|python[\d.]*)")
WRAPPERS = ("srun", "nohup", "time", "exec", "env", "sudo")
"""Commands that start the command after them."""
MODULES = {
    **dict.fromkeys(("torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **dict.fromkeys(("accelerate.commands.launch",), "accelerate"),
    **dict.fromkeys(("deepspeed.launcher.runner", "deepspeed"), "deepspeed"),
}
"""What `python -m` starts -> the launcher that it is."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A launch, taken apart."""

    launcher: str
    """deepspeed, accelerate, torchrun, or python where there is none."""
    options: Mapping[str, str | bool]
    """The launcher's options, without dashes and with `_` for `-`."""
    script: str
    module: bool
    args: tuple[str, ...]
    """What the script gets: everything after it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that stand before the command, or were exported."""
    notes: tuple[str, ...] = ()


def is_command(text: str) -> bool:
    """Whether a text holds a command that starts training."""
    return next(_launches(text), None) is not None


def read_command(text: str) -> CommandLine:
    """The first launch in a text. Raises ConfigError where there is none."""
    commands = list(_launches(text))
    if not commands:
        raise ConfigError("no command that starts training: deepspeed …, accelerate launch …, torchrun … or python train.py")
    launcher, words, env, shell = commands[0]
    notes = [f"of {len(commands)} launches in the text the first is taken"] if len(commands) > 1 else []
    options, rest, module = _options(launcher, words)
    if not rest:
        raise ConfigError(f"the command names no script: {launcher} … SCRIPT ARGUMENTS")
    unfilled = sorted({match[1] or match[2] for word in words for match in VARIABLE.finditer(word)})
    notes += [f"${name} is a variable that nothing here fills: write its value" for name in unfilled]
    notes += [f"{shell!r} was the shell's, and is left out"] if shell else []
    return CommandLine(launcher, options, rest[0], module, tuple(rest[1:]), env, tuple(notes))


def _launches(text: str) -> Iterator[tuple[str, list[str], dict[str, str], str]]:
    """Launcher, the words after it, the variables, and what was cut off for the shell (redirections, pipes)."""
    env: dict[str, str] = {}
    known: dict[str, str] = {}
    for line in re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines():
        try:
            words = shlex.split(_filled(line, known).strip().removeprefix("$ "), comments=True)
        except ValueError:
            continue
        here = dict[str, str]()
        exported = words[:1] == ["export"]
        words = words[exported:]
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            here[match[1]] = match[2]
            words.pop(0)
        if not words:
            known |= here
            env |= here if exported else {}
            continue
        if words[0] in WRAPPERS:
            words = words[next((at for at, word in enumerate(words) if LAUNCHER.fullmatch(word)), 0) :]
        if found := _launcher(words):
            launcher, rest = found
            cut = next((at for at, word in enumerate(rest) if re.fullmatch(r"\d?(?:&?>>?|<|2>&1|\||&&?|;).*", word)), len(rest))
            yield launcher, rest[:cut], env | here, " ".join(rest[cut:])


def _filled(line: str, known: Mapping[str, str]) -> str:
    return VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), line)


def _launcher(words: list[str]) -> tuple[str, list[str]] | None:
    """Which launcher a command starts with, and what follows."""
    first = words[0].rpartition("/")[2]
    if first == "accelerate" and words[1:2] == ["launch"]:
        return "accelerate", words[2:]
    if first in ("deepspeed", "torchrun"):
        return first, words[1:]
    if PYTHON.fullmatch(words[0]):
        rest = [word for word in words[1:] if word != "-u"]
        if rest[:1] == ["-m"] and rest[1:2] and rest[1] in MODULES:
            return MODULES[rest[1]], rest[2:]
        if rest[:1] == ["-m"] or (rest and rest[0].endswith(".py")):
            return "python", rest
    return None


def _options(launcher: str, words: list[str]) -> tuple[dict[str, str | bool], list[str], bool]:
    """The launcher's options, what follows them, and whether that is a module."""
    found: dict[str, str | bool] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        name = name.replace("-", "_")
        name = SHORT.get(name, name)
        if launcher == "python" and name == "module":
            return {}, rest, True
        if equals or name in SWITCHES.get(launcher, ()):
            found[name] = value if equals else True
        elif rest:
            found[name] = rest.pop(0)
    return found, rest, bool(found.pop("module", False))
