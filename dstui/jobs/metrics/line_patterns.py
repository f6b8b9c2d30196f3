"""Find metrics in log lines: those of DeepSpeed, the Trainer, accelerate, Megatron, tqdm and plain scripts.

`line_pairs` reads lists of named numbers. A metric is one entry of PATTERNS: a name and its spellings in lines. `scan` takes 2 µs for a
line without a metric, 20 to 50 µs for one with. Text that only looks like a metric (a configuration dump, prose) is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from dstui.jobs.metrics.line_hints import hints_of
from dstui.jobs.metrics.line_pairs import read_bar_text, read_list

MIB = float(1 << 20)
PHASE = "the (?:train|eval|training|evaluation)"


class Pattern(NamedTuple):
    """A metric: its name, its spellings (regular expressions for lower case), and the units that may follow its number.

    `scale` converts a number without a unit to the metric's unit: bytes, seconds, or a plain number.
    """

    name: str
    words: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    scale: float = 1.0
    needs_unit: bool = False
    """True if a number without a unit is something else: `time 3`, `memory 2`."""
    percent: bool = False
    """True if it may be given in percent; it is a share then."""
    mib: bool = False
    """True if a bare number of three to seven digits is in MiB, as in mmengine's and torchvision's loggers."""
    setting: bool = False
    """True if it is a setting too: alone on an indented line, or on one that ends with a comma, it is part of a configuration dump."""


PATTERNS = (
    Pattern("step", ("global[_ ]step", "step", "iteration", "iter"), setting=True),
    Pattern("epoch", ("epoch",), setting=True),
    Pattern("epoch_loss", ("train_epoch_loss",)),
    Pattern("loss", ("lm loss", "train(?:ing)?[_ ]loss(?:_step)?", "(?:avg|average|mean)[_ ]loss", "loss")),
    Pattern(
        "eval_loss",
        ("(?:eval|val|valid|validation|test)[_ ](?:epoch_)?loss", "(?:eval|val|valid|validation|test)/loss", "lm[_ ]loss value"),
    ),
    Pattern("train_perplexity", ("train_(?:perplexity|ppl)",)),
    Pattern("perplexity", ("(?:eval_)?(?:perplexity|ppl)", "lm loss ppl", "lm_loss_ppl value")),
    Pattern("accuracy", ("(?:eval_|val_|test_)?acc(?:uracy)?",), percent=True),
    Pattern("f1", ("(?:eval_)?f1",), percent=True),
    Pattern("lr", ("learning[_ ]rate", "lr"), setting=True),
    Pattern("grad_norm", ("grad(?:ient)?[_ ]norm", "gnorm")),
    # after an overflow DeepSpeed prints the old and the new scale
    Pattern("loss_scale", (r"attempted loss scale: \d+, reducing to", "loss[_ ]scale"), setting=True),
    Pattern("skipped", ("skipped",)),
    Pattern("step_time", (r"elapsed time per iteration \(ms\)", "elapsed_time_per_iteration_ms"), scale=1e-3),
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
    Pattern("tflops", ("tflop/?s", r"throughput per gpu \(tflop/s/gpu\)"), ("tflops",)),
    Pattern("mfu", ("mfu",), percent=True),
    # of PEFT's print_trainable_parameters
    Pattern("trainable_parameters", ("(?<!non-)trainable params",)),
    # of DeepSpeed's timer and see_memory_usage, and of torchtitan; tables of PEFT's examples, which are in MiB without saying so
    Pattern("memory", ("memallocated", "mem_allocated", "ma")),
    Pattern("memory", (r"mem(?:ory)?(?=\s*[:=])",), needs_unit=True, mib=True),
    Pattern("memory_peak", ("maxmemallocated", "max_mem_allocated", "max_ma", "(?:max|peak)[_ ]mem(?:ory)?"), mib=True),
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
    """Return an expression for any of these words. Each begins with a letter, by which most positions are rejected quickly."""
    return f"(?P<word>{'|'.join(words)})"


# `loss 1.8`, `loss: 1.8`, `loss=1.8`, `'loss': 1.8`, `lr=[0.001]`, `learning rate: 1.5e-04`, `train_epoch_loss=tensor(0.2`
WORD_FIRST = re.compile(
    rf"(?<![\w.]){_any(word for pattern in PATTERNS for word in pattern.words)}"
    rf"(?:[\"']?\s*[:=]\s*(?:tensor)?[\"'\[(]*|\s+)(?={AHEAD}(?!\w|\.\w))"
)
KNOWN = re.compile("|".join(f"(?:{word})" for pattern in PATTERNS for word in pattern.words))
# `41.2k tok/s`, `12.1 samples/s`, `3.02it/s`
NUMBER_FIRST = re.compile(
    rf"(?<![\w.,:])(?=[-+.\d]){NUMBER.pattern}\s*{_any(unit for pattern in PATTERNS for unit in pattern.units)}(?![\w/])"
)
BAR = re.compile(r"(?<![\w.])\d+%\|[^|]*\|\s*(?P<step>\d+)/(?P<steps>\d+) \[(?P<clock>[\d:]+)?(?:<[^,\]]*,\s*[^,\]]*(?P<more>,[^\]]*))?")
"""A progress bar of tqdm with its running time; `more` is the program's addition."""
TRAININGS = re.compile(r"(?:train(?:ing)?|steps?)\b[^|%]{0,20}:$")
"""Text before the training's bar."""
OTHER_BAR = re.compile(r"\s*(?!train|step|epoch)[^\s\d%|][^%]*\d+%\|")
"""A bar with a name of its own, for data that is tokenized or shards that are loaded. Its speed is not the training's."""
EPOCH_OF = re.compile(r"\bepoch\W{0,3}(?P<within>\d+)")
MEASURES = re.compile(r"loss|reward")
RICH = re.compile(
    r"(?:epoch\W{0,3}(?P<within>\d+)(?:/\d+)?|train\w*|steps?)"
    r"\s{1,4}[━╸╺─]{3,200}[━╸╺─ ]{0,4}(?:\d{1,3}% {1,3})?(?P<step>\d+)/(?P<steps>\d+)"
    r" (?P<clock>[\d:]+)"
)
"""A progress bar of rich."""
COUNTS = (
    # `step 10/40`, `iteration 10/ 100`, `Step 3 of 10`, `Iter(train) [ 10/500]`; DeepSpeed's pipeline engine
    (
        "",
        re.compile(r"(?<![\w.])(?:step|iteration|iter)(?:\(train\))?\W{1,20}(?P<step>\d[\d,]*)\s*(?:/|of)\s*(?P<steps>\d[\d,]*)(?![\d.])"),
    ),
    ("steps: ", re.compile(r"\bsteps: (?P<step>\d+) loss:")),
    # `Epoch: [0][ 11/500]`, `data epoch: [0]  [ 50/1000]`, `Epoch 3: 10/100`, `Train: 0 [ 50/1251 (  4%)]`
    ("epoch", re.compile(r"\bepoch(?:\(train\))?\W{0,4}(?P<within>\d+)(?:/\d+)?\W{1,4}\[\s*(?P<step>\d+)\s*/\s*(?P<steps>\d+)\]")),
    ("epoch", re.compile(r"\bepoch\W{0,3}(?P<within>\d+)(?:/\d+)?:\s*(?P<step>\d+)\s*/\s*(?P<steps>\d+)(?![\d.%])")),
    ("train: ", re.compile(r"\btrain: (?P<within>\d+) \[\s*(?P<step>\d+)/(?P<steps>\d+) \(\s*\d+%\)\]")),
)
"""A text that the line must contain, and an expression for step and total. `within`: they count within this epoch."""
PLACES = ("step", "steps", "within")
BRACKETS = re.compile(r"(?<![\w.])\[\s*(?P<step>\d+)\s*/\s*(?P<steps>\d+)\s*\]")
"""Also a step, on a line with a metric."""
NAMED = re.compile(
    r"(?<![\w./])(?:(?:average |mean |avg )?(?P<reward>reward)(?: score)?"
    r"|(?P<name>(?:[a-z]\w*[_/]|[a-z]\w*/\w+_|(?:actor|critic|value|policy|unsupervised|aux) )loss(?:_(?!scal)[a-z]\w*)?"
    r"|loss_(?!scal|weight|coef|fn|func|type|mask|is|at)[a-z]\w*))"
    rf"(?:[\"']?\s*[:=]\s*(?:tensor)?[\"'\[(]*|\s+)(?={AHEAD}(?!\w|\.\w))"
)
"""A named loss, or a reward: `lm_loss: 7.1`, `Actor Loss: 0.2`, `train/loss=2.3`, `loss_itc: 2.0`, `Average reward score: 0.5`."""
NO_TRAINING = re.compile(r"(?:.*[_/])?(?:eval|val|valid|validation|test)(?:[_/].*)?")
OVERFLOW, REWARD = "overflow!", "reward"
HINTS = (*hints_of(spelling for pattern in PATTERNS for spelling in (*pattern.words, *pattern.units)), "%|", "━", REWARD, OVERFLOW)
"""A line without any of these texts, in lower case, has no metric and no progress bar."""
EVALUATION = re.compile(r"\W*(?:eval\w*|val(?:id(?:ation)?)?|test(?:ing)?(?: set)?|ppl|perplexity)\b")
"""The beginning of a line about an evaluation."""
SETTINGS = re.compile(
    r"(?:^|\s)--[a-z]|betas|weight_decay|_batch_size|namespace\(|arguments\(|\.{4}|config\.py:\d|warmup_(?:min|max|num|steps|ratio)|num_(?:train_)?epochs|max_(?:steps|epochs)"
)
"""Words of a configuration dump that do not occur beside a measurement."""
ALONE = re.compile(r"(?:\s+|(?=.*,\s*$)|(?=['\"]))['\"]?[\w ]+['\"]?\s*[:=]\s*[^\s,]+,?\s*$")
"""A setting on a line of its own: indented, quoted, or followed by a comma."""
PROSE = re.compile(r"\s+[a-z]+\b(?!\s*[:=]?\s*[-+\d.(]|/)")
"""After a number, a word without another number after it: `a loss 3 times lower`."""
WHOLE_RUN = re.compile(r".*train_runtime|\s{2,}train_loss\s+= ")
"""The Trainer's last lines, whose loss is the mean of the whole run."""
MAX_STEPS = 1e15
"""A larger number is not a step."""
LONGEST = 2000
"""Characters of a line that are searched; more for a list of numbers."""
LONGEST_NAME = 40


def scan(line: str) -> dict[str, float]:
    """Return the metrics of one line by name. Of several numbers for one name, the first counts. NaN and infinity are included.

    `step` is among them, and `steps` if the line names the total.
    """
    lower = line[:LONGEST].lower()
    if not any(hint in lower for hint in HINTS):
        return {}
    if (pairs := read_list(line, _known)) is None:
        return _in_words(line, lower)
    return {**(_in_words(line[: pairs.start], lower[: pairs.start]) if pairs.start else {}), **pairs.found}


def _in_words(line: str, lower: str) -> dict[str, float]:
    """Return the metrics of a line, or of its beginning, that is not a list of numbers."""
    found: dict[str, float] = {}
    bar, other = _bar(lower)
    if bar is not None:
        beside = line[bar.end() :] if bar.re is RICH else f"{line[: bar.start()].strip()}{bar['more'] or ''}"
        found = _place_of(bar) | (read_bar_text(beside, _known) if beside else {})
    elif not other:
        found = next((_place_of(total) for text, counts in COUNTS if text in lower and (total := counts.search(lower))), {})
    for match in WORD_FIRST.finditer(lower):
        if number := NUMBER.match(lower, match.end()):
            _take(match, number, found, lower)
    if REWARD in lower or "_loss" in lower or "/loss" in lower or "loss_" in lower or lower.count("loss") > 1:
        _take_named(lower, found)
    if ("/s" in lower or "s/" in lower) and not other:
        for match in NUMBER_FIRST.finditer(lower):
            _take(match, match, found, lower)
    if OVERFLOW in lower:
        found["overflows"] = 1.0
    if "step" not in found and "loss" in found and (total := BRACKETS.search(lower)):
        found |= _place_of(total)
    for name in ("step", "steps"):
        if found.get(name, 0.0) > MAX_STEPS:
            del found[name]
    return _plausible(found, lower) if found else found


def _place_of(total: re.Match[str]) -> dict[str, float]:
    """Return the step that a line names, the total, and the epoch in which they count."""
    return {name: _number(text) for name, text in total.groupdict().items() if text is not None and name in PLACES}


def _bar(lower: str) -> tuple[re.Match[str] | None, bool]:
    """Return the training's progress bar on a line, or that the line has another bar."""
    bar = BAR.search(lower) if "%|" in lower else None
    if bar is None:
        return RICH.search(lower) if "━" in lower else None, False
    before = lower[: bar.start()].strip()
    if not before or TRAININGS.match(before) or EPOCH_OF.search(before) or MEASURES.search(before):
        return bar, False
    return None, OTHER_BAR.match(lower) is not None


def _take_named(lower: str, found: dict[str, float]) -> None:
    of_evaluation = "eval_" if EVALUATION.match(lower) else ""
    for match in NAMED.finditer(lower):
        name, number = match["reward"] or match["name"].replace(" ", "_"), NUMBER.match(lower, match.end())
        if number and not _known(name) and not NO_TRAINING.fullmatch(name) and not _is_count(match, number, lower):
            found.setdefault(f"{of_evaluation}{name}"[:LONGEST_NAME], _number(number["value"]))


def _known(word: str) -> str | None:
    """Return dstui's name for a spelling; None if it has none."""
    match = KNOWN.fullmatch(word)
    return _pattern(word).name if match else None


class Bar(NamedTuple):
    """A progress bar: the count, the total, and its running time in seconds (0 if unknown)."""

    done: int
    total: int
    clock: float
    epoch: int | None = None
    """The epoch whose steps it counts, if it names one."""


def bar_of(line: str) -> Bar | None:
    """Return the training's progress bar on a line; None if there is none."""
    if "%|" not in line and "━" not in line:
        return None
    lower = line.lower()
    bar, _ = _bar(lower)
    if bar is None:
        return None
    seconds = 0.0
    for part in (bar["clock"] or "").split(":"):
        seconds = 60 * seconds + float(part or 0)
    within = bar["within"] if bar.re is RICH else (found["within"] if (found := EPOCH_OF.search(lower[: bar.start()])) else None)
    return Bar(int(bar["step"]), int(bar["steps"]), seconds, int(within) if within else None)


def _take(match: re.Match[str], number: re.Match[str], found: dict[str, float], lower: str) -> None:
    """Record one number, unless there is one already. A fractional step is a time instead."""
    pattern, text, unit = _pattern(match["word"]), number["value"], number["unit"] or number["suffix"]
    if pattern.name == "step" and not text.replace(",", "").isdigit():
        return
    mib = pattern.mib and not unit and text.isdigit() and 3 <= len(text) <= 7
    if (unit == "%" and not pattern.percent) or (pattern.needs_unit and not unit and not mib):
        return
    if match is not number and text.isdigit() and pattern.name not in COUNTED and _is_count(match, number, lower):
        return
    if clock := CLOCK.match(lower, number.start()):
        if pattern.name == "step_time":
            found.setdefault(pattern.name, float(3600 * int(clock[1]) + 60 * int(clock[2]) + int(clock[3])))
        return
    found.setdefault(pattern.name, _number(text) * (UNITS[unit] if unit else MIB if mib else pattern.scale))


@cache
def _pattern(word: str) -> Pattern:
    """Return the metric of a spelling."""
    spellings = ((pattern, AROUND.sub("", known)) for pattern in PATTERNS for known in (*pattern.words, *pattern.units))
    return next(pattern for pattern, known in spellings if re.fullmatch(known, word))


def _is_count(match: re.Match[str], number: re.Match[str], lower: str) -> bool:
    """Return whether an integer counts something else: `accuracy: 9890/10000`, `a loss 3 times lower`."""
    bare = not any(sign in match[0] for sign in ":=")
    return lower.startswith("/", number.end()) or (bare and PROSE.match(lower, number.end()) is not None)


def _plausible(found: dict[str, float], lower: str) -> dict[str, float]:
    """Return the plausible metrics: none in a dump of settings, an evaluation's loss if the line is about one."""
    if SETTINGS.search(lower) or (len(found) == 1 and next(iter(found)) in SETTING and ALONE.match(lower)):
        return {}
    if "loss" in found and WHOLE_RUN.match(lower):
        found.pop("loss", None)
    if "loss" in found and EVALUATION.match(lower):
        found = {name: value for name, value in found.items() if name not in ("step", "steps", "within")}
        found.setdefault("eval_loss", found.pop("loss"))
    return found


AROUND = re.compile(r"\(\?<?=[^)]*\)")
"""Look-arounds in a spelling."""
CLOCK = re.compile(r"(\d{1,3}):(\d\d):(\d\d)(?![\d:])")
"""A time of a minute and more, in ArcticTraining's form."""
COUNTED = ("step", "epoch")
SETTING = {pattern.name for pattern in PATTERNS if pattern.setting}


def _number(text: str) -> float:
    return float(text.replace(",", ""))
