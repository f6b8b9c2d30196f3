"""Values beneath a Plan: from the site file, an extended file and the user's settings, used where the Plan sets none.

Layers are merged only for reading. The text of a Plan contains a layer's value only after somebody writes it there.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.plan.document import Document, Path

HOSTS = ("cluster", "hosts")
TYPED = (("deepspeed", "optimizer"), ("deepspeed", "scheduler"))
"""Mappings with a `type`: the parameters of one optimizer mean nothing to another."""
ALTERNATIVES = (("job", ("script", "module", "command")), ("cluster", ("hosts", "hostfile")))
"""Keys of a section of which a Plan has one. If a higher layer sets one, those of lower layers are ignored."""
PATHS = (("job", "workdir"), ("job", "python"), ("cluster", "hostfile"), ("model", "source"))
"""Values that may be a path relative to the file that contains them."""


@dataclass(frozen=True)
class Layer:
    """The values of one file. `root` is their place in its document; relative paths start from `base`."""

    name: str
    source: str
    base: str
    document: Document
    root: Path = ()
    drop: tuple[str, ...] = ("version", "name", "extends")
    """Top-level keys that belong to the file itself."""

    def values(self) -> dict[str, Any]:
        """Return the values as the Plan takes them, with relative paths made absolute."""
        data: Any = self.document.data
        for part in self.root:
            data = data.get(part) if isinstance(data, Mapping) else None
        values = {key: value for key, value in data.items() if key not in self.drop} if isinstance(data, Mapping) else {}
        for section, key in PATHS:
            held = values.get(section)
            if isinstance(held, Mapping) and isinstance(path := held.get(key), str) and _is_relative(section, key, path):
                values[section] = {**held, key: posixpath.normpath(posixpath.join(self.base, path))}
        return values

    def line_of(self, path: Path) -> int | None:
        """Return the line of a value in the layer's file; None if the file does not set it."""
        return self.document.line_of((*self.root, *path)) if self.document.node((*self.root, *path)) is not None else None


def _is_relative(section: str, key: str, path: str) -> bool:
    if path.startswith(("/", "~", "$")):
        return False
    if (section, key) == ("job", "python"):
        return "/" in path
    return path.startswith(("./", "../")) if section == "model" else True  # otherwise it is the id of a model


@dataclass(frozen=True)
class Lock:
    """The values that a site allows for one key, with the reason shown to users."""

    path: str
    source: str
    line: int | None = None
    exact: tuple[Any, ...] = ()
    """The one allowed value; empty if there are only bounds or choices."""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    when: Mapping[str, Any] = field(default_factory=dict)
    """Values of other keys. The lock applies only while the Plan has them."""
    reason: str = ""

    @property
    def allowed(self) -> str:
        """Return the allowed values in words."""
        if self.exact:
            return f"only {spell(self.exact[0])}"
        bounds = [
            f"at least {self.minimum:g}" if self.minimum is not None else "",
            f"at most {self.maximum:g}" if self.maximum is not None else "",
        ]
        return " and ".join(filter(None, bounds)) or f"one of {', '.join(map(spell, self.choices))}"

    @property
    def is_fixed(self) -> bool:
        """Return whether the lock allows a single value whatever else the Plan says."""
        return bool(self.exact) and not self.when

    def allows(self, value: Any) -> bool:
        """Return whether the lock allows a value. A value that is not set or is "auto" is allowed."""
        if self.exact:
            return _same(value, self.exact[0])
        if value is None:
            return True
        if self.choices:
            return any(_same(value, choice) for choice in self.choices)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        return not (self.minimum is not None and value < self.minimum) and not (self.maximum is not None and value > self.maximum)


def spell(value: Any) -> str:
    """Return a value in the spelling of a Plan."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else getattr(value, "spelling", str(value))


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


@dataclass(frozen=True)
class Beneath:
    """Everything beneath a Plan: the layers (lowest first), the locks of the site, and the problems of these files."""

    layers: tuple[Layer, ...] = ()
    locks: tuple[Lock, ...] = ()
    problems: tuple[str, ...] = ()
    """The reason why a file that should be a layer is not used."""
    contact: str = ""
    """Whom to ask, as the site file says."""

    def __bool__(self) -> bool:
        """Return whether anything lies beneath the Plan."""
        return bool(self.layers or self.locks)

    def values(self) -> dict[str, Any]:
        """Return the merged values of all layers, over the fixed values of the locks."""
        found: dict[str, Any] = {}
        for lock in self.locks:
            if lock.is_fixed:
                found = merge(found, _nest(lock.path.split("."), lock.exact[0]))
        for layer in self.layers:
            found = merge(found, layer.values())
        return found


NOTHING = Beneath()


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any], path: Path = ()) -> dict[str, Any]:
    """Return the merged values of two layers. A null above removes the value below, except that a null section leaves it."""
    values = dict(lower)
    for section, names in ALTERNATIVES:
        if path == (section,) and any(upper.get(name) for name in names):
            values = {key: value for key, value in values.items() if key not in names}
    for key, value in upper.items():
        at, below = (*path, key), values.get(key)
        if value is None and key in values:
            if len(at) > 1:
                del values[key]
        elif isinstance(value, Mapping) and isinstance(below, Mapping) and not _replaces(at, value, below):
            values[key] = merge(below, value, at)
        else:
            values[key] = value
    return {**{key: values[key] for key in upper if key in values}, **values}


def _replaces(path: Path, upper: Mapping[str, Any], lower: Mapping[str, Any]) -> bool:
    """Return whether a mapping replaces the one beneath it as a whole."""
    return path == HOSTS or (path in TYPED and "type" in upper and upper["type"] != lower.get("type"))


def _nest(parts: Iterable[str], value: Any) -> dict[str, Any]:
    for part in reversed(list(parts)):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested


@dataclass(frozen=True, slots=True)
class Origin:
    """The layer that a value comes from, with file and line."""

    layer: str
    source: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """Format the origin for the user."""
        where = ":".join(str(part) for part in (self.source, self.line) if part)
        return f"{self.layer} ({where})" if where else self.layer


def origin_beneath(beneath: Beneath, path: Path) -> Origin | None:
    """Return the origin of a value that a layer gives; None if no layer gives it."""
    for layer in reversed(beneath.layers):
        if (line := layer.line_of(path)) is not None:
            return Origin(layer.name, layer.source, line)
    dotted = ".".join(map(str, path))
    for lock in beneath.locks:
        if lock.is_fixed and (dotted == lock.path or dotted.startswith(f"{lock.path}.")):
            return Origin("site", lock.source, lock.line)
    return None
