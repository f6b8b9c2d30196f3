"""Edits of a YAML text that change only the text of the edited nodes: comments, order, quotes and layout stay.

The positions come from the composed tree; after each operation the text is composed anew, and the result is compared with
what the operation means for the plain data, so that a place this module does not understand is refused, never garbled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace as with_changes
from typing import Any

import yaml

from dstui.plan.document import Document, DocumentError, Node, Path, pairs
from dstui.plan.finding import Operation
from dstui.plan.scalars import yaml_scalar


class EditError(Exception):
    """The edit cannot be made: a sentence."""


def pointer(path: str) -> Path:
    """A JSON Pointer (RFC 6901) to a path: `/a/b~1c` is `("a", "b/c")`."""
    if path and not path.startswith("/"):
        raise EditError(f"{path!r} is not a JSON pointer: it begins with '/'")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])


def patched(document: Document, operations: Iterable[Operation]) -> Document:
    """The document after a JSON Patch (RFC 6902: add, replace and remove). Raises EditError; then nothing has changed."""
    for operation in operations:
        path, kind = pointer(operation["path"]), operation["op"]
        if kind == "remove":
            document = removed(document, path)
        elif kind in ("add", "replace"):
            if kind == "replace" and document.node(path) is None:
                raise EditError(f"{'.'.join(map(str, path))} is not there to be replaced")
            document = put(document, path, operation["value"], insert=kind == "add")
        else:
            raise EditError(f"{kind!r}: a patch here adds, replaces or removes")
    return document


def put(document: Document, path: Path, value: Any, *, insert: bool = False) -> Document:
    """The document with the value at the path, its missing parents created. `insert`: before that item, where it is in a list."""
    if not path:
        raise EditError("the whole Plan is not edited: name a key")
    _refuse_alias(document, path)
    value = _as_read(document, path, value)
    found = document.node(path)
    parent = document.node(path[:-1])
    if found is not None and not (insert and isinstance(parent, yaml.SequenceNode)):
        return _replaced(document, path, value)
    while parent is None or _is_null(parent):
        if len(path) == 1:
            break
        if parent is not None:
            return _checked(document, _Edit(document).overwrite(path[:-1], {path[-1]: value}), path, value)
        value, path = {path[-1]: value}, path[:-1]
        parent = document.node(path[:-1])
    return _checked(document, _Edit(document).add(path, value), path, value, insert=True)


def removed(document: Document, path: Path) -> Document:
    """The document without the node at the path."""
    if document.node(path) is None or not path:
        raise EditError(f"{'.'.join(map(str, path))} is not there to be removed")
    _refuse_alias(document, path)
    text = _Edit(document).remove(path)
    return _compared(document, text, _without(document.data, path), path)


def _replaced(document: Document, path: Path, value: Any) -> Document:
    """Mappings and lists are replaced item by item, so that what stays the same keeps its text."""
    old = _get(document.data, path)
    if old == value and type(old) is type(value):
        return document
    if isinstance(old, dict) and isinstance(value, Mapping) and old and value:
        for key in [k for k in old if k not in value]:
            if len(_get(document.data, path)) > 1:
                document = removed(document, (*path, key))
            else:
                return _checked(document, _Edit(document).overwrite(path, value), path, value)
        for key, item in value.items():
            document = put(document, (*path, key), item)
        return document
    if isinstance(old, list) and isinstance(value, (list, tuple)) and old and value:
        for index in range(len(old) - 1, len(value) - 1, -1):
            document = removed(document, (*path, index))
        for index, item in enumerate(value):
            document = put(document, (*path, index), item)
        return document
    return _checked(document, _Edit(document).overwrite(path, value), path, value)


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
        raise EditError(
            f"{'.'.join(map(str, path))} (line {line}) is written in a way that cannot be edited in place: edit the file by hand"
        )
    return edited


def _refuse_alias(document: Document, path: Path) -> None:
    """What an alias stands for is written elsewhere, always before it: an edit here would change it there too."""
    for depth in range(1, len(path) + 1):
        parent, node = document.node(path[: depth - 1]), document.node(path[:depth])
        if parent is None or node is None:
            return
        before = (
            next((key for key, value in pairs(parent) if value is node and key.value == str(path[depth - 1])), parent)
            if isinstance(parent, yaml.MappingNode)
            else parent
        )
        twice = isinstance(parent, yaml.SequenceNode) and any(item is node for item in parent.value[: int(path[depth - 1])])
        if twice or node.start_mark.index < before.start_mark.index:
            line = node.start_mark.line + 1
            raise EditError(f"{'.'.join(map(str, path[:depth]))} is an alias of what stands on line {line}: edit the file by hand")


def _as_read(document: Document, path: Path, value: Any) -> Any:
    """The value as it will be read back: where only text stands, a number is its spelling."""
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


class _Edit:
    """One change of the text; every method returns the new text."""

    def __init__(self, document: Document) -> None:
        self.document, self.text = document, document.text
        self.newline = "\r\n" if "\r\n" in self.text else "\n"

    # -- positions

    def line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[end - 1 : end] == "\r" else end

    def after_line(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end + 1

    def end(self, node: Node) -> int:
        """Where the node's own text ends: a block's end as YAML sees it is the next token, comments included."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self.end(last[1] if isinstance(last, tuple) else last)
        end: int = node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            end = node.start_mark.index + len(self.text[node.start_mark.index : end].rstrip())
        return end

    def cut(self, start: int, end: int, by: str = "") -> str:
        return self.text[:start] + by + self.text[end:]

    # -- values as text

    def value(self, value: Any, path: Path, *, quote: str = "") -> str:
        """A value on one line: flow style for what is not a scalar."""
        if isinstance(value, Mapping):
            items = (f"{yaml_scalar(str(k), text=True)}: {self.value(v, (*path, str(k)))}" for k, v in value.items())
            return "{" + ", ".join(items) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self.value(v, (*path, i)) for i, v in enumerate(value)) + "]"
        return yaml_scalar(value, text=self.document.reading(path) != "value", quote=quote)

    def block(self, value: Mapping[str, Any], path: Path, indent: int) -> str:
        """A non-empty mapping as lines, each with its newline before it."""
        lines = []
        for key, item in value.items():
            head = f"{self.newline}{' ' * indent}{yaml_scalar(str(key), text=True)}:"
            if isinstance(item, Mapping) and item:
                lines.append(head + self.block(item, (*path, str(key)), indent + 2))
            else:
                lines.append(f"{head} {self.value(item, (*path, str(key)))}")
        return "".join(lines)

    # -- changes

    def overwrite(self, path: Path, value: Any) -> str:
        """Another value for a node that is there."""
        node, parent = self.document.node(path), self.document.node(path[:-1])
        assert node is not None and parent is not None
        start, end = node.start_mark.index, self.end(node)
        indent = parent.start_mark.column + 2
        if isinstance(parent, yaml.MappingNode) and not parent.flow_style:
            if isinstance(value, Mapping) and value and not (isinstance(node, yaml.MappingNode) and node.flow_style and node.value):
                return self.to_block(node, self.block(value, path, indent))
            if isinstance(node, yaml.CollectionNode) and not node.flow_style:
                colon = self.text.index(":", self.key(parent, path[-1]).end_mark.index) + 1
                beside = self.text[colon : self.line_start(start)].rstrip("\r\n")  # comments between the key and its block
                return f"{self.text[:colon]} {self.value(value, path)}{beside}{self.text[self.line_end(end) :]}"
        quote = node.style if isinstance(node, yaml.ScalarNode) and node.style in ("'", '"') and isinstance(value, str) else ""
        before = "" if start != end else " " if self.text[start - 1 : start] in (":", "-") else ": "
        return self.cut(start, end, before + self.value(value, path, quote=quote))

    def to_block(self, node: Node, lines: str) -> str:
        """The value of a key in a block gives way to lines below the key; a comment beside the key stays."""
        start, end = node.start_mark.index, self.end(node)
        if isinstance(node, yaml.CollectionNode) and not node.flow_style:
            return self.cut(self.line_start(start) - len(self.newline), self.line_end(end), lines)
        head = self.text[:start].rstrip(" ")
        rest = self.text[end : self.line_end(end)]
        return head + (rest if rest.strip() else "") + lines + self.text[self.line_end(end) :]

    def add(self, path: Path, value: Any) -> str:
        """A new entry in a mapping, or a new item in a list."""
        parent = self.document.node(path[:-1])
        if len(path) > 1:
            grand = self.document.node(path[:-2])
            assert parent is not None
            if isinstance(grand, yaml.MappingNode) and not grand.flow_style and isinstance(parent, yaml.MappingNode) and not parent.value:
                return self.to_block(parent, self.block({str(path[-1]): value}, path[:-1], grand.start_mark.column + 2))
        if isinstance(parent, yaml.MappingNode):
            if parent.flow_style or not parent.value:
                entry = f"{yaml_scalar(str(path[-1]), text=True)}: {self.value(value, path)}"
                return self.into_flow(parent, len(parent.value), entry)
            at = self.line_end(self.end(parent))
            return self.cut(at, at, self.block({str(path[-1]): value}, path[:-1], parent.start_mark.column))
        if isinstance(parent, yaml.SequenceNode):
            index = len(parent.value) if path[-1] == "-" else int(path[-1])
            if index > len(parent.value):
                raise EditError(f"{'.'.join(map(str, path[:-1]))} has {len(parent.value)} items: there is no place {index} in it")
            if parent.flow_style or not parent.value:
                return self.into_flow(parent, index, self.value(value, path))
            line = f"{' ' * parent.start_mark.column}- {self.value(value, path)}"
            if index < len(parent.value):
                at = self.line_start(parent.value[index].start_mark.index)
                return self.cut(at, at, line + self.newline)
            at = self.line_end(self.end(parent))
            return self.cut(at, at, self.newline + line)
        raise EditError(f"{'.'.join(map(str, path[:-1]))} is neither a mapping nor a list: nothing can be added to it")

    def into_flow(self, node: yaml.CollectionNode, index: int, entry: str) -> str:
        if not node.value:
            return self.cut(node.start_mark.index, node.end_mark.index, ("{%s}" if isinstance(node, yaml.MappingNode) else "[%s]") % entry)
        if index < len(node.value):
            at = self.first(node.value[index]).start_mark.index
            return self.cut(at, at, entry + ", ")
        at = self.end(self.last(node.value[-1]))
        return self.cut(at, at, ", " + entry)

    def remove(self, path: Path) -> str:
        """The text without an entry or item, its own comment included."""
        parent = self.document.node(path[:-1])
        assert isinstance(parent, yaml.CollectionNode)
        if len(parent.value) == 1:
            if len(path) == 1:
                raise EditError("the last key of the Plan is not removed")
            return self.overwrite(path[:-1], {} if isinstance(parent, yaml.MappingNode) else [])
        index = self.index(parent, path[-1])
        entry = parent.value[index]
        start, end = self.first(entry).start_mark.index, self.end(self.last(entry))
        if parent.flow_style:
            if index:
                return self.cut(self.end(self.last(parent.value[index - 1])), end)
            return self.cut(start, self.first(parent.value[1]).start_mark.index)
        begins_line = not self.text[self.line_start(start) : start].strip(" -" if isinstance(parent, yaml.SequenceNode) else " ")
        if begins_line or index:
            return self.cut(self.line_start(start), self.after_line(end))
        return self.cut(start, self.first(parent.value[1]).start_mark.index)  # the first key after a dash

    # -- nodes

    def key(self, parent: yaml.MappingNode, name: str | int) -> Node:
        return next(key for key, _ in pairs(parent) if key.value == str(name))

    def index(self, parent: yaml.CollectionNode, name: str | int) -> int:
        if isinstance(parent, yaml.SequenceNode):
            return int(name)
        return next(i for i, (key, _) in enumerate(parent.value) if key.value == str(name))

    def first(self, entry: Any) -> Node:
        return entry[0] if isinstance(entry, tuple) else entry  # type: ignore[no-any-return]

    def last(self, entry: Any) -> Node:
        return entry[1] if isinstance(entry, tuple) else entry  # type: ignore[no-any-return]
