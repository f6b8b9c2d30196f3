"""Convert frozen dataclasses to JSON values and back, tolerating differences on the way back.

A snapshot may come from an older or newer dstui: unknown keys are ignored, and missing or malformed values become Unknown. `Unknown` is
written as `{"unknown": reason}`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from dstui.base.dataclass import dataclass

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be determined, with the reason. It is falsy, so that `if machine.host.numa:` works."""

    reason: str = "not probed"

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return "unknown"


Maybe: TypeAlias = T | Unknown
"""A fact, or why it is unknown."""

ABSENT = Unknown("not in this snapshot")
MALFORMED = Unknown("the snapshot has something else here")


def known(value: Maybe[T], default: D) -> T | D:
    """Return the fact, or `default` if it is unknown."""
    return default if isinstance(value, Unknown) else value


def encode(value: Any) -> Any:
    """Convert a value of a snapshot to plain JSON data."""
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(v) for v in value]
    return value


class MissingField(TypeError):
    """A required field of a dataclass is missing or malformed."""

    def __init__(self, field: str, place: str = "") -> None:
        super().__init__(field)
        self.field, self.place = field, place
        """The name of the field and its place in the data: `host.infiniband[0]`."""

    def within(self, outer: str) -> MissingField:
        """Return the same error with the outer field in front of its place."""
        return MissingField(self.field, outer + ("." if self.place and not self.place.startswith("[") else "") + self.place)


def decode(cls: type[T], data: Mapping[str, Any], absent: Unknown = ABSENT) -> T:
    """Build an instance of the dataclass `cls` from the output of `encode`, or from any mapping with some of its names.

    `absent` replaces missing facts. Raises MissingField if a required field is missing or malformed.
    """
    hints: dict[str, Any] = _hints(cls)  # type: ignore[arg-type]  # a class is hashable
    values: dict[str, Any] = {}
    for name, hint in hints.items():
        try:
            value = _value(hint, data[name]) if name in data else _missing(hint, absent)
        except MissingField as missing:
            raise missing.within(name) from None
        if value is not _KEEP_DEFAULT:
            values[name] = value
        elif name in _required(cls):  # type: ignore[arg-type]
            raise MissingField(name)
    return cls(**values)


_KEEP_DEFAULT = object()


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls) if f.init}


@cache
def _required(cls: Any) -> frozenset[str]:
    return frozenset(f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING)


def _missing(hint: Any, absent: Unknown) -> Any:
    return absent if Unknown in get_args(hint) else _KEEP_DEFAULT


def _value(hint: Any, data: Any) -> Any:
    """Convert `data` to the type `hint`. If it does not fit, return Unknown or the field's own default."""
    if isinstance(data, Mapping) and set(data) == {"unknown"}:
        return Unknown(str(data["unknown"]))
    alternatives = [a for a in get_args(hint) if a is not Unknown] if _is_union(hint) else [hint]
    for alternative in alternatives:
        found = _fits(alternative, data)
        if found is not _KEEP_DEFAULT:
            return found
    return MALFORMED if Unknown in get_args(hint) else _KEEP_DEFAULT


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _fits(hint: Any, data: Any) -> Any:  # one line per type in a snapshot
    origin = get_origin(hint)
    if hint is None or hint is type(None):
        return None if data is None else _KEEP_DEFAULT
    if origin is tuple:
        return _tuple(get_args(hint), data)
    if origin is Literal:
        return data if data in get_args(hint) else _KEEP_DEFAULT
    if origin is not None and issubclass(origin, Mapping):
        inner = get_args(hint)[1]
        return _mapping(inner, data) if isinstance(data, Mapping) else _KEEP_DEFAULT
    if is_dataclass(hint) and isinstance(hint, type):
        return decode(hint, data) if isinstance(data, Mapping) else _KEEP_DEFAULT
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if hint is int and isinstance(data, bool):
        return _KEEP_DEFAULT
    return data if isinstance(data, hint) else _KEEP_DEFAULT


def _mapping(of: Any, data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the entries with values of the right type."""
    return {str(name): found for name, value in data.items() if (found := _value(of, value)) is not _KEEP_DEFAULT}


def _item(of: Any, data: Any, number: int) -> Any:
    try:
        return _value(of, data)
    except MissingField as missing:
        raise missing.within(f"[{number}]") from None


def _tuple(of: tuple[Any, ...], data: Any) -> Any:
    if not isinstance(data, (list, tuple)):
        return _KEEP_DEFAULT
    if of[-1] is Ellipsis:
        found = tuple(_item(of[0], item, number) for number, item in enumerate(data))
    elif len(of) == len(data):
        found = tuple(_value(hint, item) for hint, item in zip(of, data, strict=True))
    else:
        return _KEEP_DEFAULT
    return _KEEP_DEFAULT if any(item is _KEEP_DEFAULT for item in found) else found
