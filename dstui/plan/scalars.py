"""Parse and write scalars of a Plan (YAML 1.2, core schema).

`1e-4` is a number and `yes` is a string, unlike in YAML 1.1. A number keeps its spelling, so that `5e8` in the Plan is `5e8` in
ds_config.json.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dstui.base.limits import check_digits

_NULL = frozenset({"null", "Null", "NULL", "~", ""})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")

# Used for writing only; `re` compiles these at first use and caches them.
_JSON_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z"
# Strings that need no quotes anywhere, in YAML 1.1 and 1.2.
_PLAIN = r"[A-Za-z_./][A-Za-z0-9_./@%+=-]*(?::[A-Za-z0-9_./@%+=-]+)*\Z|--?[A-Za-z][A-Za-z0-9_./@%+=-]*\Z"
_BOOLEAN_ELSEWHERE = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# Characters that no YAML reader accepts unescaped, even in double quotes.
_UNPRINTABLE = "[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]"


class SpelledInt(int):
    """An integer with the text it was read from."""

    spelling: str


class SpelledFloat(float):
    """A float with the text it was read from."""

    spelling: str


def resolve(text: str) -> Any:
    """Return the value of a plain scalar: None, a bool, a number that keeps its spelling, or the text itself.

    Raises LimitError if a number is too long.
    """
    number: SpelledInt | SpelledFloat
    if is_null(text):
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INT.match(text):
        number = SpelledInt(check_digits(text))
    elif _BASED.match(text):
        number = SpelledInt(int(check_digits(text), 0))
    elif _FLOAT.match(text):
        number = SpelledFloat(re.sub(r"\.(?=[in])", "", check_digits(text).lower()))  # float() expects inf and nan without the dot
    else:
        return text
    number.spelling = text
    return number


def is_null(text: str) -> bool:
    """Return whether a plain scalar is null: one of its spellings, or empty."""
    return text in _NULL


def _is_text(text: str) -> bool:
    """Return whether a plain scalar is read as text."""
    return text not in _NULL and text not in _BOOLEANS and not any(pattern.match(text) for pattern in (_INT, _BASED, _FLOAT))


def json_number(value: int | float) -> str:
    """Format a number as JSON: in its own spelling if that is valid JSON, else as Python writes it (`Infinity` for 1e999)."""
    spelling = getattr(value, "spelling", None)
    if spelling is not None and re.match(_JSON_NUMBER, spelling):
        return str(spelling)
    return json.dumps(int(value) if isinstance(value, int) else float(value))


def yaml_scalar(value: Any, *, text: bool = False, quote: str = "") -> str:
    """Format a scalar as YAML. `text`: only strings are allowed here, so `1` needs no quotes. `quote`: the quotes it had before."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        spelling = getattr(value, "spelling", None)
        return str(spelling) if spelling is not None else _yaml_number(value)
    string = str(value)
    json_like = '"' in string and "'" not in string and not quote
    if (quote == "'" or json_like) and string.isprintable():
        return "'" + string.replace("'", "''") + "'"
    if not quote and re.match(_PLAIN, string) and string.lower() not in _BOOLEAN_ELSEWHERE and _is_text(string):
        return string
    if not quote and text and (_INT.match(string) or _FLOAT.match(string)):
        return string
    return re.sub(_UNPRINTABLE, lambda m: f"\\u{ord(m[0]):04x}", json.dumps(string, ensure_ascii=False))


def _yaml_number(value: int | float) -> str:
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
