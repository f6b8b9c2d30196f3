"""Edit a YAML text by changing only the text of the edited nodes: comments, order, quotes and layout stay.

The positions come from the composed tree. After each operation the text is composed again and compared with the expected plain data: an
edit that this module gets wrong is refused and never damages the text.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace as with_changes
from typing import Any

import yaml

from dstui.plan.document import Document, DocumentError, Node, Path, scalar_entries
from dstui.plan.finding import Operation
from dstui.plan.scalars import yaml_scalar
from dstui.plan.splice import EditError, Splice

HALVES = re.compile("[\ud800-\udfff]")


def pointer(path: str) -> Path:
    """Convert a JSON Pointer (RFC 6901) to a path: `/a/b~1c` is `("a", "b/c")`."""
    if path and not path.startswith("/"):
        raise EditError(f"{path!r} is not a JSON pointer: it begins with '/'")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])


def apply_patch(document: Document, operations: Iterable[Operation]) -> Document:
    """Return the document after a JSON Patch (RFC 6902: add, replace, remove, move). Raises EditError without changing anything."""
    for operation in operations:
        path, kind = pointer(operation["path"]), operation["op"]
        if kind == "remove":
            document = remove_node(document, path)
        elif kind == "move":
            document = move_node(document, pointer(operation["from"]), path)
        elif kind in ("add", "replace"):
            if kind == "replace" and document.node(path) is None:
                raise EditError(f"{'.'.join(map(str, path))} does not exist, so it cannot be replaced")
            document = put_value(document, path, operation["value"], insert=kind == "add")
        else:
            raise EditError(f"{kind!r}: a patch can only add, replace, remove or move")
    return document


def put_value(document: Document, path: Path, value: Any, *, insert: bool = False) -> Document:
    """Return the document with the value at the path, creating missing parents. `insert` puts it before that list item."""
    if not path:
        raise EditError("the whole Plan cannot be replaced: name a key")
    _refuse_alias(document, path)
    _refuse_halves((path, value))
    value = _as_read(document, path, value)
    found = document.node(path)
    parent = document.node(path[:-1])
    if found is not None and not (insert and isinstance(parent, yaml.SequenceNode)):
        return _replaced(document, path, value)
    while parent is None or _is_null(parent):
        if len(path) == 1:
            break
        if parent is not None:
            return _checked(document, Splice(document).overwrite(path[:-1], {path[-1]: value}), path, value)
        value, path = {path[-1]: value}, path[:-1]
        parent = document.node(path[:-1])
    return _checked(document, Splice(document).add(path, value), path, value, insert=True)


def remove_node(document: Document, path: Path) -> Document:
    """Return the document without the node at the path."""
    if document.node(path) is None or not path:
        raise EditError(f"{'.'.join(map(str, path))} does not exist, so it cannot be removed")
    _refuse_alias(document, path)
    text = Splice(document).remove(path)
    return _compared(document, text, _without(document.data, path), path)


def move_node(document: Document, path: Path, to: Path) -> Document:
    """Return the document with a node moved to another path. A renamed key keeps its place and its comments."""
    if document.node(path) is None or not path or not to:
        raise EditError(f"{'.'.join(map(str, path))} does not exist, so it cannot be moved")
    if path[:-1] != to[:-1] or document.node(to) is not None or not isinstance(document.node(path[:-1]), yaml.MappingNode):
        return put_value(remove_node(document, path), to, _get(document.data, path), insert=True)
    _refuse_alias(document, path)
    expected = _with(_without(document.data, path), to, _get(document.data, path), insert=False)
    return _compared(document, Splice(document).rename(path, str(to[-1])), expected, path)


def _replaced(document: Document, path: Path, value: Any) -> Document:
    """Replace mappings and lists item by item, so that unchanged items keep their text."""
    old = _get(document.data, path)
    if old == value and type(old) is type(value):
        return document
    if isinstance(old, dict) and isinstance(value, Mapping) and old and value:
        for key in [k for k in old if k not in value]:
            if len(_get(document.data, path)) > 1:
                document = remove_node(document, (*path, key))
            else:
                return _checked(document, Splice(document).overwrite(path, value), path, value)
        for key, item in value.items():
            document = put_value(document, (*path, key), item)
        return document
    if isinstance(old, list) and isinstance(value, (list, tuple)) and old and value:
        for index in range(len(old) - 1, len(value) - 1, -1):
            document = remove_node(document, (*path, index))
        for index, item in enumerate(value):
            document = put_value(document, (*path, index), item)
        return document
    return _checked(document, Splice(document).overwrite(path, value), path, value)


def _checked(document: Document, text: str, path: Path, value: Any, *, insert: bool = False) -> Document:
    return _compared(document, text, _with(document.data, path, value, insert), path)


def _compared(document: Document, text: str, expected: Any, path: Path) -> Document:
    edited = with_changes(document, text=text)
    try:
        same = edited.data == expected
    except DocumentError:
        same = False
    if not same:
        line = document.line_of(path)
        raise EditError(f"{'.'.join(map(str, path))} (line {line}) cannot be edited in place, as it is written: edit the file by hand")
    return edited


def _refuse_alias(document: Document, path: Path) -> None:
    """Refuse to edit through an alias: its text is elsewhere in the file, and the edit would change that place too."""
    for depth in range(1, len(path) + 1):
        parent, node = document.node(path[: depth - 1]), document.node(path[:depth])
        if parent is None or node is None:
            return
        if _is_earlier(parent, node, path[depth - 1]):
            line = node.start_mark.line + 1
            raise EditError(f"{'.'.join(map(str, path[:depth]))} is an alias of line {line}: edit the file by hand")


def _refuse_halves(value: Any) -> None:
    """Refuse text that UTF-8 cannot encode: a byte of another encoding in a file name, or a lone surrogate in JSON."""
    if isinstance(value, str) and HALVES.search(value):
        raise EditError(f"{value[:60]!a} cannot be in a Plan: it is not valid UTF-8")
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        for item in value:
            _refuse_halves(item)


def _is_earlier(parent: Node, node: Node, name: str | int) -> bool:
    """Return whether the text of an entry comes before its own key or belongs to an earlier item."""
    if isinstance(parent, yaml.MappingNode):
        key = next(key for key, _ in scalar_entries(parent) if key.value == str(name))
        return bool(node.start_mark.index < key.start_mark.index)
    earlier = parent.value[: int(name)] if isinstance(parent, yaml.SequenceNode) else ()
    return node.start_mark.index < parent.start_mark.index or any(item is node for item in earlier)


def _as_read(document: Document, path: Path, value: Any) -> Any:
    """Convert a value to what will be read back: where only strings are allowed, a number becomes its spelling."""
    if isinstance(value, Mapping):
        return {str(key): _as_read(document, (*path, str(key)), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_read(document, (*path, index), item) for index, item in enumerate(value)]
    reading = document.reading(path)
    if isinstance(value, str) or reading == "value" or (value is None and reading == "text or null"):
        return value
    return yaml_scalar(value)


def _is_null(node: Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value in ("", "null", "Null", "NULL", "~")


def _get(data: Any, path: Path) -> Any:
    for part in path:
        data = data[int(part)] if isinstance(data, list) else data[part]
    return data


def _with(data: Any, path: Path, value: Any, insert: bool) -> Any:
    data = copy.deepcopy(data)
    *parents, last = path
    at = data
    for part in parents:
        step = at[int(part)] if isinstance(at, list) else at.get(part)
        if step is None:
            step = at[part] = {}
        at = step
    if isinstance(at, list):
        index = len(at) if last == "-" else int(last)
        at[index : index + (0 if insert else 1)] = [value]
    else:
        at[last] = value
    return data


def _without(data: Any, path: Path) -> Any:
    data = copy.deepcopy(data)
    at = _get(data, path[:-1])
    del at[int(path[-1]) if isinstance(at, list) else path[-1]]
    return data
