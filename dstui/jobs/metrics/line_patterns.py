"""Numbers out of log lines: DeepSpeed's, the Trainer's, accelerate's, Megatron's, tqdm's and those of plain scripts.

A metric is one entry of PATTERNS: a name and the spellings that lines have for it. `scan` costs 2 µs for a line that holds none, 20 to
50 µs for one that does. What looks like a metric and is none (a dump of the configuration, prose) is left alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from dstui.base.text import sanitise
from dstui.jobs.metrics.line_hints import hints_of

if TYPE_CHECKING:
    from dstui.plan.patterns import Expression

MIB = float(1 << 20)
PHASE = "the (?:train|eval|training|evaluation)"


class Pattern(NamedTuple):
    """A metric: its name, what lines call it (regular expressions, for lower case), and the units that may follow its number.

    `scale` makes a number without a unit what the metric is told in: bytes, seconds, or the plain number.
    """

    name: str
    words: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    scale: float = 1.0
    needs_unit: bool = False
    """A number alone is something else: `time 3`, `memory 2`."""
    percent: bool = False
    """May be told in percent; it is a share then."""
    setting: bool = False
    """Is a setting too: alone on an indented line, or on one that ends with a comma, it is from a dump of the configuration."""


PATTERNS = (
    Pattern("step", ("global[_ ]step", "step", "iteration", "iter"), setting=True),
    Pattern("epoch", ("epoch",), setting=True),
    Pattern("epoch_loss", ("train_epoch_loss",)),
    Pattern("loss", ("lm loss", "train(?:ing)?[_ ]loss(?:_step)?", "(?:avg|average|mean)[_ ]loss", "loss")),
    Pattern("eval_loss", ("(?:eval|val|valid|validation|test)[_ ](?:epoch_)?loss", "lm loss value")),
    Pattern("train_perplexity", ("train_(?:perplexity|ppl)",)),
    Pattern("perplexity", ("(?:eval_)?(?:perplexity|ppl)", "lm loss ppl")),
    Pattern("accuracy", ("(?:eval_|val_|test_)?acc(?:uracy)?",), percent=True),
    Pattern("f1", ("(?:eval_)?f1",), percent=True),
    Pattern("lr", ("learning[_ ]rate", "lr"), setting=True),
    Pattern("grad_norm", ("grad(?:ient)?[_ ]norm", "gnorm")),
    # after an overflow DeepSpeed tells the factor that was, and the one that will be
    Pattern("loss_scale", (r"attempted loss scale: \d+, reducing to", "loss[_ ]scale"), setting=True),
    Pattern("skipped", ("skipped",)),
    Pattern("step_time", (r"elapsed time per iteration \(ms\)",), scale=1e-3),
    Pattern("step_time", ("(?:step|iter|iteration)[_ ]time", r"iter time \(s\)"), ("s/(?:it|step|iter)",)),
    Pattern("step_time", ("(?<=, )time",), needs_unit=True),
    Pattern(
        "samples/s",
        ("currsamplespersec", r"(?:train_)?samples[_ ]per[_ ]sec(?:ond)?", "(?:samples|sequences)/s(?:ec)?"),
        (r"(?:samples?|sequences?|seqs?)/s(?:ec)?",),
    ),
    Pattern(
        "tokens/s",
        ("tokens[_ ]per[_ ]sec(?:ond)?", r"tokens per gpu per second \(tgs\)", "tok(?:en)?s?/s(?:ec)?", "tps"),
        (r"tok(?:en)?s?/s(?:ec)?",),
    ),
    Pattern("steps/s", ("train_steps_per_second",), (r"(?:it|steps?)/s(?:ec)?",)),
    Pattern("tflops", ("tflop/?s", r"throughput per gpu \(tflop/s/gpu\)")),
    Pattern("mfu", ("mfu",), percent=True),
    # PEFT's print_trainable_parameters
    Pattern("trainable_parameters", ("trainable params",)),
    # DeepSpeed's timer and see_memory_usage, torchtitan's; the tables of PEFT's examples, which count MiB without saying so
    Pattern("memory", ("memallocated", "mem_allocated", "ma")),
    Pattern("memory", (r"mem(?:ory)?(?=\s*[:=])",), needs_unit=True),
    Pattern("memory_peak", ("maxmemallocated", "max_mem_allocated", "max_ma", "(?:max|peak)[_ ]mem(?:ory)?")),
    Pattern("memory_peak", (rf"gpu total peak memory consumed during {PHASE} \(max\)",), scale=MIB),
    Pattern("memory_begin", (rf"gpu memory before entering {PHASE}",), scale=MIB),
    Pattern("memory_consumed", (rf"gpu memory consumed at the end of {PHASE} \(end-begin\)",), scale=MIB),
    Pattern("cpu_memory_peak", (rf"cpu total peak memory consumed during {PHASE} \(max\)",), scale=MIB),
    Pattern("cpu_memory_begin", (rf"cpu memory before entering {PHASE}",), scale=MIB),
    Pattern("cpu_memory_consumed", (rf"cpu memory consumed at the end of {PHASE} \(end-begin\)",), scale=MIB),
)

UNITS = {"k": 1e3, "m": 1e6, "kb": 1024.0, "kib": 1024.0, "mb": MIB, "mib": MIB, "gb": 1024 * MIB, "gib": 1024 * MIB}
"""torch and DeepSpeed write GB and mean GiB."""
UNITS |= {"ms": 1e-3, "s": 1.0, "%": 0.01}
NUMBER = re.compile(
    r"(?P<value>[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|nan|[-+]?inf)"
    r"(?:\s?(?P<unit>[kmg]i?b|m?s|%)(?![a-z/])|(?P<suffix>[km])(?![a-z]))?"
)
AHEAD = re.sub(r"\?P<\w+>", "?:", NUMBER.pattern)


def _any(words: Iterable[str]) -> str:
    """Any of these words; each begins with a letter, at which most are turned down."""
    return f"(?P<word>{'|'.join(words)})"


# `loss 1.8`, `loss: 1.8`, `loss=1.8`, `'loss': 1.8`, `lr=[0.001]`, `learning rate: 1.5e-04`, `train_epoch_loss=tensor(0.2`
WORD_FIRST = re.compile(
    rf"(?<![\w.]){_any(word for pattern in PATTERNS for word in pattern.words)}"
    rf"(?:[\"']?\s*[:=]\s*(?:tensor)?[\"'\[(]*|\s+)(?={AHEAD}(?!\w|\.\w))"
)
# `41.2k tok/s`, `12.1 samples/s`, `3.02it/s`
NUMBER_FIRST = re.compile(
    rf"(?<![\w.,:])(?=[-+.\d]){NUMBER.pattern}\s*{_any(unit for pattern in PATTERNS for unit in pattern.units)}(?![\w/])"
)
BAR = re.compile(r"^\s*(?:(?:train(?:ing)?|steps?)\b[^|%]{0,20}:\s*)?\d+%\|[^|]*\|\s*(?P<step>\d+)/(?P<steps>\d+) \[(?P<clock>[\d:]+)?")
"""A progress bar without a name, or with the training's, and the time that it has run."""
OTHER_BAR = re.compile(r"\s*(?!train|step|epoch)[^\s\d%|][^%|]*\d+%\|")
"""One with a name of its own: data that is tokenized, shards that are loaded. Its speed is not the training's."""
COUNTS = (
    BAR,
    # `step 10/40`, `iteration 10/ 100`, `Step 3 of 10`; DeepSpeed's pipeline engine
    re.compile(r"(?<![\w.])(?:step|iteration|iter)\W{1,20}(?P<step>\d[\d,]*)\s*(?:/|of)\s*(?P<steps>\d[\d,]*)(?![\d.])"),
    re.compile(r"\bsteps: (?P<step>\d+) loss:"),
)
OVERFLOW = "overflow!"
HINTS = (*hints_of(spelling for pattern in PATTERNS for spelling in (*pattern.words, *pattern.units)), "%|", OVERFLOW)
"""A line without any of these texts, in lower case, holds no metric and no progress bar."""
EVALUATION = re.compile(r"\W*(?:eval\w*|val(?:id(?:ation)?)?|test(?:ing)?(?: set)?)\b")
"""How a line begins that tells of data that is not trained on."""
SETTINGS = re.compile(
    r"(?:^|\s)--[a-z]|betas|weight_decay|_batch_size|namespace\(|arguments\(|\.{4}|config\.py:\d|warmup_(?:min|max|num|steps|ratio)|num_(?:train_)?epochs|max_(?:steps|epochs)"
)
"""What stands in a dump of the configuration, and not beside a measurement."""
ALONE = re.compile(r"(?:\s+|(?=.*,\s*$)|(?=['\"]))['\"]?[\w ]+['\"]?\s*[:=]\s*[^\s,]+,?\s*$")
"""One setting on a line of its own: indented, quoted, or with a comma behind it."""
PROSE = re.compile(r"\s+[a-z]+\b(?!\s*[:=]?\s*[-+\d.(]|/)")
"""After a number, a word that is not followed by another number: `a loss 3 times lower`."""
WHOLE_RUN = "train_runtime"
"""In the Trainer's last line, whose loss is the mean of the whole run and not that of a step."""
MOST_STEPS = 1e15
"""What is larger counts something else, or is no number."""
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
    for counts in COUNTS:
        if total := counts.search(lower):
            found = {name: _number(text) for name, text in total.groupdict().items() if name != "clock"}
            break
    for match in WORD_FIRST.finditer(lower):
        if number := NUMBER.match(lower, match.end()):
            _take(match, number, found, lower)
    if ("/s" in lower or "s/" in lower) and not OTHER_BAR.match(lower):
        for match in NUMBER_FIRST.finditer(lower):
            _take(match, match, found, lower)
    if OVERFLOW in lower:
        found["overflows"] = 1.0
    for name in ("step", "steps"):
        if found.get(name, 0.0) > MOST_STEPS:
            del found[name]
    return _plausible(found, lower) if found else found


class Bar(NamedTuple):
    """A progress bar: how many are done, of how many, and the seconds that it has run (0 where it does not say)."""

    done: int
    total: int
    clock: float


def bar_of(line: str) -> Bar | None:
    """The progress bar on a line that has no name, or the training's; None where there is none."""
    bar = BAR.match(line.lower()) if "%|" in line else None
    if bar is None:
        return None
    seconds = 0.0
    for part in (bar["clock"] or "").split(":"):
        seconds = 60 * seconds + float(part or 0)
    return Bar(int(bar["step"]), int(bar["steps"]), seconds)


def _take(match: re.Match[str], number: re.Match[str], found: dict[str, float], lower: str) -> None:
    """Note one number, unless there is one already; a step that is not a whole number is a time."""
    pattern, text, unit = _pattern(match["word"]), number["value"], number["unit"] or number["suffix"]
    if pattern.name == "step" and not text.replace(",", "").isdigit():
        return
    if (unit == "%" and not pattern.percent) or (pattern.needs_unit and not unit):
        return
    if match is not number and text.isdigit() and pattern.name not in COUNTED and _of_something(match, number, lower):
        return
    found.setdefault(pattern.name, _number(text) * (UNITS[unit] if unit else pattern.scale))


@cache
def _pattern(word: str) -> Pattern:
    """The metric that a line calls so."""
    spellings = ((pattern, AROUND.sub("", known)) for pattern in PATTERNS for known in (*pattern.words, *pattern.units))
    return next(pattern for pattern, known in spellings if re.fullmatch(known, word))


def _of_something(match: re.Match[str], number: re.Match[str], lower: str) -> bool:
    """Whether a whole number counts something else: `accuracy: 9890/10000`, `a loss 3 times lower`."""
    bare = not any(sign in match[0] for sign in ":=")
    return lower.startswith("/", number.end()) or (bare and PROSE.match(lower, number.end()) is not None)


def _plausible(found: dict[str, float], lower: str) -> dict[str, float]:
    """What was found, as what it is: nothing in a dump of settings, an evaluation's loss where the line speaks of one."""
    if SETTINGS.search(lower) or (len(found) == 1 and next(iter(found)) in SETTING and ALONE.match(lower)):
        return {}
    if WHOLE_RUN in lower:
        found.pop("loss", None)
    if "loss" in found and EVALUATION.match(lower):
        found = {name: value for name, value in found.items() if name not in ("step", "steps")}
        found.setdefault("eval_loss", found.pop("loss"))
    return found


AROUND = re.compile(r"\(\?<?=[^)]*\)")
"""What a spelling asks of its surroundings."""
COUNTED = ("step", "epoch")
SETTING = {pattern.name for pattern in PATTERNS if pattern.setting}


def _number(text: str) -> float:
    return float(text.replace(",", ""))


ALLOWED, PER_LINE = 0.2, 0.0005
"""Seconds of CPU time that the Plan's patterns may take: at first, and more for each line."""
LONGEST_LINE = 1000
"""Characters of a line in which they are looked for: the time grows with them."""
MOST = 100
"""Patterns that are looked for, as many as a Plan may have."""


class Own:
    """The Plan's own patterns (`run.metrics`). They come from a job folder, which may be anybody's."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self.reported: list[str] = []
        """What there is to say: patterns that are no patterns, or were too slow."""
        self._patterns: dict[str, Expression] = {}
        self._spent: dict[str, float] = {}
        """Seconds that each pattern took."""
        self._allowed = ALLOWED
        if patterns:
            self._compile(dict(islice(patterns.items(), MOST)))

    def _compile(self, patterns: Mapping[str, str]) -> None:
        from dstui.plan.patterns import compiled, wrong_with

        for name, text in patterns.items():
            if problem := wrong_with(name, text):
                self.reported.append(sanitise(f"run.metrics.{name} is not looked for: {problem}"))
            else:
                self._patterns[name] = compiled(text, in_bytes=True)
        self._spent = dict.fromkeys(self._patterns, 0.0)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def scan(self, line: str) -> dict[str, float]:
        """What these patterns find in a line; a text that is no number is nothing."""
        found: dict[str, float] = {}
        if not self._patterns:
            return found
        text, then = line[:LONGEST_LINE].encode("utf-8", "replace"), time.thread_time()
        for name, pattern in self._patterns.items():
            match = pattern.search(text)
            now = time.thread_time()
            self._spent[name] += now - then
            then = now
            with suppress(ValueError, AttributeError):  # no number; a group that took no part
                if match:
                    found[name] = _number(match[1].decode())
        self._allowed += PER_LINE
        if sum(self._spent.values()) > self._allowed:
            self._give_up_the_slowest()
        return found

    def _give_up_the_slowest(self) -> None:
        """Look no longer for the patterns that took more than the mean."""
        mean = sum(self._spent.values()) / len(self._spent)
        for name in [name for name, spent in self._spent.items() if spent >= mean]:
            self.reported.append(f"run.metrics.{name} took {self._spent[name]:.1f} s: it is not looked for any more")
            del self._patterns[name]
        self._spent, self._allowed = dict.fromkeys(self._patterns, 0.0), ALLOWED
