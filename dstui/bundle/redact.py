"""Remove secrets from text that leaves the machine: configurations, command lines, environments, logs.

A secret is recognised in four ways, each in a module here: by its name (`HF_TOKEN=…`, `--api-key …`, `"password": "…"`); as the value of an
environment variable that is not known to be harmless; by its form (`hf_…`, `https://user:…@host`, long random texts); and by its value, if
another place has named it. When in doubt, mask: a masked setting costs a question, a leaked key costs a cluster. No text can make a pattern
scan it twice: logs pass at 3 MB/s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from dstui.bundle.addresses import addresses_masked, notified_masked
from dstui.bundle.environments import environment_masked, hidden
from dstui.bundle.secrets import (
    HINT,
    MARKED,
    SHAPES,
    SHORTEST_SHAPE,
    TOKENS,
    are_words,
    is_plain,
    is_secret,
    may_be_secret,
    private_keys_masked,
    random_texts_masked,
)

MASK = "***"
"""Replaces a secret."""
SHORTEST = 8
"""Characters of a value that is masked everywhere; a shorter one could be any word."""
LONGEST_NAME = 60
WORDS = re.compile(r"[A-Za-z_. -]*|[\d.,:/ -]*")
"""Values that a log may print after `password: ` and elsewhere without being secret."""
WORD = re.compile(rf"[\w-]{{0,{LONGEST_NAME}}}")

VALUE = (
    r"(?P<value>\\+[\"'](?:(?!\\+[\"']).)*(?:\\+[\"']|$)"  # in escaped quotes: JSON inside a JSON string
    r"|\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'(?:[^'\\\n]|\\.|'')*(?:'|$)"
    r"|(?!(?:null|none|true|false)\b)(?:[^\s\"',;)}\]&]|[,;)}\]](?=[^\s\"'])|&(?![\w.-]{1,60}=))+)"
)
ASSIGNED = re.compile(r"(?:\\*[\"'])?[ \t]*(?:=>?|:=|:(?!//))[ \t]*" + VALUE, re.IGNORECASE | re.MULTILINE)
"""An assignment after a name: in a shell, YAML, JSON, Python, a URL."""
OPTION = re.compile(r"(?:=|\\*[\"']?(?:[ \t]*,\s*|\s+)(?:- +)?)(?!-)" + VALUE, re.IGNORECASE | re.MULTILINE)
"""The value after an option: behind `=` or a space, or the next item of a list."""
PASSWORD_OPTION = re.compile(r"(?P<head>(?<![\w-])-p(?:[ \t]+|=|\\*[\"'][ \t]*,\s*|\n[ \t]*- +))" + VALUE)
"""The value after `-p`, a password or a port."""
NO_PASSWORD = re.compile(r"\d{1,5}(?::\d{1,5})?|[./~][^\s:@]*|-.*")
LONGEST_SETTING = 200
"""Characters of a value that may be something other than a secret."""
OTHER_MEANING = re.compile(r"\b(?:mkdir|srun|sbatch|salloc)\b[^\n]*\Z")
"""Programs whose `-p` is not a password: parents, a partition."""
REPORTED = re.compile(r"[^\n:=\"']{0,60}?\b(?:is|was|are)[ \t]*:?[ \t]+[\"']?(?P<value>[^\s\"',;)]{6,})")
"""A secret in a sentence: `the password for the database is …`."""
BESIDE = re.compile(r"[ \t]+[\"']?(?P<value>[^\s\"',;)]{8,})")
"""A value directly after a name."""
REMARK = re.compile(r"[a-z]+(?:ed|ing|ly|ble|id|ory|ent)|incorrect|different|missing|something|elsewhere|[a-z]{1,8}")
"""Words about a secret that are not the secret itself."""
MEASURED = re.compile(r"[+-]?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)", re.IGNORECASE)
"""A number with a point or an exponent: a measurement of any length."""
HEXED = re.compile(r"[^\n]{0,40}?(?<![0-9A-Za-z])(?P<value>[0-9a-f]{32,64})(?![0-9A-Za-z])")
"""A key in hexadecimal digits, as trackers have, in the words after `key` and similar names."""


def mask(text: str, known: Iterable[str] = (), *, is_log: bool = True) -> str:
    """Return the text without its secrets. `known`: values that are secret everywhere; `is_log`: the text is not a record of a job."""
    for spelling in sorted({spelling for value in known for spelling in _spellings(value)}, key=len, reverse=True):
        text = text.replace(spelling, MASK)
    text = private_keys_masked(text, MASK)
    text = notified_masked(text, MASK)[0]
    text = environment_masked(text, MASK, is_log=is_log)[0]
    text = addresses_masked(text, MASK)
    long = "\n".join(word for word in text.split() if len(word) >= SHORTEST_SHAPE)
    for mark, shape in MARKED.items():
        if mark in long and shape.search(long):
            text = shape.sub(MASK, text)
    for shape in SHAPES:
        text = shape.sub(rf"\g<head>{MASK}" if "head" in shape.groupindex else MASK, text)
    text = PASSWORD_OPTION.sub(_password_hidden, text) if "-p" in text else text
    return random_texts_masked(_redact_named(text), MASK)


def secrets(named: Mapping[str, str]) -> set[str]:
    """Return the values of an environment that are secret and long enough to be recognised elsewhere."""
    return {value for name, value in named.items() if len(value) >= SHORTEST and is_secret(name)}


def secrets_in(text: str, *, is_log: bool = False) -> set[str]:
    """Return the secret values that a text names: a Plan, a command line, an env file. In a log, words are not secrets."""
    values = {found["value"].strip("\\\"'") for found in _named(text)}
    values = {value for value in values if not (is_log and WORDS.fullmatch(value))} | environment_masked(text, MASK, is_log=is_log)[1]
    if not is_log:
        values |= notified_masked(text, MASK)[1]
    return {value for value in values if len(value) >= SHORTEST and value != MASK}


def _password_hidden(found: re.Match[str]) -> str:
    value = found["value"]
    before = found.string[max(found.start() - LONGEST_NAME, 0) : found.start()]
    if NO_PASSWORD.fullmatch(value.strip("\\\"'")) or OTHER_MEANING.search(before):
        return found[0]
    return f"{found['head']}{hidden(value, MASK)}"


def _redact_named(text: str) -> str:
    chunks, at = [], 0
    for found in _named(text):
        chunks += [text[at : found.start("value")], hidden(found["value"], MASK)]
        at = found.end()
    return "".join(chunks) + text[at:]


def _named(text: str) -> Iterator[re.Match[str]]:
    """Yield the values of secret names, in the group `value`."""
    lower = text.lower()
    if len(lower) != len(text):  # two letters of Unicode have longer lower-case forms
        lower = "".join(character.lower() if character.isascii() else character for character in text)
    done = 0
    for hit in HINT.finditer(lower):
        if hit.start() < done:
            continue
        before, rest = text[max(hit.start() - LONGEST_NAME, done) : hit.start()], _word(text, hit.start())
        done = hit.start() + len(rest)
        if found := _value_of(_word(before[::-1])[::-1] + rest, text, done):
            done = found.end()
            yield found


def _word(text: str, start: int = 0) -> str:
    match = WORD.match(text, start)
    return match[0] if match else ""


def _value_of(name: str, text: str, end: int) -> re.Match[str] | None:
    """Return the secret value of a name that ends at `end`; None if it is not a secret."""
    certain, possible = is_secret(name), may_be_secret(name.lstrip("-"))
    found = None
    if name.startswith("--") and (certain or possible):
        found = OPTION.match(text, end)
    elif certain or possible:
        found = ASSIGNED.match(text, end)
        if found and not certain and _is_setting(name, found["value"].strip("\\\"'")):
            found = None
    return found or (_reported(name, text, end) if certain or possible else None) or HEXED.match(text, end)


def _is_setting(name: str, value: str) -> bool:
    """Return whether the value of a possibly secret name is an ordinary setting."""
    if not SHORTEST <= len(value) <= LONGEST_SETTING:
        return len(value) < SHORTEST
    if MEASURED.fullmatch(value):
        return True
    numbered = any(map(str.isdigit, value)) and (any(map(str.isalpha, value)) or len(value) >= SHORTEST_SHAPE)
    if value.startswith(("/", "./", "~/")) and is_plain(value):
        return True
    return is_plain(value) and not (TOKENS.search(name) and (numbered or not are_words(value)))


def _reported(name: str, text: str, end: int) -> re.Match[str] | None:
    if (found := BESIDE.match(text, end)) and not is_plain(found["value"]):
        return found
    found = REPORTED.match(text, end)
    if not found:
        return None
    value = found["value"].rstrip(".!?:")
    word = REMARK.fullmatch(value) if is_secret(name) else are_words(value)
    return None if word else found


def _spellings(value: str) -> set[str]:
    """Return a value in all its spellings: in JSON, in a URL, and as it is."""
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, safe="")}
