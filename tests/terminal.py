"""A real terminal for tests: runs a command in a pty, keeps its screen as text, and sends keys and clicks."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte
from pyte import charsets, modes
from pyte.screens import Char, wcwidth

from tests.waiting import PATIENCE

# Sequences that pyte does not know and would print: kitty's keyboard protocol, mode reports, XTVERSION, DCS strings.
UNKNOWN = re.compile(rb"\x1b\[[>=<?]?[0-9;]*u|\x1b\[\?[0-9;]*\$p|\x1b\[>[0-9;]*[mq]|\x1bP.*?\x1b\\", re.DOTALL)
# Sequences that set the style of text (SGR); longer ones are left to pyte's parser.
COLOURS = re.compile(r"\x1b\[([0-9;]{0,99})m")

RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l")
"""What a program writes to return a terminal: leave the alternate screen, show the cursor, disable the mouse."""


class Stream(pyte.ByteStream):
    """A faster pyte stream: parses colour sequences, which are the most common ones, as a whole instead of by character."""

    def feed(self, data: bytes) -> None:
        """Process the output of a program."""
        text, done = self.utf8_decoder.decode(data), 0
        for colours in COLOURS.finditer(text):
            pyte.Stream.feed(self, text[done : colours.start()])
            if self._taking_plain_text:  # pyte is not inside another sequence
                self.listener.select_graphic_rendition(*(int(number or 0) for number in colours[1].split(";")))
            else:  # pyte is inside another sequence
                pyte.Stream.feed(self, colours[0])
            done = colours.end()
        pyte.Stream.feed(self, text[done:])


class Screen(pyte.Screen):
    """A faster pyte screen: draws plain text within a line at once instead of by character."""

    def draw(self, data: str) -> None:
        """Draw text at the cursor."""
        x, end = self.cursor.x, self.cursor.x + len(data)
        plain = data.isprintable() and (data.isascii() or all(wcwidth(character) == 1 for character in data))
        if not plain or end > self.columns or modes.IRM in self.mode or self.charset or self.g0_charset is not charsets.LAT1_MAP:
            super().draw(data)
            return
        style, line = self.cursor.attrs[1:], self.buffer[self.cursor.y]
        for column, character in enumerate(data, x):
            line[column] = Char(character, *style)
        self.cursor.x = end
        self.dirty.add(self.cursor.y)


class Terminal:
    """A command in its own pty. Times are seconds since its start."""

    def __init__(
        self, argv: Sequence[str], columns: int = 120, rows: int = 40, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> None:
        self.screen = Screen(columns, rows)
        self.stream = Stream(self.screen)
        self.raw = bytearray()
        self._text: str | None = None
        self.last_output = 0.0
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})}
        for name in ("LINES", "COLUMNS"):
            environment.pop(name, None)
        self.started = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # pragma: no cover - the child is the command
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            if cwd:
                os.chdir(cwd)
            os.execvpe(argv[0], list(argv), environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.code: int | None = None

    def pump(self, seconds: float) -> bytes:
        """Read and process output, waiting at most `seconds` for it."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self.fd, 1 << 20)
        except OSError:  # the command has ended and all output is read
            return b""
        self.last_output = time.perf_counter() - self.started
        self.raw += data
        self._text = None
        self.stream.feed(UNKNOWN.sub(b"", data))
        return data

    @property
    def text(self) -> str:
        """The screen's text, line by line."""
        if self._text is None:
            columns, rows = range(self.screen.columns), range(self.screen.lines)
            cells = ([cell.data for cell in map(self.screen.buffer[row].__getitem__, columns)] for row in rows)
            self._text = "\n".join(map("".join, cells))  # not `display`, which fails on a wide character that is half overwritten
        return self._text

    def wait(self, *wanted: str, timeout: float = PATIENCE) -> float:
        """Wait until all texts are on the screen; return the time."""
        deadline = time.perf_counter() + timeout
        while not all(w in self.text for w in wanted):
            self.pump(0.05)
            if time.perf_counter() > deadline:
                raise AssertionError(f"{wanted} not on the screen within {timeout} s:\n{self.text}")
        return time.perf_counter() - self.started

    def wait_gone(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait until a text is no longer on the screen."""
        deadline = time.perf_counter() + timeout
        while text in self.text:
            self.pump(0.05)
            assert time.perf_counter() < deadline, f"{text!r} is still on the screen:\n{self.text}"

    def settle(self, quiet: float = 0.4, timeout: float = PATIENCE) -> float:
        """Wait until nothing is written for `quiet` seconds; return the time of the last output."""
        deadline = time.perf_counter() + timeout
        while self.pump(quiet) and time.perf_counter() < deadline:
            pass
        return self.last_output

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self.fd, keys.encode())

    def click(self, column: int, row: int) -> None:
        """Press and release the left button on a cell, counted from 1."""
        self.press(f"\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m")

    def reset(self) -> None:
        """Clear the screen and all modes, as if another program had begun to draw."""
        self._text = None
        self.screen.reset()

    def clear(self) -> None:
        """Forget what is on the screen."""
        self._text = None
        self.screen = Screen(self.screen.columns, self.screen.lines)
        self.stream = Stream(self.screen)

    def resize(self, columns: int, rows: int) -> None:
        """Resize the window."""
        self._text = None
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def kill(self, number: int) -> None:
        """Send a signal to the command."""
        os.kill(self.pid, number)

    def wait_stopped(self, timeout: float = PATIENCE) -> None:
        """Wait until a signal has stopped the command, as ctrl+z in a shell does."""
        deadline = time.perf_counter() + timeout
        while self._stat()[0] != "T":
            self.pump(0.05)
            assert time.perf_counter() < deadline, f"still not stopped:\n{self.text}"

    def exit_code(self, timeout: float = PATIENCE) -> int:
        """Wait for the command's end and return its exit code; 128 + n for signal n."""
        deadline = time.perf_counter() + timeout
        while self.code is None:
            self.pump(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.pump(0.05):
                    pass
                number = os.waitstatus_to_exitcode(status)
                self.code = number if number >= 0 else 128 - number
            elif time.perf_counter() > deadline:
                raise AssertionError(f"still running after {timeout} s:\n{self.text}")
        return self.code

    def cpu_seconds(self) -> float:
        """Return the CPU time of the command so far."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wakeups(self) -> int:
        """Return how often threads of the command have slept and been woken so far."""
        found = (
            re.search(r"^voluntary_ctxt_switches:\s+(\d+)", path.read_text(), re.MULTILINE)
            for path in Path(f"/proc/{self.pid}/task").glob("*/status")
        )
        return sum(int(switches[1]) for switches in found if switches)

    def hang_up(self, timeout: float = PATIENCE) -> int:
        """Close the terminal, as sshd does when the connection is lost, and return the command's exit code; 128 + n for signal n."""
        os.close(self.fd)  # the kernel sends SIGHUP and SIGCONT, and every write fails
        self.fd = -1
        deadline = time.perf_counter() + timeout
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.perf_counter() < deadline, "still there without a terminal"
            time.sleep(0.05)
        number = os.waitstatus_to_exitcode(ended[1])
        self.code = number if number >= 0 else 128 - number
        return self.code

    def _stat(self) -> list[str]:
        """Return the fields of /proc/PID/stat from the state on (proc(5), field 3)."""
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()

    def close(self) -> None:
        """Kill the command and close the pty."""
        if self.code is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        if self.fd >= 0:
            os.close(self.fd)
