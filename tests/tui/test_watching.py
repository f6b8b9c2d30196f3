"""Watching a job while another Plan, or none, is open: the screen describes the job, and watching has no side effects."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from dstui.documents.plan_files import read_plan
from dstui.jobs.store.folder import JobFolder
from dstui.machine.snapshot import Machine
from dstui.tui.app import DstuiApp
from dstui.tui.run_screen import RunScreen
from dstui.tui.session.drafts import drafts_folder
from dstui.tui.session.settings import remember
from tests.logs.made_logs import MadeJob
from tests.owned import add_to_index
from tests.tui.conftest import PLAN, Open, attach, job_view, letters, machine, screen, text_of, until
from tests.waiting import wait_for

OTHER = PLAN.replace("stage: 2", "stage: 3").replace("bf16", "fp16").replace("name: small", "name: other")


def make_watched_job(path: Path, plan: str = PLAN, *, lives: bool = False) -> JobFolder:
    job = MadeJob(path, 1, state="running" if lives else "succeeded")
    job.say(0, "ready")
    job.update(1)
    (path / "plan.yaml").write_text(plan)
    add_to_index(job.folder)
    assert not lives or job.folder.lock() is not None
    return job.folder


async def test_first_line_describes_the_job_and_differences_of_the_open_plan(open_app: Open, tmp_path: Path) -> None:
    async with open_app(size=(80, 24)) as pilot:
        await attach(pilot, make_watched_job(tmp_path / "theirs", OTHER))
        await until(pilot, lambda: "theirs" in text_of(pilot, "#title-bar"))
        assert " ".join(text_of(pilot, "#title-bar").split()) == "dstui theirs the open Plan differs ZeRO-3 · fp16 · AdamW"
        pilot.app.run_screen.attach(make_watched_job(tmp_path / "mine"))
        await until(pilot, lambda: " ".join(text_of(pilot, "#title-bar").split()) == "dstui mine ZeRO-2 · bf16 · AdamW")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "plan.yaml" in text_of(pilot, "#title-bar"))


async def test_escape_in_the_table_of_runs_returns_to_the_job(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await attach(pilot, make_watched_job(tmp_path / "job"))
        await until(pilot, lambda: "ready" in screen(pilot))
        await pilot.press("J")
        await until(pilot, lambda: "Runs" in screen(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: "r0 ready" in screen(pilot) and job_view(pilot).job is not None)
        assert pilot.app.step.id == "run"


@pytest.mark.parametrize("opens", ["a form", "a launch"])
async def test_attach_shows_the_job_first_and_probes_only_when_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: str) -> None:
    monkeypatch.chdir(tmp_path)
    probed, launched = [], []

    def probe() -> Machine:
        probed.append(True)
        return machine(2)

    monkeypatch.setattr("dstui.machine.probe.probe", probe)
    monkeypatch.setattr("dstui.tui.flows.launching.Launching._launch", lambda _flow, _yes: launched.append(bool(probed)))
    folder = make_watched_job(tmp_path / "job")
    (tmp_path / "train.py").write_text("import deepspeed\nargs.deepspeed_config\n")
    app = DstuiApp(read_plan(folder.path / "plan.yaml"), None, None, folder, reference=False)
    async with app.run_test(size=(120, 40)) as pilot:
        assert isinstance(app.screen, RunScreen)
        await until(pilot, lambda: "r0 ready" in screen(pilot) and "succeeded" in screen(pilot))
        assert not (probed or app.plan_screen.is_mounted or app.session.state.checked)
        if opens == "a launch":
            await pilot.press("l")
            await until(pilot, lambda: launched)
            assert launched == [True]
        else:
            await pilot.press("left_square_bracket")
            await until(pilot, lambda: "Before the launch" in screen(pilot))
            await pilot.press("3")
            await until(pilot, lambda: "What is sharded" in screen(pilot) and app.plan_screen.preview.rows and app.session.state.machine)
        assert probed == [True]


async def test_exit_message_names_every_watched_job_and_stop_only_for_running_ones(open_app: Open, tmp_path: Path) -> None:
    over, alive = make_watched_job(tmp_path / "over"), make_watched_job(tmp_path / "alive", lives=True)
    async with open_app() as pilot:
        await attach(pilot, over)
        await pilot.press("J")
        pilot.app.screen.dismiss((alive, False))
        await until(pilot, lambda: job_view(pilot).job is not None and job_view(pilot).job.folder == alive)
        said = [" ".join(line.split()) for line in pilot.app.receipt()]
    assert said == [
        f"job {over.path}",
        "dstui attach over",
        f"job {alive.path}",
        "dstui attach alive dstui stop alive",
    ]


async def test_enter_on_the_question_to_stop_keeps_the_job_running(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await attach(pilot, make_watched_job(tmp_path / "job", lives=True))
        await until(pilot, lambda: "ready" in screen(pilot))
        await pilot.press("s")
        await until(pilot, lambda: letters(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: not letters(pilot))
        view = job_view(pilot)
        assert view.job is not None and view.job.stopping is None


def timer_rates(pilot: Pilot[int]) -> list[float]:
    """Return how often per second each running timer of the app fires."""
    screens = [screen for stack in pilot.app._screen_stacks.values() for screen in stack]
    pumps = [pilot.app, *(node for screen in screens for node in (screen, *screen.walk_children(Widget)))]
    timers = [timer for pump in pumps for timer in pump._timers]
    return [1 / timer._interval for timer in timers if timer._task and timer._active.is_set() and timer._repeat is None]


async def test_ended_job_is_only_checked_for_changes_until_a_key_is_pressed(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dstui.tui.run.ticks.SETTLED", 0.1)
    monkeypatch.setattr("dstui.tui.run.ticks.REST", 0.2)
    job = make_watched_job(tmp_path / "job")
    async with open_app() as pilot:
        view = await attach(pilot, job)
        await until(pilot, lambda: "ready" in screen(pilot) and view.ticks.rests)
        assert timer_rates(pilot) == [pytest.approx(1 / 0.2)]
        with job.log(0).open("a") as log:
            log.write("a late line\n")
        await until(pilot, lambda: "a late line" in screen(pilot))
        await until(pilot, lambda: view.ticks.rests)
        job.status_file.write_text(job.status_file.read_text().replace("succeeded", "failed"))
        await until(pilot, lambda: "✖ failed" in text_of(pilot, "#run-head"))
        await until(pilot, lambda: view.ticks.rests)
        await pilot.press("home")
        assert not view.ticks.rests
        await pilot.press("m")
        await until(pilot, lambda: "Metrics" in screen(pilot) and pilot.app.screen.history.ended and view.ticks.rests)
        await until(pilot, lambda: len(timer_rates(pilot)) == 1)
        await pilot.press("escape", "J")
        await until(pilot, lambda: "Runs" in screen(pilot) and view.ticks.rests)
        assert len(timer_rates(pilot)) == 1


def open_logs(folder: Path) -> set[str]:
    """Return the logs below a folder that this process has open."""
    names = set()
    for number in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            names.add(str(number.readlink()))
    return {name for name in names if name.startswith(str(folder)) and name.endswith(".log")}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux lists open files")
async def test_watched_jobs_leave_no_log_open(open_app: Open, tmp_path: Path) -> None:
    jobs = [make_watched_job(tmp_path / f"job-{number}") for number in range(6)]
    async with open_app() as pilot:
        for job in jobs:
            await attach(pilot, job)
            await until(pilot, lambda job=job: job_view(pilot).job.folder == job and "ready" in screen(pilot))
            await pilot.press("m", "escape")
        await until(pilot, lambda: open_logs(tmp_path) <= {str(jobs[-1].log(0))})
    wait_for(lambda: not open_logs(tmp_path))


@pytest.mark.parametrize("case", [("on", "succeeded", 1), ("failed", "succeeded", 0), ("failed", "failed", 1)])
async def test_bell_rings_once_at_an_end(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, int]
) -> None:
    bell, state, rings = case
    rung: list[int] = []
    monkeypatch.setattr("dstui.tui.app.DstuiApp.bell", lambda _: rung.append(1))
    async with open_app() as pilot:
        remember("bell", bell)
        job = MadeJob(tmp_path / "job", 1, state="running")
        job.say(0, "ready")
        job.update(1)
        add_to_index(job.folder)
        lock = job.folder.lock()
        assert lock is not None
        await attach(pilot, job.folder)
        await until(pilot, lambda: "ready" in screen(pilot))
        job.status(state)
        os.close(lock)
        await until(pilot, lambda: job_view(pilot).job is not None and job_view(pilot).job.state == state and job_view(pilot)._complete)
        assert len(rung) == rings
        job_view(pilot).attach(job.folder, 300)
        await until(pilot, lambda: job_view(pilot)._complete)
        assert len(rung) == rings, "an earlier end does not ring the bell"


async def test_confirmations_can_be_disabled_without_losing_edits(open_app: Open, tmp_path: Path) -> None:
    remember("confirm_leave", False)
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter", "q")
        await until(pilot, lambda: pilot.app.leaving)
    assert pilot.app.return_code == 0 and "unsaved" in "".join(pilot.app.receipt())
    assert any("stage: 3" in file.read_text() for file in drafts_folder().glob("*.json"))
    async with open_app() as pilot:
        remember("confirm_stop", False)
        stopped: list[object] = []
        await attach(pilot, make_watched_job(tmp_path / "job", lives=True))
        await until(pilot, lambda: "ready" in screen(pilot))
        pilot.app.launching._stop_it = stopped.append
        await pilot.press("s")
        await until(pilot, lambda: stopped)
