"""The Plan: an immutable document and its sections. An edit gives a new Plan, or an error and nothing else."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dstui.plan.document import Document, DocumentError
from dstui.plan.document import Path as NodePath
from dstui.plan.edit import apply_patch, put_value, remove_node
from dstui.plan.finding import Finding, Operation
from dstui.plan.load import PlanError, compose, reading, sections
from dstui.plan.model import Cluster, Job, Model, NamedModel, Run
from dstui.plan.splice import EditError


@dataclass(frozen=True)
class Plan:
    """What is to be run, as written in one YAML text.

    `source` is the file's name for messages; `base` the absolute folder that relative paths in the Plan start from.
    Of a run with several models, `focused_on(name)` is the same document whose `deepspeed` and `model` are those of one of them.
    """

    document: Document
    source: str
    base: str
    focus: str = ""
    """The model whose `deepspeed` and `model` these are, also in dotted paths; empty for the Plan's own."""

    @cached_property
    def _sections(self) -> dict[str, Any]:
        return sections(self.document, self.source)

    @property
    def text(self) -> str:
        """The file, byte for byte."""
        return self.document.text

    @property
    def data(self) -> dict[str, Any]:
        """The plain values as written; not to be changed."""
        data: dict[str, Any] = self.document.data
        return data

    @property
    def name(self) -> str:
        """What the run is called; empty where the Plan does not say."""
        name: str = self._sections["name"]
        return name

    @property
    def job(self) -> Job:
        job: Job = self._sections["job"]
        return job

    @property
    def model(self) -> Model | None:
        """What is trained; of one of several models what its own section says, over that of the Plan."""
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
        """Several models in one run, by name."""
        models: Mapping[str, NamedModel] = self._sections["models"]
        return models

    @property
    def configurations(self) -> Mapping[str, Mapping[str, Any]]:
        """DeepSpeed's configurations: "" for the Plan's own, then that of each model that has one."""
        named = {name: one.deepspeed for name, one in self.models.items() if one.deepspeed}
        own: Mapping[str, Any] = self._sections["deepspeed"]
        return {"": own, **named} if own or not named else named

    def trains(self, name: str = "") -> bool:
        """Whether a model is trained: always, unless its role or job.optimizer says that nothing is."""
        return self.models[name].role == "train" if name in self.models else self.job.optimizer != "none"

    def focused_on(self, name: str) -> Plan:
        """The Plan as this model has it; as the first one where there is none of this name, and no configuration of the Plan's own."""
        if name not in self.models:
            name = "" if self._sections["deepspeed"] or not self.models else next(iter(self.models))
        return self if name == self.focus else replace(self, focus=name)

    @property
    def unfocused(self) -> Plan:
        """The Plan as it is written, seen from none of its models."""
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
        """A path that the Plan names, made absolute: relative to the Plan's own folder, `~` as the shell has it."""
        return posixpath.normpath(posixpath.join(self.base, posixpath.expanduser(path)))

    def get(self, path: str, default: Any = None) -> Any:
        """What is written at a dotted path; `default` where nothing is."""
        at: Any = self.data
        for part in map(str, self._parts(path)):
            if isinstance(at, Mapping) and part in at:
                at = at[part]
            elif isinstance(at, list) and part.isdecimal() and int(part) < len(at):
                at = at[int(part)]
            else:
                return default
        return at

    def parse(self, path: str, text: str) -> Any:
        """What a text would mean at a dotted path: `1e-4` a number under deepspeed, a word among the arguments. Raises PlanError."""
        parts = self._parts(path)
        try:
            return Document(text, lambda below: reading((*parts, *below))).data if text.strip() else None
        except DocumentError as error:
            raise PlanError([Finding("PLAN", "error", path, f"{text!r}: {error.message}", when="parse")]) from None

    def absolute(self, path: str) -> str:
        """A dotted path from the root of the document; `deepspeed.…` may be that of the model in focus."""
        return ".".join(map(str, self._parts(path)))

    def line_of(self, path: str) -> int | None:
        """The line (from 1) of a dotted path, or of its nearest parent that is written."""
        return self.document.line_of(self._parts(path))

    def set(self, path: str, value: Any) -> Plan:
        """The Plan with the value at a dotted path, missing parents created. Raises PlanError; this Plan stays as it is.

        A value of DeepSpeed's that stands where a section has to be gives way.
        """
        return self._edited(path, lambda: put_value(self.document, *self._with_room(self._parts(path), value)))

    def unset(self, path: str) -> Plan:
        """The Plan without the key, and under deepspeed without the sections that this would leave empty."""
        parts = self._parts(path)
        top = 3 if parts[0] == "models" else 1
        while len(parts) > top + 1 and parts[top - 1] == "deepspeed":
            section = ".".join(map(str, parts[:-1]))
            if self.get(section) != {parts[-1]: self.get(path)}:
                break
            parts, path = parts[:-1], section
        return self._edited(path, lambda: remove_node(self.document, parts))

    def patch(self, operations: Iterable[Operation]) -> Plan:
        """The Plan after a JSON Patch: all of it, or PlanError and none of it."""
        return self._edited("", lambda: apply_patch(self.document, operations))

    def _edited(self, path: str, edit: Any) -> Plan:
        try:
            plan = Plan(edit(), self.source, self.base, self.focus)
        except EditError as error:
            raise PlanError([Finding("PLAN", "error", path, str(error), when="parse", line=self.line_of(path))], self.source) from None
        _ = plan._sections
        return plan.focused_on(self.focus) if self.focus else plan

    def _with_room(self, parts: NodePath, value: Any) -> tuple[NodePath, Any]:
        """A path and a value, or the section that takes the place of the scalar above them; the stage that a switch means is kept."""
        for depth in range(parts.index("deepspeed") + 2 if "deepspeed" in parts else len(parts), len(parts)):
            there = self.get(".".join(map(str, parts[:depth])))
            if isinstance(there, (str, int, float)):
                for name in reversed(parts[depth + 1 :]):
                    value = {name: value}
                old = {"stage": int(there)} if parts[depth - 1] == "zero_optimization" and isinstance(there, bool) else {}
                return parts[:depth], {**old, parts[depth]: value}
        return parts, value

    def _parts(self, path: str) -> NodePath:
        """A dotted path, its keys as written: a host's name may hold dots itself (`cluster.hosts.10.0.0.1`)."""
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


def load(text: str, source: str = "plan.yaml", base: str = "/") -> Plan:
    """A Plan from its text. Raises PlanError with every mistake of form: file, line, column, key, what to do."""
    plan = Plan(compose(text, source), source, base)
    _ = plan._sections
    return plan
