"""Topics of `dstui docs` besides keys, rules and causes: variables, functions, programs, words, and findings that no rule makes.

The entries are data (`data/topics.json`), and a test compares them with the programs that they describe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "topics.json"
GROUPS: Mapping[str, str] = {
    "words": "Words",
    "code": "Functions and classes of scripts",
    "programs": "Programs and options",
    "deepspeed-env": "Variables of DeepSpeed and of dstui",
    "nccl": "Variables of NCCL",
    "torch": "Variables of torch and CUDA",
    "accelerate-yaml": "Keys of an accelerate YAML for sequence parallelism",
    "findings": "Findings from outside the rules",
}
"""The groups of the index in order, with their headings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One entry of the index, with its page."""

    name: str
    group: str
    help: str
    """One sentence: the title in the index and the first line of the page."""
    more: str = ""
    also: tuple[str, ...] = ()
    """Other names of the topic."""
    values: str = ""
    default: str = ""
    source: str = ""
    """A file of the package, and after a colon a text in that file; `nccl` for names in NCCL's own library."""
    page: str = ""
    see: tuple[str, ...] = ()
    """Names of other pages."""

    def page_text(self) -> str:
        """Return the page."""
        rows = (
            ("values", self.values),
            ("default", self.default),
            ("also", ", ".join(self.also)),
            ("see", ", ".join(f"dstui docs {name}" for name in self.see)),
            ("page", self.page),
            ("source", self.source.partition(":")[0] if "/" in self.source else ""),
        )
        lines = [f"{self.name}  ({GROUPS[self.group]})", f"  {self.help}", *([f"  {self.more}"] if self.more else [])]
        return "\n".join([*lines, *(f"  {what:<8} {text}" for what, text in rows if text)])


@cache
def topics() -> tuple[Topic, ...]:
    """Return all topics, in the order of the file."""
    found: list[dict[str, Any]] = json.loads(DATA.read_bytes())
    lists = ("also", "see")
    return tuple(Topic(**entry | {name: tuple(entry.get(name, ())) for name in lists}) for entry in found)


def topics_called(name: str) -> list[Topic]:
    """Return the topics of this name, ignoring case."""
    asked = name.lower()
    return [topic for topic in topics() if asked in (topic.name.lower(), *(other.lower() for other in topic.also))]
