"""The session: the only mutable holder of the Plan with its history, the Machine, and the findings.

Every edit goes through here, whatever makes it (a form, a fix, the preview, undo). Each creates a new immutable `State`, from which
everything visible is drawn at once, since a message would arrive one frame later. Only the app's own thread may call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dstui.plan import Plan, PlanError
from dstui.tui.session.state import UNSET, Edit, History, State

if TYPE_CHECKING:
    from dstui.assess import Assessment, Facts
    from dstui.check.reference import ReferenceVerdict
    from dstui.jobs.store.folder import JobFolder
    from dstui.machine.snapshot import Machine
    from dstui.plan.finding import Finding, Fix
    from dstui.render.target import Target
    from dstui.tui.session.drafts import Draft
    from dstui.tui.session.file_lookups import Lookup
    from dstui.tui.session.forecasts import Outlook


Listener = Callable[[State, State], object]
"""Called on a change with the state before and the state now."""
ZERO = "deepspeed.zero_optimization"
HERE = "this machine"
"""The source of a Machine that was probed here. For a recorded one nothing is queried here."""


class Session:
    """Plan, history, machine and findings. Subscribers are called after every change of the state, within the same call."""

    def __init__(self, plan: Plan, path: Path | None, machine: Machine | None) -> None:
        self.path = path
        self._listeners: list[Listener] = []
        self._types: Mapping[str, bool] = {}
        self._history = History(plan)
        self._model = ""
        self.on_disk = plan.text
        """The text that was last read or saved."""
        self._typing = False
        self.state = State(plan.focused_on(""), machine)
        self.receipt: list[str] = []
        """Messages to print in the terminal after the exit."""
        self.jobs: list[JobFolder] = []
        """The jobs that were shown."""

    def subscribe(self, listener: Listener) -> None:
        """Call a function with the old and the new state after every change, in the order of subscription."""
        self._listeners.append(listener)

    def _become(self, state: State) -> None:
        before, self.state = self.state, state
        for listener in self._listeners:
            listener(before, state)

    def note(self, line: str) -> None:
        """Add a line to the receipt, once."""
        if line not in self.receipt:
            self.receipt.append(line)

    def note_job(self, folder: JobFolder) -> None:
        """Add a job to the receipt, once."""
        if folder not in self.jobs:
            self.jobs.append(folder)

    # Edits

    def edit(self, *edits: Edit, live: bool = False) -> bool:
        """Write values (UNSET removes a key), all or none. `live`: one of many edits while typing; `settle` makes them one undo step.

        Return False if the Plan refused: the state then has the reason, and the Plan is unchanged.
        """
        # Each typed key edits the Plan from before typing, so that a field that is temporarily empty keeps its place and comment.
        plan = self._history.current.focused_on(self._model) if live else self.state.plan
        try:
            for path, value in edits:
                if value is not UNSET:
                    plan = _with_section(plan, path).set(path, value)
                elif plan.get(path, UNSET) is not UNSET:
                    plan = plan.unset(path)
        except PlanError as error:
            return self.refuse(edits[0][0] or error.findings[0].path, error.findings[0].message)
        return self._take(plan, live=live)

    def apply(self, fix: Fix) -> bool:
        """Apply a fix as one undo step. Return False if it cannot be applied automatically, or the Plan refused it."""
        if fix.drops and fix.drops in self.state.plan.text:
            self.replace(self.state.plan.text.replace(fix.drops, "", 1))
            return True
        if fix.patch is None:
            return False
        try:
            plan = self.state.plan.patch(fix.patch)
        except PlanError as error:
            return self.refuse(error.findings[0].path, error.findings[0].message)
        return self._take(plan)

    def replace(self, text: str) -> None:
        """Replace the text of the document, as one undo step. Raises PlanError."""
        from dstui.documents.layers import load_layered

        self._take(load_layered(text, self.state.plan.source, self.state.plan.base))

    def open(self, plan: Plan, path: Path | None) -> None:
        """Open another document, with a history of its own."""
        self.path, self._history, self.on_disk = path, History(plan), plan.text
        # nothing has changed, since there is nothing to compare with
        self.state = replace(self.state, lines=(), changed=frozenset(), refusal=("", ""))
        self._show(plan)

    def settle(self) -> None:
        """End typing: its edits become one undo step, and a refused value is dropped."""
        if self._typing:
            self._typing = False
            self._history.push(self.state.plan)
        if self.state.refusal[0]:
            self._become(replace(self.state, refusal=("", "")))

    def select_model(self, name: str) -> None:
        """Select the model that forms, preview and edits are about. Not an edit, and no undo step."""
        self.settle()
        if name != self.state.plan.focus and name in (*self.state.plan.models, ""):
            self._model = name
            self._show(self.state.plan)

    def undo(self) -> bool:
        """Undo one step. Returns False if there is none."""
        self.settle()
        return self._step(self._history.undo())

    def redo(self) -> bool:
        """Redo one step. Returns False if there is none."""
        self.settle()
        return self._step(self._history.redo())

    @property
    def can_undo(self) -> bool:
        """Return whether there is a step to undo."""
        return self._typing or self._history.can_undo

    @property
    def can_redo(self) -> bool:
        """Return whether there is a step to redo."""
        return self._history.can_redo

    def _step(self, plan: Plan | None) -> bool:
        if plan is not None:
            self._show(plan)
        return plan is not None

    def _take(self, plan: Plan, *, live: bool = False) -> bool:
        if plan.text != self.state.plan.text or self.state.refusal[0]:
            self._typing = self._typing or live
            if not live:
                self._history.push(plan)
            self._show(plan)
        return True

    def refuse(self, path: str, why: str) -> bool:
        """Record in the state why a value for this path was refused. Always returns False."""
        self._become(replace(self.state, refusal=(path, why)))
        return False

    # Consequences of the Plan and the Machine

    def machine_probed(self, machine: Machine) -> None:
        """Take over a probed machine, with what DeepSpeed says of 16-bit floats on the CPUs here."""
        if self._types and machine.source == HERE:
            from dstui.check.reference import add_float_types

            machine = add_float_types(machine, self._types)
        if machine != self.state.machine:
            self._show(self.state.plan, machine=machine)

    def lookups_resolved(self, lookups: Mapping[Lookup, Any]) -> None:
        """Take over the results of look-ups."""
        if any(lookup not in self.state.lookups or self.state.lookups[lookup] != what for lookup, what in lookups.items()):
            self._show(self.state.plan, lookups=lookups)

    def validated(self, text: str, verdict: ReferenceVerdict) -> None:
        """Take over DeepSpeed's own verdict on the Plan with this text. A refusal that no rule explains becomes a finding."""
        self._types = verdict.types
        if self.state.machine is not None:
            self.machine_probed(self.state.machine)
        if text != self.state.plan.text:
            return  # the Plan has changed meanwhile
        state = replace(self.state, validated=text, verdict=verdict)
        explained = any(f.severity == "error" for f in state.findings) or not any(state.plan.configurations.values())
        self._become(state if verdict.ok or explained else replace(state, findings=(refused(verdict), *state.findings)))

    def begin_checks(self) -> None:
        """Compute findings from now on, if no edit has begun it. The first frame does without."""
        if not self.state.checked:
            self._show(self.state.plan)

    def job_changed(self, word: str) -> None:
        """Take over the state of the job in view: running, succeeded, failed…; "" if there is none."""
        if word != self.state.run:
            self._become(replace(self.state, run=word))

    def _show(self, plan: Plan, *, machine: Machine | None = None, lookups: Mapping[Lookup, Any] | None = None) -> None:
        """Set the state for this Plan and everything that follows from it; `machine`, `lookups`: replacements."""
        from dstui.assess import assess
        from dstui.plan.env_file import EnvFiles
        from dstui.render.jsontext import json_lines
        from dstui.render.target import Target
        from dstui.tui.session.file_lookups import EnvFilesOf, PoolOf, facts_in

        plan = plan.focused_on(self._model)
        before = replace(self.state, machine=machine or self.state.machine)
        lookups = self.state.lookups if lookups is None else lookups
        lines = tuple(json_lines(plan.deepspeed))
        pool, env_files = lookups.get(PoolOf.of(plan)), lookups.get(EnvFilesOf.of(plan))
        named = pool if isinstance(pool, dict) else None
        target = Target(plan.unfocused, before.known_machine, named, env_files or EnvFiles())
        facts = facts_in(plan.unfocused, lookups)
        assessment = assess(target, facts)
        self._become(
            State(
                plan,
                before.machine,
                findings=assessment.findings,
                outlook=_outlook(target, facts, assessment),
                target=target,
                unlaunchable=_unlaunchable(target),
                lookups=lookups,
                checked=True,
                lines=lines,
                changed=_changed(before, plan, lines),
                saved=plan.text == self.on_disk,
                ranks=target.world_size,
                run=before.run,
                validated=before.validated,
                verdict=before.verdict,
            )
        )

    # The file

    def moved_on_disk(self) -> str:
        """Return how the Plan's file has changed since it was read or saved, in a sentence; "" if it has not, or is gone."""
        from dstui.base.files import FileProblem, is_there, read_text

        if self.path is None or not is_there(self.path):
            return ""
        try:
            moved = read_text(self.path) != self.on_disk
        except FileProblem as problem:
            return f"{problem}. It was a valid Plan when it was read."
        return f"{self.path} was changed by another program since it was read." if moved else ""

    def saved_as(self, path: Path, text: str) -> None:
        """Note that this text of the Plan was written to its file; the Plan may have been edited meanwhile."""
        self.path, self.on_disk = path, text
        self._become(replace(self.state, saved=self.state.plan.text == text))

    def origin(self, of: object) -> str:
        """Return where the value of a field comes from, in words: "" for anything else."""
        from dstui.plan.locks import origin_of

        path = getattr(of, "path", "")
        found = origin_of(self.state.plan, path) if path and path != "name" else None
        if found is None:
            return ""
        return f"{found.layer}, line {found.line}" if found.line else found.layer

    def draft(self) -> Draft:
        """Return the open document as a draft."""
        from dstui.tui.session.drafts import Draft, document_of

        plan = self.state.plan
        return Draft(document_of(plan, self.path), self.on_disk, plan.text, plan.source, plan.base)


def _with_section(plan: Plan, path: str) -> Plan:
    """Replace a boolean (zero_optimization: true) by the section that it stands for, if a key in it is written."""
    switch = plan.get(ZERO, None)
    return plan.set(ZERO, {"stage": int(switch)}) if path.startswith(f"{ZERO}.") and isinstance(switch, bool) else plan


def _changed(before: State, plan: Plan, lines: Sequence[Any]) -> frozenset[int]:
    """Return the preview lines that the last edit changed; empty if another model's configuration was shown before."""
    if plan.focus != before.plan.focus:
        return frozenset()
    return changed_lines(before.lines, lines) if before.lines and plan.text != before.plan.text else before.changed


def changed_lines(before: Sequence[Any], now: Sequence[Any]) -> frozenset[int]:
    """Return the numbers of the lines that are new; an added or removed comma is not a change."""
    known = {(line.path, line.text.rstrip(",")) for line in before}
    return frozenset(n for n, line in enumerate(now) if (line.path, line.text.rstrip(",")) not in known)


def refused(verdict: ReferenceVerdict) -> Finding:
    """Return DeepSpeed's refusal in its own words."""
    from dstui.plan.finding import Finding

    words = " ".join(verdict.message.split()) or verdict.kind
    return Finding("DEEPSPEED", "error", "deepspeed", f"{verdict.name} refuses this: {words[:300]}", when="parse")


def _unlaunchable(target: Target) -> str:
    """Return why the target has no command, or no job script for the queue."""
    from dstui.render.launch import RenderError

    try:
        if target.plan.cluster.submits:
            from dstui.render.artifacts import artifacts  # most Plans are not queued

            artifacts(target)
        else:
            _ = target.launch
    except RenderError as error:
        return str(error)
    return ""


def _outlook(target: Target, facts: Facts, assessment: Assessment) -> Outlook | None:
    """Return the outlook on a Plan; None before the first look-up, and for a Plan without a model."""
    if assessment.forecast is None:
        return None
    from dstui.tui.session.forecasts import Outlook

    return Outlook(target, facts, assessment.forecast)
