"""Secrets taken out of text that leaves the machine: configurations, command lines, environments, logs.

Three ways to know one, each a table here: by the name that it is given (`HF_TOKEN=…`, `--api-key …`, `"password": "…"`), by its shape
(`hf_…`, `ghp_…`, `sk-…`, `https://user:…@host`), and by its value, where another place has named it. When in doubt it is masked: a setting
too many costs a question, a key too few costs a cluster. Names are looked for only around a few words, and no pattern can be made to
scan a text twice: logs, also hostile ones, pass at 20 MB/s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

MASK = "***"
"""What stands where a secret stood."""
SHORTEST = 8
"""Characters of a value that is masked wherever it stands; a shorter one could be any word."""

HINT = re.compile("secret|pass|pwd|credential|cookie|token|key|aws_")
"""One of these, in small letters, is in the name of every secret."""
NAMES = re.compile(
    r"secret(?!ar)|passwo?r?d(?!auth)|passphrase|credential|cookies?$"
    r"|(?:api|access|private|auth|account|storage|signing|encryption|license)[_-]?key"
    r"|[_-]pwd$|^aws_"
    r"|(?-i:_(?:KEY|PASS)$)"  # in capitals only: `forward_pass: 3 ms`
    r"|(?:[_-]|(?-i:(?<=[a-z])(?=T)))token(?:_?\d{1,2})?$",
    re.IGNORECASE,
)
VOCABULARY = re.compile(
    r"(?:pad|eos|bos|unk|sep|cls|mask|image|video|audio|vision|special|stop|end|next|last|first|new|per|max|min)[_-]token", re.IGNORECASE
)
"""`pad_token` and its like are no secrets."""
LONGEST_NAME = 60
WORD = re.compile(rf"[\w-]{{0,{LONGEST_NAME}}}")

VALUE = (
    r"(?P<value>\\+[\"'](?:(?!\\+[\"']).)*(?:\\+[\"']|$)"  # in quotes within quotes: JSON in a JSON string
    r"|\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'(?:[^'\\\n]|\\.|'')*(?:'|$)"
    r"|(?!(?:null|none|true|false)\b)(?:[^\s\"',;)}\]&]|[,;)}\]](?=[^\s\"'])|&(?![\w.-]{1,60}=))+)"
)
ASSIGNED = re.compile(r"(?:\\*[\"'])?[ \t]*(?:=|:(?!//))[ \t]*" + VALUE, re.IGNORECASE | re.MULTILINE)
"""What follows a name where it is given a value: in a shell, YAML, JSON, Python, a URL."""
OPTION = re.compile(r"(?:=|\\*[\"']?(?:[ \t]*,\s*|\s+)(?:- +)?)(?!-)" + VALUE, re.IGNORECASE | re.MULTILINE)
"""What follows an option: its value behind `=` or a space, or the next item of a list."""
OPAQUE = re.compile(r"[\"']?[ \t]*[:=][ \t]*[\"']?(?=[\w.~+/=-]{0,200}\d)[\w.~+/=-]{16}")
"""What follows a mere `token` where its value is no word of any language."""

SHAPES = [
    re.compile(shape)
    for shape in (
        r"hf_[A-Za-z0-9]{16,}",
        r"gh[pousr]_[A-Za-z0-9]{16,}",
        r"github_pat_\w{16,}",
        r"glpat-[\w-]{16,}",
        r"sk-(?<!\wsk-)(?=[\w-]{0,200}\d)[\w-]{16,}",
        r"xox[abeprs]-[\w-]{10,}",
        r"A[KS]IA[0-9A-Z]{16}",
        r"AIza[\w-]{35}",
        r"npm_[A-Za-z0-9]{36}",
        r"pypi-[\w-]{32,}",
        r"wandb_v1_\w{16,}",
        r"(?P<head>wandb login )[^\s-]\S*",
        r"eyJ(?<!\weyJ)[\w-]{10,}\.[\w-]{10,}\.[\w-]*",  # a JSON web token
        r"(?P<head>Bearer )[\w.~+/=-]{8,}",
        r"(?P<head>Authorization: Basic )[\w+/=-]+",
        r"(?P<head>://[^\s/:@\"'<>]*:)[^\s/\"'<>]+(?=@)",
        r"(?P<head>://)[^\s/:@\"'<>]{8,}(?=@)",  # https://TOKEN@host
        r"(?P<head>hooks\.slack\.com/services/)[^\s\"'<>]+",
        r"(?P<head>/api/webhooks/)[^\s\"'<>]+",
        r"(?P<head>api\.telegram\.org/bot)[^\s\"'<>]+",
        r"(?P<head>on_end[\"']?[ \t]{0,9}[:=][ \t]{0,9}[\"']?https?://[^\s/\"'<>]+/)[^\s\"'<>]+",
        r"(?P<head>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)[\s\S]*?(?=-----END|\Z)",
    )
]
"""What secrets look like, and what stands before them. Each begins with plain letters: such a search runs at 1 GB/s, others at 30 MB/s."""


def mask(text: str, known: Iterable[str] = ()) -> str:
    """The text without its secrets. `known`: values that are secret wherever they stand."""
    for spelling in sorted({spelling for value in known for spelling in _spellings(value)}, key=len, reverse=True):
        text = text.replace(spelling, MASK)
    for shape in SHAPES:
        text = shape.sub(rf"\g<head>{MASK}" if "head" in shape.groupindex else MASK, text)
    return _without_named(text)


def secrets(named: Mapping[str, str]) -> set[str]:
    """Of names and their values (an environment), the values that are secret and long enough to be known again."""
    return {value for name, value in named.items() if len(value) >= SHORTEST and is_secret(name)}


def secrets_in(text: str) -> set[str]:
    """The same of what a text names: a Plan, a command line, an env file."""
    return {value for found in _named(text) if len(value := found["value"].strip("\\\"'")) >= SHORTEST and value != MASK}


def is_secret(name: str) -> bool:
    """Whether what is called so is not for others."""
    return NAMES.search(name) is not None and VOCABULARY.search(name) is None


def _without_named(text: str) -> str:
    pieces, at = [], 0
    for found in _named(text):
        pieces += [text[at : found.start("value")], _hidden(found["value"])]
        at = found.end()
    return "".join(pieces) + text[at:]


def _named(text: str) -> Iterator[re.Match[str]]:
    """What secret names are given, in the group `value`."""
    lower = text.lower()
    if len(lower) != len(text):  # two letters of Unicode are longer in small
        lower = "".join(character.lower() if character.isascii() else character for character in text)
    looked = 0
    for hit in HINT.finditer(lower):
        if hit.start() < looked:
            continue
        before, rest = text[max(hit.start() - LONGEST_NAME, looked) : hit.start()], _word(text, hit.start())
        looked = hit.start() + len(rest)
        if found := _value_of(_word(before[::-1])[::-1] + rest, text, looked):
            looked = found.end()
            yield found


def _word(text: str, start: int = 0) -> str:
    match = WORD.match(text, start)
    return match[0] if match else ""


def _value_of(name: str, text: str, end: int) -> re.Match[str] | None:
    """The secret that a name, which ends there, is given; None where it is none."""
    if name.startswith("--"):
        return OPTION.match(text, end) if is_secret(name) or name == "--token" else None
    return ASSIGNED.match(text, end) if is_secret(name) or (name == "token" and OPAQUE.match(text, end)) else None


def _hidden(value: str) -> str:
    """The mask in the quotes of the value."""
    mark = re.match(r"\\*[\"']", value)
    quotes = mark[0] if mark else ""
    return f"{quotes}{MASK}{quotes if len(value) > len(quotes) and value.endswith(quotes) else ''}"


def _spellings(value: str) -> set[str]:
    """A value as it may stand in JSON, in a URL, and as it is."""
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, safe="")}
