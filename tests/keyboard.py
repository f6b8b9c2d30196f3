"""Encode the inputs of tests/monkey.py as the bytes that a terminal sends."""

from __future__ import annotations

from tests.monkey import Input, Keys, Mouse, Pasted

SEQUENCES = {
    **{name: f"\x1b[{code}" for name, code in {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}.items()},
    **{name: f"\x1b[{code}~" for name, code in {"delete": 3, "pageup": 5, "pagedown": 6}.items()},
    **{"ctrl+home": "\x1b[1;5H", "ctrl+end": "\x1b[1;5F", "shift+tab": "\x1b[Z"},
    **{"enter": "\r", "escape": "\x1b", "tab": "\t", "backspace": "\x7f"},
    **{"f1": "\x1bOP", "f2": "\x1bOQ", "f3": "\x1bOR", "f4": "\x1bOS", "f5": "\x1b[15~"},
    **{f"ctrl+{letter}": chr(ord(letter) - ord("a") + 1) for letter in "abcdefghijklmnopqrstuvwxyz"},
}
"""Key name in Textual -> sequence of xterm."""
BUTTON, MOTION, WHEEL_UP, WHEEL_DOWN = 0, 32, 64, 65
"""Button codes of SGR mouse reports (xterm's ctlseqs, "Extended coordinates")."""


def bytes_of(each: Input, columns: int, rows: int) -> bytes:
    """Return the bytes that a terminal of this size sends for an input; none for a resize."""
    if isinstance(each, Keys):
        return "".join(SEQUENCES.get(key, key) for key in each.keys).encode(errors="surrogateescape")
    if isinstance(each, Pasted):
        return f"\x1b[200~{each.text}\x1b[201~".encode(errors="surrogateescape")
    return _mouse(each, columns, rows).encode() if isinstance(each, Mouse) else b""


def _mouse(each: Mouse, columns: int, rows: int) -> str:
    start, end = ((1 + int(x * columns), 1 + int(y * rows)) for x, y in ((each.x, each.y), (each.to_x, each.to_y)))

    def report(code: int, at: tuple[int, int], final: str = "M") -> str:
        return f"\x1b[<{code};{at[0]};{at[1]}{final}"

    return {
        "click": report(BUTTON, start) + report(BUTTON, start, "m"),
        "drag": report(BUTTON, start) + report(BUTTON | MOTION, end) + report(BUTTON, end, "m"),
        "move": report(3 | MOTION, start),
        "up": report(WHEEL_UP, start),
        "down": report(WHEEL_DOWN, start),
    }[each.kind]
