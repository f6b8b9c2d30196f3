"""The Plan: an immutable document and its sections. An edit returns a new Plan or raises an error."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.plan.document import Document, DocumentError
from dstui.plan.document import Path as NodePath
from dstui.plan.edit import apply_patch, put_value, remove_node
from dstui.plan.finding import Finding, Operation
from dstui.plan.layer_edits import own_operations, value_at
from dstui.plan.layers import NOTHING, Beneath, merge
from dstui.plan.load import PlanError, compose, reading, sections
from dstui.plan.model import Cluster, Job, Model, NamedModel, Run
from dstui.plan.splice import EditError


@dataclass(frozen=True)
class Plan:
    """A Plan as written in one YAML text.

    `source` is the file name for messages. Relative paths in the Plan start from the absolute folder `base`. In a run with several models,
    `focused_on(name)` is the same document with the `deepspeed` and `model` of one of them.
    """

    document: Document
    source: str
    base: str
    focus: str = ""
    """The model whose `deepspeed` and `model` are visible, also in dotted paths; empty for the Plan's own."""
    beneath: Beneath = NOTHING
    """The layers of values beneath the Plan's own text, and the locks of the site."""
    sets: tuple[str, ...] = ()
    """Dotted paths that were set on the command line."""

    @cached_property
    def _sections(self) -> dict[str, Any]:
        return sections(self.document, self.source, self.data if self.beneath else None)

    @property
    def text(self) -> str:
        """The content of the file, byte for byte."""
        return self.document.text

    @cached_property
    def data(self) -> dict[str, Any]:
        """The plain values as written, completed by those of the layers. Read-only."""
        data: dict[str, Any] = self.document.data
        return merge(self.beneath.values(), data) if self.beneath and isinstance(data, dict) else data

    @property
    def name(self) -> str:
        """The name of the run; "" if the Plan sets none."""
        name: str = self._sections["name"]
        return name

    @property
    def job(self) -> Job:
        job: Job = self._sections["job"]
        return job

    @property
    def model(self) -> Model | None:
        """The model that is trained. For one of several models, its own section overrides the Plan's."""
        model: Model | None = self._sections["model"]
        own = self.models[self.focus].model if self.focus else None
        if own is None:
            return model
        written = self.data["models"][self.focus]["model"]
        given = {name: getattr(own, name) for name in written}
        if "source" in written or "params" in written:
            given |= {"source": own.source, "params": own.params}
        return replace(model or Model(), **given)

    @property
    def models(self) -> Mapping[str, NamedModel]:
        """The models of a run with several, by name."""
        models: Mapping[str, NamedModel] = self._sections["models"]
        return models

    @property
    def configurations(self) -> Mapping[str, Mapping[str, Any]]:
        """DeepSpeed's configurations by model: "" is the Plan's own."""
        named = {name: one.deepspeed for name, one in self.models.items() if one.deepspeed}
        own: Mapping[str, Any] = self._sections["deepspeed"]
        return {"": own, **named} if own or not named else named

    def trains(self, name: str = "") -> bool:
        """Return whether a model is trained: yes, unless its role or job.optimizer says otherwise."""
        return self.models[name].role == "train" if name in self.models else self.job.optimizer != "none"

    def focused_on(self, name: str) -> Plan:
        """Return the Plan with the focus on one of its models, or without such a model on its own configuration or the first model."""
        if name not in self.models:
            name = "" if self._sections["deepspeed"] or not self.models else next(iter(self.models))
        return self if name == self.focus else replace(self, focus=name)

    @property
    def unfocused(self) -> Plan:
        """The Plan without a focus on one of its models."""
        return replace(self, focus="") if self.focus else self

    @property
    def cluster(self) -> Cluster:
        cluster: Cluster = self._sections["cluster"]
        return cluster

    @property
    def run(self) -> Run:
        run: Run = self._sections["run"]
        return run

    @property
    def accelerate(self) -> Mapping[str, Any]:
        accelerate: Mapping[str, Any] = self._sections["accelerate"]
        return accelerate

    @property
    def deepspeed(self) -> Mapping[str, Any]:
        """DeepSpeed's own configuration, with its own key names; numbers keep their spelling."""
        deepspeed: Mapping[str, Any] = self.models[self.focus].deepspeed if self.focus else self._sections["deepspeed"]
        return deepspeed

    def place(self, path: str) -> str:
        """Return the absolute form of a path in the Plan: relative to the Plan's folder, with `~` expanded as in a shell, `$${` as `${`."""
        return posixpath.normpath(posixpath.join(self.base, posixpath.expanduser(path).replace("$${", "${")))

    def get(self, path: str, default: Any = None) -> Any:
        """Return the value at a dotted path; `default` if there is none."""
        at: Any = self.data
        for part in map(str, self.parts(path)):
            if isinstance(at, Mapping) and part in at:
                at = at[part]
            elif isinstance(at, list) and part.isdecimal() and int(part) < len(at):
                at = at[int(part)]
            else:
                return default
        return at

    def parse(self, path: str, text: str) -> Any:
        """Parse a text as the value of a dotted path: `1e-4` is a number under deepspeed and a word among arguments. Raises PlanError."""
        parts = self.parts(path)
        try:
            return Document(text, lambda below: reading((*parts, *below))).data if text.strip() else None
        except DocumentError as error:
            raise PlanError([Finding("PLAN", "error", path, f"{text!r}: {error.message}", when="parse")]) from None

    def absolute(self, path: str) -> str:
        """Return a dotted path from the root of the document; `deepspeed.…` may refer to the focused model."""
        return ".".join(map(str, self.parts(path)))

    def line_of(self, path: str) -> int | None:
        """Return the line (from 1) of a dotted path, or of its nearest parent in the text."""
        return self.document.line_of(self.parts(path))

    def set(self, path: str, value: Any) -> Plan:
        """Return the Plan with the value at a dotted path, creating missing parents. Raises PlanError.

        A scalar at the place of a DeepSpeed section is replaced by the section.
        """
        return self._edited(path, lambda: put_value(self.document, *self._with_room(self.parts(path), value)))

    def unset(self, path: str) -> Plan:
        """Return the Plan without a key, and without the sections under deepspeed that become empty."""
        parts = self.parts(path)
        if self.document.node(parts) is None and self.get(path, self) is not self:
            return self.set(path, None)  # a null removes the value of a layer
        top = 3 if parts[0] == "models" else 1
        while len(parts) > top + 1 and parts[top - 1] == "deepspeed":
            if value_at(self.document.data, parts[:-1]) != {parts[-1]: value_at(self.document.data, parts)}:
                break
            parts, path = parts[:-1], ".".join(map(str, parts[:-1]))
        return self._edited(path, lambda: remove_node(self.document, parts))

    def patch(self, operations: Iterable[Operation]) -> Plan:
        """Return the Plan after all operations of a JSON Patch. Raises PlanError and then applies none."""
        if self.beneath:
            operations = own_operations(self.document, self.data, operations)
        return self._edited("", lambda: apply_patch(self.document, operations))

    def _edited(self, path: str, edit: Any) -> Plan:
        try:
            plan = replace(self, document=edit())
        except EditError as error:
            raise PlanError([Finding("PLAN", "error", path, str(error), when="parse", line=self.line_of(path))], self.source) from None
        _ = plan._sections
        return plan.focused_on(self.focus) if self.focus else plan

    def _with_room(self, parts: NodePath, value: Any) -> tuple[NodePath, Any]:
        """Return the path and value to write. A scalar above them becomes a section; a switch of ZeRO keeps its stage."""
        for depth in range(parts.index("deepspeed") + 2 if "deepspeed" in parts else len(parts), len(parts)):
            there = self.get(".".join(map(str, parts[:depth])))
            if isinstance(there, (str, int, float)):
                for name in reversed(parts[depth + 1 :]):
                    value = {name: value}
                old = {"stage": int(there)} if parts[depth - 1] == "zero_optimization" and isinstance(there, bool) else {}
                return parts[:depth], {**old, parts[depth]: value}
        return parts, value

    def parts(self, path: str) -> NodePath:
        """Split a dotted path into the keys as written: a host name may contain dots (`cluster.hosts.10.0.0.1`)."""
        parts: list[str] = []
        rest = path.split(".")
        if self.focus and rest[0] in ("deepspeed", "model"):
            rest = ["models", self.focus, *rest]
        at: Any = self.data
        while rest:
            width = next((n for n in range(len(rest), 1, -1) if isinstance(at, Mapping) and ".".join(rest[:n]) in at), 1)
            parts.append(".".join(rest[:width]))
            at, rest = at.get(parts[-1]) if isinstance(at, Mapping) else None, rest[width:]
        return tuple(parts)


def load(text: str, source: str = "plan.yaml", base: str = "/", beneath: Beneath = NOTHING) -> Plan:
    """Load a Plan from its text. Raises PlanError with every mistake: file, line, column, key, what to do."""
    plan = Plan(compose(text, source), source, base, beneath=beneath)
    _ = plan._sections
    return plan
