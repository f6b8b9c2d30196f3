"""What a follower tells of a folder that somebody else has written."""

from __future__ import annotations

from pathlib import Path

from made import made

from dstui.run.events import Event, Exited, Metric, Notice
from dstui.run.folder import JobFolder
from dstui.run.follow import Follower


def told(folder: JobFolder) -> list[Event]:
    follower, events = Follower(folder), []
    while not any(isinstance(event, Exited) for event in events):
        events += follower.poll()
    follower.close()
    return events


def test_a_notice_reaches_the_terminal_without_its_escape_sequences(tmp_path: Path) -> None:
    folder = made(tmp_path / "job")
    folder.append_event(1.0, "notice", text="\x1b]0;owned\x07\x1b[2Jdone\u202e")
    assert [event.text for event in told(folder) if isinstance(event, Notice)] == ["done"]


def test_the_numbers_of_a_last_line_without_end_count(tmp_path: Path) -> None:
    assert Metric(0, 3, "loss", 0.5) in told(made(tmp_path / "job", logs={0: "step 3 loss 0.5"}))
