"""Record the quickstart in the real application as an asciinema cast: `python screenshots/record.py [FILE]`.

A shell in a pty is typed into, and everything that it and dstui draw is written with its time, in asciicast v2. What takes longer than a
moment is shortened: the recording is about what happens, not about how fast this machine is. Exits with 0 where every step came.
Play it: `asciinema play screenshots/quickstart.cast`.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent.absolute()
sys.path.insert(0, str(HERE.parent))
from tests.terminal import Terminal  # noqa: E402

COLUMNS, ROWS = 100, 30
LONGEST_GAP = 1.2
"""Seconds without output that are kept."""
PATIENCE = 240.0
"""Seconds that a step may take."""
MOST_BYTES = 300_000


class Recorder(Terminal):
    """A terminal that keeps what is drawn, each piece with its time."""

    def __init__(self, *args: object, **options: object) -> None:
        self.events: list[tuple[float, str]] = []
        self.clock, self.last = 0.0, time.perf_counter()
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def pump(self, seconds: float) -> bytes:
        """Keep the piece that came."""
        data = super().pump(seconds)
        if data:
            now = time.perf_counter()
            self.clock += min(now - self.last, LONGEST_GAP)
            self.last = now
            self.events.append((round(self.clock, 3), self.decoder.decode(data)))
        return data

    def type(self, text: str) -> None:
        """Type a command as a person does."""
        for key in text:
            self.press(key)
            self.settle(0.04)
        self.press("\r")

    def look(self, seconds: float = 1.5) -> None:
        """Leave the reader the time to read."""
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
    shell.wait_gone("succeeded", timeout=PATIENCE)
    shell.wait("$", timeout=PATIENCE)
    shell.type("dstui runs")
    shell.wait("quickstart-", timeout=PATIENCE)
    shell.look(2.0)
    shell.type("exit")
    if code := shell.exit_code(PATIENCE):
        raise SystemExit(f"the shell ended with {code}")
    return shell


def main(words: list[str]) -> int:
    """Record, and write the cast."""
    file = Path(words[0] if words else HERE / "quickstart.cast").absolute()
    with tempfile.TemporaryDirectory(prefix="dstui-record-") as folder:
        shell = record(Path(folder))
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "dstui quickstart", "env": {"TERM": "xterm-256color"}}
    lines = [json.dumps(head), *(json.dumps([at, "o", text], ensure_ascii=False) for at, text in shell.events)]
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > MOST_BYTES:
        print(f"{len(text.encode()):,} bytes are more than {MOST_BYTES:,}", file=sys.stderr)
    file.write_text(text)
    print(f"{file.name}: {shell.clock:.0f} s, {len(text.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
