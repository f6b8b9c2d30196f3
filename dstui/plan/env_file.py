"""The grammar of .deepspeed_env, by which DeepSpeed's launcher for several hosts gives variables to every rank.

Source: deepspeed/launcher/runner.py (main: DEEPSPEED_ENVIRONMENT_PATHS) and multinode_runner.py (add_export), release 0.19.8. The launcher
reads the file in the home folder, then the one in the current folder: lines NAME=value, both sides stripped. A line without '=' ends the
launcher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from dstui.base.dataclass import dataclass

ENV_FILE = ".deepspeed_env"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class EnvFiles:
    """The environment files that DeepSpeed's launcher finds."""

    paths: tuple[str, ...] = ()
    """The existing files, in reading order."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variables of all files; the last one wins."""
    problems: tuple[str, ...] = ()
    """Sentences about what is ignored."""

    def joined(self, path: str, text: str) -> EnvFiles:
        """Return these files plus one more, whose variables override the earlier ones."""
        variables, bad = parse_env_file(text)
        problems = tuple(f"{path}: line {number} is not NAME=value" for number in bad)
        return EnvFiles((*self.paths, path), {**self.variables, **variables}, (*self.problems, *problems))


def parse_env_file(text: str) -> tuple[dict[str, str], list[int]]:
    """Return the variables, and the numbers of malformed lines. DeepSpeed fails on those, on empty lines and on comments."""
    variables: dict[str, str] = {}
    bad: list[int] = []
    for number, line in enumerate(text.split("\n")[: text.count("\n") + (not text.endswith("\n"))], 1):
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if equals and NAME.fullmatch(name) and not CONTROL.search(value):
            variables[name] = value
        else:
            bad.append(number)
    return variables, bad
