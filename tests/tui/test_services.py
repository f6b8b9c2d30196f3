"""The services without a screen: their inputs, what they post, and when they are idle."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from textual.message import Message
from textual.message_pump import MessagePump

from dstui.plan import load
from dstui.tui.session import background
from dstui.tui.session.background import Autosave, LiveGpus, Lookups
from dstui.tui.session.drafts import Draft
from dstui.tui.session.messages import GpusRefreshed, LookupsDone
from dstui.tui.session.session import HERE
from dstui.tui.session.state import State
from tests.tui.conftest import PLAN, Open, machine, store
from tests.waiting import wait_for


class Owner(MessagePump):
    """The receiver of the services' messages."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Message] = []

    def post_message(self, message: Message) -> bool:
        """Keep a message."""
        self.got.append(message)
        return True


def test_lookups_run_at_start_and_after_edits_that_change_the_plan(tmp_path: Path) -> None:
    owner, state = Owner(), State(load(PLAN, "plan.yaml", str(tmp_path)))
    lookups = Lookups(owner)
    lookups.start(state)
    wait_for(lambda: len(owner.got) == 1)
    lookups.changed(state, replace(state, run="running"))
    lookups.changed(state, replace(state, plan=load(PLAN + "# edited\n", "plan.yaml", str(tmp_path))))
    wait_for(lambda: len(owner.got) == 2)
    assert all(isinstance(message, LookupsDone) for message in owner.got)
    lookups.close()


def test_many_quick_edits_write_one_draft_with_the_last_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(background, "KEEP_AFTER", 0.5)
    written: list[str] = []
    monkeypatch.setattr(Draft, "keep", lambda draft: written.append(draft.text))
    states = [State(load(f"{PLAN}# {number}\n", "plan.yaml", str(tmp_path))) for number in range(20)]
    now = [states[0]]
    service = Autosave(Owner(), lambda: Draft("plan.yaml", PLAN, now[0].plan.text, "plan.yaml", str(tmp_path)))
    service.start(states[0])
    for before, after in pairwise(states):
        now[0] = after
        service.changed(before, after)
    wait_for(lambda: written)
    assert written == [states[-1].plan.text]
    service.end(keep=False)
    assert written[-1] == PLAN, "a user who quit was asked: nothing is unsaved"


async def test_gpus_are_polled_only_while_the_machine_is_visible(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[bool] = []
    monkeypatch.setattr(LiveGpus, "follow", lambda _service, yes: wanted.append(yes))
    async with open_app(gpus=2) as pilot:
        store(pilot).machine_probed(replace(machine(2), source=HERE, recorded=False))
        for key, follow in (("1", True), ("3", False), ("1", True), ("9", False)):
            await pilot.press(key)
            assert wanted[-1] is follow, key


def test_gpu_poller_posts_states_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Busy:
        def __enter__(self) -> Busy:
            return self

        def __exit__(self, *_: object) -> None:
            closed.append(True)

        def poll(self) -> dict[int, object]:
            return {0: object()}

    monkeypatch.setattr("dstui.machine.live.Live", Busy)
    monkeypatch.setattr("dstui.tui.session.background.INTERVAL", 0.01)
    owner = Owner()
    gpus = LiveGpus(owner)
    gpus.follow(True)
    gpus.follow(True)
    wait_for(lambda: len(owner.got) > 2)
    gpus.close()
    wait_for(lambda: closed)
    assert closed == [True], "one child process for both"
    assert all(isinstance(message, GpusRefreshed) for message in owner.got)
