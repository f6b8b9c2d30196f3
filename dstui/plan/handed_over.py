"""Find how the DeepSpeed configuration of a Plan reaches its script, as far as the Plan defines it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dstui.base.dataclass import dataclass

if TYPE_CHECKING:
    from dstui.plan.plan import Plan

CONFIG = "{ds_config}"
CONFIG_OPTIONS = ("--deepspeed_config", "--ds_config", "--deepspeed")
"""Names of the argument in common scripts."""
ACCELERATE_OPTION = "--config_file"
"""The option of `accelerate launch` for its YAML."""
CONFIG_FILES = (".json", ".hjson")
MARKS = ("{ds_config", "DSTUI_DS_CONFIG")
"""Texts in an argument that hand the Plan's configuration over."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A configuration file that the launch command names directly."""

    path: str
    """The path of the argument in the Plan."""
    option: str
    name: str


def hands_over(plan: Plan) -> bool:
    """Return whether an argument hands the Plan's configuration to the script."""
    return any(mark in word for word in plan.job.args for mark in MARKS)


def named_files(plan: Plan) -> Iterator[NamedFile]:
    """Yield the configuration files that the arguments name and the script, or accelerate, reads directly."""
    yield from _named("job.args", plan.job.args, CONFIG_OPTIONS, CONFIG_FILES)
    if plan.cluster.launcher == "accelerate":
        yield from _named("cluster.launcher_args", plan.cluster.launcher_args, (ACCELERATE_OPTION,), ("",))


def _named(path: str, words: tuple[str, ...], options: tuple[str, ...], endings: tuple[str, ...]) -> Iterator[NamedFile]:
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        name = value if equals else next(iter(words[at + 1 : at + 2]), "")
        if option in options and name and not name.startswith("-") and name.endswith(endings) and CONFIG not in name:
            yield NamedFile(f"{path}.{at if equals else at + 1}", option, name)
