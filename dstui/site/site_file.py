"""The site file: what one engineer sets for all users of a machine or cluster. Pure: returns a `Site` or raises its mistakes.

It is data. Its values are beneath every Plan; a Plan that breaks its locks is refused with the site's own reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path as FilePath
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.plan.document import Document, DocumentError, Path, Reading
from dstui.plan.finding import Finding
from dstui.plan.kinds import describe_value, is_integer
from dstui.plan.launchers import LAUNCHERS
from dstui.plan.layers import Beneath, Layer, Lock
from dstui.plan.load import TOP, Form, PlanError, check_part
from dstui.plan.load import reading as plan_reading

KEYS: Mapping[str, str] = {
    "version": "The version of this file format: 1.",
    "name": "The name of this site.",
    "welcome": "A text for new users: `dstui new` shows it.",
    "contact": "Who to ask; shown with every refusal.",
    "defaults": "Keys of a Plan, with values for Plans that do not set them.",
    "locked": "Dotted keys of a Plan, each with its one possible value, or with bounds, choices, a condition (when) and the reason.",
    "launchers": "The launchers that may be used.",
    "templates": "A folder of Plans that `dstui new` offers.",
    "machines": "Names of recorded machines, each with its file: --machine NAME plans for it.",
    "causes": "Your notes on the causes of failures, by their ids.",
    "bundle": "Files of the machine that `dstui bundle` also includes, with secrets masked: {include: [/etc/nccl.conf]}.",
}
"""The keys of a site file, each with what it is for."""
LOCK_KEYS = ("value", "min", "max", "choices", "when", "reason")
LOCKABLE = tuple(name for name in TOP if name not in ("version", "extends"))
MAX_FILES = 20
"""Files of the machine in a bundle."""
LONGEST = 2000
"""Characters of a text that is shown to users."""


@dataclass(frozen=True)
class Site:
    """The content of a site file."""

    source: str
    name: str = ""
    welcome: str = ""
    contact: str = ""
    layer: Layer | None = None
    locks: tuple[Lock, ...] = ()
    templates: str = ""
    """The folder of its templates; empty if it has none."""
    machines: Mapping[str, str] = field(default_factory=dict)
    """Name -> file of a recorded machine."""
    causes: Mapping[str, str] = field(default_factory=dict)
    bundle: tuple[str, ...] = ()
    """Absolute paths of files that belong into a bug report."""

    @property
    def beneath(self) -> Beneath:
        """The layer and the locks of the site alone."""
        return Beneath((self.layer,) if self.layer is not None else (), self.locks, contact=self.contact)


def read_site(text: str, source: str, folder: str) -> Site:
    """Return the site of a file's text; paths in it start from `folder`. Raises PlanError with every mistake."""
    document = Document(text, _reading)
    try:
        data = document.data
    except DocumentError as error:
        where = ".".join(map(str, error.path))
        raise PlanError(
            [Finding("SITE", "error", where, error.message, when="parse", line=error.line, column=error.column)], source
        ) from None
    form = Form(document)
    if not isinstance(data, dict):
        form.wrong((), "a site file is a mapping: `version: 1`, `defaults:`, `locked:` …")
        raise PlanError(form.found(), source)
    form.unknown((), data, KEYS)
    if isinstance(data.get("version"), bool) or data.get("version") != 1:
        form.wrong(("version",), "expected `version: 1`: this dstui reads version 1")
    locks = (*_locks(form, data.get("locked"), source), *_launchers(form, data.get("launchers"), source))
    templates = _text(form, data, "templates")
    site = Site(
        source,
        _text(form, data, "name"),
        _text(form, data, "welcome"),
        _text(form, data, "contact"),
        Layer("site", source, folder, document, ("defaults",)),
        locks,
        str(FilePath(folder, templates)) if templates else "",
        {name: str(FilePath(folder, file)) for name, file in _texts(form, data, "machines").items()},
        _texts(form, data, "causes"),
        _bundle(form, data.get("bundle")),
    )
    findings = form.found()
    try:
        check_part(document, ("defaults",), source)
        _refuse_own_contradictions(form, site)
    except PlanError as error:
        findings = [*findings, *error.findings]
    else:
        findings = form.found()
    if findings:
        raise PlanError(findings, source)
    return site


def _reading(path: Path) -> Reading:
    """Return how plain scalars are read: values of a Plan as in a Plan."""
    if path[:1] == ("defaults",) and len(path) > 1:
        return plan_reading(path[1:])
    if path[:1] == ("locked",) and len(path) in (2, 3) and path[2:] in ((), ("value",)):
        return plan_reading(tuple(str(path[1]).split(".")))
    return "text or null" if path[:1] in (("causes",), ("machines",)) or path[-1:] == ("reason",) else "value"


def _text(form: Form, data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST:
        form.wrong((key,), f"expected a text of at most {LONGEST:,} characters, not {describe_value(value)}")
        return ""
    return value.strip()


def _texts(form: Form, data: Mapping[str, Any], key: str) -> dict[str, str]:
    given = form.mapping((key,), data.get(key))
    for name, value in given.items():
        if not isinstance(value, str) or len(value) > LONGEST:
            form.wrong((key, name), f"expected a text of at most {LONGEST:,} characters, not {describe_value(value)}")
    return {name: value.strip() for name, value in given.items() if isinstance(value, str)}


def _bundle(form: Form, given: Any) -> tuple[str, ...]:
    wishes = form.mapping(("bundle",), given)
    form.unknown(("bundle",), wishes, ("include",))
    paths = wishes.get("include", [])
    if not isinstance(paths, list) or len(paths) > MAX_FILES or not all(isinstance(path, str) and path.startswith("/") for path in paths):
        form.wrong(("bundle", "include"), f"expected a list of at most {MAX_FILES} absolute paths, not {describe_value(paths)}")
        return ()
    return tuple(paths)


def _launchers(form: Form, names: Any, source: str) -> tuple[Lock, ...]:
    if names is None:
        return ()
    line = form.document.line_of(("launchers",))
    if not isinstance(names, list) or not names or not all(name in LAUNCHERS for name in names):
        form.wrong(("launchers",), f"expected a list of launchers, each one of {', '.join(LAUNCHERS)}")
        return ()
    return (Lock("cluster.launcher", source, line, choices=tuple(names), reason="the launchers that this site allows"),)


def _locks(form: Form, given: Any, source: str) -> tuple[Lock, ...]:
    return tuple(lock for path, value in form.mapping(("locked",), given).items() if (lock := _lock(form, path, value, source)) is not None)


def _lock(form: Form, path: str, value: Any, source: str) -> Lock | None:
    at, line = ("locked", path), form.document.line_of(("locked", path))
    if path.split(".", maxsplit=1)[0] not in LOCKABLE or "" in path.split("."):
        form.wrong(at, f"not a key of a Plan: it begins with {', '.join(LOCKABLE)} (deepspeed.bf16.enabled)")
        return None
    if not isinstance(value, dict):
        return Lock(path, source, line, exact=(value,))
    form.unknown(at, value, LOCK_KEYS)
    least, most = (_bound(form, (*at, name), value.get(name)) for name in ("min", "max"))
    choices = value.get("choices")
    if choices is not None and (not isinstance(choices, list) or not choices):
        form.wrong((*at, "choices"), f"expected a list of values, not {describe_value(choices)}")
        choices = None
    given = {"bounds" if name in ("min", "max") else name for name in ("value", "min", "max", "choices") if name in value}
    if len(given) != 1:
        form.wrong(at, "give value, or choices, or min and max")
        return None
    if least is not None and most is not None and least > most:
        form.wrong((*at, "max"), f"no number is at least {least:g} and at most {most:g}")
    exact = (value["value"],) if "value" in value else ()
    when = form.mapping((*at, "when"), value.get("when"))
    reason = value.get("reason") if isinstance(value.get("reason"), str) else ""
    return Lock(path, source, line, exact, least, most, tuple(choices or ()), when, str(reason or "").strip()[:LONGEST])


def _bound(form: Form, at: Path, bound: Any) -> float | None:
    if bound is None or isinstance(bound, float) or is_integer(bound):
        known: float | None = bound
        return known
    form.wrong(at, f"expected a number, not {describe_value(bound)}")
    return None


def _refuse_own_contradictions(form: Form, site: Site) -> None:
    """Add a finding if the defaults of a site break its own locks."""
    values: Any = site.layer.values() if site.layer is not None else {}
    for lock in site.locks:
        at: Any = values
        for part in lock.path.split("."):
            at = at.get(part) if isinstance(at, Mapping) else None
        if at is not None and not lock.when and not lock.allows(at):
            form.wrong(("defaults", *lock.path.split(".")), f"{describe_value(at)} breaks the lock on line {lock.line}: {lock.allowed}")
