"""Messages of an agent are only accepted within the limits of its role: a host may be broken or malicious."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dstui.hosts.agent import CHUNK, READY
from dstui.hosts.frames import LONGEST_HEAD, MAX_NOISE, AgentFrames, FrameError
from dstui.jobs.hosts.job_host import JobHost
from dstui.jobs.hosts.job_hosts import JobHosts
from dstui.jobs.hosts.mirror import Mirror
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import Ranks, rank_label
from dstui.jobs.store.records import JobStatus, RankStatus


def frame(what: str, data: bytes = b"", **facts: Any) -> bytes:
    """Return a frame as the agent sends it."""
    return json.dumps({**facts, "is": what, "size": len(data)}).encode() + b"\n" + data


@pytest.mark.parametrize("cut", [1, 7, 4096])
def test_frames_are_complete_however_they_are_split_and_after_shell_output(cut: int) -> None:
    stream = b"Welcome to h1\n" + READY + frame("log", b"a\nb", file="logs/rank_0.log", at=3) + frame("beat", time=1.5)
    frames, found = AgentFrames(), []
    for at in range(0, len(stream), cut):
        found += list(frames.feed(stream[at : at + cut]))
    assert [(one.kind, one.data) for one in found] == [("log", b"a\nb"), ("beat", b"")]
    assert found[0].facts["at"] == 3


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"not json\n",
        b"[1]\n",
        b'{"is": "log"}\n',
        b'{"is": "shell", "size": 0}\n',
        b'{"is": "beat", "size": 0, "time": "now"}\n',
        b'{"is": "beat", "size": -1, "time": 1}\n',
        b'{"is": "beat", "size": true, "time": 1}\n',
        frame("ended", attempt=1, exit_code=256, text=""),
        frame("swept", left=[1]),
        frame("hello", time=1, there="yes", folder="/tmp/job", lacks=[]),
        json.dumps({"is": "log", "file": "logs/rank_0.log", "at": 0, "size": CHUNK + 1}).encode() + b"\n",
        b"x" * (LONGEST_HEAD + 2),
        b"[" * 10000 + b"\n",
    ],
)
def test_invalid_message_ends_the_connection(said: bytes) -> None:
    with pytest.raises(FrameError):
        list(AgentFrames().feed(READY + said))


def test_endless_shell_output_is_no_agent() -> None:
    frames = AgentFrames()
    with pytest.raises(FrameError, match="endless output"):
        for _ in range(3):
            list(frames.feed(b"y\n" * (MAX_NOISE // 2)))


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    """Return the mirror of a job with rank 0 on h1 and rank 1 on h2."""
    folder = JobFolder(tmp_path / "job")
    folder.prepare(1)
    return Mirror(folder, "tag", JobStatus("running", "tag", ranks={0: RankStatus("h1"), 1: RankStatus("h2")}))


@pytest.mark.parametrize(
    "name",
    [
        "logs/rank_0.log",
        "logs/rank_7.log",
        "../escape",
        "/etc/passwd",
        "logs/../status.json",
        "status.json",
        "logs/rank_1.log/x",
        "attempts/0/logs/rank_1.log",
    ],
)
def test_host_writes_only_files_of_its_own_ranks(mirror: Mirror, name: str) -> None:
    before = sorted(mirror.folder.path.rglob("*"))
    with pytest.raises(FrameError, match="not a file of its ranks"):
        mirror.log("h2", name, 0, b"lie")
    assert sorted(mirror.folder.path.rglob("*")) == before


def test_repeated_bytes_are_written_once_and_a_gap_is_refused(mirror: Mirror) -> None:
    mirror.log("h2", "logs/rank_1.log", 0, b"one\ntwo\n")
    mirror.log("h2", "logs/rank_1.log", 4, b"two\nthree\n")
    mirror.log("h2", "logs/rank_1.log", 0, b"one\n")
    assert mirror.folder.log(1).read_bytes() == b"one\ntwo\nthree\n"
    assert mirror.have("h2")["logs/rank_1.log"] == 14 and "logs/rank_1.log" not in mirror.have("h1")
    with pytest.raises(FrameError, match="leaves out 6 bytes"):
        mirror.log("h2", "logs/rank_1.log", 20, b"later")


def test_link_in_place_of_a_log_is_not_followed(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    mirror.folder.log(1).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"):
        mirror.log("h2", "logs/rank_1.log", 0, b"lie")
    assert (tmp_path / "precious").read_text() == "mine"


RECORD = {
    "rank": 1,
    "host": "node-17",
    "pid": 5,
    "shim": 4,
    "ticks": 9,
    "boot": "b",
    "tag": "tag",
    "started": 1000.0,
    "ended": 1010.0,
    "exit_code": 3,
}


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"tag": "another"}, {"exit_code": 300}, {"pid": "5"}, {"master": ["a/b", "1"]}])
def test_record_of_another_rank_or_job_is_refused(mirror: Mirror, wrong: dict[str, Any]) -> None:
    with pytest.raises(FrameError, match="not a record of rank 1"):
        mirror.record("h2", "ranks/rank_1.json", json.dumps({**RECORD, **wrong}).encode(), 0.0)
    assert not mirror.folder.record(1).exists()


def test_record_has_the_plans_host_name_and_the_local_clock(mirror: Mirror) -> None:
    mirror.record("h2", "ranks/rank_1.json", json.dumps(RECORD).encode(), 100.0)
    found = json.loads(mirror.folder.record(1).read_text())
    assert (found["host"], found["started"], found["ended"]) == ("h2", 900.0, 910.0)
    assert not found.keys() & {"shim", "ticks", "boot"}, "remote pids mean nothing on this host"
    mirror.record("h2", "ranks/rank_1.json", json.dumps(RECORD).encode(), -0.4)
    assert json.loads(mirror.folder.record(1).read_text())["ended"] == 1010.0, "half a second of delay is not another clock"


def test_rank_reported_lost_by_its_agent_was_killed(mirror: Mirror) -> None:
    living = {key: value for key, value in RECORD.items() if key not in ("ended", "exit_code")}
    mirror.record("h2", "ranks/rank_1.json", json.dumps({**living, "lost": 1005.0}).encode(), 0.0)
    ranks = Ranks.expected(mirror.folder, {0: "h1", 1: "h2"}, tag="tag")
    ranks.unseen = True
    ranks.update(0.0)
    assert (ranks.ranks[1].state, ranks.ranks[1].exit_code, ranks.ranks[1].ended) == ("lost", 137, 1005.0)


@pytest.mark.parametrize("said", [b"", b"[", b"[" * 10000, b'["sample", 7]', b'["driver", {"state": "x"}]', b'{"sample": []}', b"\xff"])
def test_invalid_gpu_state_is_ignored(mirror: Mirror, said: bytes) -> None:
    mirror.gpus("h2", said)
    mirror.gpus("h9", b'["sample", []]')
    assert not mirror.folder.gpus(1).exists()


def test_gpu_use_of_a_host_is_stored_under_its_first_rank(mirror: Mirror) -> None:
    mirror.gpus("h2", b'["sample", [{"index": 0, "utilization": 97}]]')
    assert json.loads(mirror.folder.gpus(1).read_text())["gpus"] == [{"index": 0, "utilization": 97}]


def test_launcher_lines_of_a_host_continue_after_a_new_supervisor(mirror: Mirror) -> None:
    mirror.log("h1", "launcher.log", 0, b"one\ntw")
    mirror.log("h2", "launcher.log", 0, b"eins\n")
    mirror.log("h1", "launcher.log", 6, b"o\nthr")
    assert mirror.folder.launcher_log.read_bytes() == b"h1: one\nh2: eins\nh1: two\n"
    status = JobStatus("running", "tag", ranks={0: RankStatus("h1"), 1: RankStatus("h2")})
    other = Mirror(mirror.folder, "tag", status)
    assert other.have("h1")["launcher.log"] == 8
    other.log("h1", "launcher.log", 8, b"three\n")
    assert mirror.folder.launcher_log.read_bytes().endswith(b"h1: two\nh1: three\n")


def test_line_of_a_multi_host_job_has_rank_and_host() -> None:
    hosts = {0: "h1", 11: "worker"}
    assert [rank_label(rank, hosts, 2) for rank in (0, 11, None)] == ["[ 0 h1    ]", "[11 worker]", "[ -       ]"]
    assert [rank_label(rank, {}, 1) for rank in (0, None)] == ["[0]", "[-]"]


@pytest.mark.parametrize(
    ("is_", "facts", "safe"),
    [
        (
            "hello",
            {"time": 1, "there": True, "folder": "/tmp/\rjob", "lacks": ["no disk\rall is well", "\x1b[2Jgone"]},
            {"folder": "job", "lacks": ["all is well", "gone"]},
        ),
        ("refused", {"text": "\rmine"}, {"text": "mine"}),
        ("ended", {"attempt": 1, "exit_code": 1, "text": "a\nb\x07"}, {"text": "ab"}),
        ("swept", {"left": ["12 \r"]}, {"left": ["12 "]}),
    ],
)
def test_output_of_a_host_cannot_fold_messages_of_dstui(is_: str, facts: dict[str, Any], safe: dict[str, Any]) -> None:
    (one,) = AgentFrames().feed(READY + frame(is_, **facts))
    assert {key: one.facts[key] for key in safe} == safe


LIAR = f"""
import json, os, sys
with open(sys.argv[1], "a") as file:
    file.write("connected\\n")
os.write(1, {READY!r})
for number in range(100_000):
    lacks = [f"lie {{number}}"] if number % 2 else []
    greeting = {{"is": "hello", "size": 0, "time": 1, "there": True, "folder": "/tmp/job", "lacks": lacks}}
    os.write(1, json.dumps(greeting).encode() + b"\\n")
"""


def test_host_with_an_endless_greeting_is_retried_ever_more_rarely(mirror: Mirror, tmp_path: Path) -> None:
    host = JobHost("h1", [sys.executable, "-I", "-S", "-c", LIAR, str(tmp_path / "connections")], mirror)
    hosts, news, deadline = JobHosts([host], lambda _name, _makes: {}), [], time.monotonic() + 4.0
    try:
        while time.monotonic() < deadline:
            hosts.pump(0.5)
            news += hosts.take_news()
    finally:
        hosts.close()
    connections = (tmp_path / "connections").read_text().count("\n")
    assert 1 <= connections <= 4, "pauses of 0.5, 1, 2 seconds"
    assert [state for _, state, _ in news[:2]] == ["reached", "unreachable"] and len(news) <= 2 * connections
    assert "repeats its greeting" in news[1][2]
