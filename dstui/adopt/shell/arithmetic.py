"""Evaluate `$(( … ))` with integers. Source: the Bash Reference Manual, 6.5 Shell Arithmetic."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from dstui.adopt.shell.shell_state import Node, ShellState, Undecidable

NUMBER = re.compile(r"(-?)(?:0[xX]([\da-fA-F]{1,15})|(\d{1,2})#([\da-zA-Z]{1,12})|(\d{1,18}))")
"""Hexadecimal, with a base, decimal, or octal with a leading 0."""
MAX_POWER = 62
"""Integers of bash have 64 bits."""


def _divided(left: int, right: int) -> int:
    if right == 0:
        raise Undecidable
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    return left - right * _divided(left, right)


def _power(left: int, right: int) -> int:
    if not 0 <= right <= MAX_POWER:
        raise Undecidable
    return int(left**right)


def _shifted(left: int, right: int) -> int:
    if not 0 <= right <= MAX_POWER:
        raise Undecidable
    return left << right


BINARY: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _remainder,
    "**": _power,
    "<<": _shifted,
    ">>": lambda left, right: left >> min(max(right, 0), MAX_POWER),
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda left, right: bool(left) and bool(right),
    "||": lambda left, right: bool(left) or bool(right),
    ",": lambda _left, right: right,
}


class Words(Protocol):
    """The part of `expansion.Expander` that arithmetic uses."""

    state: ShellState

    def text(self, node: Node | None) -> str:
        """Return a word without splitting."""

    def arithmetic_name(self, name: str) -> str:
        """Return the value of a variable."""


def evaluate(node: Node, expander: Words) -> int:
    """Return the value of an expression. Raises Undecidable for a hole or an unknown operator."""
    kind = node.get("Type")
    if kind == "ParenArithm":
        return evaluate(node["X"], expander)
    if kind == "UnaryArithm":
        return _unary(node, expander)
    if kind == "BinaryArithm":
        return _binary(node, expander)
    return _number(expander.text(node), expander)


def _number(text: str, expander: Words, depth: int = 0) -> int:
    text = text.strip().replace('"', "")
    if not text:
        return 0
    if match := NUMBER.fullmatch(text):
        return _read_number(match)
    if depth < 8 and re.fullmatch(r"[A-Za-z_]\w*", text):
        return _number(expander.arithmetic_name(text), expander, depth + 1)
    raise Undecidable


def _read_number(match: re.Match[str]) -> int:
    sign, hexadecimal, base, digits, decimal = match.groups()
    try:
        if hexadecimal or digits:
            found = int(hexadecimal or digits, 16 if hexadecimal else int(base))
        else:
            found = int(decimal, 8 if decimal.startswith("0") else 10)
    except ValueError:  # 08, 2#7: bash reports "value too great for base"
        raise Undecidable from None
    return -found if sign else found


def _unary(node: Node, expander: Words) -> int:
    sign = node["Op"]
    if sign in ("++", "--"):
        name = expander.text(node["X"])
        before = _number(name, expander)
        after = before + (1 if sign == "++" else -1)
        expander.state.variables[name] = str(after)
        return before if node.get("Post") else after
    value = evaluate(node["X"], expander)
    if sign == "!":
        return int(not value)
    if sign in ("-", "+", "~"):
        return -value if sign == "-" else ~value if sign == "~" else value
    raise Undecidable


def _binary(node: Node, expander: Words) -> int:
    sign = node["Op"]
    if sign == "?":
        choice = node["Y"]
        return evaluate(choice["X" if evaluate(node["X"], expander) else "Y"], expander)
    if sign in ("&&", "||"):
        left = bool(evaluate(node["X"], expander))
        return int(left) if left == (sign == "||") else int(bool(evaluate(node["Y"], expander)))
    if sign == "=" or (sign.endswith("=") and sign[:-1] in BINARY and sign not in BINARY):
        name, value = expander.text(node["X"]), evaluate(node["Y"], expander)
        result = value if sign == "=" else int(BINARY[sign[:-1]](_number(name, expander), value))
        expander.state.variables[name] = str(result)
        return result
    if sign not in BINARY:
        raise Undecidable
    result = int(BINARY[sign](evaluate(node["X"], expander), evaluate(node["Y"], expander)))
    if abs(result) >= 2**63:
        raise Undecidable
    return result
