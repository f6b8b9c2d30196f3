"""Random texts, numbers and structures that programs often fail to handle."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

NASTY = (
    *("", " ", "-", "--", "--help", "-m", "-oProxyCommand=touch {canary}", "bind:x.py", "$(touch {canary})", "`touch {canary}`"),
    *("; touch {canary}", "touch {canary}", "\x1b]52;c;aGFja2Vk\x07", "\x1b[2J\x1b[31m", "\x9b31m", "\x07", "a\nb", "a\rb", "a\tb", "a\0b"),
    *(
        "\u202egnp.exe",
        "\ufeff",
        "\U000e0041",
        "\ud800",
        "~nosuchuser/x",
        "~",
        "../../../etc/passwd",
        "/dev/zero",
        "/dev/full",
        "/proc/self/mem",
    ),
    *(
        "/",
        ".",
        "..",
        "x" * 300,
        "x" * 5000,
        "日本語",
        "é" * 200,
        "a" + "/a" * 3000,
        "{ds_config}",
        "{}",
        "[",
        "{",
        "%s%n",
        "[/red]",
        "[link=x]",
    ),
    *(
        "'",
        '"',
        "\\",
        "*",
        "?",
        "a b",
        "a:b",
        "a@b",
        "a=b",
        "#",
        "!!x",
        "auto",
        "null",
        "true",
        "NaN",
        "-1",
        "0",
        "1e999",
        "-1e999",
        "9" * 59,
    ),
    *("9" * 5000, "0x" + "f" * 5000, "1_000", "1e-5", "٣", "²", "localhost", "(a){1000000000000}", "(" * 60, "(?:a+)+(b)", "[[a](b)"),
    *("localhost:0,1", "a@b@c", "https://127.0.0.1:1/x"),
)
NUMBERS: tuple[Any, ...] = (
    0,
    1,
    2,
    3,
    8,
    -1,
    0.5,
    1e-5,
    1e10,
    10**30,
    10**59,
    -(10**59),
    2**31,
    2**63,
    1e308,
    float("inf"),
    float("nan"),
    True,
)
PIECES = (*"[]{}:,-?&*!|>'\"%@`#\t\n\r", "- " * 100, "&a *a ", "<<: ", "!!python/name:os.system ")


class Values:
    """A source of unexpected values. `canary`: a file whose existence proves that a forbidden command ran."""

    def __init__(self, seed: int, canary: Path) -> None:
        self.random, self.canary = random.Random(seed), canary
        self.badness = self.one_of(0.01, 0.1, 0.5)
        """The share of invalid parts in generated input."""

    def one_of(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return self.random.choice(choices)

    def bad(self) -> bool:
        """Return whether the next part should be invalid."""
        return self.chance(self.badness)

    def many(self) -> dict[str, Any]:
        """Return a dictionary with up to thousands of keys."""
        return {f"key {number}": number for number in range(self.one_of(50, 2000, 20_000))}

    def chance(self, share: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < share

    def text(self) -> str:
        """Return a word."""
        word = str(self.one_of(*NASTY)).replace("{canary}", str(self.canary))
        return word + str(self.one_of(*NASTY))[:20] if self.chance(0.1) else word

    def number(self) -> Any:
        """Return a number, or nearly one."""
        return self.one_of(*NUMBERS)

    def value(self, depth: int = 0) -> Any:
        """Return a random JSON value."""
        kind = self.random.randrange(10 if depth < 4 else 7)
        if kind < 3:
            return self.number()
        if kind < 6:
            return self.text()
        if kind == 6:
            return None
        if kind == 7:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.text(): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def deep(self) -> Any:
        """Return a deeply nested value."""
        inner: Any = 1
        for _ in range(self.one_of(10, 59, 61, 150, 900)):
            inner = self.one_of([inner], {"a": inner})
        return inner

    def corrupted(self, text: str) -> str:
        """Return the text with pieces removed, doubled or inserted."""
        for _ in range(self.random.randrange(1, 4)):
            start = self.random.randrange(len(text) + 1)
            end = min(len(text), start + self.one_of(0, 1, 5, 50))
            text = text[:start] + self.one_of("", text[start:end] * 2, self.text()[:200], self.one_of(*PIECES)) + text[end:]
        return text

    def tampered(self, data: Any) -> Any:
        """Return the record with some values replaced."""
        if not isinstance(data, dict) or self.chance(0.02):
            return self.one_of(self.value(), self.deep())
        return {key: self._tampered(value) for key, value in data.items() if not self.chance(0.03)}

    def _tampered(self, value: Any) -> Any:
        if self.chance(0.06):
            return self.value()
        return {key: self._tampered(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def dump_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON; non-ASCII characters are only escaped in indented output."""
    return json.dumps(value, indent=indent, ensure_ascii=indent is not None)
