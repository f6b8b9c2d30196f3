"""Sessions in terminals that go: each is brought to a screen or a dialog, then its terminal is taken away in one of the usual ways."""

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

from tests.jobs.made import made
from tests.terminal import Terminal
from tests.waiting import PATIENCE

PLAN = "version: 1\nname: mine\njob: {script: t.py}\ndeepspeed:\n  train_micro_batch_size_per_gpu: 3  # mine\n  train_batch_size: 13\n"
MARK = "DSTUI_TEST_SESSION"
"""A variable in the environment of a session, and of every process that it starts."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session is: how it was started, and the keys that lead there, each with what the screen then says."""

    way: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ("plan.yaml",)
    begins: str = "q quit"
    edited: bool = False
    """Whether there is something to lose."""


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
    "the palette, typing": Place((PALETTE, ("theme", "Other colours"))),
    "not saved": Place((("x", "plan.yaml *"), ("q", "Not saved")), begins="✖ 1", edited=True),  # the error that x mends
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
    """dstui in a terminal of its own, in a folder of its own."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder, self.place, self.mark = folder, place, uuid.uuid4().hex
        self.pids: list[int] = []
        folder.mkdir()
        (folder / "plan.yaml").write_text(PLAN)
        made(folder / "job", plan=PLAN, logs={0: "".join(f"step {n}/90 loss {3 / n}\n" for n in range(1, 91)), 1: "one line\n"})
        self.env = {MARK: self.mark, "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
        self.argv = [sys.executable, "-m", "dstui", *place.args]

    def go(self) -> None:
        """To its place."""
        self.wait(self.place.begins)
        for key, text in self.place.way:
            self.press(key)
            self.wait(text)

    def wait(self, text: str) -> None:
        """Until this is on the screen."""
        raise NotImplementedError

    def press(self, keys: str) -> None:
        """Type."""
        raise NotImplementedError

    def lose(self) -> None:
        """Take the terminal away."""
        raise NotImplementedError

    def left(self) -> list[int]:
        """Its processes that are still there, itself or what it has started. Those that were there last time are looked for first."""
        self.pids = [pid for pid in self.pids if self._is_mine(pid)] or [pid for pid in psutil.pids() if self._is_mine(pid)]
        return self.pids

    def _is_mine(self, pid: int) -> bool:
        try:
            mine = f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            return mine and b"tmux" not in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
        except OSError:
            return False

    def close(self) -> None:
        """Leave nothing behind, whatever it did."""
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)


class InPty(Session):
    """In a pty whose other end is ours."""

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.terminal = Terminal(self.argv, env=self.env, cwd=str(folder))

    def wait(self, text: str) -> None:
        self.terminal.wait(text)

    def press(self, keys: str) -> None:
        self.terminal.press(keys)

    def lose(self) -> None:
        """Close it, as sshd does when the connection is lost."""
        os.close(self.terminal.fd)
        self.terminal.fd = -1

    def left(self) -> list[int]:
        if self.terminal.code is None and os.waitpid(self.terminal.pid, os.WNOHANG)[0]:
            self.terminal.code = 0
        return super().left()

    def close(self) -> None:
        super().close()
        self.terminal.close()


class Signalled(InPty):
    """SIGHUP alone; the terminal is there, and nobody reads what is written to it."""

    def lose(self) -> None:
        self.terminal.kill(signal.SIGHUP)


class InEmulator(InPty):
    """The other end is another program's, which is killed."""

    def lose(self) -> None:
        emulator = subprocess.Popen(["sleep", "600"], pass_fds=[self.terminal.fd])
        super().lose()
        emulator.kill()
        emulator.wait()


class InTmux(Session):
    """In a tmux server of its own, which is told to end."""

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
    """The same, and the server is killed."""

    def lose(self) -> None:
        os.kill(self.server, signal.SIGKILL)


WAYS: dict[str, type[Session]] = {
    "the pty is closed": InPty,
    "SIGHUP": Signalled,
    "the emulator is killed": InEmulator,
    **({"tmux kill-server": InTmux, "tmux is killed": InKilledTmux} if shutil.which("tmux") else {}),
}


@dataclass
class Lost:
    """What became of sessions that lost their terminals at one moment."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Name of the session -> after how many seconds nothing of it was left."""
    left: dict[str, list[int]] = field(default_factory=dict)
    """Name -> processes that were still there after the limit."""
    unsaved: list[str] = field(default_factory=list)
    """Those whose edits were not kept."""


def lose(sessions: Iterable[tuple[str, Callable[[], Session]]], limit: float, busy: int) -> Lost:
    """Start these sessions, bring each to its place, take all terminals away while `busy` processes do nothing but work."""
    begun: dict[str, Session] = {}
    lost = Lost()
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
            for name in [name for name, session in waiting.items() if not session.left()]:
                lost.seconds[name] = time.monotonic() - since
                del waiting[name]
            time.sleep(0.05)
        lost.left = {name: session.left() for name, session in waiting.items()}
        edited = [name for name, session in begun.items() if session.place.edited]
        lost.unsaved = [name for name in edited if not list(begun[name].folder.glob("state/dstui/drafts/*.json"))]
    finally:
        for process in load:
            process.kill()
            process.wait()
        for session in begun.values():
            session.close()
    return lost
