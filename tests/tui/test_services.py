"""The services by themselves, without a screen: what they are told, what they post, and when they are quiet."""

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
    """Whom the services post to."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Message] = []

    def post_message(self, message: Message) -> bool:
        """Keep it."""
        self.got.append(message)
        return True


def test_lookups_are_made_at_the_start_and_after_an_edit_but_not_where_the_plan_is_the_same(tmp_path: Path) -> None:
    owner, state = Owner(), State(load(PLAN, "plan.yaml", str(tmp_path)))
    lookups = Lookups(owner)
    lookups.start(state)
    wait_for(lambda: len(owner.got) == 1)
    lookups.changed(state, replace(state, run="running"))
    lookups.changed(state, replace(state, plan=load(PLAN + "# edited\n", "plan.yaml", str(tmp_path))))
    wait_for(lambda: len(owner.got) == 2)
    assert all(isinstance(message, LookupsDone) for message in owner.got)
    lookups.close()


def test_many_edits_in_a_moment_are_one_draft_and_the_last_one_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    assert written[-1] == PLAN, "who left by himself was asked: nothing is unsaved any more"


async def test_the_gpus_are_followed_while_the_machine_is_looked_at_and_no_longer(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[bool] = []
    monkeypatch.setattr(LiveGpus, "follow", lambda _service, yes: wanted.append(yes))
    async with open_app(gpus=2) as pilot:
        store(pilot).machine_probed(replace(machine(2), source=HERE, recorded=False))
        for key, follow in (("1", True), ("3", False), ("1", True), ("9", False)):
            await pilot.press(key)
            assert wanted[-1] is follow, key


def test_following_the_gpus_posts_their_state_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert closed == [True], "one child for both"
    assert all(isinstance(message, GpusRefreshed) for message in owner.got)
