"""The kinds of values in a Plan: functions that check a value.

A kind yields a sentence for each mistake, with the path of the mistake below the field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from dstui.base.limits import MAX_SLOTS, MAX_TEXT
from dstui.plan.document import Path
from dstui.plan.hostfile import host_problem

Mistakes = Iterator[tuple[Path, str]]

SECRET_KEY = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-\w.]+")
"""The name of a Secret of Kubernetes and a key in it."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MODULE = re.compile(r"\w[\w-]*(?:\.\w[\w-]*)*")
OPTION = re.compile(r"[\w.+:,/@%=\[\]()&|*!-]+", re.ASCII)
LONG_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=[\w.+:,/@%=\[\]()&|*!-]+)?", re.ASCII)
MAX_METRICS = 100
"""Patterns of the user's own. Each is tried on every line of every rank."""


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer. Booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _form(fits: Callable[[Any], bool], wanted: str) -> Callable[[Any], Mistakes]:
    def mistakes(value: Any) -> Mistakes:
        if not fits(value):
            yield (), f"expected {wanted}, not {describe_value(value)}"

    return mistakes


def text(value: Any) -> Mistakes:
    """Yield the mistakes in a path, a word or a line of text."""
    if not isinstance(value, str):
        yield (), f"expected text, not {describe_value(value)}"
    elif "\0" in value:
        yield (), "a NUL (\\0) cannot be in it: no path, argument or variable can hold one"
    elif len(value) > MAX_TEXT:
        yield (), f"a text of {len(value):,} characters: no path, argument or variable is longer than {MAX_TEXT:,}"


def _words(value: Any) -> Mistakes:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        yield (), f"expected a list of words ([--epochs, 1]), not {describe_value(value)}"
        return
    for index, word in enumerate(value):
        yield from (((index,), message) for _, message in text(word))


def _option(value: Any) -> Mistakes:
    """Yield the mistakes in the value of an option in an #SBATCH line."""
    yield from text(value)
    if isinstance(value, str) and (not value or value.startswith("-") or not OPTION.fullmatch(value)):
        yield (
            (),
            f"{describe_value(value)} cannot be the value of an option of sbatch: "
            "letters, digits and ._-+:,/@%=[]()&|*! only, '-' not first",
        )


def _options(value: Any) -> Mistakes:
    yield from _words(value)
    for index, word in enumerate(value if isinstance(value, list) else ()):
        if isinstance(word, str) and not LONG_OPTION.fullmatch(word):
            yield (index,), f"{describe_value(word)} is not an option of sbatch: --name or --name=value, without spaces"


def _lines(value: Any) -> Mistakes:
    yield from _words(value)
    for index, line in enumerate(value if isinstance(value, list) else ()):
        if isinstance(line, str) and CONTROL.search(line):
            yield (index,), "a line break or a control character cannot be in it: give each line as its own item"


def _words_or_text(value: Any) -> Mistakes:
    if isinstance(value, str):
        yield from text(value)
    elif list(_words(value)):
        yield (), f"expected a list of words or a word ([q_proj, v_proj]), not {describe_value(value)}"


def _host(value: Any) -> Mistakes:
    yield from text(value)
    if isinstance(value, str) and (problem := host_problem(value)):
        yield (), problem


def _module(value: Any) -> Mistakes:
    yield from text(value)
    if isinstance(value, str) and not MODULE.fullmatch(value):
        yield (), f"{describe_value(value)} is not the name of a module, such as pkg.train"


def _mapping_of_texts(value: Any, wanted: str) -> Mistakes:
    if not isinstance(value, dict) or not all(isinstance(inner, str) for inner in value.values()):
        yield (), f"expected {wanted}, not {describe_value(value)}"
        return
    for name, inner in value.items():
        yield from (((name,), message) for _, message in text(inner))


def _env(value: Any) -> Mistakes:
    yield from _mapping_of_texts(value, "a mapping NAME: value")
    for name, inner in value.items() if isinstance(value, dict) else ():
        if not VARIABLE.fullmatch(name):
            yield (name,), "a variable's name has letters, digits and _ only"
        if isinstance(inner, str) and (control := CONTROL.search(inner)):
            what = "a second line" if control[0] in "\r\n" else f"a control character (\\x{ord(control[0]):02x})"
            yield (name,), f"{what} cannot be in it: .deepspeed_env has one line per variable, and launchers pass it on unchanged"


def _labels(value: Any) -> Mistakes:
    yield from _mapping_of_texts(value, "a mapping NAME: value")


def _secrets(value: Any) -> Mistakes:
    """Yield the mistakes in references to Secrets. Values are not repeated, since they may be secrets themselves."""
    yield from _mapping_of_texts(value, "a mapping NAME: secret/key")
    for name, place in value.items() if isinstance(value, dict) else ():
        if not VARIABLE.fullmatch(name):
            yield (name,), "a variable's name has letters, digits and _ only"
        if isinstance(place, str) and not SECRET_KEY.fullmatch(place):
            yield (name,), "expected the name of a Secret and its key (hf-secret/token), never the value itself"


def _slots(value: Any) -> Mistakes:
    if not isinstance(value, dict) or not value or not all(is_integer(slots) and slots >= 1 for slots in value.values()):
        yield (
            (),
            f"expected a mapping host: slots with at least one host and one slot each ({{worker-1: 8}}), not {describe_value(value)}",
        )
        return
    for host, slots in value.items():
        if problem := host_problem(host):
            yield (host,), problem
        if slots > MAX_SLOTS:
            yield (host,), f"{describe_value(slots)} slots are more than {MAX_SLOTS:,}, the most of one host"


def _patterns(value: Any) -> Mistakes:
    yield from _mapping_of_texts(value, "a mapping NAME: 'regular expression'")
    if not isinstance(value, dict) or not value:
        return
    if len(value) > MAX_METRICS:
        yield (), f"{len(value):,} patterns are more than {MAX_METRICS}, the limit"
        return
    from dstui.plan.patterns import metric_problem

    for name, pattern in value.items():
        if isinstance(pattern, str) and (problem := metric_problem(name, pattern)):
            yield (name,), problem


KINDS: dict[str, Callable[[Any], Mistakes]] = {
    "str": text,
    "int": _form(is_integer, "a whole number"),
    "bool": _form(lambda value: isinstance(value, bool), "true or false"),
    "number": _form(_is_number, "a number"),
    "host": _host,
    "module": _module,
    "words": _words,
    "words or str": _words_or_text,
    "option": _option,
    "options": _options,
    "lines": _lines,
    "env": _env,
    "labels": _labels,
    "secrets": _secrets,
    "slots": _slots,
    "patterns": _patterns,
    "mapping": _form(lambda value: isinstance(value, dict), "a mapping (key: value)"),
}
TEXTS = ("str", "host", "module", "option")
"""Kinds whose value is read as text unless it is null."""
LISTS_OF_TEXTS = ("words", "words or str", "options", "lines", "env", "labels", "secrets", "patterns")
"""Kinds that contain only such text."""


def describe_value(value: Any) -> str:
    """Describe a value in a message. Long ones are cut."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    reported = value if isinstance(value, str) else getattr(value, "spelling", str(value))
    return f"'{reported[:40]}…'" if len(reported) > 40 else f"'{reported}'"
