"""Import a framework's own command (llamafactory-cli, axolotl, swift): the command, and the DeepSpeed file that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from dstui.adopt.command_line import CommandLine
from dstui.adopt.dsconfig import read_dsconfig
from dstui.adopt.model_options import model_section
from dstui.adopt.new_plan import Imported, doubts, plan_text
from dstui.adopt.script_options import options_of, options_of_yamls

YAML = (".yaml", ".yml")
NAMES_CONFIG = re.compile(r"""(?m)^deepspeed(?:_config(?:_file)?)?[ \t]*:[ \t]*(['"]?)(?P<path>[^\s'"#]+)\1[ \t]*(?:\#.*)?$""")
"""The keys with which the YAML of a framework names its DeepSpeed file."""
JSON = (".json", ".hjson")


def plan_of_framework(line: CommandLine, source: str, read_named: Callable[[str], str | None]) -> Imported:
    """Return the Plan of a framework's command. Raises ConfigError."""
    notes, config = list(line.notes), dict[str, Any]()
    name = next(_config_files(line.command, read_named), None)
    if name is not None and (text := read_named(name)) is not None:
        read = read_dsconfig(text)
        config = read.config
        notes.append(f"{line.launcher} reads {name} itself: the deepspeed section has a copy for the checks, edits do not change the file")
        notes += doubts(read, name)
    elif name is not None:
        notes.append(f"{name} is not a file here, or a built-in name of {line.launcher}: the deepspeed section stays empty")
    model, about = model_section({**options_of_yamls(line.command, read_named), **options_of(line.command)}, line.folder)
    notes += about
    job: dict[str, Any] = {"command": list(line.command), "workdir": line.folder, "integration": "trainer"}
    cluster = {"env": dict(line.env)} if line.env else {}
    sections = {"job": {key: value for key, value in job.items() if value}, "model": model, "cluster": cluster, "deepspeed": config}
    return Imported(plan_text(source, sections, notes), notes)


def _config_files(command: tuple[str, ...], read_named: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the DeepSpeed files that a command names in its words or its YAML; for built-in ones (`zero2`) only the name."""
    for at, word in enumerate(command):
        option, equals, value = word.partition("=")
        if option.lstrip("-") in ("deepspeed", "deepspeed_config") and option != word[:1]:
            given = value if equals else next(iter(command[at + 1 : at + 2]), "")
            if given and not given.startswith("-"):
                yield given
        elif word.endswith(YAML) and (text := read_named(word)) is not None and (named := NAMES_CONFIG.search(text)):
            yield named["path"]
