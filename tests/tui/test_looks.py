"""Files, hosts and the disk are looked up in the background: shown soon, and never waited for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest

from dstui.plan import Plan
from dstui.tui.session import file_lookups
from tests.tui.conftest import PLAN, Open, store, text_of, until, value


async def test_hostfile_hosts_count_once_the_file_is_read(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("worker-0 slots=8\nworker-1 slots=8\n")
    async with open_app(PLAN + "cluster: {hostfile: hosts.txt}\n", gpus=8) as pilot:
        await until(pilot, lambda: store(pilot).state.ranks == 16)


async def test_typed_script_is_looked_up_and_a_changed_one_is_read_again(open_app: Open, tmp_path: Path) -> None:
    def complaints() -> list[str]:
        return [f.message for f in store(pilot).state.findings if f.path.startswith("job")]

    async with open_app() as pilot:
        assert complaints() == []
        await pilot.press("2", "down", "enter", "2", "enter")
        await until(pilot, lambda: any("train.py2 is not in" in said for said in complaints()))
        await pilot.press("z")
        await until(pilot, lambda: not complaints())
        (tmp_path / "train.py").write_text("from accelerate import Accelerator\n")
        await pilot.press("3", "down", "enter")
        await until(pilot, lambda: any("read as accelerate" in said for said in complaints()))


async def test_review_compares_with_the_disk_and_sees_its_own_writes(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text("{}\n")
    async with open_app() as pilot:
        await pilot.press("8")
        await until(pilot, lambda: "~ ds_config.json changed" in text_of(pilot, "#review-names"))
        await pilot.press("w", "enter", "r")
        await until(pilot, lambda: "= ds_config.json same" in text_of(pilot, "#review-names"))


async def test_unresponsive_disk_blocks_neither_edits_nor_quitting(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = Event(), Event()

    @dataclass(frozen=True)
    class DeadMount:
        @classmethod
        def of(cls, plan: Plan) -> DeadMount:
            return cls()

        def resolve(self) -> None:
            if asked.is_set():
                answered.wait()
            asked.set()

    monkeypatch.setattr(file_lookups, "LOOKUPS", (*file_lookups.LOOKUPS, DeadMount))
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter", "6", "enter", "2", "enter")
        assert value(pilot, "deepspeed.zero_optimization.stage") == 3
        assert value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 42
        assert asked.is_set()
        await pilot.press("q", "d")
        await until(pilot, lambda: pilot.app._exit)
    answered.set()
