"""A job of several hosts in the TUI: one line per host, worst first; host details; waiting and contact states."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from dstui.jobs.metrics.measurements import RankView
from dstui.jobs.store.records import HostStatus
from dstui.jobs.watch.usage import Usage
from dstui.logs.time_parsing import format_iso
from dstui.tui.run.host_lines import HostLine, host_lines, short_names, waited_for
from dstui.tui.run.rank_cell import cells_of
from dstui.tui.run.rank_strip import Selection, StripLine, strip
from tests.logs.made_logs import MadeJob
from tests.owned import add_to_index
from tests.tui.conftest import Open, attach, job_view, log_is_shown, screen, text_of, until

NOW = 1_760_000_600.0
ALL = Selection()
HOSTILE = ("[b]x[/b]\x1b[2J", "宇宙" * 40, "-oProxyCommand=touch owned", "a\nb\x9b31m", " ")


def ranks(count: int, hosts: int, **facts: Any) -> dict[int, RankView]:
    """Return running ranks that printed a line a second ago."""
    views = {rank: RankView(f"worker-{rank * hosts // count}", state="started", step=1204) for rank in range(count)}
    for view in views.values():
        view.last_line_at = NOW - 1
        for name, value in facts.items():
            setattr(view, name, value)
    return views


def lines(views: dict[int, RankView], **contacts: HostStatus) -> list[HostLine]:
    return host_lines(cells_of(views, NOW, silence=90.0), {name.replace("_", "-"): contact for name, contact in contacts.items()}, NOW)


def shown(views: dict[int, RankView], most: int = 8, at: Selection = ALL, **contacts: HostStatus) -> list[str]:
    drawn = strip(cells_of(views, NOW, silence=90.0), lines(views, **contacts), 110, most, at)
    return [" ".join(line.row.text.split()) for line in drawn]


def test_worst_of_sixteen_hosts_come_first_with_their_problems() -> None:
    views = ranks(128, 16)
    views[11].last_line_at = NOW - 94
    views[40].state, views[40].exit_code = "ended", 1
    for rank in range(120, 128):
        views[rank].step, views[rank].last_line_at = 1201, NOW - 30
    told = shown(views, worker_7=HostStatus("unreachable", NOW - 12, "Connection timed out"))
    assert told[0] == "128 ranks on 16 hosts ✖ 1 failed ◐ 1 silent ● 126 running steps 1,201 to 1,204"
    assert told[1].startswith("▲ worker-7 56-63 ●●●●●●●● unreachable for 12 s: Connection timed out step 1,204")
    assert told[2].startswith("✖ worker-5 40-47 ✖●●●●●●● failed (1): rank 40")
    assert told[3].startswith("◐ worker-1 8-15 ●●●◐●●●● silent for 94 s: rank 11")
    assert told[4].startswith("◐ worker-15 120-127 ●●●●●●●● slow: 3 steps behind step 1,201 30s ago")
    assert told[5].startswith("● worker-0 0-7 ●●●●●●●● running step 1,204 1s ago")
    assert told[-1].startswith("10 more hosts ● 80 running step 1,204")


def test_few_ranks_are_listed_below_their_host_and_many_are_glyphs() -> None:
    few = shown(ranks(4, 2))
    assert few[0].startswith("● worker-0 running")
    assert few[1:3] == ["0 ● running step 1,204 1s ago", "1 ● running step 1,204 1s ago"]
    assert len(few) == 6
    assert [line.split()[:3] for line in shown(ranks(128, 8))] == [["●", f"worker-{n}", f"{16 * n}-{16 * n + 15}"] for n in range(8)]


SIZES = [(76, 4), (116, 8), (196, 8)]
"""Cells per line and lines of the rank strip at 80x24, 120x40 and 200x60."""


def drawn(views: dict[int, RankView], width: int, most: int, usage: dict[int, Usage] | None = None) -> list[StripLine]:
    return strip(cells := cells_of(views, NOW, 90.0, usage), host_lines(cells, {}, NOW, usage), width, most, ALL)


@pytest.mark.parametrize(("width", "most"), SIZES)
@pytest.mark.parametrize(("count", "hosts"), [(1, 1), (4, 1), (6, 1), (8, 1), (16, 1), (8, 2), (64, 1), (128, 1)])
def test_cells_keep_their_position_while_numbers_arrive(width: int, most: int, count: int, hosts: int) -> None:
    views = ranks(count, hosts, step=None, last_line_at=None)
    before = [(line.cell, line.ranks) for line in drawn(views, width, most)]
    told = ranks(count, hosts, step=1_000_000, loss=1.8312)
    usage = {rank: Usage("GPU", 100.0, 71 << 30, 612.0, rank) for rank in told}
    assert [(line.cell, line.ranks) for line in drawn(told, width, most, usage)] == before


@pytest.mark.parametrize(("width", "most"), SIZES)
@pytest.mark.parametrize(("count", "hosts"), [(4, 1), (16, 1), (64, 1), (128, 1), (4, 2)])
def test_straggler_is_marked_in_the_first_cell_with_its_lag(width: int, most: int, count: int, hosts: int) -> None:
    views = ranks(count, hosts, loss=2.428)
    views[count - 1].step, views[count - 1].last_line_at = 1204 - 187, NOW - 42
    first = next(line for line in drawn(views, width, most) if line.ranks)
    assert first.ranks[0] == count - 1
    assert f"{count - 1:>3} ▲ 187 behind" in first.row.text and "…" not in first.row.text
    assert "behind" not in first.row.text.replace("187 behind", "", 1)
    views[count - 1].step = 1204 - 3
    assert all("behind" not in line.row.text for line in drawn(views, width, most))


def test_host_with_a_straggler_names_it() -> None:
    views = ranks(128, 16)
    views[11].step = 1017
    assert (lines(views)[0].name, lines(views)[0].says) == ("worker-1", "187 behind: rank 11")


def test_selected_host_shows_every_rank_and_a_selected_rank_its_hosts_others() -> None:
    for at in (Selection(host="worker-1"), Selection(rank=9)):
        told = shown(ranks(64, 8), at=at)
        assert told[0].startswith("● worker-1 running")
        assert told[1].startswith("8 ● running")
        assert "15 ●" in told[-1]


def test_lagging_host_is_slow_but_one_that_prints_a_moment_later_is_not() -> None:
    views = ranks(4, 2)
    views[2].step = views[3].step = 1203
    assert [line.word for line in lines(views)] == ["running", "running"]
    views[2].last_line_at = views[3].last_line_at = NOW - 8
    assert (lines(views)[0].name, lines(views)[0].says) == ("worker-1", "slow: 1 step behind")


def test_unknown_host_shows_its_ssh_state() -> None:
    first = lines({}, h1=HostStatus("starting", NOW, "Permission denied (publickey)"), h2=HostStatus("ended", NOW, None, 127))
    assert [(line.name, line.says) for line in first] == [
        ("h2", "failed (exit status 127)"),
        ("h1", "starting: Permission denied (publickey)"),
    ]


async def test_rank_without_a_record_in_a_stopped_job_is_unknown(open_app: Open, job: MadeJob) -> None:
    status = json.loads(job.folder.status_file.read_text())
    status["hosts"] = {"worker-0": {"state": "ended"}, "worker-1": {"state": "unreachable", "since": format_iso(time.time())}}
    job.folder.status_file.write_text(json.dumps({**status, "state": "stopped", "ended": format_iso(time.time()), "exit_code": 143}))
    async with open_app() as pilot:
        await attach(pilot, job.folder)
        await until(
            pilot, lambda: "▲ worker-1  unreachable" in text_of(pilot, "#ranks") and "· worker-0  unknown" in text_of(pilot, "#ranks")
        )
        status["hosts"]["worker-1"]["state"] = "ended"
        job.folder.status_file.write_text(json.dumps({**status, "state": "stopped", "ended": format_iso(time.time()), "exit_code": 143}))
        await until(pilot, lambda: "unreachable" not in text_of(pilot, "#ranks") and "3 · unknown" in text_of(pilot, "#ranks"))
        del status["hosts"]
        job.folder.status_file.write_text(json.dumps({**status, "state": "lost", "ended": format_iso(time.time())}))
        await until(pilot, lambda: "lost" in text_of(pilot, "#run-head") and "3 · unknown" in text_of(pilot, "#ranks"))


def test_ranks_that_have_not_started_are_named_with_hosts() -> None:
    views = ranks(16, 4)
    for rank in (6, 7, 12):
        views[rank].state = "waiting"
    assert waited_for(lines(views)) == "waiting for worker-1: ranks 6-7; worker-3: rank 12"
    assert waited_for(lines(ranks(4, 2))) == ""


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["worker-0", "worker-1"], ["worker-0", "worker-1"]),
        (["ml@n1.cluster.example.com", "ml@n2.cluster.example.com"], ["n1", "n2"]),
        (["a@box", "b@box"], ["a@box", "b@box"]),
        (["10.0.1.7", "10.0.2.7"], ["10.0.1.7", "10.0.2.7"]),
        (["a-very-long-name-of-a-node-0017", "a-very-long-name-of-a-node-0018"], ["…-of-a-node-0017"[-14:], "…-of-a-node-0018"[-14:]]),
    ],
)
def test_host_names_are_shortened_while_they_stay_distinct(names: list[str], short: list[str]) -> None:
    told = list(short_names(dict(enumerate(names))).values())
    assert [name.lstrip("…") for name in told] == [name[1:] if len(name) == 14 else name for name in short]
    assert len(set(told)) == len(names)


# In the TUI


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    """Return a running job of two hosts with two ranks each, in which worker-1 has been silent for ten minutes."""
    made = MadeJob(tmp_path / "job", 4, hosts=2)
    running(made)
    for rank in range(4):
        made.say(rank, f"step 7 loss 1.5 of rank {rank}")
    for rank in (2, 3):
        os.utime(made.folder.log(rank), (time.time() - 600, time.time() - 600))
    return made


def running(made: MadeJob, **hosts: dict[str, Any]) -> None:
    """Write its status as its supervisor would; `hosts` as in status.json."""
    status = json.loads(made.folder.status_file.read_text())
    made.folder.status_file.write_text(json.dumps({**status, "hosts": hosts}))
    if not made.folder.lock_file.exists():
        assert add_to_index(made.folder).lock() is not None


async def test_silent_host_comes_first_and_a_line_names_host_and_rank(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await attach(pilot, job.folder)
        await until(pilot, lambda: "silent" in text_of(pilot, "#ranks"))
        first, ranks_of_it, _, second, *_ = text_of(pilot, "#ranks").splitlines()
        assert first.split()[:3] == ["◐", "worker-1", "silent"]
        assert ranks_of_it.split()[:3] == ["2", "◐", "silent"]
        assert second.split()[:3] == ["●", "worker-0", "running"]
        await pilot.press("u", "u")
        await until(pilot, lambda: "worker-1    r3 step 7 loss 1.5 of rank 3" in screen(pilot))


async def test_lost_host_shows_its_time_and_its_messages_are_in_the_log(open_app: Open, job: MadeJob) -> None:
    async with open_app(size=(80, 24)) as pilot:
        await attach(pilot, job.folder)
        job.folder.append_event(time.time(), "host", host="worker-0", state="unreachable", text="worker-0 is unreachable: timed out")
        running(job, **{"worker-0": {"state": "unreachable", "since": format_iso(time.time() - 12), "problem": "timed out"}})
        lost = re.compile(r"▲ worker-0  unreachable for \d+ (s|min): timed out")
        await until(pilot, lambda: lost.search(text_of(pilot, "#ranks").splitlines()[0]))
        await until(pilot, lambda: "• worker-0 is unreachable: timed out" in screen(pilot))


async def test_awaited_hosts_are_named_until_all_have_started(open_app: Open, job: MadeJob) -> None:
    status = json.loads(job.folder.status_file.read_text())
    started = status["ranks"]["3"]
    status["ranks"]["3"] = {"host": "worker-1", "state": "waiting"}
    job.folder.status_file.write_text(json.dumps(status))
    async with open_app() as pilot:
        await attach(pilot, job.folder)
        await until(pilot, lambda: "waiting for worker-1: rank 3" in text_of(pilot, "#run-head"))
        status["ranks"]["3"] = started
        job.folder.status_file.write_text(json.dumps(status))
        await until(pilot, lambda: "waiting for" not in text_of(pilot, "#run-head"))


async def test_h_lists_many_hosts_typed_text_selects_one_and_escape_returns(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 512, hosts=64)
    running(made, **{"worker-63": {"state": "unreachable", "since": format_iso(time.time() - 12), "problem": None}})
    made.say(300, "here")
    async with open_app() as pilot:
        await attach(pilot, made.folder)
        await until(pilot, lambda: "512 ranks on 64 hosts" in text_of(pilot, "#ranks"))
        assert text_of(pilot, "#ranks").splitlines()[1].split()[:3] == ["▲", "worker-63", "504-511"]
        await pilot.press("h")
        await until(pilot, lambda: len(text_of(pilot, "#found").splitlines()) == 65)
        await pilot.press(*"r-37", "enter")
        await until(pilot, lambda: "Log: worker-37" in screen(pilot) and "300 ●" in text_of(pilot, "#ranks"))
        assert "303 ●" in text_of(pilot, "#ranks")
        assert "here" in screen(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: "512 ranks on 64 hosts" in text_of(pilot, "#ranks") and log_is_shown(pilot))


async def test_click_on_a_host_opens_it_and_returns(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await attach(pilot, job.folder)
        await until(pilot, lambda: "silent" in text_of(pilot, "#ranks"))
        await pilot.click("#ranks", offset=(8, 1))
        await until(pilot, lambda: "Log: worker-1" in screen(pilot) and "worker-0" not in text_of(pilot, "#ranks"))
        await pilot.click("#ranks", offset=(8, 1))
        await until(pilot, lambda: "worker-0" in text_of(pilot, "#ranks"))


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_strange_host_names_are_shown_literally(open_app: Open, tmp_path: Path, size: tuple[int, int]) -> None:
    made = MadeJob(tmp_path / "job", len(HOSTILE) * 2, hosts=len(HOSTILE))
    made.hosts = {rank: HOSTILE[rank // 2] for rank in made.hosts}
    made.status("running")
    running(made, **{name: {"state": "unreachable", "since": None, "problem": f"{name}: no"} for name in HOSTILE})
    for rank in made.hosts:
        made.say(rank, "step 1")
    async with open_app(size=size) as pilot:
        await attach(pilot, made.folder)
        await until(pilot, lambda: "unreachable" in text_of(pilot, "#ranks") and len(job_view(pilot).hosts) == len(HOSTILE))
        await pilot.press("u", "h", "down", "enter")
        await until(pilot, lambda: job_view(pilot).job_log.filter.host is not None)
        assert not {"\x1b", "\x9b", "\r"} & set(screen(pilot))
        assert all(len(line) <= size[0] for line in screen(pilot).splitlines())
