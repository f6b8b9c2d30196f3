"""DeepSpeed's own verdict on every edit: a thread asks a child process that has its parser loaded."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual.message_pump import MessagePump

from dstui.tui.kit.tools import Latest, in_thread
from dstui.tui.session.messages import InterpreterNamed, Validated
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.check.reference import ReferenceChecker, ReferenceVerdict
    from dstui.plan import Plan


AFTER = 1.0
"""Seconds from the start to the child's: importing DeepSpeed takes two seconds of a whole core."""


class ReferenceCheck:
    """Judge the Plan by the DeepSpeed of its interpreter if the user allows running it, else by the one beside dstui."""

    def __init__(self, owner: MessagePump) -> None:
        self._owner = owner
        self._waiting: Latest[tuple[Plan, int | None]] = Latest()
        self._child: ReferenceChecker | None = None
        self._started = False

    def start(self, state: State) -> None:
        """Start the child soon, and have it judge the Plan; only the first call has an effect."""
        if self._started:
            return
        self._started = True
        in_thread(self._owner, self._work)
        self.ask(state)

    def ask(self, state: State) -> None:
        """Request a verdict on the current Plan."""
        self._waiting.put((state.plan, state.ranks))

    def changed(self, before: State, now: State) -> None:
        """Request another verdict if the text or the number of ranks has changed."""
        if (now.plan.text, now.ranks) != (before.plan.text, before.ranks) and now.validated != now.plan.text:
            self.ask(now)

    def _work(self) -> None:
        from dstui.check.reference import ReferenceFailure

        if self._waiting.closed_within(AFTER):
            return
        try:
            self._validate_all()
        except ReferenceFailure:  # DeepSpeed is not available there: only the rules judge
            self._waiting.close()
        finally:
            self.stop_child()

    def _validate_all(self) -> None:
        from dstui.check.reference import ReferenceChecker
        from dstui.documents.trusted_python import is_own_interpreter, needs_consent, probe_python
        from dstui.render.launch import interpreter

        python = ""
        while (asked := self._waiting.take()) is not None and not self._waiting.closed:
            plan, ranks = asked
            child = self._child
            if child is None or probe_python(plan) != python:
                python = probe_python(plan)
                self.stop_child()
                child = self._child = ReferenceChecker(python)
            verdict = verdict_on(child, plan, ranks)
            instead_of = "" if python != sys.executable or is_own_interpreter(plan) else interpreter(plan)
            self._owner.post_message(Validated(plan.text, replace(verdict, instead_of=instead_of)))
            if needs_consent(plan):
                self._owner.post_message(InterpreterNamed(plan))

    def stop_child(self) -> None:
        """End the child, on whose answer its thread may wait for a minute. Thread-safe."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def close(self) -> None:
        """End the child: it must not outlive the app."""
        self._waiting.close()
        self.stop_child()


def verdict_on(child: ReferenceChecker, plan: Plan, ranks: int | None) -> ReferenceVerdict:
    """Return the verdict on a Plan: with several models, on the first configuration that is refused, else on the last."""
    for config in plan.configurations.values():
        verdict = child.validate(plain(config, plan.job.integration != "deepspeed"), ranks)
        if not verdict.ok:
            break
    return verdict


def plain(config: Mapping[str, Any], filled: bool) -> dict[str, Any]:
    """Return the configuration as DeepSpeed's parser would receive it. `filled`: the reader replaces every "auto" before."""
    made = {k: plain(v, filled) if isinstance(v, Mapping) else v for k, v in config.items() if not (filled and v == "auto")}
    if filled and any(v == "auto" for v in config.values()) and not {"train_batch_size", "train_micro_batch_size_per_gpu"} & made.keys():
        made |= {"train_micro_batch_size_per_gpu": 1} if "train_micro_batch_size_per_gpu" in config or "train_batch_size" in config else {}
    return made
