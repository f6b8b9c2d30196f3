"""Convert values as DeepSpeed's configuration models do: pydantic's lax conversions, without pydantic.

`"3"`, `3.0` and `true` are valid stages, `"yes"` is a boolean, `5e8` is an integer and `"5e8"` is not. 0.14 converts like pydantic 1
(`old`): there `1.5` becomes 1, a number becomes a string, and an empty list an empty section.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dstui.plan.catalogue import Key

TRUE = frozenset(("1", "on", "t", "true", "y", "yes"))
FALSE = frozenset(("0", "off", "f", "false", "n", "no"))
_INT = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?\Z")
_FLOAT = re.compile(
    r"(?i:[+-]?(?:[0-9]+(?:_[0-9]+)*(?:\.(?:[0-9]+(?:_[0-9]+)*)?)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?(?:inf(?:inity)?|nan))\Z"
)
LARGEST = 2**63


class Fit(NamedTuple):
    """The verdict on a value: accepted with its converted form, or refused with what was expected."""

    ok: bool
    value: Any = None
    expected: str = ""


def fit(value: Any, key: Key, *, old: bool = False) -> Fit:
    """Convert a value as DeepSpeed converts it for a key of a section with a pydantic model."""
    found = _fit_any(value, key.type, key, old)
    if found.ok and isinstance(found.value, (int, float)) and not isinstance(found.value, bool):
        return _bounded(found, key)
    return found


def _bounded(found: Fit, key: Key) -> Fit:
    number = found.value
    if key.above is not None and not number > key.above:
        return Fit(False, expected=f"greater than {key.above:g}")
    if key.minimum is not None and not number >= key.minimum:
        return Fit(False, expected=f"at least {key.minimum:g}")
    if key.below is not None and not number < key.below:
        return Fit(False, expected=f"less than {key.below:g}")
    if key.maximum is not None and not number <= key.maximum:
        return Fit(False, expected=f"at most {key.maximum:g}")
    return found


def _fit_any(value: Any, kind: str, key: Key, old: bool) -> Fit:
    """Fit one of the alternatives of `int | str | null`, preferring one without a conversion."""
    kinds = kind.split(" | ")
    if value is None and "null" in kinds:
        return Fit(True, None)
    found = [_fit_one(value, one, key, old) for one in kinds if one != "null"]
    taken = [one for one in found if one.ok]
    if taken:
        return next((one for one in taken if type(one.value) is type(value)), taken[0])
    return Fit(False, expected=" or ".join(dict.fromkeys(one.expected for one in found)) + (" or null" if "null" in kinds else ""))


def _fit_one(value: Any, kind: str, key: Key, old: bool) -> Fit:
    if kind.startswith("list["):
        items = [_fit_one(item, kind[5:-1], key, old) for item in value] if isinstance(value, list) else None
        ok = items is not None and all(item.ok for item in items)
        return Fit(True, [item.value for item in items or ()]) if ok else Fit(False, expected=f"a list of {_plural(kind[5:-1], key)}")
    if kind == "choice":
        return _choice(value, key, old)
    return (_OLD_FORMS if old else _FORMS)[kind](value)


def _choice(value: Any, key: Key, old: bool) -> Fit:
    """Fit one of the allowed values; a numeric choice is converted like a number first."""
    number = isinstance(value, (int, float)) if old else not isinstance(value, (list, Mapping))
    if key.choices and isinstance(key.choices[0], int) and number:
        found = Fit(True, value) if old else _int(value)
        if found.ok and found.value in key.choices:
            return Fit(True, int(found.value))
    elif isinstance(value, str) and value in key.choices:
        return Fit(True, value)
    return Fit(False, expected=_listed(key.choices))


def _listed(choices: tuple[Any, ...]) -> str:
    *most, last = [repr(choice) if isinstance(choice, str) else str(choice) for choice in choices]
    return f"{', '.join(most)} or {last}" if most else last


def _plural(kind: str, key: Key) -> str:
    return _listed(key.choices) if kind == "choice" else {"str": "strings", "int": "integers", "float": "numbers"}.get(kind, "values")


def _bool(value: Any) -> Fit:
    if isinstance(value, str):
        word = value.lower()
        return Fit(True, word in TRUE) if word in TRUE | FALSE else Fit(False, expected="true or false")
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return Fit(True, bool(value))
    return Fit(False, expected="true or false")


def _int(value: Any) -> Fit:
    if isinstance(value, int):
        return Fit(True, int(value))
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and -LARGEST <= value < LARGEST:
        return Fit(True, int(value))
    if isinstance(value, str) and _INT.match(value.strip()):
        return Fit(True, int(value.strip().partition(".")[0].replace("_", "")))
    return Fit(False, expected="an integer")


def _float(value: Any) -> Fit:
    if isinstance(value, (int, float)):
        return Fit(True, float(value)) if abs(value) < 1e308 or isinstance(value, float) else Fit(False, expected="a number")
    if isinstance(value, str) and _FLOAT.match(value.strip()):
        return Fit(True, float(value.strip().replace("_", "")))
    return Fit(False, expected="a number")


def _is(kind: type | tuple[type, ...], words: str) -> Callable[[Any], Fit]:
    return lambda value: Fit(True, value) if isinstance(value, kind) else Fit(False, expected=words)


def _anything(value: Any) -> Fit:
    return Fit(True, value)


def _nothing(_value: Any) -> Fit:
    return Fit(False, expected="no value: it cannot be set in a file")


_FORMS: dict[str, Callable[[Any], Fit]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": _is(str, "a string"),
    "path": _is(str, "a path"),
    "list": _is(list, "a list"),
    "tuple": _is(list, "a list"),
    "dict": _is(Mapping, "a section"),
    "section": _is(Mapping, "a section"),
    "any": _anything,
    "object": _nothing,
}


def _converted(convert: Callable[[Any], Any], words: str) -> Callable[[Any], Fit]:
    def form(value: Any) -> Fit:
        try:
            return Fit(True, convert(value))
        except (TypeError, ValueError, OverflowError):
            return Fit(False, expected=words)

    return form


def _old_section(value: Any) -> dict[str, Any]:
    section = dict(value)
    if not all(isinstance(name, str) for name in section):
        raise TypeError("keys are words")
    return section


def _old_str(value: Any) -> Fit:
    return Fit(True, str(value)) if isinstance(value, (str, int, float)) else Fit(False, expected="a string")


_OLD_FORMS = _FORMS | {
    "int": _converted(int, "an integer"),
    "float": _converted(float, "a number"),
    "str": _old_str,
    "dict": _converted(dict, "a section"),
    "section": _converted(_old_section, "a section"),
}
