"""Cut and paste YAML text at the positions of its nodes: find where entries begin and end, and format new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dstui.plan.document import Document, Node, Path, scalar_entries
from dstui.plan.scalars import yaml_scalar

Entry = Node | tuple[Node, Node]
"""An item of a list, or the key and value of a mapping."""


class EditError(Exception):
    """The edit cannot be made. Holds a sentence."""


class Splice:
    """One change of a document's text. Every public method returns the new text, unchecked."""

    def __init__(self, document: Document) -> None:
        self.document, self.text = document, document.text
        self.newline = "\r\n" if "\r\n" in self.text else "\n"

    # Positions

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
        """Return the end of a node's own text. For a block YAML gives the next token, after the comments before it."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self.end(last[1] if isinstance(last, tuple) else last)
        end: int = node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            end = node.start_mark.index + len(self.text[node.start_mark.index : end].rstrip())
        return end

    def cut(self, start: int, end: int, by: str = "") -> str:
        return self.text[:start] + by + self.text[end:]

    # Values as text

    def value(self, value: Any, path: Path, *, quote: str = "") -> str:
        """Format a value on one line, collections in flow style."""
        if isinstance(value, Mapping):
            items = (f"{yaml_scalar(str(k), text=True)}: {self.value(v, (*path, str(k)))}" for k, v in value.items())
            return "{" + ", ".join(items) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self.value(v, (*path, i)) for i, v in enumerate(value)) + "]"
        return yaml_scalar(value, text=self.document.reading(path) != "value", quote=quote)

    def block(self, value: Mapping[str, Any], path: Path, indent: int) -> str:
        """Format a non-empty mapping as lines, each with a newline before it."""
        lines = []
        for key, item in value.items():
            head = f"{self.newline}{' ' * indent}{yaml_scalar(str(key), text=True)}:"
            if isinstance(item, Mapping) and item:
                lines.append(head + self.block(item, (*path, str(key)), indent + 2))
            else:
                lines.append(f"{head} {self.value(item, (*path, str(key)))}")
        return "".join(lines)

    # Changes

    def overwrite(self, path: Path, value: Any) -> str:
        """Return the whole text with another value for an existing node.

        How the old value is written and what the new one is decide the form:
            key: 1          -> {a: 1}     the key gets lines below it (a mapping in block style)
            key: {a: 1}     -> {b: 2}     stays in braces, for the user wrote it so
            key:\n  a: 1    -> {b: 2}     lines are replaced by lines
            key:\n  a: 1    -> 5          the lines are removed, the value goes beside the key
            key: 1          -> 5          only the value is replaced, in the quotes that it had
        """
        node, parent = self.document.node(path), self.document.node(path[:-1])
        assert node is not None and parent is not None
        if isinstance(parent, yaml.MappingNode) and not parent.flow_style:
            in_braces = isinstance(node, yaml.MappingNode) and node.flow_style and node.value
            if isinstance(value, Mapping) and value and not in_braces:
                return self.to_block(node, self.block(value, path, parent.start_mark.column + 2))
            if isinstance(node, yaml.CollectionNode) and not node.flow_style:
                return self._beside_key(parent, node, path, value)
        return self._in_place(node, path, value)

    def _beside_key(self, parent: yaml.MappingNode, node: yaml.CollectionNode, path: Path, value: Any) -> str:
        """Replace the lines below a key by a value on the key's line. Comments between the key and its lines stay."""
        colon = self.text.index(":", self.key(parent, path[-1]).end_mark.index) + 1
        beside = self.text[colon : self.line_start(node.start_mark.index)].rstrip("\r\n")
        return f"{self.text[:colon]} {self.value(value, path)}{beside}{self.text[self.line_end(self.end(node)) :]}"

    def _in_place(self, node: Node, path: Path, value: Any) -> str:
        """Replace only the characters of the value. An empty value (`key:`, or `- ` in a list) also gets a space."""
        start, end = node.start_mark.index, self.end(node)
        quote = node.style if isinstance(node, yaml.ScalarNode) and node.style in ("'", '"') and isinstance(value, str) else ""
        before = "" if start != end else " " if self.text[start - 1 : start] in (":", "-") else ": "
        return self.cut(start, end, before + self.value(value, path, quote=quote))

    def to_block(self, node: Node, lines: str) -> str:
        """Replace a value in block style by lines below its key. A comment beside the key stays."""
        start, end = node.start_mark.index, self.end(node)
        if isinstance(node, yaml.CollectionNode) and not node.flow_style:
            return self.cut(self.line_start(start) - len(self.newline), self.line_end(end), lines)
        head = self.text[:start].rstrip(" ")
        rest = self.text[end : self.line_end(end)]
        return head + (rest if rest.strip() else "") + lines + self.text[self.line_end(end) :]

    def add(self, path: Path, value: Any) -> str:
        """Add an entry to a mapping, or an item to a list."""
        parent = self.document.node(path[:-1])
        if len(path) > 1:
            grand = self.document.node(path[:-2])
            assert parent is not None
            if isinstance(grand, yaml.MappingNode) and not grand.flow_style and isinstance(parent, yaml.MappingNode) and not parent.value:
                return self.to_block(parent, self.block({str(path[-1]): value}, path[:-1], grand.start_mark.column + 2))
        if isinstance(parent, yaml.MappingNode):
            return self._into_mapping(parent, path, value)
        if isinstance(parent, yaml.SequenceNode):
            return self._into_list(parent, path, value)
        raise EditError(f"{'.'.join(map(str, path[:-1]))} is neither a mapping nor a list: nothing can be added to it")

    def _into_mapping(self, parent: yaml.MappingNode, path: Path, value: Any) -> str:
        if parent.flow_style or not parent.value:
            return self.into_flow(parent, len(parent.value), f"{yaml_scalar(str(path[-1]), text=True)}: {self.value(value, path)}")
        at = self.line_end(self.end(parent))
        return self.cut(at, at, self.block({str(path[-1]): value}, path[:-1], parent.start_mark.column))

    def _into_list(self, parent: yaml.SequenceNode, path: Path, value: Any) -> str:
        count, name = len(parent.value), str(path[-1])
        index = count if name == "-" else int(name) if name.isdecimal() else count + 1
        if index > count:
            raise EditError(f"{'.'.join(map(str, path[:-1]))} has {count} items, so there is no item {name}")
        if parent.flow_style or not parent.value:
            return self.into_flow(parent, index, self.value(value, path))
        line = f"{' ' * parent.start_mark.column}- {self.value(value, path)}"
        if index < count:
            at = self.line_start(parent.value[index].start_mark.index)
            return self.cut(at, at, line + self.newline)
        at = self.line_end(self.end(parent))
        return self.cut(at, at, self.newline + line)

    def into_flow(self, node: yaml.CollectionNode, index: int, entry: str) -> str:
        if not node.value:
            return self.cut(node.start_mark.index, node.end_mark.index, ("{%s}" if isinstance(node, yaml.MappingNode) else "[%s]") % entry)
        if index < len(node.value):
            at = self.first(node.value[index]).start_mark.index
            return self.cut(at, at, entry + ", ")
        at = self.end(self.last(node.value[-1]))
        return self.cut(at, at, ", " + entry)

    def rename(self, path: Path, name: str) -> str:
        """Rename a key in place."""
        parent = self.document.node(path[:-1])
        assert isinstance(parent, yaml.MappingNode)
        key = self.key(parent, path[-1])
        return self.cut(key.start_mark.index, key.end_mark.index, yaml_scalar(name, text=True))

    def remove(self, path: Path) -> str:
        """Return the text without an entry or item and without the comment beside it."""
        parent = self.document.node(path[:-1])
        assert isinstance(parent, yaml.CollectionNode)
        if len(parent.value) == 1:
            if len(path) == 1:
                raise EditError("the last key of the Plan cannot be removed")
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

    # Nodes

    def key(self, parent: yaml.MappingNode, name: str | int) -> Node:
        return next(key for key, _ in scalar_entries(parent) if key.value == str(name))

    def index(self, parent: yaml.CollectionNode, name: str | int) -> int:
        if isinstance(parent, yaml.SequenceNode):
            return int(name)
        return next(i for i, (key, _) in enumerate(parent.value) if key.value == str(name))

    def first(self, entry: Entry) -> Node:
        return entry[0] if isinstance(entry, tuple) else entry

    def last(self, entry: Entry) -> Node:
        return entry[1] if isinstance(entry, tuple) else entry
