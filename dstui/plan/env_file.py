"""The grammar of .deepspeed_env, by which DeepSpeed's launcher for several hosts gives variables to every rank.

Source: deepspeed/launcher/runner.py (main: DEEPSPEED_ENVIRONMENT_PATHS) and multinode_runner.py (add_export), release 0.19.8: the file in
the home folder, then that in the current one, lines NAME=value, both sides stripped; a line without '=' ends the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

ENV_FILE = ".deepspeed_env"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class EnvFiles:
    """What lies where DeepSpeed's launcher looks."""

    paths: tuple[str, ...] = ()
    """The files that are there, in the order in which they are read."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of all of them; the last one wins."""
    problems: tuple[str, ...] = ()
    """What is passed over, a sentence each."""

    def joined(self, path: str, text: str) -> EnvFiles:
        """Return these files with one more, whose variables override the earlier ones."""
        variables, bad = parse_env_file(text)
        problems = tuple(f"{path}: line {number} is not NAME=value" for number in bad)
        return EnvFiles((*self.paths, path), {**self.variables, **variables}, (*self.problems, *problems))


def parse_env_file(text: str) -> tuple[dict[str, str], list[int]]:
    """Return the variables and the numbers of the malformed lines. DeepSpeed fails on those, and on empty lines and comments."""
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
