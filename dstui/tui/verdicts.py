"""What the app learns in the background: the machine and its GPUs by the second, and DeepSpeed's own verdict on every edit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from textual import on
from textual.message import Message
from textual.widgets import Input

from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.explained import Explained
from dstui.tui.forms.steps import MACHINE
from dstui.tui.kit.threads import in_thread
from dstui.tui.session.latest_value import Latest

if TYPE_CHECKING:
    from dstui.check.reference import ReferenceChecker, ReferenceVerdict
    from dstui.machine.live import Live
    from dstui.machine.snapshot import Machine
    from dstui.plan import Plan
    from dstui.tui.session.file_lookups import Lookup


HERE = "this machine"
"""The source of a Machine that was looked at here; of a recorded one nothing is asked here."""


class Probed(Message):
    """The machine was looked at."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine


class Validated(Message):
    """DeepSpeed's own parser has judged a Plan of this text; None where it cannot be asked here."""

    def __init__(self, text: str, verdict: ReferenceVerdict | None) -> None:
        super().__init__()
        self.text, self.verdict = text, verdict


class MayItLook(Message):
    """A Plan names an interpreter of which the user has not said yet whether it may look."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


class LookedUp(Message):
    """What lies on disk around the Plan."""

    def __init__(self, lookups: Mapping[Lookup, Any]) -> None:
        super().__init__()
        self.lookups = lookups


class Verdicts(Explained):
    """The part of the app that looks and asks. Threads only post messages; the app changes the state."""

    live: Live | None = None
    to_validate: Latest[tuple[Plan, int | None]] | None = None
    """The Plan, and how many ranks it makes."""
    reference: ReferenceChecker | None = None
    to_resolve: Latest[Plan] | None = None
    _resolved: Plan | None = None
    _types: Mapping[str, bool] = MappingProxyType({})
    """Which 16-bit floats DeepSpeed takes on the CPUs here; empty until it has said so."""
    _asked_about: frozenset[str] = frozenset()
    """Interpreters that were asked about in this session."""

    # The machine

    def probe_machine(self) -> None:
        """Probe in a thread; the GPUs' load is then followed while the Machine step is seen."""
        in_thread(self, self._probe)

    def _probe(self) -> None:
        from dstui.machine.probe import probe

        self.post_message(Probed(probe()))

    @on(Probed)
    def _probed(self, event: Probed) -> None:
        self.store.see(event.machine)
        self._see_types(self._types)
        if event.machine.gpus:
            self.set_interval(1.0, self._refresh_gpus)

    def _refresh_gpus(self) -> None:
        from dstui.machine.live import Live, refreshed

        machine = self.store.state.machine
        if self.step is not MACHINE or machine is None:
            self._stop_live()
            return
        self.live = self.live or Live()
        if states := self.live.poll():
            self.store.see(refreshed(machine, states))

    def _stop_live(self) -> None:
        if self.live is not None:
            self.live.close()
            self.live = None

    # The files around the Plan

    def start_lookups(self) -> None:
        """Follow what lies around the Plan."""
        self.to_resolve = Latest()
        in_thread(self, partial(self._resolve_waiting, self.to_resolve))

    def refresh_lookups(self) -> None:
        """Look again; what is the same as before changes nothing."""
        if self.to_resolve is not None:
            self._resolved = self.store.state.plan
            self.to_resolve.put(self._resolved)

    def lookup_if_edited(self) -> None:
        """Look, where the Plan is another one than at the last look."""
        if self.store.state.plan is not self._resolved:
            self.refresh_lookups()

    def _resolve_waiting(self, waiting: Latest[Plan]) -> None:
        from dstui.tui.session.file_lookups import resolve_all

        while (plan := waiting.take()) is not None and not waiting.closed:
            self.post_message(LookedUp(resolve_all(plan)))

    @on(LookedUp)
    def _looked_up(self, event: LookedUp) -> None:
        self.store.took_lookups(event.lookups)

    # DeepSpeed's own verdict

    def start_reference(self) -> None:
        """Keep a child with DeepSpeed's parser warm, and have it judge every edit."""
        self.to_validate = Latest()
        in_thread(self, self._validate)
        self.ask_deepspeed()

    def ask_deepspeed(self) -> None:
        """Have the Plan judged as it is now, unless that is known."""
        state = self.store.state
        if self.to_validate is not None and state.validated != state.plan.text:
            self.to_validate.put((state.plan, state.ranks))

    def _validate(self) -> None:
        from dstui.check.reference import ReferenceChecker, ReferenceFailure
        from dstui.render.launch import interpreter
        from dstui.trusted_python import own, probe_python, to_be_asked

        waiting, python = self.to_validate, ""
        try:
            while waiting is not None and (asked := waiting.take()) is not None and not waiting.closed:
                plan, ranks = asked
                if self.reference is None or probe_python(plan) != python:
                    python = probe_python(plan)
                    self._stop_oracle()
                    self.reference = ReferenceChecker(python)
                verdict = self.reference.validate(plain(plan.deepspeed, plan.job.integration != "deepspeed"), ranks)
                instead_of = "" if python != sys.executable or own(plan) else interpreter(plan)
                self.post_message(Validated(plan.text, replace(verdict, instead_of=instead_of)))
                if to_be_asked(plan):
                    self.post_message(MayItLook(plan))
        except ReferenceFailure:  # no DeepSpeed there: the checks stand alone
            self.post_message(Validated("", None))
        finally:
            self._stop_oracle()

    def _stop_oracle(self) -> None:
        """End the child, in whose answer its thread may wait for a minute."""
        reference, self.reference = self.reference, None
        if reference is not None:
            reference.close()

    @on(Validated)
    def _validated(self, event: Validated) -> None:
        if event.verdict is None:
            self.to_validate = None
            return
        if event.text == self.store.state.plan.text:
            self.store.validated(event.text, event.verdict)
        self._see_types(event.verdict.types)

    def _see_types(self, types: Mapping[str, bool]) -> None:
        """What DeepSpeed says of 16-bit floats on the CPUs here belongs to the machine, where that is this one."""
        from dstui.check.reference import with_types

        self._types, machine = types, self.store.state.machine
        if machine is not None and machine.source == HERE and with_types(machine, types) != machine:
            self.store.see(with_types(machine, types))

    @on(MayItLook)
    def _may_it_look(self, event: MayItLook) -> None:
        """Ask once about an interpreter that the Plan names, when nothing else is asked and nothing typed."""
        from dstui.render.launch import interpreter

        python = interpreter(event.plan)
        if python in self._asked_about:
            return
        if isinstance(self.focused, Input) or len(self.screen_stack) > 1:
            self.set_timer(1.0, partial(self.post_message, event))
            return
        self._asked_about |= {python}
        text = f"The Plan names an interpreter of its own for the ranks:\n{python}\nMay dstui run it also while you only look, so that "
        text += "its DeepSpeed judges the Plan? Else dstui's own does. A launch runs it in any case."
        answers = [Answer("n", "no, dstui's own judges", False), Answer("y", "yes, run it: I know this Plan", True)]
        self.push_screen(Ask("Another interpreter", text, answers), partial(self._it_may_look, event.plan))

    def _it_may_look(self, plan: Plan, yes: bool | None) -> None:
        if yes is not None:
            in_thread(self, partial(self._remember_interpreter, plan, yes))

    def _remember_interpreter(self, plan: Plan, yes: bool) -> None:
        from dstui.trusted_python import remember

        remember(plan, yes)
        if yes and self.to_validate is not None:
            self.to_validate.put((self.store.state.plan, self.store.state.ranks))

    def on_unmount(self) -> None:
        """No child outlives the app."""
        self._stop_live()
        for waiting in (self.to_validate, self.to_resolve):
            if waiting is not None:
                waiting.close()
        self._stop_oracle()


def plain(config: Mapping[str, Any], filled: bool) -> dict[str, Any]:
    """The configuration as DeepSpeed's parser would see it. `filled`: by a reader who replaces every "auto" before."""
    made = {k: plain(v, filled) if isinstance(v, Mapping) else v for k, v in config.items() if not (filled and v == "auto")}
    if filled and any(v == "auto" for v in config.values()) and not {"train_batch_size", "train_micro_batch_size_per_gpu"} & made.keys():
        made |= {"train_micro_batch_size_per_gpu": 1} if "train_micro_batch_size_per_gpu" in config or "train_batch_size" in config else {}
    return made
