"""Any file that people have, as the text of a Plan: one function for each kind. Pure; what a file names is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dstui.adopt.command_line import read_command
from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.from_accelerate import Given, plan_of_accelerate
from dstui.adopt.from_command import plan_of_command
from dstui.adopt.new_plan import Imported, plan_of_dsconfig, plan_text
from dstui.adopt.script import ScriptFacts
from dstui.adopt.signs import Kind
from dstui.plan.hostfile import HostfileError, parse_hostfile


@dataclass(frozen=True, slots=True)
class FilesBeside:
    """What can be asked about the files that a file names."""

    text_of: Callable[[str], str | None]
    """The text of a configuration; None where it cannot be read."""
    facts_of: Callable[[str], ScriptFacts | None]
    """What a training script says of itself."""


def imported(kind: Kind, text: str, source: str, script: Sequence[str], beside: FilesBeside) -> Imported:
    """The Plan of a text; `script` is what is to be trained, with its arguments. Raises ConfigError."""
    about = beside.facts_of(script[0]) if script else None
    if kind == "ds_config":
        return plan_of_dsconfig(text, source, script, about)
    if kind == "accelerate":
        return plan_of_accelerate(text, source, Given({"script": script[0], "args": list(script[1:])} if script else {}), beside.text_of)
    if kind == "command":
        line = read_command(text)
        return plan_of_command(line, source, beside.text_of, None if line.module else beside.facts_of(line.script))
    cluster = {"hosts": _hosts(text)} if kind == "hostfile" else {"env": _variables(text)}
    return Imported(plan_text(source, {"job": {}, "cluster": cluster, "deepspeed": {}}, []))


def _hosts(text: str) -> dict[str, int]:
    try:
        return parse_hostfile(text)
    except HostfileError as error:
        raise ConfigError(error.message, error.line) from None


def _variables(text: str) -> dict[str, str]:
    """The variables of a .deepspeed_env, as DeepSpeed reads it (comments and empty lines, which end it there, are passed over)."""
    variables: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            if not equals or not name:
                raise ConfigError(f"{line!r} is no variable: a .deepspeed_env holds NAME=value lines, and nothing else", number)
            variables[name] = value
    return variables
