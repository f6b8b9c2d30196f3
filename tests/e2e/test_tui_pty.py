"""The TUI in a real terminal: from the first frame to a finished training, and what happens to both when either is killed."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dstui.documents.plan_files import find_plan, read_plan
from tests.terminal import RESTORED, Terminal
from tests.waiting import PATIENCE, wait_for

UNTIL_GO = "import os, time\nprint('up and idle', flush=True)\nwhile not os.path.exists('go'):\n    time.sleep(0.05)\n"

Start = Callable[..., Terminal]


@pytest.fixture
def quick(tmp_path: Path) -> str:
    """Write the shipped quickstart with fewer steps to the test's folder."""
    plan = read_plan(find_plan("quickstart"))
    args = list(plan.job.args)
    args[args.index("--steps") + 1] = "12"
    (tmp_path / "quick.yaml").write_text(plan.set("job.args", args).text)
    return "quick.yaml"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return `start("quickstart", columns=80)`, which runs dstui in a terminal, in an empty folder."""
    begun: list[Terminal] = []

    def begin(*args: str, columns: int = 120, rows: int = 40, **env: str) -> Terminal:
        terminal = Terminal([sys.executable, "-m", "dstui", *args], columns, rows, env=env, cwd=str(tmp_path))
        begun.append(terminal)
        return terminal

    yield begin
    for terminal in begun:
        terminal.close()


def status_of(folder: Path) -> dict[str, object]:
    """Return status.json of the only job in a folder."""
    found = list(folder.glob("dstui_runs/*/status.json"))
    return json.loads(found[0].read_text()) if found else {}


def launch(terminal: Terminal) -> None:
    """Go from the first frame through every step to a running job."""
    terminal.wait("1 · Machine", "CPU, 2 ranks", "✔ ok")
    for key, wanted in (
        ("2", "2 · Job"),
        ("3", "3 · ZeRO"),
        ("4", "4 · Offload"),
        ("5", "5 · Precision"),
        ("6", "6 · Batch"),
        ("7", "7 · Cluster"),
    ):
        terminal.press(key)
        terminal.wait(wanted)
    terminal.press("]")
    terminal.wait("What will be written", "launches it")
    terminal.press("l")
    terminal.wait("Ranks", "Log: all ranks")


def test_editor_that_cannot_be_started_gives_the_terminal_back(start: Start) -> None:
    terminal = start("quickstart", VISUAL="no-such-editor")
    terminal.wait("1 · Machine", "✔ ok")
    terminal.press("V")
    terminal.wait("The editor could not be started")
    terminal.press("3")
    terminal.wait("3 · ZeRO")


def launch_script(start: Start, folder: Path, script: str) -> Terminal:
    """Launch a job of two ranks without torch from Review."""
    (folder / "plain.py").write_text(script)
    (folder / "plan.yaml").write_text(
        "version: 1\nname: plain\njob: {script: plain.py, args: ['{ds_config}']}\ncluster: {hosts: {localhost: 2}, env: {DS_ACCELERATOR: cpu}}\n"
        "deepspeed: {train_micro_batch_size_per_gpu: 1, gradient_clipping: 1.0}\n"
    )
    terminal = start("plan.yaml", "--no-oracle")
    terminal.wait("1 · Machine", "8 Review")
    terminal.settle(0.5)
    terminal.press("8")
    terminal.wait("launches it")
    terminal.press("l")
    return terminal


def test_dumb_terminal_gets_lines_and_ctrl_c_ends_them(start: Start) -> None:
    terminal = start("quickstart", TERM="dumb")
    terminal.wait("Step 1 of 7: Machine")
    terminal.press("4\r")
    terminal.wait("The number 1")
    terminal.press("\x03")
    assert terminal.exit_code() == 130
    assert b"\x1b" not in terminal.raw


@pytest.mark.launcher
def test_training_runs_from_start_to_finish_with_losses_of_both_ranks(start: Start, quick: str, tmp_path: Path) -> None:
    terminal = start(quick, "--no-oracle")
    launch(terminal)
    terminal.wait("r0 step", "r1 step")
    terminal.wait("succeeded", "0 ✔ ended  step 12  loss", "1 ✔ ended  step 12  loss")
    terminal.press("1")
    terminal.wait("Log: rank 1", "step 12/12 loss")
    terminal.press("q")
    assert terminal.exit_code() == 0
    receipt = bytes(terminal.raw).rpartition(b"\x1b[?1049l")[2].decode()
    assert "dstui attach quickstart-" in receipt
    assert status_of(tmp_path)["exit_code"] == 0


@pytest.mark.launcher
def test_run_finishes_when_the_tui_is_killed(start: Start, tmp_path: Path) -> None:
    terminal = launch_script(start, tmp_path, UNTIL_GO)
    terminal.wait("up and idle", "running")
    terminal.kill(signal.SIGKILL)
    assert terminal.exit_code() == 137
    again = start("attach")
    again.wait("9 Run", "Log: all ranks", "plain")
    assert status_of(tmp_path)["state"] == "running"
    (tmp_path / "go").touch()
    again.wait("succeeded")
    again.press("q")
    assert again.exit_code() == 0
    wait_for(lambda: status_of(tmp_path).get("exit_code") is not None)
    assert (status_of(tmp_path)["state"], status_of(tmp_path)["exit_code"]) == ("succeeded", 0)


@pytest.mark.launcher
def test_job_is_watched_from_another_terminal_after_the_first_closed(start: Start, tmp_path: Path) -> None:
    terminal = launch_script(
        start,
        tmp_path,
        "import os, time\nfor number in range(120):\n    print(f'number {number} of rank {os.environ[\"RANK\"]}', flush=True)\n    time.sleep(0.03)\n",
    )
    terminal.wait("number 20 of rank")
    terminal.kill(signal.SIGHUP)
    assert terminal.exit_code() == 128 + signal.SIGHUP
    again = start("attach")
    again.wait("Log: all ranks", "number 119 of rank", "succeeded")  # folded, unless the other rank was late
    for rank in ("0", "1"):
        again.press(rank)
        again.wait(f"Log: rank {rank}")
        again.press("f")
        again.wait(f"number 119 of rank {rank}", " 120 lines")
        again.press("\x1b[H")
        again.wait(f"number 0 of rank {rank}", f"number 1 of rank {rank}")
    again.press("q")
    assert again.exit_code() == 0


@pytest.mark.launcher
def test_stop_asks_and_ends_every_process(start: Start, tmp_path: Path) -> None:
    terminal = launch_script(start, tmp_path, "import time\nprint('up and idle', flush=True)\ntime.sleep(300)\n")
    terminal.wait("up and idle")
    terminal.press("s")
    terminal.wait("Stop plain-")
    terminal.press("y")
    terminal.wait("stopping,")
    terminal.wait("No process is left", "■ stopped (143)")
    assert "failed" not in terminal.text
    terminal.press("q")
    assert terminal.exit_code() == 0
    assert status_of(tmp_path)["state"] == "stopped"


def test_signal_restores_the_terminal(start: Start) -> None:
    terminal = start("quickstart")
    terminal.wait("1 · Machine")
    terminal.kill(signal.SIGTERM)
    assert terminal.exit_code() == 128 + signal.SIGTERM
    for sequence in RESTORED:
        assert sequence in terminal.raw


def test_backgrounded_session_redraws_and_takes_keys(start: Start) -> None:
    terminal = start("quickstart", "--no-oracle")
    terminal.wait("1 · Machine", "Host and software")
    for stop in (signal.SIGTSTP, signal.SIGSTOP, None):
        if stop:
            terminal.kill(stop)
            terminal.wait_stopped()
            terminal.settle()
        terminal.reset()  # the shell draws meanwhile
        terminal.kill(signal.SIGCONT)
        terminal.wait("1 · Machine", "Host and software")
        terminal.press("6")
        terminal.wait("6 · Batch")
        terminal.press("1")
        terminal.wait("1 · Machine", "Host and software")
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_stops_that_arrive_together_leave_a_session_that_continues(start: Start) -> None:
    terminal = start("quickstart", "--no-oracle")
    terminal.wait("1 · Machine", "Host and software")
    for _ in range(30):
        terminal.kill(signal.SIGTSTP)
        time.sleep(0.0003)  # the session stops with further signals waiting
    terminal.wait_stopped()
    terminal.reset()
    deadline = time.monotonic() + PATIENCE
    while "1 · Machine" not in terminal.text and time.monotonic() < deadline:
        terminal.kill(signal.SIGCONT)
        terminal.pump(0.05)
    terminal.press("6")
    terminal.wait("6 · Batch")
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_session_continued_while_ending_does_not_take_the_terminal(start: Start) -> None:
    terminal = start("quickstart", "--no-oracle")
    terminal.wait("1 · Machine", "q quit")
    terminal.press("q")
    deadline = time.monotonic() + PATIENCE
    while b"\x1b[?1049l" not in terminal.raw and time.monotonic() < deadline:
        terminal.pump(0.001)
    ended = threading.Thread(target=terminal.exit_code)
    ended.start()
    while ended.is_alive():
        with suppress(ProcessLookupError):
            terminal.kill(signal.SIGCONT)
        ended.join(0.0002)
    assert terminal.code == 0
    assert b"\x1b[?1049h" not in terminal.raw.partition(b"\x1b[?1049l")[2]


def test_small_terminal_says_what_it_needs_and_grows(start: Start) -> None:
    terminal = start("quickstart", "--no-oracle", columns=40, rows=10)
    terminal.wait("at least 60x16")
    terminal.resize(120, 40)
    terminal.wait("1 · Machine", "Host and software")
    terminal.resize(40, 10)
    terminal.wait("at least 60x16")
    terminal.press("q")
    assert terminal.exit_code() == 0


def sleeps(terminal: Terminal) -> bool:
    """Return whether at most one thread is woken in a second: the one that looks whether the terminal is gone."""
    for _ in range(5):  # modules are still imported in the background
        before = terminal.wakeups()
        assert not terminal.pump(1.0)
        if terminal.wakeups() - before <= 3:
            return True
    return False


@pytest.mark.parametrize(
    ("columns", "rows", "words"), [pytest.param(120, 0, "", marks=pytest.mark.twin), (0, 0, ""), (120, 40, "> output")]
)
def test_terminal_of_unknown_size_is_drawn_once(tmp_path: Path, columns: int, rows: int, words: str) -> None:
    """A serial line, a container's terminal before its first resize, or a redirected standard output."""
    sized = f"stty rows {rows} cols {columns}; exec {sys.executable} -m dstui quickstart --no-oracle {words}"
    terminal = Terminal(["sh", "-c", sized], columns=columns or 80, rows=rows or 25, cwd=str(tmp_path))
    try:
        terminal.wait("1 Machine", "CPU, 2 ranks" if columns else "✔ ok")
        assert terminal.settle(1.0, timeout=10.0) and (sleeps(terminal) if words else not terminal.pump(1.0)), "it redraws endlessly"
        terminal.press("q")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()


def test_everything_is_visible_without_colour(start: Start) -> None:
    terminal = start("quickstart", "--no-oracle", NO_COLOR="1")
    terminal.wait("✔ 1 Machine", "▸", "✔ ok")
    colours = {terminal.screen.buffer[y][x].fg for y in range(40) for x in range(120)}
    greys = {colour for colour in colours if len(colour) == 6 and colour[:2] == colour[2:4] == colour[4:]}
    assert colours <= greys | {"default"}
    terminal.press("q")
    assert terminal.exit_code() == 0


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_everything_is_visible_in_ascii(start: Start, locale: str) -> None:
    terminal = start("quickstart", "--no-oracle", LC_ALL=locale, TERM="xterm")
    terminal.wait("ok 1 Machine", "> Ranks on the CPU", "AdamW   ok", ".  9 Run")
    terminal.settle(1.0)
    terminal.press("\x1bOP")
    terminal.wait("+- Help")
    assert terminal.text.isascii()
    assert bytes(terminal.raw).isascii()
    frames = [line for line in terminal.text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in frames)
    terminal.press("\x1b")
    terminal.wait_gone("+- Help")
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_start_without_a_file_asks_what_to_start_from(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("version: 1\nname: mine\njob: {script: t.py}\ndeepspeed: {train_micro_batch_size_per_gpu: 3}\n")
    terminal = start("--no-oracle")
    terminal.wait("What do you want to start from?", "mine.yaml", "quickstart")
    terminal.press("1")
    terminal.wait_gone("What do you want to start from?")
    terminal.press("6")
    terminal.wait('"train_micro_batch_size_per_gpu": 3')
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_click_goes_to_a_step(start: Start) -> None:
    terminal = start("quickstart")
    terminal.wait("1 · Machine", "✔ ok")
    terminal.click(10, 5)
    terminal.wait("3 · ZeRO stage")
