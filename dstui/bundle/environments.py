"""Mask environments in the files of a job: every value except those of variables that are known to hold no secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dstui.bundle.secrets import is_harmless, is_plain

QUOTED = r"\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'(?:[^'\n]|'')*(?:'|$)"
FLOW = re.compile(r"\benv(?:iron(?:ment)?)?\\?[\"']?[ \t]*[:=(][ \t(]*(?:[&!]\S+[ \t]+)*\{", re.IGNORECASE | re.MULTILINE)
"""The beginning of an environment in braces: in JSON, in YAML, as Python prints it."""
PAIR = re.compile(rf"[\s,]*(?P<name>{QUOTED}|[^\s:{{}},\"']+)[ \t]*:\s*(?P<value>{QUOTED}|[^,}}\n]*)", re.MULTILINE)
ESCAPED_PAIR = re.compile(r"[\s,]*\\\"(?P<name>\w+)\\\"[ \t]*:\s*(?P<value>\\\"(?:(?!\\\").)*\\\")")
"""An entry of an environment in JSON inside a JSON string."""
BLOCK = re.compile(r"^(?P<indent>[ \t-]*)[\"']?env[\"']?:[ \t]*(?:[&!]\S+[ \t]*)*(?:#[^\n]*)?\n", re.MULTILINE)
"""An environment as a YAML block."""
LINE = re.compile(r"(?P<indent>[ \t]*)(?P<name>[\"']?[^\s:\"']+[\"']?)[ \t]*:(?P<value>[^\n]*)")
BLOCK_MARK = re.compile(r"[ \t]+[|>][+-]?\d?[ \t]*$")
WORD = r"(?P<value>(?:\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|\\.|[^\s;|&\"'()<>\\])+)"
EXPORT = re.compile(rf"\b(?:export|declare -x|typeset -x)[ \t]+(?P<name>[A-Za-z_]\w*)=\\?{WORD}")
SET = re.compile(rf"(?:\bsetenv|-genv|-env)[ \t]+(?P<name>[A-Za-z_]\w*)[ \t]+{WORD}")
ASSIGNED = re.compile(rf"(?<![\w.$/\\\"'-])(?P<name>[A-Z][A-Z0-9_]+)=(?![=\s]){WORD}")
IN_QUOTES = re.compile(r"(?<=[\"'])(?P<name>[A-Z][A-Z0-9_]+)=(?P<value>[^\"'\\\n]+)")
ENV_LINE = re.compile(r"^(?P<name>[A-Za-z_]\w*)=(?P<value>[^\n]*)$", re.MULTILINE)
SETTING = re.compile(r"[/.~][^\s:@?]*|[\d.,:]*|[A-Za-z]*|(?:\d+(?:\.\d+)?[A-Za-z]{1,3}%?)")
"""Values that are masked only beside their name: paths, numbers, single words."""


class Variable(NamedTuple):
    """A value of an environment and its position."""

    name: str
    start: int
    end: int


def environment_masked(text: str, mask: str, *, is_log: bool) -> tuple[str, set[str]]:
    """Mask the values of all environments in a text. Return it with the values that are secret everywhere.

    `is_log`: an assignment may mean anything, and a plain value stays. In a record of a job all are masked.
    """
    found = sorted({*_in_records(text), *_in_shells(text, is_log), *_assigned(text, is_log)}, key=lambda one: (one.start, -one.end))
    chunks, values, at = [], set[str](), 0
    for name, start, end in found:
        if start < at or is_harmless(name):
            continue
        value = text[start:end]
        bare = value.strip().strip("\\\"'")
        if not bare or bare == mask:
            continue
        if not SETTING.fullmatch(bare):
            values.add(bare)
        chunks += [text[at:start], hidden(value, mask)]
        at = end
    return "".join(chunks) + text[at:], values


def hidden(value: str, mask: str) -> str:
    """Return the mask with the blanks and quotes of the value around it."""
    head = re.match(r"\s*(?:\\*[\"'])?", value)
    before = head[0] if head else ""
    quote = before.lstrip()
    return f"{before}{mask}{quote if quote and len(value) > len(before) and value.rstrip().endswith(quote) else ''}"


def _in_records(text: str) -> Iterator[Variable]:
    if not re.search("env", text, re.IGNORECASE):
        return
    at = 0
    for begin in FLOW.finditer(text):
        if begin.end() < at:  # inside the previous one
            continue
        at, pair = begin.end(), PAIR
        if ESCAPED_PAIR.match(text, at):
            pair = ESCAPED_PAIR
        while found := pair.match(text, at):
            yield _variable(found)
            at = max(found.end(), at + 1)
    for begin in BLOCK.finditer(text):
        yield from _in_block(text, begin.end(), len(begin["indent"]))


def _in_block(text: str, at: int, least: int) -> Iterator[Variable]:
    """Yield the lines that are indented deeper than their key. Still deeper lines continue the value above."""
    name, indent = "", -1
    while at < len(text):
        end = text.find("\n", at)
        end = end if end >= 0 else len(text)
        line = LINE.match(text, at, end)
        blanks = len(text[at:end]) - len(text[at:end].lstrip())
        if text[at:end].strip() and blanks <= least:
            return
        if line and (indent < 0 or blanks <= indent):
            name, indent = line["name"].strip("\"'"), blanks
            if not BLOCK_MARK.fullmatch(line["value"]):
                yield Variable(name, line.start("value") + 1, end) if line["value"][:1] == " " else _variable(line)
        elif name and text[at:end].strip():
            yield Variable(name, at + blanks, end)
        at = end + 1


def _in_shells(text: str, is_log: bool) -> Iterator[Variable]:
    for pattern, mark in ((EXPORT, "="), (SET, "env")):
        if mark in text:
            yield from map(_variable, pattern.finditer(text))
    if not is_log and all(ENV_LINE.fullmatch(line) for line in text.splitlines() if line.strip()):
        yield from map(_variable, ENV_LINE.finditer(text))


def _assigned(text: str, is_log: bool) -> Iterator[Variable]:
    for pattern in (ASSIGNED, IN_QUOTES) if "=" in text else ():
        for found in pattern.finditer(text):
            if not is_log or not is_plain(found["value"]):
                yield _variable(found)


def _variable(found: re.Match[str]) -> Variable:
    return Variable(found["name"].strip("\"'"), *found.span("value"))
