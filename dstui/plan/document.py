"""A YAML text with the position of every node: Plans are read from it and edited in place.

PyYAML's C parser composes the tree (0.2 ms for thirty lines where ruamel.yaml needs 6 ms; each edit composes the text again). `scalars.py`
decides what a scalar means, because PyYAML knows only YAML 1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal

import yaml

from dstui.base.dataclass import dataclass
from dstui.base.limits import MAX_DEPTH, MAX_DIGITS, MAX_PATH, MAX_VALUES, TOO_DEEP, TOO_LONG, TOO_MANY, LimitError
from dstui.plan.scalars import is_null, resolve

Path = tuple[str | int, ...]
Node = yaml.Node


class DocumentError(Exception):
    """The text is not YAML that a Plan can be. Holds a sentence and the position (line and column count from 1)."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None, path: Path = ()) -> None:
        super().__init__(message)
        self.message, self.line, self.column, self.path = message, line, column, path


NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
Reading = Literal["value", "text", "text or null"]
"""The way in which a plain scalar is read: by the core schema, or as text (arguments, variables, names)."""


def read_as_value(_path: Path) -> Reading:
    """Read every plain scalar as a value: the default of `Document.reading`."""
    return "value"


@dataclass(frozen=True)
class Document:
    """One YAML text. `reading(path)` says how plain scalars at a path are read."""

    text: str
    reading: Callable[[Path], Reading] = read_as_value

    @cached_property
    def root(self) -> Node:
        """The composed tree; its positions count characters of `text`."""
        return compose(self.text)

    @cached_property
    def _entries(self) -> dict[int, Entries]:
        return {}

    def entries(self, node: yaml.MappingNode) -> Entries:
        """Return the entries of a mapping by key. They are cached, so that the cost of a look-up does not depend on their number."""
        found = self._entries.get(id(node))
        if found is None:
            found = self._entries[id(node)] = {key.value: (key, value) for key, value in scalar_entries(node)}
        return found

    @cached_property
    def data(self) -> Any:
        """The plain values: dicts, lists, strings, numbers that keep their spelling, bools, None."""
        return _Builder(self.text, self.reading).build(self.root, (), 0)

    def node(self, path: Path) -> Node | None:
        """Return the node at a path, None where there is none."""
        node: Node | None = self.root
        for part in path:
            node = self._child(node, part)
        return node

    def line_of(self, path: Path) -> int | None:
        """Return the line (from 1) of the key at a path, or of its nearest parent in the text."""
        node, line = self.root, None
        for part in path:
            child = self._child(node, part)
            if child is None:
                break
            key = self.entries(node)[str(part)][0] if isinstance(node, yaml.MappingNode) else child
            line, node = key.start_mark.line + 1, child
        return line

    def _child(self, node: Node | None, part: str | int) -> Node | None:
        if isinstance(node, yaml.MappingNode):
            found = self.entries(node).get(str(part))
            return found[1] if found else None
        if isinstance(node, yaml.SequenceNode) and (index := position(part)) is not None and index < len(node.value):
            child: Node = node.value[index]
            return child
        return None


def position(part: str | int) -> int | None:
    """Return a part of a path as an index of a list; None if it is not a number."""
    text = str(part)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


Entries = dict[str, tuple[yaml.ScalarNode, Node]]


def scalar_entries(node: yaml.MappingNode) -> Iterator[tuple[yaml.ScalarNode, Node]]:
    """Yield the entries of a mapping whose keys are scalars. Other keys are refused when the document is built."""
    return ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode))


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # PyYAML has the C parser where libyaml was there
    """PyYAML's loader with limits: the composer calls the resolver before it enters a node, and here depth and count are checked."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = self.count = 0

    def descend_resolver(self, parent: Node | None, _index: Any) -> None:
        """Count depth and nodes before a node is composed. Raises DocumentError if there are too many."""
        self.depth += 1
        self.count += 1
        if parent is not None and (self.depth > MAX_DEPTH + 1 or self.count > MAX_VALUES):
            raise _at(parent, (), TOO_DEEP if self.depth > MAX_DEPTH + 1 else TOO_MANY)

    def ascend_resolver(self) -> None:
        """Leave a level after its node was composed."""
        self.depth -= 1


def compose(text: str) -> Node:
    """Compose a text to a tree of nodes. Raises DocumentError."""
    try:
        node: Node | None = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (None, None)
        raise DocumentError(_sentence(text, error), line, column) from None
    except yaml.YAMLError as error:
        at = getattr(error, "position", None)
        raise DocumentError(
            "a character that does not belong in a text file: remove it", text.count("\n", 0, at) + 1 if isinstance(at, int) else None
        ) from None
    if node is None:
        raise DocumentError("only comments are in the file" if text.strip() else "the file is empty")
    return node


def walk_nodes(root: Node | None) -> Iterator[Node]:
    """Yield every key and value of a composed tree, following aliases. Raises DocumentError if a limit is exceeded."""
    waiting, count = [(root, 0, 0)] if root is not None else [], 0
    while waiting:
        node, depth, width = waiting.pop()
        count += 1
        if excess := _excess(node, depth, width, count):
            raise _at(node, (), excess)
        yield node
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = width + (len(key.value) if isinstance(key, yaml.ScalarNode) else 0)
                waiting += ((key, depth + 1, width), (value, depth + 1, inner))
        elif isinstance(node, yaml.SequenceNode):
            waiting += ((item, depth + 1, width) for item in node.value)


def _excess(node: Node, depth: int, width: int, count: int) -> str:
    """Return which limit is exceeded as a sentence; "" if none is."""
    if depth > MAX_DEPTH:
        return TOO_DEEP
    if count > MAX_VALUES:
        return TOO_MANY
    if isinstance(node, yaml.ScalarNode) and node.tag in NUMBERS and len(node.value) > MAX_DIGITS:
        return f"a number of {len(node.value):,} digits: the limit is {MAX_DIGITS}"
    return TOO_LONG if width > MAX_PATH else ""


def _sentence(text: str, error: yaml.MarkedYAMLError) -> str:
    """Return a helpful sentence for PyYAML's message about a common mistake."""
    mark, problem = error.problem_mark, error.problem or "not YAML"
    if mark is not None and "cannot start any token" in problem and text[mark.index : mark.index + 1] == "\t":
        return "a tab where YAML wants spaces: indent with spaces"
    if "maximum nesting depth" in problem:  # libyaml's own limit since 0.2.6 is reached before the Loader's
        return TOO_DEEP
    if "mapping values are not allowed" in problem:
        return "a second ': ' here, or an indentation that does not fit the line above: quote the value, or align the key"
    if "another document" in problem:
        return "a second document ('---'): a Plan is one document"
    if "undefined alias" in problem:
        return "an alias (*name) whose anchor (&name) is not in the file"
    if "expected ':'" in problem:
        return "a line without ': ' where a key and its value are expected"
    if "end of stream" in problem:
        return "a quote that is opened and never closed"
    return problem + (f" ({error.context})" if error.context else "")


class _Builder:
    """Builds plain values from nodes, and checks what only the whole tree shows."""

    def __init__(self, text: str, reading: Callable[[Path], Reading]) -> None:
        self.text, self.reading, self.count = text, reading, 0

    def build(self, node: Node, path: Path, width: int) -> Any:
        """Build the plain value of a node. `width` is the number of characters in the path."""
        self.count += 1
        if len(path) > MAX_DEPTH:  # an alias inside the node that it refers to
            raise _at(node, path[:3], TOO_DEEP)
        if self.count > MAX_VALUES:
            raise _at(node, path[:3], TOO_MANY)
        if isinstance(node, yaml.MappingNode):
            if (name := placeholder(node)) and self.reading(path) == "text":
                return name
            return self._mapping(node, path, width)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i), width + 1) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, width: int) -> dict[str, Any]:
        built: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _at(key, path, "a key that is a list or a mapping: keys are plain words")
            inner = width + len(key.value) + 1
            if inner > MAX_PATH:
                raise _at(key, path[:3], TOO_LONG)
            if key.value in built:
                raise _at(key, (*path, key.value), f"the key {key.value!r} is given a second time (first on line {lines[key.value]})")
            if key.value == "<<" and not key.style:
                raise _at(key, (*path, "<<"), "merge keys (<<) are not part of YAML 1.2: write the keys out")
            lines[key.value] = key.start_mark.line + 1
            built[key.value] = self.build(value, (*path, key.value), inner)
        return built

    def _scalar(self, node: Any, path: Path) -> Any:
        if self.text[node.start_mark.index : node.start_mark.index + 1] == "!":
            raise _at(node, path, "a tag (!…): a Plan holds plain values only")
        reading = "text" if node.style else self.reading(path)
        if reading == "text" or (reading == "text or null" and not is_null(node.value)):
            return node.value
        try:
            return resolve(node.value)
        except LimitError as error:
            raise _at(node, path, error.message) from None


def placeholder(node: yaml.MappingNode) -> str | None:
    """Return the text of an unquoted `{ds_config}`, which YAML reads as a mapping with one key; None for any other mapping."""
    if node.flow_style and len(node.value) == 1:
        key, value = node.value[0]
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode) and value.value == "" and not value.style:
            return "{" + str(key.value) + "}"
    return None


def _at(node: Node, path: Path, message: str) -> DocumentError:
    return DocumentError(message, node.start_mark.line + 1, node.start_mark.column + 1, path)
