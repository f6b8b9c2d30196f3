"""Edits of a Plan's own text where values come from layers beneath it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dstui.plan.document import Document, Path
from dstui.plan.edit import apply_patch, pointer, put_value, remove_node
from dstui.plan.finding import Operation
from dstui.plan.splice import EditError

NOTHING = object()


def value_at(data: Any, path: Path) -> Any:
    """Return the value at a path of nested dicts and lists; None if there is none."""
    for part in path:
        if isinstance(data, Mapping) and str(part) in data:
            data = data[str(part)]
        elif isinstance(data, list) and str(part).isdecimal() and int(part) < len(data):
            data = data[int(part)]
        else:
            return None
    return data


def own_operations(document: Document, data: Mapping[str, Any], operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return a JSON Patch for a document that has the effect which `operations` have on its values merged with the layers."""
    found: list[Operation] = []
    for operation in operations:
        steps = list(_own_steps(document, data, operation))
        try:
            for step in steps:
                document = apply_patch(document, (step,))
        except EditError:
            return (*found, operation)  # applying it raises the error that says why
        found += steps
    return tuple(found)


def _own_steps(document: Document, data: Mapping[str, Any], operation: Operation) -> Iterator[Operation]:
    path = pointer(operation["path"])
    here = document.node(path) is not None
    if operation["op"] == "move" and document.node(origin := pointer(operation["from"])) is None:
        yield _write(document, path, value_at(data, origin))
        yield _write(document, origin, None)
    elif operation["op"] == "remove" and not here:
        yield _write(document, path, None)
    elif operation["op"] in ("add", "replace") and not here and path[-1:] != ("-",):
        yield _write(document, path, operation["value"], data)
    else:
        yield operation


def _write(document: Document, path: Path, value: Any, data: Mapping[str, Any] | None = None) -> Operation:
    """Return the operation that writes a value, even if its section is not in the document yet."""
    for depth in range(1, len(path)):  # a list of a layer is written whole, with one item changed
        listed = value_at(data, path[:depth]) if data is not None else None
        if isinstance(listed, list) and document.node(path[:depth]) is None:
            if depth == len(path) - 1 and str(path[-1]).isdecimal():
                value, path = [*listed[: int(path[-1])], value, *listed[int(path[-1]) + 1 :]], path[:depth]
            break
    while len(path) > 1 and not isinstance(value_at(document.data, path[:-1]), (Mapping, list)):
        value, path = {str(path[-1]): value}, path[:-1]
    text = "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return {"op": "add", "path": text, "value": value}


def flattened(document: Document, data: Mapping[str, Any]) -> Document:
    """Return the document with exactly these values in it."""
    for path in list(_surplus(document.data, data, ())):
        document = remove_node(document, path)
    for path, value in list(_missing(document.data, data, ())):
        document = put_value(document, path, value)
    return document


def _missing(own: Mapping[str, Any], data: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for key, value in data.items():
        there = own.get(key, NOTHING)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            yield from _missing(there, value, (*path, key))
        elif there is NOTHING or (there is None and value is not None):
            yield (*path, key), value


def _surplus(own: Mapping[str, Any], data: Mapping[str, Any], path: Path) -> Iterator[Path]:
    for key, value in own.items():
        there = data.get(key, NOTHING)
        if there is NOTHING:
            yield (*path, key)
        elif isinstance(value, Mapping) and isinstance(there, Mapping):
            yield from _surplus(value, there, (*path, key))
