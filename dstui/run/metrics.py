"""Numbers out of log lines: DeepSpeed's, the Trainer's, Megatron's, tqdm's and those of plain scripts.

A metric is one entry of PATTERNS: a name and the spellings that lines have for it. `scan` costs 0.2 µs for a line that holds none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple


class Pattern(NamedTuple):
    """A metric: its name, what lines call it (regular expressions, for lower case), and the units that may follow its number."""

    name: str
    words: tuple[str, ...] = ()
    units: tuple[str, ...] = ()


PATTERNS = (
    Pattern("step", ("global[_ ]step", "step", "iteration", "iter")),
    Pattern("loss", ("lm loss", "train(?:ing)?[_ ]loss", "loss")),
    Pattern("eval_loss", ("(?:eval|val|validation|test)[_ ]loss",)),
    Pattern("perplexity", ("(?:eval_)?perplexity", "ppl")),
    Pattern("accuracy", ("(?:eval_)?accuracy",)),
    Pattern("lr", ("learning[_ ]rate", "lr")),
    Pattern("grad_norm", ("grad(?:ient)?[_ ]norm", "gnorm")),
    Pattern("loss_scale", ("loss[_ ]scale",)),
    Pattern("samples/s", ("currsamplespersec", r"(?:train_)?samples[_ ]per[_ ]sec(?:ond)?", "samples/s(?:ec)?"), (r"samples?/s(?:ec)?",)),
    Pattern("tokens/s", ("tokens[_ ]per[_ ]sec(?:ond)?", "tok(?:en)?s?/s(?:ec)?", "tps"), (r"tok(?:en)?s?/s(?:ec)?",)),
    Pattern("steps/s", ("train_steps_per_second",), (r"(?:it|steps?)/s(?:ec)?",)),
)

NUMBER = r"(?P<value>[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|nan|[-+]?inf)(?P<suffix>[km](?![a-z]))?"
THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6}


def _any(words: Iterable[str]) -> str:
    return f"(?P<word>{'|'.join(words)})"


# `loss 1.8`, `loss: 1.8`, `loss=1.8`, `'loss': 1.8`, `lr=[0.001]`, `learning rate: 1.5e-04`
WORD_FIRST = re.compile(
    r"(?<![\w.])"
    + _any(word for pattern in PATTERNS for word in pattern.words)
    + r"(?:[\"']?\s*[:=]\s*[\"'\[(]*|\s+)"
    + NUMBER
    + r"(?![\w%])"
)
# `41.2k tok/s`, `12.1 samples/s`, `3.02it/s`
NUMBER_FIRST = re.compile(NUMBER + r"\s*" + _any(unit for pattern in PATTERNS for unit in pattern.units) + r"(?![\w/])")
HINTS = ("loss", "step", "iter", "lr", "rate", "norm", "sec", "/s", "perplexity", "ppl", "accuracy", "tps")
LONGEST = 2000
"""Characters of a line that are looked at."""


def scan(line: str) -> dict[str, float]:
    """The metrics of one line by name, `step` among them; of several numbers for one name, the first. NaN and infinity are numbers too."""
    lower = line[:LONGEST].lower()
    if not any(hint in lower for hint in HINTS):
        return {}
    found: dict[str, float] = {}
    for match in WORD_FIRST.finditer(lower):
        found.setdefault(_name(match["word"]), _value(match))
    if "/s" in lower:
        for match in NUMBER_FIRST.finditer(lower):
            found.setdefault(_name(match["word"]), _value(match))
    if not math.isfinite(found.get("step", 0.0)):
        del found["step"]
    return found


@cache
def _name(word: str) -> str:
    """The metric that a line calls so."""
    return next(pattern.name for pattern in PATTERNS if any(re.fullmatch(known, word) for known in (*pattern.words, *pattern.units)))


def _value(match: re.Match[str]) -> float:
    return float(match["value"].replace(",", "")) * THOUSANDS[match["suffix"] or ""]
