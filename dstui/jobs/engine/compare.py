"""Compare the configuration that DeepSpeed resolved with the Plan's: which keys have other values, and who changed them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.jobs.engine.lines import EngineMade

BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
LIBRARY_KEYS = ("steps_per_print", "wall_clock_breakdown")
"""Keys that accelerate and transformers set themselves; not reported."""
NAMED = 4
"""Differences that a sentence lists. More are counted."""
LONGEST = 40


@dataclass(frozen=True, slots=True)
class Difference:
    """A key of the Plan's configuration that is missing or has another value in the run."""

    key: str
    planned: Any
    found: Any
    missing: bool = False

    def __str__(self) -> str:
        return f"{self.key}: {_text(self.planned)} in the Plan, {'missing' if self.missing else _text(self.found)} in the run"


def differences(planned: Mapping[str, Any], made: EngineMade) -> list[Difference]:
    """Return the keys of the Plan whose values differ in the run. An "auto" in the Plan may have any value."""
    if made.config is None:
        return []
    found = dict(_leaves(made.config)) | _resolved(made)
    different = []
    for key, value in _leaves(planned):
        section = key.partition(".")[0]
        if value == "auto" or section in LIBRARY_KEYS:
            continue
        if key in found:
            if not _same(value, found[key]):
                different.append(Difference(key, value, found[key]))
        elif section not in made.config:
            different.append(Difference(key, value, None, missing=True))
    return different


def is_another(planned: Mapping[str, Any], made: EngineMade, different: list[Difference], rendered: tuple[str, ...]) -> bool:
    """Return whether the run has an entirely different configuration, not the Plan's with some changes.

    `rendered`: names of the files that were rendered from the Plan.
    """
    if made.path is not None:
        return os.path.basename(made.path) not in rendered  # noqa: PTH119 - a path of another host maybe
    missing = sum(difference.missing for difference in different)
    return 2 * missing > sum(1 for _ in _leaves(planned))


def sentence(made: EngineMade, different: list[Difference], *, another: bool) -> str:
    """Return the message about these differences."""
    where = f" ({made.own or made.caller})" if made.caller else ""
    shown = [d for d in different if not d.missing] + [d for d in different if d.missing]
    more = f", and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    if another:
        source = f"was read: {made.path}" if made.path else "was given to deepspeed.initialize"
        return f"another configuration than the Plan's {source}{where}: {'; '.join(map(str, shown[:NAMED]))}{more}"
    parts = [f"leaves out {d.key}" if d.missing else f"overrode {d.key} {_text(d.planned)} with {_text(d.found)}" for d in shown[:NAMED]]
    return f"your script {', '.join(parts)}{more}{where}"


def _resolved(made: EngineMade) -> dict[str, Any]:
    """Return the values that the engine itself reports, whatever its configuration says."""
    found: dict[str, Any] = dict(zip(BATCH, made.batch, strict=False))
    if made.stage is not None:
        found["zero_optimization.stage"] = made.stage
    if made.precision:
        found |= {f"{name}.enabled": made.precision == name for name in ("bf16", "fp16")}
    return found


def _leaves(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}", inner


def _same(planned: Any, found: Any) -> bool:
    """Return whether two values mean the same: 5e8 is 500000000, and a number may be written as a string."""
    if isinstance(planned, bool) or isinstance(found, bool):
        return bool(planned == found)
    try:
        return bool(planned == found) or float(planned) == float(found)
    except (TypeError, ValueError):
        return str(planned) == str(found)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return sanitise(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")
