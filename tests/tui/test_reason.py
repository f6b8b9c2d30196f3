"""The diagnosis in the TUI: the pane, the details, its lines in the log, the fix and the next launch, stacks, a bundle."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dstui.diagnosis.signatures import BY_ID
from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.stacks import find_program
from dstui.tui.dialogs.reading import LinesViewer, TextViewer
from dstui.tui.run.diagnosis_pane import DiagnosisPane
from tests.job_json import status_json, write_status_json
from tests.jobs.lab import Lab, kills_by_the_kernel, ready
from tests.tui.conftest import PLAN, Open, attach, hidden_by_the_scrollbar, job_view, screen, store, text_of, until, value

OOM = "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
CLOSED = "Traceback (most recent call last):\nRuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:2\n"


def job(
    path: Path, *, plan: str = PLAN, base: Path | None = None, state: str = "failed", logs: tuple[str, str] = (CLOSED, OOM)
) -> JobFolder:
    """Write an ended job of two ranks as its supervisor leaves it."""
    folder = JobFolder(path)
    folder.prepare(1)
    (path / "plan.yaml").write_text(plan)
    folder.launch_file.write_text(json.dumps({"base": str(base or path.parent), "workdir": str(path.parent)}))
    folder.launcher_log.write_text("")
    ranks = {}
    for rank, text in enumerate(logs):
        folder.log(rank).write_text("step 1 loss 2.0\n" + text)
        ranks[str(rank)] = {"host": "here", "pid": 1, "state": "ended", "exit_code": 1}
        folder.record(rank).write_text(json.dumps({"rank": rank, "host": "here", "pid": 1, "ended": 1767225610.0 - rank, "exit_code": 1}))
    began = {"started": "2026-01-01T00:00:00+00:00", "ended": None if state == "running" else "2026-01-01T00:00:17+00:00"}
    write_status_json(folder, {"version": 1, "state": state, "exit_code": 1, "attempt": 1, "ranks": ranks, **began})
    return folder


async def show_job(pilot: Pilot[int], folder: JobFolder) -> DiagnosisPane:
    """Attach to the job and wait for the diagnosis."""
    await attach(pilot, folder)
    why = pilot.app.screen.query_one(DiagnosisPane)
    await until(pilot, lambda: why.diagnosis is not None and why.display)
    return why


async def test_reason_appears_when_the_last_rank_has_ended(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job(tmp_path / "job", state="running"))
        assert text_of(pilot, "#why").startswith("✖ rank 1 on here: A GPU ran out of memory")
        assert "OOM-GPU, sure" in screen(pilot)


async def test_ended_run_without_curves_leaves_no_room_for_plots(open_app: Open, tmp_path: Path) -> None:
    async with open_app(size=(200, 60)) as pilot:
        await show_job(pilot, job(tmp_path / "job"))
        await until(pilot, lambda: job_view(pilot).log_view.size.width > 190)


async def test_reason_is_whole_beside_the_plots(open_app: Open, tmp_path: Path) -> None:
    long = f'step 2 loss 1.9\nTraceback (most recent call last):\n  File "/home/me/{"a" * 140}/train.py", line 3, in <module>\nValueError: a bad shard\n'
    async with open_app(size=(200, 60)) as pilot:
        why = await show_job(pilot, job(tmp_path / "job", logs=(long, long)))
        await until(pilot, lambda: why.size.width < 150)
        await until(pilot, lambda: max(len(line.text) for line in why.rows) + why.MARGIN <= why.size.width, 8)


async def test_d_shows_the_diagnosis_and_enter_on_a_line_goes_to_the_log(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job(tmp_path / "job"))
        await pilot.press("d")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextViewer))
        whole = text_of(pilot, "#reading")
        assert BY_ID["OOM-GPU"].confirm in " ".join(whole.split())
        assert all(remedy.text in " ".join(whole.split()) for remedy in BY_ID["OOM-GPU"].all_remedies())
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: pilot.app.screen.size.width == 80 and pilot.app.screen.query_one("#reading").size.width < 80)
        await until(pilot, lambda: hidden_by_the_scrollbar(pilot) == [])
        await pilot.press("enter")
        await until(pilot, lambda: "Log: rank 1" in screen(pilot) and "torch.OutOfMemoryError" in screen(pilot))
        await pilot.press("d", "q", "q")  # the second key arrives while the dialog closes: it may quit, but must not crash


async def test_two_independent_causes_are_named(open_app: Open, tmp_path: Path) -> None:
    other = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in <module>\nValueError: a bad shard\n'
    async with open_app() as pilot:
        await show_job(pilot, job(tmp_path / "job", logs=(other, OOM)))
        shown = text_of(pilot, "#why")
        assert "torch.OutOfMemoryError" in shown and "USER-PY" in shown


async def test_fix_changes_the_open_plan_and_l_launches_it(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job(tmp_path / "job"))
        await pilot.press("x")
        await until(pilot, lambda: value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 2)
        assert store(pilot).path == tmp_path / "plan.yaml", "the open document is the job's"
        await until(pilot, lambda: "What will be written" in screen(pilot))
        assert pilot.app.check_action("launch", ())
        await pilot.press("z")
        assert value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 4


async def test_changes_since_the_last_run_are_shown_before_launch(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "dstui_runs").mkdir()
    folder = job(tmp_path / "dstui_runs" / "small-1", base=tmp_path)
    async with open_app() as pilot:
        await show_job(pilot, folder)
        await pilot.press("x")
        await until(pilot, lambda: "Since small-1" in text_of(pilot, "#review-verdict"))
        assert "train_micro_batch_size_per_gpu: 4" in text_of(pilot, "#review-verdict")


async def test_fix_of_another_plans_job_opens_that_plan_and_loses_no_edit(open_app: Open, tmp_path: Path) -> None:
    other = PLAN.replace("name: small ", "name: other ").replace("gpu: 4", "gpu: 8")
    folder = job(tmp_path / "job", plan=other)
    async with open_app() as pilot:
        store(pilot).edit(("deepspeed.gradient_clipping", 0.5))
        await show_job(pilot, folder)
        await pilot.press("x")
        await until(pilot, lambda: "unsaved edits" in screen(pilot))
        await pilot.press("n")
        assert value(pilot, "deepspeed.gradient_clipping") == 0.5 and value(pilot, "name") == "small"
        store(pilot).undo()
        await pilot.press("x")
        await until(pilot, lambda: value(pilot, "name") == "other" and value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 4)
        assert store(pilot).path is None and (tmp_path / "plan.yaml").read_text() == PLAN


async def test_b_writes_a_bundle_and_never_overwrites(open_app: Open, tmp_path: Path) -> None:
    folder = job(tmp_path / "job")
    async with open_app() as pilot:
        await show_job(pilot, folder)
        for name in ("job-bundle.zip", "job-bundle-2.zip"):
            await pilot.press("b")
            await until(pilot, (tmp_path / name).exists)
            await until(pilot, lambda name=name: any(name in line for line in pilot.app.receipt()))
            assert "job/diagnosis.json" in zipfile.ZipFile(tmp_path / name).namelist()


async def test_stop_is_reported_as_a_stop_and_success_needs_no_reason(open_app: Open, tmp_path: Path) -> None:
    stopped = job(tmp_path / "stopped", state="stopped", logs=("step 2\n", "step 2\n"))
    stopped.stop_file.write_text(json.dumps({"exit_code": 143, "by": 4711, "command": "dstui stop job"}))
    os.utime(stopped.stop_file, (1767225600, 1767225600))
    async with open_app() as pilot:
        await show_job(pilot, stopped)
        assert text_of(pilot, "#why").startswith("■ Somebody stopped the run")
        assert "dstui stop job" in text_of(pilot, "#why")
        for state in ("running", "succeeded"):  # first its ranks have ended, then its launcher
            well = job(tmp_path / state, state=state, logs=("step 2\n", "step 2\n"))
            for rank in (0, 1):
                well.record(rank).write_text(json.dumps({"rank": rank, "host": "here", "pid": 1, "ended": 1767225610.0, "exit_code": 0}))
            pilot.app.run_screen.attach(well)
            await until(pilot, lambda well=well: (watched := job_view(pilot).job) and watched.folder == well and watched.follower.ranks)
            await pilot.pause(0.5)
            assert not pilot.app.screen.query_one(DiagnosisPane).display, text_of(pilot, "#why")


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[JobFolder]:
    """Start two real ranks of which rank 1 is a step behind."""
    folder = Lab(tmp_path).start(
        "0:say step 4 loss 1.0", "1:say step 3 loss 1.0", "0:hang", f"1:wait {tmp_path / 'never'}", run="silence: 1"
    )
    ready(folder)
    yield folder
    stop(folder)


@pytest.mark.skipif(find_program() is None, reason="py-spy is not installed")
async def test_hanging_job_names_the_missing_rank_and_p_shows_stacks(open_app: Open, hanging: JobFolder) -> None:
    async with open_app() as pilot:
        await pilot.press("9")
        await until(pilot, lambda: pilot.app.run_screen.is_mounted)
        job_view(pilot).attach(hanging, 0.5)
        await until(pilot, lambda: "1 of 2 ranks have waited" in text_of(pilot, "#why"), 60)
        _, _, missing = " ".join(text_of(pilot, "#why").split()).partition("; ")
        assert missing.startswith("rank 1: "), "the rank's hook may have told its phase already"
        await until(pilot, lambda: "rank 0: in <lambda> (behave.py:" in text_of(pilot, "#why"), 60)  # its supervisor asked unprompted
        await pilot.press("p")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextViewer), 60)
        assert "rank 1: in wait (behave.py:" in text_of(pilot, "#reading")
        await pilot.press("escape")
        assert "rank 0: in <lambda> (behave.py:" in text_of(pilot, "#why")
        await pilot.press("P")
        await until(pilot, lambda: isinstance(pilot.app.screen, LinesViewer) and bool(text_of(pilot, "#help")))
        assert "deepspeed.initialize was not reached" in " ".join(text_of(pilot, "#help").split())
        await pilot.press("escape")
        assert "s stop" in screen(pilot) and "l again" not in screen(pilot)
        assert status_json(hanging)["state"] == "running", "nothing was killed"
        assert time.time() - hanging.log(1).stat().st_mtime > 0.5


@pytest.mark.launcher
@pytest.mark.parametrize(
    ("behaviour", "cause", "said"),
    [
        (("0:hang", "1:kill"), "KILLED-UNKNOWN", "A rank was killed"),
        (("0:hang", "1:fail ValueError no answer"), "USER-PY", "ValueError: no answer"),
    ],
)
async def test_real_fault_is_named_with_its_rank(open_app: Open, tmp_path: Path, behaviour: tuple[str, ...], cause: str, said: str) -> None:
    with kills_by_the_kernel(wanted=False):
        folder = Lab(tmp_path).start(*behaviour)
        try:
            await check_reason(open_app, folder, cause, said)
        finally:
            stop(folder)


async def check_reason(open_app: Open, folder: JobFolder, cause: str, said: str) -> None:
    async with open_app() as pilot:
        await attach(pilot, folder)
        why = pilot.app.screen.query_one(DiagnosisPane)
        await until(pilot, lambda: why.diagnosis is not None and why.diagnosis.cause == cause and why.display, 120)
        assert why.diagnosis.first_failing_rank == 1
        await until(pilot, lambda: text_of(pilot, "#why").startswith("✖ rank 1 on ") and said in text_of(pilot, "#why").replace("\n", " "))
        await until(pilot, lambda: store(pilot).state.run == "failed", 120)
        assert why.diagnosis.cause == cause, "the launcher's last lines change nothing"


async def test_reason_is_wrapped_to_the_screen(open_app: Open, tmp_path: Path) -> None:
    async with open_app(size=(80, 24)) as pilot:
        why = await show_job(pilot, job(tmp_path / "job"))
        for width in (80, 120, 70):
            await pilot.resize_terminal(width, 24)
            await until(pilot, lambda width=width: why.size.width == width - 2)
            await until(pilot, lambda width=width: all(len(row.text) <= width - 4 for row in why.rows))


async def test_first_rank_of_earlier_failures_is_shown_beside_the_reason(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [job(tmp_path / "dstui_runs" / f"tiny-2026010{number}-030405", base=tmp_path) for number in range(1, 5)]
    async with open_app() as pilot:
        await show_job(pilot, runs[-1])
        await pilot.press("d")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextViewer))
        assert "Rank 1 was first in 4 of the last 4 failures here." in " ".join(text_of(pilot, "#reading").split())


async def test_fix_applies_from_the_whole_diagnosis_too(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job(tmp_path / "job"))
        await pilot.press("d")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextViewer))
        await pilot.press("x")
        await until(pilot, lambda: value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 2)
