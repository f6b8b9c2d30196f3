"""Lists of named numbers on one line: a dictionary, text behind a progress bar, `step:7 - actor/entropy:0.3 - …`.

Trainings log many measurements in such lists (rewards, lengths, token counts), so each number is a series with its own name. A list of
settings looks the same. It is recognised by its names: a list of measurements has at least one known measurement and no setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

LONGEST = 8000
"""Characters of a list that are read."""
MAX_NUMBERS = 128
"""Numbers of one line that are read."""
NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf|Infinity)"
BEGIN = re.compile(r"\{(?=\s*['\"][^'\"{}]{1,80}['\"]\s*:)")
ENTRY = re.compile(
    r"\s*['\"](?P<name>[^'\"{}]{1,80})['\"]\s*:\s*"
    rf"(?:(?:tensor|np\.\w+)\((?P<wrapped>{NUMBER})[^()]*\)|(?P<quote>['\"]?)(?P<value>{NUMBER})(?P=quote)|['\"](?P<text>[^'\"]*)['\"]|None|null)"
    r"\s*(?P<end>[,}])"
)
"""One entry of a dictionary. A value that is a list, a dictionary or True means that it is not a list of numbers."""
DASHED = re.compile(r"(?:^|\s)(?=step:\d+ - )")
DASHED_ENTRY = re.compile(rf"(?P<name>[A-Za-z][\w/@.-]*):(?:np\.\w+\()?(?P<value>{NUMBER})\)?(?: - |\s*$)")
POSTFIX_ENTRY = re.compile(rf"(?:^|[\s,|\[])(?P<name>[A-Za-z][\w/]*(?: it/s)?)(?:=|: )(?P<value>{NUMBER})(?=[\s,|\]]|$)")
"""`, lr=1e-05`, ` train_loss: 2.3`, `[losses/total_loss: 1.2 |`."""
FRACTION = re.compile(r"(\d{1,15})/(\d{1,15})")
MEASURED = re.compile(
    r"(?:.*[/_])?(?:loss|rewards?|grad_norm|accurac(?:y|ies)|acc|f1|perplexity|ppl)"
    r"|(?:loss|losses|rewards?|objective|train|training|actor)/.*|epoch|step|global_step|iteration|iter|eval_.*"
)
"""Names of which every list of measurements has at least one."""
SETTING = re.compile(
    r"[^/]*(?:batch_size|warmup|dropout|weight_decay|epochs)[^/]*|(?:max|lora|num_train|per_device)_[^/]*|seed|momentum|betas|version"
    r"|(?:.*_)?(?:save|logging|eval|total|accumulation|max)_steps|[^/]*_(?:size|seed|layers|heads|dim|coef|weight|alpha|fn)"
)
"""Names that occur in lists of settings."""
UNIT = re.compile(r"(.+?)\s*\((gib|gb|mib|mb)\)|(.*mem.*)_(gib|gb|mib|mb)")
BYTES = {"gib": float(1 << 30), "gb": float(1 << 30), "mib": float(1 << 20), "mb": float(1 << 20)}
KNOWN = {
    "train_speed(iter/s)": ("steps/s", 1.0),  # ms-swift
    "train_speed(s/it)": ("step_time", 1.0),
    "real it/s": ("steps/s", 1.0),  # RWKV-LM
    "kt/s": ("tokens/s", 1e3),
}
"""Names whose meaning is not in their spelling -> dstui's name, and a factor."""
IGNORED = ("v_num",)
ACTOR = re.compile(r"(?:train|training|actor|policy)/(lr|learning_rate|grad_norm|loss|global_step|epoch)")
"""The training's own metric, if a list has those of several models."""
STEP_OF = "global_step/max_steps"
FOREIGN = re.compile(r"[^\w./%-]+", re.ASCII)
LONGEST_NAME = 40


class Pairs(NamedTuple):
    """A list: where it begins on its line, and its numbers."""

    start: int
    found: dict[str, float]


def read_list(line: str, known: Callable[[str], str | None]) -> Pairs | None:
    """Read the list of numbers on a line; None if there is none. A list of settings has no numbers.

    `known` returns dstui's name for a spelling, or None.
    """
    if "{" in line and (begin := BEGIN.search(line)):
        return _dictionary(line[:LONGEST], begin.start(), known)
    if " - " in line and (begin := DASHED.search(line)):
        entries = DASHED_ENTRY.finditer(line[:LONGEST], begin.end())
        return Pairs(begin.start(), _named(((match["name"], match["value"]) for match in entries), known))
    return None


def read_bar_text(text: str, known: Callable[[str], str | None]) -> dict[str, float]:
    """Read the text in front of and behind a progress bar."""
    return _named(((match["name"], match["value"]) for match in POSTFIX_ENTRY.finditer(text)), known)


def _dictionary(line: str, start: int, known: Callable[[str], str | None]) -> Pairs | None:
    entries, at, end = [], start + 1, ","
    while end == ",":
        entry = ENTRY.match(line, at)
        if entry is None:
            if len(line) < LONGEST:
                return None
            break
        entries.append((entry["name"], entry["value"] or entry["wrapped"] or entry["text"] or ""))
        at, end = entry.end(), entry["end"]
    names = [name.lower() for name, _ in entries]
    if not any(map(MEASURED.fullmatch, names)) or any(map(SETTING.fullmatch, names)):
        return Pairs(start, {})
    found = _named(entries, known)
    if "train_runtime" in names and "loss" in found:  # the mean of the whole run, at its end
        found["train_loss"] = found.pop("loss")
    return Pairs(start, found)


def _named(entries: Iterator[tuple[str, str]] | list[tuple[str, str]], known: Callable[[str], str | None]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, text in islice(entries, MAX_NUMBERS):
        for key, value in _metric(name, text, known):
            found.setdefault(key, value)
    return found


def _metric(name: str, text: str, known: Callable[[str], str | None]) -> Iterator[tuple[str, float]]:
    """Yield the metrics of one entry: usually one, none if it is not a number."""
    lower = name.lower()
    if lower == STEP_OF and (fraction := FRACTION.fullmatch(text)):
        yield from (("step", float(fraction[1])), ("steps", float(fraction[2])))
        return
    try:
        value = float(text)
    except ValueError:
        return
    if lower in IGNORED:
        return
    if unit := UNIT.fullmatch(lower):
        lower = unit[1] or unit[3]
        name, value = name[: len(lower)], value * BYTES[unit[2] or unit[4]]
    if lower in KNOWN:
        yield KNOWN[lower][0], value * KNOWN[lower][1]
        return
    whose = ACTOR.fullmatch(lower)
    ours = known(whose[1] if whose else lower)
    if ours and (ours not in ("memory", "memory_peak") or unit):
        yield ours, value
    if (not ours or (whose and not lower.startswith("train"))) and (kept := FOREIGN.sub("_", name).strip("_")[:LONGEST_NAME]):
        yield kept, value
