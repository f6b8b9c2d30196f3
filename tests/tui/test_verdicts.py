"""DeepSpeed's own verdict beside dstui's: the real parser in its child process, after every edit."""

from __future__ import annotations

import pytest

from tests.tui.conftest import PLAN, Open, letters, screen, store, until, value


async def test_every_edit_is_checked_by_the_installed_deepspeed(open_app: Open) -> None:
    async with open_app(reference=True) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: store(pilot).state.validated == PLAN)
        assert store(pilot).state.verdict.ok
        await until(pilot, lambda: f"DeepSpeed {store(pilot).state.verdict.version} ✔" in screen(pilot))
        await pilot.press("6", "down", "down", "enter", "1", "3", "enter")
        assert value(pilot, "deepspeed.train_batch_size") == 13
        await until(pilot, lambda: not store(pilot).state.verdict.ok)
        await until(pilot, lambda: "✖" in store(pilot).state.deepspeeds_word())


async def test_error_of_deepspeed_without_a_rule_is_shown_verbatim(open_app: Open) -> None:
    from dstui.check.reference import ReferenceVerdict

    async with open_app() as pilot:
        state = store(pilot).state
        store(pilot).validated(state.plan.text, ReferenceVerdict(False, "0.19.8", "AssertionError", "something\n  new"))
        assert any("refuses this: something new" in f.message for f in store(pilot).state.findings)


NAMELESS = PLAN.replace("deepspeed:", "cluster: {num_nodes: 2, num_gpus: 8}\ndeepspeed:", 1)


async def test_plan_with_unnamed_hosts_cannot_be_launched_here(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    async with open_app(NAMELESS, size=(80, 24)) as pilot:
        await until(pilot, lambda: "hosts are given and used" in screen(pilot))
        await pilot.press("8")
        await until(pilot, lambda: "Nothing is started from here" in screen(pilot))
        await pilot.press("l")
        assert not letters(pilot), "no launch is offered"


async def test_local_gpus_are_not_offered_for_unnamed_hosts(open_app: Open) -> None:
    async with open_app(NAMELESS, gpus=4) as pilot:
        await until(pilot, lambda: "other hosts are given" in screen(pilot))
        await pilot.press("7")
        await until(pilot, lambda: "Ranks per host" in screen(pilot))
        assert "Slots in use" not in screen(pilot)
