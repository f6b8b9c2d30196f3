"""Load a Plan from text: every value is checked, and errors name line, column and key.

`deepspeed` and `accelerate` are kept as they are, since their keys belong to other programs; the rules in `dstui.check` judge them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from itertools import islice
from typing import Any

from dstui.base.limits import MAX_LISTED
from dstui.base.text import similar_words
from dstui.base.user_error import UserError
from dstui.plan.catalogue import lookup
from dstui.plan.document import Document, DocumentError, Path, Reading
from dstui.plan.finding import Finding
from dstui.plan.kinds import KINDS, LISTS_OF_TEXTS, TEXTS, describe_value
from dstui.plan.model import SECTIONS, Cluster, Job, NamedModel, Run

KEPT = ("accelerate", "deepspeed")
TOP = ("version", "extends", "name", "job", "model", "models", "cluster", "run", "accelerate", "deepspeed")
MODEL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
"""The name of one of several models. It becomes part of a file name and of a variable."""
MAX_MODELS = 16


class PlanError(UserError):
    """A Plan that cannot be used. `findings` has one entry per mistake; `str()` is a line for each."""

    def __init__(self, findings: list[Finding], source: str = "") -> None:
        self.findings, self.source = findings, source
        super().__init__("\n".join(self.sentence(f) for f in findings))

    def sentence(self, finding: Finding) -> str:
        """Format a finding as `plan.yaml:3:5: cluster.hosts: what is wrong; what to do`."""
        where = ":".join(str(part) for part in (self.source, finding.line, finding.column) if part)
        return ": ".join(part for part in (where, finding.path, finding.message) if part)


def _specs(cls: type) -> dict[str, Field[Any]]:
    return {f.name: f for f in fields(cls)}


FIELDS: dict[Path, dict[str, Field[Any]]] = {(name,): _specs(cls) for name, cls in SECTIONS.items()}
FIELDS |= {
    (*path, key): _specs(spec.metadata["of"]) for path, specs in FIELDS.items() for key, spec in specs.items() if spec.metadata["of"]
}


def reading(path: Path) -> Reading:
    """Return how scalars at a path are read: arguments and variables as text (`1.10`, `1e-5`), names as text unless null."""
    if path in ((), ("deepspeed",)):
        return "value"
    if path in (("name",), ("extends",)):
        return "text or null"
    if len(path) > 2 and path[0] == "models":
        return reading(path[2:]) if path[2] in ("model", "deepspeed") else "text or null"
    for depth in (2, 3):
        spec = FIELDS.get(path[: depth - 1], {}).get(str(path[depth - 1])) if len(path) >= depth else None
        if spec is not None and spec.metadata["kind"] in LISTS_OF_TEXTS:
            return "text"
        if spec is not None and spec.metadata["kind"] in TEXTS and len(path) == depth:
            return "text or null"
    return "value"


def compose(text: str, source: str) -> Document:
    """Compose the document of a Plan. Raises PlanError at the place where it is not YAML."""
    document = Document(text, reading)
    try:
        _ = document.data
    except DocumentError as error:
        path = ".".join(map(str, error.path))
        raise PlanError([_finding(path, error.message, error.line, error.column)], source) from None
    return document


def sections(document: Document, source: str, data: Any = None) -> dict[str, Any]:
    """Return the checked values of a Plan's top-level keys, with sections as their dataclasses. Raises PlanError with all mistakes.

    `data`: the values of the document merged with those of its layers.
    """
    own, form = document.data, Form(document)
    if not isinstance(own, dict):
        raise PlanError([_finding("", "a Plan is a mapping: `version: 1`, `job:`, `deepspeed:` …", 1, 1)], source)
    data = own if data is None else data
    if form.version(own.get("version", MISSING)) and not {"job", "deepspeed", "extends"} & own.keys():
        form.wrong((), "neither job: nor deepspeed: is given: this is not a Plan")
    return _checked(form, data, source)


def check_part(document: Document, root: Path, source: str) -> None:
    """Check the part of a Plan at some place in a document, where every key may be missing. Raises PlanError."""
    data: Any = document.data
    for part in root:
        data = data.get(part) if isinstance(data, dict) else None
    form = Form(document, root)
    if data is not None and not isinstance(data, dict):
        form.wrong((), f"expected keys of a Plan, not {describe_value(data)}")
    _checked(form, data if isinstance(data, dict) else {}, source)


def _checked(form: Form, data: Mapping[str, Any], source: str) -> dict[str, Any]:
    form.unknown((), data, TOP)
    values: dict[str, Any] = {"name": data.get("name") or ""}
    for key in ("name", "extends"):
        for _, message in KINDS["str"](data.get(key) or ""):
            form.wrong((key,), message)
    for name, cls in SECTIONS.items():
        values[name] = form.section((name,), cls, data.get(name)) if name != "model" or data.get(name) is not None else None
    for name in KEPT:
        values[name] = form.mapping((name,), data.get(name))
    values["models"] = form.models(data.get("models"))
    if isinstance(job := values["job"], Job):
        form.script(job)
    if isinstance(cluster := values["cluster"], Cluster):
        form.cluster(cluster)
    if form.findings:
        raise PlanError(form.found(), source)
    return values


def _finding(path: str, message: str, line: int | None, column: int | None = None) -> Finding:
    return Finding("PLAN", "error", path, message, when="parse", line=line, column=column)


def _hint(key: str, known: Iterable[str], *, top: bool) -> str:
    """Return what may have been meant by an unknown key. `top`: whether it stands at the root of the Plan."""
    if top and lookup(key) is not None:
        return f"it is DeepSpeed's: write deepspeed.{key}"
    close = similar_words(key, known, 1, 0.6)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"


class Form:
    """Checks the values of a Plan and collects the mistakes."""

    def __init__(self, document: Document, root: Path = ()) -> None:
        """`root` is the place of the Plan's keys in the document."""
        self.document, self.root, self.findings, self.more = document, root, list[Finding](), 0

    def found(self) -> list[Finding]:
        """Return the findings. Of too many, return the first ones and a finding with the number of the others."""
        further = f"and {self.more:,} further mistakes, which are not listed: fix these first"
        return [*self.findings, _finding("", further, None)] if self.more else self.findings

    def wrong(self, path: Path, message: str) -> None:
        if len(self.findings) >= MAX_LISTED:
            self.more += 1
            return
        node = self.document.node((*self.root, *path))
        line = self.document.line_of((*self.root, *path)) or 1
        column = node.start_mark.column + 1 if node is not None and node.start_mark.line + 1 == line else None
        self.findings.append(_finding(".".join(map(str, (*self.root, *path))), message, line, column))

    def unknown(self, path: Path, data: Mapping[str, Any], known: Iterable[str]) -> None:
        strange = [key for key in data if key not in known]
        self.more += len(strange[MAX_LISTED:])
        for key in strange[:MAX_LISTED]:
            self.wrong((*path, key), f"unknown key; {_hint(key, known, top=not path)}")

    def version(self, version: Any) -> bool:
        if version is MISSING:
            self.wrong((), "the first key of a Plan is `version: 1`: add it")
        elif isinstance(version, bool) or version != 1:
            newer = isinstance(version, int) and version > 1
            self.wrong(("version",), f"{version!r}: this dstui reads version 1" + (": update dstui" if newer else ""))
        return not self.findings

    def mapping(self, path: Path, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.wrong(path, f"expected a mapping (key: value), not {describe_value(value)}")
        return {}

    def section(self, path: Path, cls: type, data: Any) -> Any:
        given = self.mapping(path, data)
        specs = _specs(cls)
        self.unknown(path, given, specs)
        values: dict[str, Any] = {}
        for name, spec in specs.items():
            if name not in given:
                continue
            at = (*path, name)
            if spec.metadata["of"] and (given[name] is not None or spec.default is not None):
                values[name] = self.section(at, spec.metadata["of"], given[name])
            elif given[name] is not None:
                values[name] = self.value(at, spec, given[name])
            elif spec.default is not None:
                self.wrong(at, "null is not allowed here: give a value, or remove the key to use its default")
        return cls(**values)

    def models(self, data: Any) -> dict[str, NamedModel]:
        given = self.mapping(("models",), data)
        if len(given) > MAX_MODELS:
            self.wrong(("models",), f"{len(given):,} models are more than {MAX_MODELS}, the most in one run")
            return {}
        known: dict[str, str] = {}
        for name in given:
            if not MODEL_NAME.fullmatch(name):
                self.wrong(("models", name), "a model's name begins with a letter, and has letters, digits and _ only")
            elif (other := known.setdefault(name.upper(), name)) != name:
                self.wrong(("models", name), f"it differs from {other} in upper and lower case only: give it another name")
        return {name: self.section(("models", name), NamedModel, one) for name, one in given.items()}

    def value(self, path: Path, spec: Field[Any], value: Any) -> Any:
        choices, minimum, maximum = (spec.metadata[name] for name in ("choices", "minimum", "maximum"))
        if mistakes := list(islice(KINDS[spec.metadata["kind"]](value), MAX_LISTED + 1)):
            for below, message in mistakes:
                self.wrong((*path, *below), message)
            return spec.default if spec.default_factory is MISSING else spec.default_factory()
        if choices and value not in choices:
            close = similar_words(str(value), choices, 1)
            self.wrong(
                path, f"{describe_value(value)} is not one of {', '.join(choices)}" + (f"; did you mean {close[0]!r}?" if close else "")
            )
        if minimum is not None and value < minimum:
            self.wrong(path, f"{describe_value(value)} is less than {minimum:g}, the minimum")
        if maximum is not None and value > maximum:
            self.wrong(path, f"{describe_value(value)} is more than {maximum:g}, the maximum")
        return tuple(value) if isinstance(value, list) else value

    def script(self, job: Job) -> None:
        if job.script is not None and job.module is not None:
            self.wrong(("job", "module"), "script and module are both given: keep one")
        other = "script" if job.script is not None else "module" if job.module is not None else "args" if job.args else ""
        if job.command and other:
            self.wrong(("job", "command"), f"command and {other} are both given: a command replaces the script, so keep one")

    def cluster(self, cluster: Cluster) -> None:
        if cluster.hosts is not None and cluster.hostfile is not None:
            self.wrong(("cluster", "hostfile"), "hosts and hostfile are both given: keep one")


__all__ = ["FIELDS", "PlanError", "Run", "check_part", "compose", "reading", "sections"]
