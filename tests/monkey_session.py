"""Monkey tests of the real TUI: dstui in a pty, in a folder with a Plan and a running job."""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dstui.jobs.store.folder import JobFolder
from tests.keyboard import bytes_of
from tests.monkey import Input, Keys, Resized, inputs
from tests.terminal import UNKNOWN, Terminal
from tests.waiting import PATIENCE, wait_for

SCRIPT = """\
import itertools, time
for step in itertools.count(1):
    print(f"step {step}/1000 loss {3 / step:.4f} lr 1e-4", flush=True)
    if step % 50 == 0:
        print("WARNING: a slow loader", flush=True)
    time.sleep(0.05)
"""
PLAN = """\
version: 1
name: monkey   # whoever it is
job: {script: t.py}
cluster: {hosts: {localhost: 2}, env: {DS_ACCELERATOR: cpu}}
deepspeed:
  train_micro_batch_size_per_gpu: 3  # mine
  zero_optimization: {stage: 2}
"""
KEPT = 400_000
"""Bytes of recent output that are kept and searched for tracebacks."""
PAUSES = (0.0, 0.0, 0.04, 0.15)
"""Seconds to wait at most after a write, chosen at random: the next one comes while its dialog still opens, or after that."""
QUIET = 0.03
"""Seconds without output after which a pause ends early."""
ANSWER = 0.2
"""Seconds to wait at most for the answer to each key of a path."""
LAUNCH_KEY = "l"
"""The key that launches a job. Launching takes seconds of CPU time, so most sessions never press it."""


SCREENS = {
    "checks": b" Checks ",
    "Review": b"Before the launch",
    "plans that fit": b"Which plan is best here",
    "find a setting": b"Find a setting",
    "checkpoint": b"Checkpoint global_step",
    "palette": b"earch for commands",
    "help": b" Help ",
    "script with DeepSpeed's lines": b"deepspeed.initialize",
    "log filter": b"loss|eval",
    "log search": b"an expression",
    "dashboard": b"CPU of each rank",
    "plots": b" Metrics ",
    "runs table": b" Runs ",
    "comparison": b"How they ended",
    "diagnosis": b"Why it ended",
    "tour": b"Tour ",
}
"""A text of each screen that the monkey should meet."""
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?2004l")
"""Sequences that give a terminal back: its first screen, the cursor, no reports of the mouse or of pastes."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


LEAVING_KEYS = " q ctrl+q ctrl+c"
"""Keys that end a session. Most sessions never press them, or they would be short; commands and the footer still end some."""


def processes_of(session: int) -> list[str]:
    """Return the command lines of the processes in a terminal's session."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((path / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found.append((path / "cmdline").read_text().replace("\0", " "))
    return found


def traceback_text(output: str) -> str:
    """Return the locations and the last line of a traceback that Textual drew; "" if there is none."""
    plain = ESCAPES.sub("", output.rpartition("\x1b[?1049l")[2] or output)
    found = [
        line.strip(" │") for line in plain.splitlines() if re.search(r"\.py:\d+ in \w+|^\W*\w+(?:Error|Exception|Matches|NoWidget)\b", line)
    ]
    return "\n".join(found)


def process_stacks(pid: int) -> str:
    """Return what a process that does not end is doing: its Python stacks, and the kernel function that each thread waits in."""
    py_spy = Path(sys.executable).with_name("py-spy")
    stacks = subprocess.run([py_spy, "dump", "-p", str(pid)], capture_output=True, text=True, check=False)
    threads = "\n".join(
        f"{path.name}: {(path / 'wchan').read_text()} {(path / 'stat').read_text()}" for path in Path(f"/proc/{pid}/task").glob("*")
    )
    return f"{stacks.stdout}{stacks.stderr}{threads}"


@dataclass
class PlayResult:
    """The result of a monkey test."""

    inputs: int = 0
    shown: Counter[str] = field(default_factory=Counter)
    """How often each screen of SCREENS was drawn."""
    left: int = 0
    """Number of times a key or a command ended the session as asked."""
    problems: list[str] = field(default_factory=list)


class MonkeySession:
    """A folder in which sessions run one after another."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Create the folder. `options`: further arguments of dstui."""
        self.folder, self.plan, self.options = folder, folder / "plan.yaml", options
        self.words, self.first = ("plan.yaml",), ("1 · Machine", "q quit")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "t.py").write_text(SCRIPT)
        self.env = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"), "DS_ACCELERATOR": "cpu"}
        self.env["VISUAL"] = "true"  # the editor of V and of the settings: exits at once
        self.played = PlayResult()

    def command(self, *words: str) -> str:
        """Run a dstui command and return its standard output."""
        argv = [sys.executable, "-m", "dstui", *words]
        return subprocess.run(argv, cwd=self.folder, env={**os.environ, **self.env}, capture_output=True, text=True, check=False).stdout

    def running(self) -> list[JobFolder]:
        """Return the jobs of this folder that have not ended."""
        found = [JobFolder(path.parent) for path in self.folder.glob("dstui_runs/*/status.json")]
        return [job for job in found if (status := job.read_status()) and status.state in ("starting", "running")]

    def ensure_running_job(self) -> None:
        """Start a job unless one is running."""
        if not self.running():
            (self.folder / "job.yaml").write_text(PLAN)
            self.command("--headless", "job.yaml", "--detach")
            wait_for(lambda: any(job.log(0).exists() for job in self.running()))

    def close(self) -> None:
        """Stop all running jobs."""
        for job in self.running():
            self.command("stop", str(job.path))

    def play(self, seed: int, count: int) -> PlayResult:
        """Send `count` inputs. Afterwards undo must restore the original bytes of the Plan, and `q` must end the session."""
        chance = random.Random(seed)
        without = ("" if seed % 10 == 9 else LAUNCH_KEY) + ("" if seed % 5 == 0 else LEAVING_KEYS)
        terminal = self._begin()
        try:
            for write in inputs(seed, count, without):
                self.played.inputs += sum(len(each.keys) if hasattr(each, "keys") else 1 for each in write)
                if not self._send(terminal, write, chance):
                    terminal.close()
                    terminal = self._begin()
            self._undo_everything(terminal, seed)
        finally:
            terminal.close()
        return self.played

    def _begin(self) -> Terminal:
        self.ensure_running_job()
        self.plan.write_text(PLAN)
        for draft in self.folder.glob("state/dstui/drafts/*"):
            draft.unlink()
        self._recent.unlink(missing_ok=True)
        self.opened, self.reachable, self._before = self.plan, {PLAN}, self._texts()
        self.output, self.received = bytearray(), 0
        terminal = Terminal([sys.executable, "-m", "dstui", *self.words, *self.options], env=self.env, cwd=str(self.folder))
        self.modes = termios.tcgetattr(terminal.fd)[:4]
        terminal.wait(*self.first)
        return terminal

    def _send(self, terminal: Terminal, write: tuple[Input, ...], chance: random.Random) -> bool:
        """Send one write; return False if the session ended."""
        for each in write:
            if isinstance(each, Resized):
                terminal.resize(each.columns, each.rows)
            else:
                parts = [Keys((key,)) for key in each.keys] if isinstance(each, Keys) and each.slowly else [each]
                for part in parts:
                    if not self._type(terminal, bytes_of(part, terminal.screen.columns, terminal.screen.lines)):
                        return False
                    self._await_answer(terminal, ANSWER if len(parts) > 1 else 0.0)
        self._await_answer(terminal, chance.choice(PAUSES))  # a key may arrive while the previous one still opens something, or after
        self._note_opened()
        return not self._ended(terminal)

    @property
    def _recent(self) -> Path:
        """The session's list of opened files, the last one first."""
        return self.folder / "state" / "dstui" / "recent.json"

    def _texts(self) -> dict[Path, str]:
        return {path: path.read_text() for path in self.folder.glob("*.yaml")}

    def _note_opened(self) -> None:
        """Record which file was opened last, and the texts to which undo can return: those that it had then.

        Of a Plan that was saved under a new name there are none: undo returns to a text that was never in that file.
        """
        texts = self._texts()
        with suppress(OSError, ValueError, IndexError):
            opened = Path(json.loads(self._recent.read_text())[0])
            if opened != self.opened:
                self.opened = opened
                self.reachable = {known[opened] for known in (self._before, texts)} if opened in self._before else set()
        self._before = texts

    def _await_answer(self, terminal: Terminal, seconds: float) -> None:
        """Read output until it pauses, for at most so many seconds."""
        until = time.monotonic() + seconds
        seen = self._drain(terminal, seconds)
        while seen and (left := until - time.monotonic()) > 0:
            seen = self._drain(terminal, min(left, QUIET))

    def _type(self, terminal: Terminal, data: bytes) -> bool:
        """Send all data as fast as the session reads it; return False if the session ended."""
        deadline = time.monotonic() + PATIENCE
        while data:
            if select.select([], [terminal.fd], [], 0.0)[1]:
                data = data[os.write(terminal.fd, data[:512]) :]
            self._drain(terminal, 0.002)
            if self._ended(terminal):
                return False
            assert time.monotonic() < deadline, "the session accepts no more input"
        return True

    def _drain(self, terminal: Terminal, seconds: float) -> bool:
        """Read output for at most `seconds` without interpreting it, which would take most of the time. Return whether there was any."""
        if not select.select([terminal.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(terminal.fd, 1 << 20)
        except OSError:
            time.sleep(min(seconds, 0.01))
            return False
        self.received += len(data)
        self.output += data
        self.played.shown.update(name for name, text in SCREENS.items() if text in data)
        del self.output[:-KEPT]
        return True

    def _ended(self, terminal: Terminal) -> bool:
        if terminal.code is not None:
            return True
        pid, status = os.waitpid(terminal.pid, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):  # ctrl+z at a moment when the session does not own the terminal: continue it, as `fg` does
            os.kill(pid, signal.SIGCONT)
            return False
        if not pid:
            self._resume_output(terminal)
            return False
        terminal.code = os.waitstatus_to_exitcode(status)
        while self._drain(terminal, 0.1):
            pass
        output = self.output.decode(errors="replace")
        expected = 0, -signal.SIGINT, 128 + signal.SIGINT  # ctrl+c at a moment when the session does not own the terminal
        after = output.rpartition("\x1b[?1049l")[2]  # a log on the screen may have a traceback
        if terminal.code not in expected or "Traceback" in after:
            screen = ESCAPES.sub("", after)
            reports = "\n".join(file.read_text() for file in self.folder.glob("state/dstui/faults/*.txt"))
            self.problem(f"ended with {terminal.code}: {traceback_text(output)}\n{reports}\n{screen[:1500]}\n…\n{screen[-1500:]}")
        elif terminal.code == 0:
            self._look_at_what_is_left(terminal)
        self.played.left += 1
        return True

    def _resume_output(self, terminal: Terminal) -> None:
        """Undo a ctrl+s that came when the session had already returned the terminal, and stopped its last output."""
        if termios.tcgetattr(terminal.fd)[0] & termios.IXON and not select.select([terminal.fd], [], [], 0.0)[0]:
            os.write(terminal.fd, b"\x11")

    def _look_at_what_is_left(self, terminal: Terminal) -> None:
        """Report a terminal that was not restored, and processes of the session that are still running."""
        written = self.output[-KEPT // 20 :] + terminal.raw[-KEPT // 20 :]  # what `pump` has read is not in `output`
        missing = [sequence for sequence in RESTORED if sequence not in written]
        if missing or termios.tcgetattr(terminal.fd)[:4] != self.modes:
            self.problem(f"the terminal was not restored: {missing}, {termios.tcgetattr(terminal.fd)[:4]} instead of {self.modes}")
        deadline = time.monotonic() + PATIENCE / 12
        while (left := processes_of(terminal.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left:
            self.problem(f"still running: {left}")

    def _undo_everything(self, terminal: Terminal, seed: int) -> None:
        """Close all dialogs, undo all edits and save: the open Plan must have the bytes with which it was opened. Then quit."""
        self._picture(terminal)
        if self._ended(terminal):
            return
        self._note_opened()
        self._undo(terminal)
        self._press(terminal, "\x1bOQ")
        if self._ended(terminal):  # the last keys asked for it
            return
        named = " q quit" in terminal.text
        if not named:  # a Plan without a file asks where to save it
            self._press(terminal, "\x1b")
        jobs = {path.read_text() for path in self.folder.glob("dstui_runs/*/plan.yaml")}  # a job's Plan was opened and saved there
        edited = named and self.reachable and self.words == ("plan.yaml",)  # the tour's Plan is its own
        deadline = time.monotonic() + PATIENCE / 4
        while edited and self.opened.read_text() not in self.reachable and time.monotonic() < deadline:
            self._drain(terminal, 0.1)
        if edited and self.opened.read_text() not in self.reachable | jobs:
            self.problem(f"seed {seed}: not the first bytes of {self.opened}:\n{self.opened.read_text()}\n{self._picture(terminal)}")
        del self.output[:]  # a question from before is no answer
        terminal.press("q")
        deadline, answered = time.monotonic() + PATIENCE / 4, False
        while not (ended := self._ended(terminal)) and time.monotonic() < deadline:
            self._drain(terminal, 0.05)
            if not answered and b"Not saved" in self.output:  # before that, `d` would take a value out of the Plan
                terminal.press("d")
                answered = True
        if not ended:
            shown = traceback_text(self.output.decode(errors="replace")) or self._picture(terminal)
            self.problem(f"seed {seed}: q does not end it:\n{shown}\n{process_stacks(terminal.pid)}")

    def _undo(self, terminal: Terminal) -> None:
        """Close all dialogs and undo until the footer of step 1 offers no further undo."""
        for _ in range(48):  # a dialog may still be opening, and the table of runs has `q` too: look again each time
            if self._ended(terminal):
                break
            if " q quit" not in terminal.text or "Esc back" in terminal.text or "Esc close" in terminal.text:
                self._press(terminal, "\x1b")
            elif "1 · Machine" not in terminal.text:
                self._press(terminal, "\x1bOR")
            elif " z undo" in terminal.text:
                self._type(terminal, b"z" * 50)
                self._picture(terminal)
            else:
                break

    def _press(self, terminal: Terminal, keys: str) -> None:
        """Press a key and wait until the screen changes: two escapes in one read would be another key.

        Redraw if nothing changes, or if the footer was not seen.
        """
        before, deadline = terminal.text, time.monotonic() + PATIENCE / 24
        terminal.press(keys)
        while terminal.text == before and time.monotonic() < deadline:
            terminal.pump(0.1)
        terminal.settle(0.3, timeout=5.0)  # a running job writes all the time
        if terminal.text == before or " quit" not in terminal.text:
            self._picture(terminal)

    def _picture(self, terminal: Terminal) -> str:
        """Return the text of the screen, which two resizes make the session draw completely.

        Waits for each resize: a busy session would only see the second, which may be the size it already has.
        """
        self._resize(terminal, 99 if terminal.screen.columns != 99 else 98)
        terminal.clear()
        before = self.received
        self._resize(terminal, 100)
        terminal.stream.feed(UNKNOWN.sub(b"", bytes(self.output[len(self.output) - min(self.received - before, len(self.output)) :])))
        return terminal.text

    def _resize(self, terminal: Terminal, columns: int) -> None:
        """Change the width and wait until the session has redrawn and is quiet for a moment."""
        deadline, before, since = time.monotonic() + PATIENCE / 4, self.received, -1
        terminal.resize(columns, 36)
        while (since != self.received or since == before) and not self._ended(terminal) and time.monotonic() < deadline:
            since = self.received
            self._drain(terminal, 0.5)

    def problem(self, text: str) -> None:
        """Print a problem and keep it for the report."""
        print(text, flush=True)
        self.played.problems.append(text)
