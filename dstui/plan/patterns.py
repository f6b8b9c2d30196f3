"""Names of metrics, and regular expressions that users wrote (`run.metrics`, searches).

`re` can take years for an innocent line, holds the interpreter's lock meanwhile, and cannot be stopped. Users' expressions are therefore
matched by RE2, in time linear in the line. dstui's own expressions use `re`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Protocol

METRICS: Final = {
    "loss": "loss of the training",
    "lr": "learning rate",
    "grad_norm": "norm of the gradient",
    "step_time": "seconds per step",
    "tokens/s": "tokens per second",
    "samples/s": "samples per second",
    "steps/s": "steps per second",
    "eval_loss": "loss on data not used for training",
    "perplexity": "perplexity",
    "accuracy": "share of correct answers",
    "f1": "F1 score",
    "epoch_loss": "mean loss of an epoch",
    "train_perplexity": "perplexity on the training data",
    "loss_scale": "factor of the loss in fp16",
    "overflows": "steps skipped because gradients overflowed",
    "skipped": "steps that DeepSpeed reports as skipped",
    "epoch": "epoch",
    "trainable_parameters": "parameters that are trained, as PEFT counts them",
    "tflops": "TFLOP/s",
    "mfu": "share of the GPU's FLOPs that the model uses",
    "memory": "bytes of the GPU in use",
    "memory_peak": "most bytes of the GPU in use",
    "memory_begin": "bytes of the GPU before a phase",
    "memory_consumed": "bytes of the GPU that a phase added",
    "cpu_memory_peak": "most bytes of the host in use",
    "cpu_memory_begin": "bytes of the host before a phase",
    "cpu_memory_consumed": "bytes of the host that a phase added",
}
"""The metrics that dstui finds by itself, in display order, each with its meaning."""
TAKEN: Final = {*METRICS, "step", "steps"}

NAME: Final = re.compile(r"[A-Za-z_][\w./-]{0,39}")
LONGEST: Final = 1000
"""Characters of a pattern."""
LARGEST: Final = 1000
"""States of the program that RE2 compiles a pattern to. The time per line grows with this and with the length of the pattern."""
INSTALL: Final = "regular expressions need google-re2, which cannot be imported here: python -m pip install google-re2"
LINEAR: Final = "expressions are matched by RE2, in linear time"

TOO_LARGE: Final = "a regular expression that repeats too much: write * or + where a number of times is not needed"
REFUSED: Final = (
    # Syntax that RE2 lacks or reads differently from `re`: an expression that finds it, and what to write instead. The first match wins.
    (
        re.compile(r"\(\?<?[=!]"),
        f"lookaround, as (?=…) or (?<!…), is not possible ({LINEAR}): match the text around too, outside of ( )",
    ),
    (re.compile(r"\\[1-9]|\(\?P="), f"a backreference, as \\1 or (?P=name), is not possible ({LINEAR}): write the text out"),
    (re.compile(r"\(\?>|[*+?}]\+"), "a possessive repeat or an atomic group is not needed: write a plain repeat"),
    (re.compile(r"\{,\d+\}"), "a repeat without its least number is a plain text for RE2: write {0,3}, not {,3}"),
    (re.compile(r"\{\d{5,}|\{\d+,\d{5,}\}"), TOO_LARGE),  # RE2 reads it as plain text unless the number fits into 32 bits
    (re.compile(r"\\Z"), "the end of the line is $ or \\z, not \\Z"),
)
ESCAPED: Final = re.compile(r"\\[^1-9Z]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""Escaped characters and classes, in which nothing of REFUSED has its special meaning."""


class Expression(Protocol):
    """A compiled pattern with the methods that RE2 and `re` share, for text, or for bytes if the pattern was bytes."""

    def search(self, text: Any, /) -> Any:
        """Return the first match, or None."""

    def finditer(self, text: Any, /) -> Iterator[Any]:
        """Return all matches, from the left."""


def compile_pattern(pattern: str, *, ignore_case: bool = False, in_bytes: bool = False) -> Expression:
    """Compile a user's regular expression. Raises ValueError with a sentence that says what is wrong.

    `in_bytes`: match UTF-8 bytes, which takes a quarter of the time.
    """
    if len(pattern) > LONGEST:
        raise ValueError(f"a regular expression of more than {LONGEST} characters: write a shorter one")
    try:
        import re2  # imported only when somebody wrote a pattern
    except ImportError:
        raise ValueError(INSTALL) from None
    options = re2.Options()
    options.log_errors, options.case_sensitive = False, not ignore_case
    bare = ESCAPED.sub("_", pattern)
    with suppress(StopIteration):
        raise ValueError(next(why for found, why in REFUSED if found.search(bare)))
    try:
        made: Expression = re2.compile(pattern.encode() if in_bytes else pattern, options)
    except UnicodeEncodeError:
        raise ValueError("not a regular expression: it has bytes that are not UTF-8") from None
    except re2.error as error:
        raise ValueError(_reason(error)) from None
    if made.programsize > LARGEST:  # type: ignore[attr-defined]
        raise ValueError(TOO_LARGE)
    return made


def _reason(error: Exception) -> str:
    """Return RE2's reason for an error as text."""
    reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
    if "too large" in reason or "repetition size" in reason:
        return f"{TOO_LARGE} (RE2: {reason})"
    return f"not a regular expression of RE2: {reason}"


def metric_problem(name: str, pattern: str) -> str:
    """Return a sentence why this name and pattern cannot be a user's metric; "" if they can."""
    if name in TAKEN:
        return "dstui already has a metric of this name: give yours another name"
    if not NAME.fullmatch(name):
        return "a metric's name is a letter, then letters, digits and _ . / - , 40 at most"
    try:
        groups: int = compile_pattern(pattern).groups  # type: ignore[attr-defined]
    except ValueError as error:
        return str(error)
    if groups != 1:
        return f"{groups or 'no'} groups: put ( ) around the number, and (?: ) around what else belongs together"
    return ""
