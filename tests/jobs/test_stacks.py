"""Stacks of living ranks: real ranks, the real py-spy, and every reason for a missing stack."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.status import ranks_of
from dstui.jobs.watch.follow import Follower
from dstui.jobs.watch.hang_analysis import grouped
from dstui.jobs.watch.hangs import Watch
from dstui.jobs.watch.stacks import Stack, Thread, find_program, report, stacks, why_not
from tests.jobs.lab import Lab, ready
from tests.jobs.made import dstui, make_job
from tests.waiting import wait_for

needs_py_spy = pytest.mark.skipif(find_program() is None, reason="py-spy is not installed")


@pytest.fixture(scope="module")
def hanging_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobFolder]:
    """Start two real ranks that hang at different places."""
    path = tmp_path_factory.mktemp("stacks")
    folder = Lab(path).start("0:hang", f"1:wait {path / 'never'}", run="observe: off")  # the hook would answer instead of py-spy
    ready(folder)
    wait_for(lambda: len(ranks_of(folder, folder.read_status()).living) == 2)
    yield folder
    stop(folder)


@needs_py_spy
def test_each_living_rank_has_its_frames_innermost_first(hanging_job: JobFolder) -> None:
    found = stacks(hanging_job, deadline=60)
    assert [(stack.rank, stack.reason) for stack in found] == [(0, ""), (1, "")]
    for stack in found:
        assert stack.threads[0].name == "MainThread"
        assert stack.threads[0].frames[-1].startswith("<module> (behave.py:")
    # Rank 1 polls for a file and may be found within os.path.exists.
    own = [[frame for frame in stack.threads[0].frames if "behave.py:" in frame] for stack in found]
    assert own[0] == list(found[0].threads[0].frames)
    assert own[0][0] != own[1][0]


@needs_py_spy
def test_command_prints_stacks_and_the_job_continues(hanging_job: JobFolder, tmp_path: Path) -> None:
    code, out, _ = dstui("stacks", hanging_job.path, "--deadline", 60, cwd=tmp_path)
    assert code == 0 and "\nrank 0\n    " in out and "\nrank 1\n    " in out and out.count("<module> (") == 2
    assert out.startswith("rank 0: in <lambda> (behave.py:") and "\nrank 1: in wait (behave.py:" in out
    code, out, _ = dstui("stacks", hanging_job.path, "--rank", 1, "--deadline", 60, cwd=tmp_path)
    assert code == 0 and out.startswith("rank 1\n  MainThread (") and "rank 0" not in out
    code, out, _ = dstui("stacks", hanging_job.path, "--json", "--deadline", 60, cwd=tmp_path)
    assert [(stack["rank"], stack["threads"][0]["name"]) for stack in json.loads(out)["stacks"]] == [(0, "MainThread"), (1, "MainThread")]
    assert len(ranks_of(hanging_job, hanging_job.read_status()).living) == 2


def test_silence_is_detected_and_reported_once(hanging_job: JobFolder) -> None:
    follower, watch = Follower(hanging_job), Watch(0.2)
    said: list[str] = []

    def both_run() -> bool:  # the supervisor reports each rank once it has seen it
        follower.poll()
        return [view.state for view in follower.ranks.values()] == ["started", "started"]

    def look() -> list[str]:
        follower.poll()
        if news := watch.news(follower.ranks, time.time()):
            said.append(news)
        return said

    wait_for(both_run)
    wait_for(look)
    for _ in range(5):
        look()
    assert len(said) == 1 and said[0].startswith("all 2 ranks that run have written nothing for ")
    follower.close()


@needs_py_spy
def test_stopped_rank_is_read_or_given_up_and_stays_stopped(hanging_job: JobFolder) -> None:
    pid = ranks_of(hanging_job, hanging_job.read_status()).ranks[0].pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        found = stacks(hanging_job, [0], deadline=20)[0]
        assert found.threads or found.reason
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"S")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exec sleep 100", "no answer in 0.5 s"),
        ("echo Permission Denied: Try running again with elevated permissions >&2; exit 1", "--cap-add SYS_PTRACE"),
        ("echo 'Error: Failed to find python version' >&2; exit 1", "py-spy: Error: Failed to find python version"),
        ("echo '[{\"frames\": [{}]}]'", "it printed nothing"),
        ("echo '{}'; exit 0", ""),
    ],
)
def test_failing_py_spy_is_a_reason(hanging_job: JobFolder, tmp_path: Path, script: str, said: str) -> None:
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    began = time.monotonic()
    found = stacks(hanging_job, program=str(program), deadline=0.5 if "sleep" in script else 20)
    assert [stack.rank for stack in found] == [0, 1] and all(said in stack.reason and not stack.threads for stack in found)
    assert time.monotonic() - began < 30
    assert "cannot be started" in stacks(hanging_job, [1], program=str(tmp_path))[0].reason


@pytest.mark.parametrize(
    ("scope", "said"), [(0, "SYS_PTRACE"), (1, "sysctl kernel.yama.ptrace_scope=0"), (2, "sudo"), (3, "allows no inspection")]
)
def test_refusal_says_what_to_do_by_kernel_settings(scope: int, said: str) -> None:
    assert said in why_not("Permission Denied: Try running again", scope)


def test_ranks_elsewhere_and_ended_ranks_are_reported_as_such(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", state="running", tag="none")
    folder.record(0).write_text(json.dumps({"rank": 0, "host": "h2", "pid": 1, "tag": "none"}))
    folder.record(1).write_text(json.dumps({"rank": 1, "host": "h2", "pid": 1, "tag": "none"}))
    assert [stack.reason for stack in stacks(folder)] == ["it runs on h2: call `dstui stacks` there"] * 2
    assert stacks(folder, [7]) == []
    code, out, err = dstui("stacks", "job", cwd=tmp_path)
    assert (code, out, err) == (2, "ranks 0, 1: it runs on h2: call `dstui stacks` there\n", "")
    code, _, err = dstui("stacks", "job", "--rank", 7, cwd=tmp_path)
    assert code == 1 and "none of these ranks runs now" in err
    make_job(tmp_path / "over")
    code, _, err = dstui("stacks", "over", cwd=tmp_path)
    assert code == 1 and "no rank runs now" in err


def test_ranks_at_one_place_are_grouped_and_the_odd_one_comes_first() -> None:
    waiting = (Thread("MainThread", False, ("wait (store.py:12)", "main (train.py:3)")), Thread("loader", True, ("read (io.py:1)",)))
    odd = (Thread("MainThread", True, ("load (data.py:7)",)),)
    found = [Stack(rank, "h", odd if rank == 2 else waiting) for rank in range(4)] + [Stack(4, "h", reason="gone")]
    expected = "rank 2\n    load (data.py:7)\nrank 4: gone\nranks 0, 1, 3\n    wait (store.py:12)\n    main (train.py:3)"
    assert report(found) == expected
    assert "  loader (running)\n    read (io.py:1)" in report(found, every_thread=True)


def stack(rank: int, *frames: str, own: str = "") -> Stack:
    return Stack(rank, "h", (Thread("MainThread", True, frames, own),))


def reducing(rank: int, meeting: str = "all_reduce", line: int = 31) -> Stack:
    """Return the stack of a rank in a collective."""
    frames = ("wait (torch/_C.py:1)", f"{meeting} (torch/distributed/distributed_c10d.py:3252)", f"{meeting} (deepspeed/comm/comm.py:710)")
    return stack(rank, *frames, f"main (train.py:{line})", own=f"main (train.py:{line})")


def test_rank_missing_in_a_collective_is_named_first() -> None:
    late = stack(15, "read (socket.py:7)", "load (data.py:7)", "main (train.py:28)", own="load (data.py:7)")
    assert grouped([*map(reducing, range(15)), late, Stack(16, "h2", reason="it runs on h2")]) == (
        "rank 15 has not reached the all_reduce that ranks 0-14 wait in.",
        "rank 15: in load (data.py:7)",
        "ranks 0-14: waiting in all_reduce, from main (train.py:31)",
        "rank 16: unknown, it runs on h2",
    )


def test_ranks_in_different_collectives_diverged() -> None:
    found = grouped([reducing(0), reducing(1, "broadcast", 40), reducing(2)])
    assert found[0].startswith("The ranks wait in different collectives")
    assert found[1:] == (
        "rank 1: waiting in broadcast, from main (train.py:40)",
        "ranks 0, 2: waiting in all_reduce, from main (train.py:31)",
    )


def test_computing_ranks_only_get_their_place() -> None:
    assert grouped([stack(0, "forward (model.py:3)"), stack(1, "forward (model.py:3)")]) == ("ranks 0-1: in forward (model.py:3)",)
    joining = stack(0, "wait (x.py:1)", "init_process_group (torch/distributed/distributed_c10d.py:9)")
    assert grouped([reducing(1, "rendezvous"), reducing(2, "rendezvous")])[0].startswith("ranks 1-2: waiting for the other ranks to join")
    assert grouped([joining])[0].startswith("rank 0: ")


def test_engine_phase_is_a_device_wait_and_a_stopped_process_joins_no_collective() -> None:
    waits = "DeepSpeedEngine.step (deepspeed/runtime/engine.py:9)"  # on a GPU no Python frame is a collective
    found = grouped([stack(0, "synchronize (torch/cuda/__init__.py:1)", waits, own="main (train.py:4)"), stack(1, "load (data.py:7)")])
    assert found[0] == "rank 1 has not reached the step that rank 0 waits in."
    assert found[2] == "rank 0: in step, from main (train.py:4)"
    halted = Stack(1, "h", reason="a signal has stopped its process: kill -CONT 7 resumes it", halted=True)
    assert grouped([reducing(0), halted])[0] == "rank 1 has not reached the all_reduce that rank 0 waits in."


SCRIPT = """
import faulthandler, signal, time
if {handled}: faulthandler.register(signal.SIGUSR2)
def waits():
    time.sleep(1000)
print("ready", flush=True)
waits()
"""


@pytest.mark.launcher
@pytest.mark.parametrize(("allowed", "handled", "observe"), [(True, True, "off"), (True, False, "off"), (False, False, "process")])
def test_faulthandler_answers_without_py_spy_if_script_and_plan_allow_it(
    tmp_path: Path, allowed: bool, handled: bool, observe: str
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(handled=handled))
    env = "env: {DSTUI_STACKS: SIGUSR2}" if allowed else ""
    folder = Lab(tmp_path).start(job=f"script: {tmp_path / 'script.py'}", cluster=env, run=f"observe: {observe}")
    try:
        ready(folder)
        wait_for(lambda: len(ranks_of(folder, folder.read_status()).living) == 2)
        found = stacks(folder, program=str(tmp_path / "no-py-spy"), deadline=30)
        if (allowed and handled) or observe == "process":
            assert [(one.rank, one.reason, one.threads[0].name, one.threads[0].own) for one in found] == [
                (rank, "", "MainThread", "waits (script.py:5)") for rank in (0, 1)
            ]
        else:
            assert all(not one.threads and "or allow faulthandler" in one.reason for one in found)
        assert len(ranks_of(folder, folder.read_status()).living) == 2
    finally:
        stop(folder)
