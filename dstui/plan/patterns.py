"""The names of metrics, and the form of a pattern of the user's own (`run.metrics`): one group that is the number, and no trap.

A regular expression can take years on an innocent line, and nothing stops one that has begun. What can grow without measure is refused
here, by the form of the expression; what is merely slow is found out by the clock when it is used.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

METRICS: Final = {
    "loss": "loss of the training",
    "lr": "learning rate",
    "grad_norm": "norm of the gradient",
    "step_time": "seconds per step",
    "tokens/s": "tokens per second",
    "samples/s": "samples per second",
    "steps/s": "steps per second",
    "eval_loss": "loss on data that is not trained on",
    "perplexity": "perplexity",
    "accuracy": "share of right answers",
    "f1": "F1 score",
    "epoch_loss": "mean loss of an epoch",
    "train_perplexity": "perplexity on the training data",
    "loss_scale": "factor of the loss in fp16",
    "overflows": "steps skipped because gradients overflowed",
    "skipped": "steps that DeepSpeed says it skipped",
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
"""What dstui finds by itself, in the order in which it is shown, and what each is."""
TAKEN: Final = {*METRICS, "step", "steps"}

NAME: Final = re.compile(r"[A-Za-z_][\w./-]{0,39}")
LONGEST: Final = 1000
"""Characters of a pattern,"""
MOST_BRACKETS: Final = 50
"""and brackets in it: the parser recurses once per bracket."""
MANY: Final = 3
"""A repeat of more than so many times counts as one without end."""
MOST_OPEN: Final = 2
"""Repeats of nearly any character (`.*`) that one pattern may have: each multiplies its time by the length of the line."""

_parser: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_REPEATS: Final = {_parser.MAX_REPEAT, _parser.MIN_REPEAT, getattr(_parser, "POSSESSIVE_REPEAT", None)}


def compiled(pattern: str) -> re.Pattern[str]:
    """A regular expression that somebody wrote. Raises ValueError with what is wrong with it, in a sentence."""
    if len(pattern) > LONGEST or pattern.count("(") > MOST_BRACKETS:
        raise ValueError(f"a regular expression of more than {LONGEST} characters or {MOST_BRACKETS} brackets: write a shorter one")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what another release of Python may read otherwise
            return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    except (OverflowError, RecursionError, MemoryError):
        raise ValueError("no regular expression: something is repeated more often than can be counted") from None


def wrong_with(name: str, pattern: str) -> str:
    """Why this cannot be a metric of the user's own, in a sentence; empty where it can."""
    if name in TAKEN:
        return "dstui finds this one by itself: give yours another name"
    if not NAME.fullmatch(name):
        return "a metric's name is a letter, then letters, digits and _ . / - , 40 at most"
    try:
        groups = compiled(pattern).groups
    except ValueError as error:
        return str(error)
    if groups != 1:
        return f"{groups or 'no'} groups: put ( ) around the number, and (?: ) around what else belongs together"
    return trap_in(pattern)


def trap_in(pattern: str) -> str:
    """Why a regular expression cannot be used on any line that may come, in a sentence; empty where it can."""
    try:
        compiled(pattern)
    except ValueError as error:
        return str(error)
    parsed = list(_parser.parse(pattern))
    if any(_nested(parsed)):
        return "a repeat or a choice inside a repeat can take for ever on some lines: use one repeat, as in [-+0-9.e]+ or .*?"
    if sum(_open(parsed)) > MOST_OPEN:
        return f"more than {MOST_OPEN} repeats of nearly any character (.*) take too long: one before the name is not needed at all"
    return ""


def _inside(argument: Any) -> Iterator[list[Any]]:
    """The sequences of nodes within a node's argument, whatever its kind."""
    if isinstance(argument, _parser.SubPattern):
        yield list(argument)
    elif isinstance(argument, (tuple, list)):
        for part in argument:
            yield from _inside(part)


def _endless(node: Any) -> bool:
    return node[0] in _REPEATS and node[1][1] > MANY


def _choice(node: Any) -> bool:
    """Whether there is more than one way to match: a repeat of no fixed number, or a choice."""
    return node[0] is _parser.BRANCH or (node[0] in _REPEATS and node[1][0] != node[1][1])


def _nodes(sequence: list[Any]) -> Iterator[Any]:
    for node in sequence:
        yield node
        for part in _inside(node[1]):
            yield from _nodes(part)


def _nested(sequence: list[Any]) -> Iterator[bool]:
    """For each repeat without end, whether another one or a choice is in it."""
    for node in _nodes(sequence):
        if _endless(node):
            yield any(_choice(inner) for part in _inside(node[1]) for inner in _nodes(part))


def _open(sequence: list[Any]) -> Iterator[bool]:
    """For each repeat without end, whether it takes nearly any character: a dot, or all but a few."""
    for node in _nodes(sequence):
        if _endless(node):
            yield any(_wide(inner) for part in _inside(node[1]) for inner in part)


def _wide(node: Any) -> bool:
    kind, argument = node
    if kind is _parser.IN:
        return any(kind is _parser.NEGATE or (kind is _parser.CATEGORY and "NOT" in str(value)) for kind, value in argument)
    return kind in (_parser.ANY, _parser.NOT_LITERAL)
