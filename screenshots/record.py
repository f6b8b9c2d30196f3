"""Record the quickstart in the real application as an asciinema cast: `python screenshots/record.py [FILE]`.

Commands are typed into a shell in a pty, and everything that it and dstui draw is written with its time, in asciicast v2. Long waits are
shortened: the recording shows what happens, not how fast this machine is. Exits with 0 if every step succeeded. Play it:
`asciinema play screenshots/quickstart.cast`.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent.absolute()
sys.path.insert(0, str(HERE.parent))
from tests.terminal import UNKNOWN, Screen, Stream, Terminal  # noqa: E402

COLUMNS, ROWS = 100, 30
LONGEST_GAP = 1.2
"""Seconds without output that are kept."""
PATIENCE = 240.0
"""Time limit of a step, in seconds."""
MOST_BYTES = 300_000
LONGEST, FRAME = 60.0, 1.5
"""Length of the recording in seconds, played faster if it took longer, and seconds between two frames."""
ASKS, DRAWS_AT_ONCE = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
"""The query for synchronized output, and the positive answer: the application then marks the start and end of each frame."""
BEGINS, ENDS = "\x1b[?2026h", "\x1b[?2026l"
NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
"""pyte's names for the colours 0 to 7."""


class Recorder(Terminal):
    """A terminal that keeps each piece of output with its time."""

    def __init__(self, *args: object, **options: object) -> None:
        self.events: list[tuple[float, str]] = []
        self.clock, self.last = 0.0, time.perf_counter()
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def pump(self, seconds: float) -> bytes:
        """Keep the output."""
        data = super().pump(seconds)
        if ASKS in data:
            os.write(self.fd, DRAWS_AT_ONCE)
        if data:
            now = time.perf_counter()
            self.clock += min(now - self.last, LONGEST_GAP)
            self.last = now
            self.events.append((round(self.clock, 3), self.decoder.decode(data)))
        return data

    def type(self, text: str) -> None:
        """Type a command at a person's speed."""
        for key in text:
            self.press(key)
            self.settle(0.04)
        self.press("\r")

    def wait_left(self) -> None:
        """Wait until the application has left the alternate screen; pyte has only one."""
        ends = time.perf_counter() + PATIENCE
        while b"\x1b[?1049l" not in self.raw:
            self.pump(0.1)
            if time.perf_counter() > ends:
                raise SystemExit(f"the application does not leave:\n{self.text}")
        self.reset()
        self.settle(0.5)

    def look(self, seconds: float = 1.5) -> None:
        """Give the viewer time to read."""
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            self.pump(0.1)
        self.clock += max(0.0, seconds - LONGEST_GAP)


def record(folder: Path) -> Recorder:
    """Play the scenes."""
    env = {"PS1": "$ ", "HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HISTFILE": ""}
    shell = Recorder(["bash", "--norc", "--noprofile"], COLUMNS, ROWS, env, str(folder))
    shell.wait("$", timeout=PATIENCE)
    shell.type("dstui quickstart")
    shell.wait("Steps", "ZeRO stage", timeout=PATIENCE)
    shell.settle(1.0)
    shell.press("3")
    shell.wait("What is sharded", timeout=PATIENCE)
    shell.look(2.5)
    shell.press("8")
    shell.wait("Review & launch", timeout=PATIENCE)
    shell.look(2.5)
    shell.press("l")
    shell.wait("step 20", timeout=PATIENCE)
    shell.look(2.0)
    shell.press("m")
    shell.look(2.5)
    shell.press("\x1b")
    shell.wait("succeeded", timeout=PATIENCE)
    shell.look(2.0)
    shell.press("q")
    shell.wait_left()
    shell.type("dstui runs")
    shell.wait("quickstart-", timeout=PATIENCE)
    shell.look(2.0)
    shell.type("exit")
    if code := shell.exit_code(PATIENCE):
        raise SystemExit(f"the shell ended with {code}")
    return shell


def thin(events: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the events as frames in which only changed lines are drawn, in at most a minute."""
    screen = Screen(COLUMNS, ROWS)
    stream, frames, before, due = Stream(screen), [(0.0, "\x1b[?25l\x1b[2J")], [""] * ROWS, 0.0
    inside = False  # whether the event is inside a frame
    for place, (at, text) in enumerate(events):
        inside = text.rfind(BEGINS) > text.rfind(ENDS) or (inside and ENDS not in text)
        for part in re.split(r"(\x1b\[\?1049[hl])", text):
            if part.startswith("\x1b[?1049"):  # switches between the application's screen and the shell's; pyte has only one
                screen.reset()
            else:
                stream.feed(UNKNOWN.sub(b"", part.encode()))
        following = events[place + 1][0] if place + 1 < len(events) else at + 2 * FRAME
        if at >= due and not inside and following - at > 0.03:
            lines = [draw(screen, row) for row in range(ROWS)]
            changed = [f"\x1b[{row + 1}H{line}\x1b[0m\x1b[K" for row, line in enumerate(lines) if line != before[row]]
            frames += [(at, "".join(changed))] if changed else []
            before, due = lines, at + FRAME
    pace = min(1.0, LONGEST / events[-1][0])
    return [(round(at * pace, 2), text) for at, text in frames]


def draw(screen: Screen, row: int) -> str:
    """Return a line of the screen as text with colours, without uncoloured blanks at its end."""
    text, style = "", ("", "39", "49")
    for cell in (screen.buffer[row][column] for column in range(COLUMNS)):
        new = (f"{';1' * cell.bold}{';7' * cell.reverse}", colour(cell.fg, 30), colour(cell.bg, 40))
        if new[0] != style[0]:  # these attributes can only be reset together
            text += f"\x1b[0{new[0]};{new[1]};{new[2]}m"
        elif new != style:
            text += f"\x1b[{';'.join(now for now, old in zip(new[1:], style[1:], strict=True) if now != old)}m"
        text, style = text + cell.data, new
    return text.rstrip() if style == ("", "39", "49") else text


def colour(name: str, base: int) -> str:
    """Return the code of a colour in pyte's representation: a name, or six hexadecimal digits."""
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"{base + 8};2;{';'.join(str(int(name[at : at + 2], 16)) for at in (0, 2, 4))}"
    return str(base + (NAMES.index(name) if name in NAMES else 9))


def main(words: list[str]) -> int:
    """Record and write the cast."""
    file = Path(words[0] if words else HERE / "quickstart.cast").absolute()
    with tempfile.TemporaryDirectory(prefix="dstui-record-") as folder:
        shell = record(Path(folder))
    frames = thin(shell.events)
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "dstui quickstart", "env": {"TERM": "xterm-256color"}}
    lines = [json.dumps(head), *(json.dumps([at, "o", text], ensure_ascii=False) for at, text in frames)]
    own = str(HERE.parent)  # replace the clone's path by one of the same width
    text = "\n".join(lines).replace(own, "/home/u/dstui".ljust(len(own), "/")[: len(own)]) + "\n"
    if len(text.encode()) > MOST_BYTES:
        print(f"{len(text.encode()):,} bytes are more than {MOST_BYTES:,}: not written", file=sys.stderr)
        return 1
    file.write_text(text)
    print(f"{file.name}: {frames[-1][0]:.0f} s, {len(text.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
