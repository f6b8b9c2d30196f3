"""Random terminal input ("monkey testing"): keys, several in one write, clicks, drags, pastes and resizes. Reproducible by seed.

`inputs` generates it; tests/tui/fuzz.py sends it to an app in this process, tests/long/test_monkey.py to a real terminal.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

LETTERS = "abcdefghijklmnopqrstuvwxyzZNEJJJCDHLMTV0123456789[]/,:-.+=?<>&' "
NAMED = (
    *("up", "down", "left", "right", "pageup", "pagedown", "pagedown", "home", "end", "ctrl+end", "ctrl+home"),
    *("enter", "enter", "enter", "enter", "escape", "escape", "tab", "shift+tab", "backspace", "delete"),
    *(
        "f1",
        "f2",
        "f3",
        "f4",
        "f5",
        "ctrl+p",
        "ctrl+p",
        "ctrl+q",
        "ctrl+c",
        "ctrl+s",
        "ctrl+z",
        "ctrl+y",
        "ctrl+u",
        "ctrl+w",
        "ctrl+a",
        "ctrl+k",
    ),
)
WORDS = (
    "undo",
    "fix",
    "launch",
    "stop",
    "metrics",
    "bundle",
    "stacks",
    "jobs",
    "theme",
    "quit",
    "review",
    "run",
    "keys",
    "maximize",
    "copy",
    "other",
    "setting",
    "finding",
    "run:",
    "open",
    "runs",
    "curves",
    "columns",
)
"""Words that are typed into the command palette."""
PATHS = (
    *(("8",), ("9",), ("9", "D"), ("9", "m"), ("9", "e"), ("9", "P"), ("r",), ("C", "1"), ("J",), ("J", "enter"), ("J", "down", "enter")),
    *(("J", " ", "down", " ", "="), ("J", " ", "down", " ", "m"), ("J", "/", *"failed", "enter"), ("J", "<", ">")),
    *(("9", "&", *"loss !step r0", "enter"), ("9", "/", *"step [0-9]+", "enter", "n"), ("9", "u"), ("ctrl+p",), ("f1",), ("2", "c")),
)
"""Keys that lead to the screens which single random keys seldom reach."""
BYTES = tuple(chr(0xDC00 + byte) for byte in range(0x80, 0x100))
"""Bytes that are invalid UTF-8, as "surrogateescape" characters: a Latin-1 terminal, a broken paste, a line that drops bits."""
PASTED = (
    *("3", "5e8\n", "localhost: 2", "plan.yaml\r", "a\nb\tc\x1b[31m", "\u4e2d\u6587 \U0001f600", "x" * 3000, "{["),
    *("caf\udce9", "\udcff\udcfe3\x00", "".join(BYTES), "\x85a\x9b31m\x90", "\udce2\udc82"),
)
SIZES = ((120, 40), (80, 24), (60, 16), (40, 10), (200, 50), (100, 30), (12, 3))


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that arrive in one write."""

    keys: tuple[str, ...]
    slowly: bool = False
    """A real terminal sends them one after another, each after the answer to the one before."""


@dataclass(frozen=True, slots=True)
class Mouse:
    """A mouse event, with coordinates as fractions of the screen's size. A drag ends at (to_x, to_y)."""

    kind: str
    """click, drag, move, up or down (the wheel)."""
    x: float
    y: float
    to_x: float = 0.0
    to_y: float = 0.0


@dataclass(frozen=True, slots=True)
class Pasted:
    """A pasted text."""

    text: str


@dataclass(frozen=True, slots=True)
class Resized:
    """A new size of the window."""

    columns: int
    rows: int


Input = Keys | Mouse | Pasted | Resized


def inputs(seed: int, count: int, without: str = "") -> Iterator[tuple[Input, ...]]:
    """Yield about `count` inputs in `count / 3` writes, each a tuple. `without`: keys never to press, separated by blanks."""
    chance, left_out = random.Random(seed), set(without.split())
    named, letters = [k for k in NAMED if k not in left_out], [k for k in LETTERS if k not in left_out]
    made = 0
    while made < count:
        write = tuple(_inputs(chance, named, letters))
        made += sum(len(each.keys) if isinstance(each, Keys) else 1 for each in write)
        yield write


def _inputs(chance: random.Random, named: list[str], letters: list[str]) -> Iterator[Input]:
    kind = chance.random()
    if kind < 0.04:
        yield Resized(*chance.choice(SIZES))
    elif kind < 0.07:
        yield Pasted(chance.choice(PASTED))
    elif kind < 0.22:
        for _ in range(chance.choice((1, 1, 2))):
            where = [chance.random() for _ in range(4)]
            yield Mouse(chance.choice(("click", "click", "click", "drag", "move", "up", "down")), *where)
    elif kind < 0.25:
        yield Keys(tuple(chance.choices(BYTES, k=chance.choice((1, 2, 5)))))
    elif kind < 0.29:
        yield Keys(("ctrl+p", *chance.choice(WORDS), *chance.choices(("enter", "down", "pagedown", "escape"), k=2)))
    elif kind < 0.36:
        yield Keys(chance.choice(PATHS), slowly=True)
    else:
        many = chance.choice((1, 1, 2, 3, 4, 5))
        yield Keys(tuple(chance.choice(named if chance.random() < 0.55 else letters) for _ in range(many)))
