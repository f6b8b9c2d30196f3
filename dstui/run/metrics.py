"""Numbers out of log lines: DeepSpeed's, the Trainer's, Megatron's, tqdm's and those of plain scripts.

A metric is one entry of PATTERNS: a name and the spellings that lines have for it. `scan` costs 1 µs for a line that holds none, 10 to
20 µs for one that does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple


class Pattern(NamedTuple):
    """A metric: its name, what lines call it (regular expressions, for lower case), and the units that may follow its number.

    `scale` makes a number without a unit what the metric is told in: bytes, seconds, or the plain number.
    """

    name: str
    words: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    scale: float = 1.0


MIB = float(1 << 20)
PHASE = "the (?:train|eval|training|evaluation)"

PATTERNS = (
    Pattern("step", ("global[_ ]step", "step", "iteration", "iter")),
    Pattern("epoch", ("epoch",)),
    Pattern("loss", ("lm loss", "train(?:ing)?[_ ]loss", "loss")),
    Pattern("eval_loss", ("(?:eval|val|validation|test)[_ ]loss",)),
    Pattern("perplexity", ("(?:eval_)?perplexity", "ppl")),
    Pattern("accuracy", ("(?:eval_)?accuracy",)),
    Pattern("lr", ("learning[_ ]rate", "lr")),
    Pattern("grad_norm", ("grad(?:ient)?[_ ]norm", "gnorm")),
    Pattern("loss_scale", ("loss[_ ]scale",)),
    Pattern("step_time", (r"elapsed time per iteration \(ms\)",), scale=1e-3),
    Pattern("step_time", ("(?:step|iter|iteration)[_ ]time",)),
    Pattern("samples/s", ("currsamplespersec", r"(?:train_)?samples[_ ]per[_ ]sec(?:ond)?", "samples/s(?:ec)?"), (r"samples?/s(?:ec)?",)),
    Pattern("tokens/s", ("tokens[_ ]per[_ ]sec(?:ond)?", "tok(?:en)?s?/s(?:ec)?", "tps"), (r"tok(?:en)?s?/s(?:ec)?",)),
    Pattern("steps/s", ("train_steps_per_second",), (r"(?:it|steps?)/s(?:ec)?",)),
    # DeepSpeed's timer and see_memory_usage; the tables of PEFT's examples, which count MiB without saying so
    Pattern("memory", ("memallocated", "ma")),
    Pattern("memory_peak", ("maxmemallocated", "max_ma")),
    Pattern("memory_peak", (rf"gpu total peak memory consumed during {PHASE} \(max\)",), scale=MIB),
    Pattern("memory_begin", (rf"gpu memory before entering {PHASE}",), scale=MIB),
    Pattern("memory_consumed", (rf"gpu memory consumed at the end of {PHASE} \(end-begin\)",), scale=MIB),
    Pattern("cpu_memory_peak", (rf"cpu total peak memory consumed during {PHASE} \(max\)",), scale=MIB),
    Pattern("cpu_memory_begin", (rf"cpu memory before entering {PHASE}",), scale=MIB),
    Pattern("cpu_memory_consumed", (rf"cpu memory consumed at the end of {PHASE} \(end-begin\)",), scale=MIB),
)

UNITS = {"k": 1e3, "m": 1e6, "kb": 1024.0, "kib": 1024.0, "mb": MIB, "mib": MIB, "gb": 1024 * MIB, "gib": 1024 * MIB, "ms": 1e-3, "s": 1.0}
"""torch and DeepSpeed write GB and mean GiB."""
NUMBER = (
    r"(?P<value>[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|nan|[-+]?inf)"
    r"(?:\s?(?P<unit>[kmg]i?b|m?s)(?![a-z/])|(?P<suffix>[km])(?![a-z]))?"
)


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
# `step 10/40`, `iteration 10/ 100`; a progress bar without a name, which is the training's own
OF_TOTAL = re.compile(r"(?<![\w.])(?:step|iteration|iter)\W{1,20}(?P<step>\d[\d,]*)\s*(?:/|of)\s*(?P<steps>\d[\d,]*)(?![\d.])")
BAR = re.compile(r"^\s*\d+%\|[^|]*\|\s*(?P<step>\d+)/(?P<steps>\d+) \[")
HINTS = ("loss", "step", "iter", "epoch", "lr", "rate", "norm", "sec", "/s", "perplexity", "ppl", "accuracy", "tps", "mem", "max_ma")
LONGEST = 2000
"""Characters of a line that are looked at."""


def scan(line: str) -> dict[str, float]:
    """The metrics of one line by name; of several numbers for one name, the first. NaN and infinity are numbers too.

    Among them `step`, and `steps` where the line says how many there will be.
    """
    lower = line[:LONGEST].lower()
    if not any(hint in lower for hint in HINTS):
        return {}
    found: dict[str, float] = {}
    total = BAR.match(lower) if "%|" in lower else OF_TOTAL.search(lower)
    if total:
        found = {name: _number(text) for name, text in total.groupdict().items()}
    for match in WORD_FIRST.finditer(lower):
        _take(match, found)
    if "/s" in lower:
        for match in NUMBER_FIRST.finditer(lower):
            _take(match, found)
    return found


def _take(match: re.Match[str], found: dict[str, float]) -> None:
    """Note one number, unless there is one already; a step that is not a whole number is a time."""
    pattern, text = _pattern(match["word"]), match["value"]
    if pattern.name == "step" and not text.replace(",", "").isdigit():
        return
    unit = match["unit"] or match["suffix"]
    found.setdefault(pattern.name, _number(text) * (UNITS[unit] if unit else pattern.scale))


@cache
def _pattern(word: str) -> Pattern:
    """The metric that a line calls so."""
    return next(pattern for pattern in PATTERNS if any(re.fullmatch(known, word) for known in (*pattern.words, *pattern.units)))


def _number(text: str) -> float:
    return float(text.replace(",", ""))
