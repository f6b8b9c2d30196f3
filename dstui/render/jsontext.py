"""Format a value as the lines of a JSON file, each with the path of its value: for ds_config.json and its preview."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.text import escaped
from dstui.plan.scalars import json_number


@dataclass(frozen=True, slots=True)
class JsonLine:
    """One line of the file. `path` is dotted from the root of the value; a closing bracket has the path of what it closes."""

    text: str
    path: str


def json_lines(value: Any) -> list[JsonLine]:
    """Return the lines of a JSON file: two spaces per level, lists of scalars on one line, numbers in their own spelling."""
    return list(_lines(value, "", "", "", ""))


def json_text(value: Any) -> str:
    """Return the JSON file as one text with a final newline."""
    return "\n".join(line.text for line in json_lines(value)) + "\n"


def _lines(value: Any, path: str, indent: str, head: str, comma: str) -> Iterator[JsonLine]:
    if isinstance(value, Mapping) and value:
        items = [(f"{path}.{key}" if path else str(key), f"{_quoted(str(key))}: ", item) for key, item in value.items()]
        brackets = "{}"
    elif isinstance(value, (list, tuple)) and any(isinstance(item, (Mapping, list, tuple)) for item in value):
        items = [(f"{path}.{index}", "", item) for index, item in enumerate(value)]
        brackets = "[]"
    else:
        yield JsonLine(f"{indent}{head}{_scalar(value)}{comma}", path)
        return
    yield JsonLine(f"{indent}{head}{brackets[0]}", path)
    for number, (where, key, item) in enumerate(items, 1):
        yield from _lines(item, where, indent + "  ", key, "," if number < len(items) else "")
    yield JsonLine(f"{indent}{brackets[1]}{comma}", path)


def _scalar(value: Any) -> str:
    """Format a scalar, an empty object, or a list of scalars."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_scalar(item) for item in value) + "]"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return json_number(value)
    return _quoted(value)


def _quoted(value: Any) -> str:
    """Format a string, true, false or null. Characters that are safe to show are not escaped."""
    return escaped(json.dumps(value, ensure_ascii=False))
