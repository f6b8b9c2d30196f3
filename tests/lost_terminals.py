"""Sessions that lose their terminal: open a screen or a dialog, then take the terminal away in one of the usual ways."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.jobs.made import make_job
from tests.terminal import Terminal
from tests.waiting import PATIENCE

PLAN = "version: 1\nname: mine\njob: {script: t.py}\ndeepspeed:\n  train_micro_batch_size_per_gpu: 3  # mine\n  train_batch_size: 13\n"
MARK = "DSTUI_TEST_SESSION"
"""An environment variable that identifies a session and every process that it starts."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the TUI: the arguments to start with, and the keys that lead there, each with a text to wait for."""

    way: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ("plan.yaml",)
    begins: str = "q quit"
    edited: bool = False
    """True if there are unsaved edits."""


JOB = {"args": ("attach", "job"), "begins": "Log: all ranks"}
REVIEW = ("8", "Before the launch")
FIND = ("/", "Find a setting")
PALETTE = ("\x10", "Search for commands")
PLACES = {
    **{f"step {number}": Place(((str(number), title),)) for number, title in enumerate(("1 · Machine", "2 · Job", "3 · ZeRO"), 1)},
    "the review": Place((REVIEW,)),
    "the list of jobs": Place((("9", "job"),)),
    "typing": Place((("6", "6 · Batch"), ("\r", "Enter Esc done"), ("7", '"train_micro_batch_size_per_gpu": 37')), edited=True),
    "help": Place((("\x1bOP", "The next step."),)),
    "find": Place((FIND,)),
    "set a key": Place((FIND, ("memory_breakdown", "› memory_breakdown"), ("\r", "Set a key"))),
    "the palette": Place((PALETTE,)),
    "the palette, typing": Place((PALETTE, ("theme", "other colours"))),
    "not saved": Place((("x", "plan.yaml *"), ("q", "Not saved")), begins="✖ 1", edited=True),  # the error that x fixes
    "write files": Place((REVIEW, ("w", "Write the files"))),
    "help over a dialog": Place((FIND, ("\x1bOP", "Close without a change."))),
    "without a file": Place(args=(), begins="What do you want to start from?"),
    "a job": Place(**JOB),
    "a whole line": Place((("\r", "↑↓ move"),), **JOB),
    "a rank to type": Place((("g", "Its number:"),), **JOB),
    "a search": Place((("/", "an expression:"),), **JOB),
    "the plot": Place((("m", "Metrics"),), **JOB),
    "another run over the plot": Place((("m", "Metrics"), ("o", "Add another run to the plot")), **JOB),
}


class Session:
    """A dstui process in its own terminal and folder."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder, self.place, self.mark = folder, place, uuid.uuid4().hex
        self.pids: list[int] = []
        folder.mkdir()
        (folder / "plan.yaml").write_text(PLAN)
        make_job(folder / "job", plan=PLAN, logs={0: "".join(f"step {n}/90 loss {3 / n}\n" for n in range(1, 91)), 1: "one line\n"})
        self.env = {MARK: self.mark, "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
        self.argv = [sys.executable, "-m", "dstui", *place.args]

    def go(self) -> None:
        """Press the keys that lead to the session's place."""
        self.wait(self.place.begins)
        for key, text in self.place.way:
            self.press(key)
            self.wait(text)

    def wait(self, text: str) -> None:
        """Wait until a text is on the screen."""
        raise NotImplementedError

    def press(self, keys: str) -> None:
        """Type keys."""
        raise NotImplementedError

    def lose(self) -> None:
        """Take the terminal away."""
        raise NotImplementedError

    def remaining(self) -> list[int]:
        """Return the pids of the session and its children that still exist. Checks the pids of the last call first, which is fast."""
        self.pids = [pid for pid in self.pids if self._belongs_to_session(pid)] or [
            pid for pid in psutil.pids() if self._belongs_to_session(pid)
        ]
        return self.pids

    def _belongs_to_session(self, pid: int) -> bool:
        try:
            mine = f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            return mine and b"tmux" not in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
        except OSError:
            return False

    def close(self) -> None:
        """Kill the remaining processes of the session."""
        for pid in self.remaining():
            os.kill(pid, signal.SIGKILL)


class InPty(Session):
    """A session in a pty that the test holds."""

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.terminal = Terminal(self.argv, env=self.env, cwd=str(folder))

    def wait(self, text: str) -> None:
        self.terminal.wait(text)

    def press(self, keys: str) -> None:
        self.terminal.press(keys)

    def lose(self) -> None:
        """Close the pty, as sshd does when the connection is lost."""
        os.close(self.terminal.fd)
        self.terminal.fd = -1

    def remaining(self) -> list[int]:
        if self.terminal.code is None and os.waitpid(self.terminal.pid, os.WNOHANG)[0]:
            self.terminal.code = 0
        return super().remaining()

    def close(self) -> None:
        super().close()
        self.terminal.close()


class Signalled(InPty):
    """Send only SIGHUP; the terminal stays open, but nobody reads from it."""

    def lose(self) -> None:
        self.terminal.kill(signal.SIGHUP)


class InEmulator(InPty):
    """The pty is held by another program, which is killed."""

    def lose(self) -> None:
        emulator = subprocess.Popen(["sleep", "600"], pass_fds=[self.terminal.fd])
        super().lose()
        emulator.kill()
        emulator.wait()


class InTmux(Session):
    """A session in its own tmux server, which is asked to exit."""

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        environment = [f"{name}={value}" for name, value in self.env.items()]
        command = shlex.join(["env", *environment, *self.argv])
        self.tmux("new-session", "-d", "-x", "120", "-y", "40", "-c", str(folder), command)
        self.server = int(self.tmux("display", "-p", "#{pid}"))

    def tmux(self, *words: str) -> str:
        clean = {name: value for name, value in os.environ.items() if name not in ("TMUX", "COLUMNS", "LINES")}
        argv = ["tmux", "-S", str(self.folder / "tmux"), "-f", "/dev/null", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=clean).stdout

    def wait(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in (shown := self.tmux("capture-pane", "-p")):
            assert time.monotonic() < deadline, f"{text!r} is not on the screen:\n{shown}"
            time.sleep(0.1)

    def press(self, keys: str) -> None:
        self.tmux("send-keys", "-l", keys)

    def lose(self) -> None:
        self.tmux("kill-server")


class InKilledTmux(InTmux):
    """A session in a tmux server that is killed."""

    def lose(self) -> None:
        os.kill(self.server, signal.SIGKILL)


WAYS: dict[str, type[Session]] = {
    "the pty is closed": InPty,
    "SIGHUP": Signalled,
    "the emulator is killed": InEmulator,
    **({"tmux kill-server": InTmux, "tmux is killed": InKilledTmux} if shutil.which("tmux") else {}),
}


@dataclass
class LossReport:
    """What happened to sessions that lost their terminals at the same moment."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Session name -> seconds until all its processes were gone."""
    remaining: dict[str, list[int]] = field(default_factory=dict)
    """Session name -> processes that remained after the time limit."""
    unsaved: list[str] = field(default_factory=list)
    """Sessions whose edits were not kept."""


def lose(sessions: Iterable[tuple[str, Callable[[], Session]]], limit: float, busy: int) -> LossReport:
    """Start sessions, bring each to its place, and take all terminals away while `busy` processes use the CPUs."""
    begun: dict[str, Session] = {}
    lost = LossReport()
    load: list[subprocess.Popen[bytes]] = []
    try:
        for name, start in sessions:
            begun[name] = start()
        for session in begun.values():
            session.go()
        load += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        for session in begun.values():
            session.lose()
        since = time.monotonic()
        waiting = dict(begun)
        while waiting and time.monotonic() - since < limit:
            for name in [name for name, session in waiting.items() if not session.remaining()]:
                lost.seconds[name] = time.monotonic() - since
                del waiting[name]
            time.sleep(0.05)
        lost.remaining = {name: session.remaining() for name, session in waiting.items()}
        edited = [name for name, session in begun.items() if session.place.edited]
        lost.unsaved = [name for name in edited if not list(begun[name].folder.glob("state/dstui/drafts/*.json"))]
    finally:
        for process in load:
            process.kill()
            process.wait()
        for session in begun.values():
            session.close()
    return lost
