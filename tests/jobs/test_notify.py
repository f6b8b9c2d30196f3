"""Notifications at the end of a job: a real server, real commands, and a real job whose status they never change."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from dstui.jobs.control.start import start
from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.records import JobStatus, RankStatus
from dstui.jobs.store.status import ranks_of
from dstui.jobs.supervisor.notify import facts_of, notify
from dstui.jobs.watch.follow import Follower
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.render.target import Target
from tests.job_json import refreshed_json, status_json
from tests.jobs.lab import HERE, Lab, final_status, job_processes, ready
from tests.waiting import wait_for

FACTS = {"name": "lab", "state": "failed", "exit_code": 3, "duration": 12.5, "folder": "/tmp", "first_failing_rank": 1, "last_loss": None}


class Server(ThreadingHTTPServer):
    """Keeps what is POSTed to it and answers with the status in the URL's path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.got: list[tuple[str, dict[str, Any]]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.headers["Content-Type"], json.loads(body)))
        code = int(self.path.rpartition("/")[2])
        self.send_response(code, "\x1b[31mgone" if code == 410 else None)
        if code == 302:
            self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_webhook_gets_the_facts_as_json(server: Server, tmp_path: Path) -> None:
    assert notify(server.url + "/hook/200", FACTS, str(tmp_path)) is None
    assert server.got == [("application/json", FACTS)]


@pytest.mark.parametrize(
    ("code", "said"), [(404, "404 Not Found"), (500, "500 Internal Server Error"), (302, "302 Found"), (410, "410 gone")]
)
def test_refusing_webhook_gives_a_message_without_the_secret_path(server: Server, tmp_path: Path, code: int, said: str) -> None:
    problem = notify(f"{server.url}/services/T0SECRET/{code}", FACTS, str(tmp_path))
    assert problem == f"run.on_end: 127.0.0.1 answered {said}"
    assert len(server.got) == 1, "a redirect is not followed: it would lose the facts"


def test_unreachable_server_gives_a_message(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        problem = notify(f"http://127.0.0.1:{taken.getsockname()[1]}/secret", FACTS, str(tmp_path))
    assert problem is not None and "127.0.0.1 could not be notified" in problem and "secret" not in problem


@pytest.mark.deadline
def test_unresponsive_server_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        began = time.monotonic()
        problem = notify(f"http://127.0.0.1:{deaf.getsockname()[1]}/", FACTS, str(tmp_path), deadline=0.3)
    assert problem is not None and "127.0.0.1" in problem
    assert time.monotonic() - began < 60


def test_command_finds_the_facts_in_its_environment(tmp_path: Path) -> None:
    assert notify('env > facts; echo "$DSTUI_STATE $DSTUI_EXIT_CODE" > short', FACTS, str(tmp_path)) is None
    assert (tmp_path / "short").read_text() == "failed 3\n"
    found = dict(line.split("=", 1) for line in (tmp_path / "facts").read_text().splitlines() if line.startswith("DSTUI_"))
    assert {f"DSTUI_{name.upper()}": "" if value is None else str(value) for name, value in FACTS.items()}.items() <= found.items()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo working; echo no such list >&2; exit 7", "exit status 7): no such list"),
        ("definitely-not-a-command", "exit status 127"),
        ("kill -9 $$", "signal 9)"),
        ("printf '\\033[31mred\\033[0m'; exit 1", "exit status 1): red"),
        ("'", "exit status 2"),
        ("yes | head -c 3000000; echo; echo last; exit 1", "exit status 1): last"),
    ],
)
def test_failing_command_gives_a_message_with_its_last_line(tmp_path: Path, command: str, said: str) -> None:
    problem = notify(command, FACTS, str(tmp_path))
    assert problem is not None and problem.startswith("run.on_end: the command failed (") and said in problem
    assert problem.isprintable()


@pytest.mark.deadline
def test_hanging_command_is_killed_with_children_and_a_background_one_is_not_awaited(tmp_path: Path) -> None:
    problem = notify("sleep 1000 & echo $! > pid; wait", FACTS, str(tmp_path), deadline=0.5)
    assert problem == "run.on_end: the command was not through after 0.5 s and was ended"
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or b") Z " in Path(f"/proc/{pid}/stat").read_bytes())
    assert notify("sleep 1000 & echo $! > pid", FACTS, str(tmp_path)) is None
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_missing_folder_gives_a_message(tmp_path: Path) -> None:
    problem = notify("true", FACTS, str(tmp_path / "gone"))
    assert problem is not None and "nobody could be notified" in problem


def test_last_loss_is_read_from_the_logs_and_nan_is_null(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.prepare(1)
    status = JobStatus("stopped", exit_code=143, ranks={rank: RankStatus("h") for rank in (0, 1)})
    folder.log(0).write_text("no number here\n")
    folder.log(1).write_text("step 1 loss 2.5\nstep 2 loss 1.25\nbye\n")
    facts = facts_of(folder, status, ranks_of(folder, status))
    assert (facts["last_loss"], facts["duration"], facts["first_failing_rank"]) == (1.25, None, None)
    folder.log(0).write_text("loss nan\n")
    assert facts_of(folder, status, ranks_of(folder, status))["last_loss"] is None


@pytest.fixture(scope="module")
def _jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobFolder]:
    """Start two real jobs in parallel, one with a working command and one with a failing command."""
    path = tmp_path_factory.mktemp("notify")
    return {
        "well": _start(
            path / "well", 'echo "$DSTUI_TEXT / $DSTUI_LAST_LOSS / $DSTUI_FIRST_FAILING_RANK" >> told', "all:say step 4 loss 0.5"
        ),
        "badly": _start(path / "badly", "echo nobody there; exit 9", "1:exit 3", "0:hang"),
    }


def _start(path: Path, command: str, *behaviour: str) -> JobFolder:
    path.mkdir()
    words = json.dumps(behaviour)
    plan = load(
        f'version: 1\nname: lab\njob: {{script: {HERE / "behave.py"}, args: {words}, workdir: "{path}"}}\n'
        f"cluster: {{hosts: {{localhost: 2}}}}\nrun: {{on_end: {json.dumps(command)}}}\ndeepspeed: {{train_batch_size: 2}}\n",
        base=str(path),
    )
    return start(Target(plan, Machine.unprobed()), run_dir=path / "job")


def test_job_notifies_once(_jobs: dict[str, JobFolder]) -> None:
    folder = _jobs["well"]
    status = final_status(folder)
    told = wait_for(lambda: (folder.path.parent / "told").exists() and (folder.path.parent / "told").read_text())
    wait_for(lambda: not Path(f"/proc/{status['supervisor']['pid']}").exists())
    assert (folder.path.parent / "told").read_text() == told
    assert told.startswith("job succeeded with exit status 0 after ") and told.endswith(" / 0.5 / \n")


def test_failed_notification_is_a_notice_and_keeps_the_status(_jobs: dict[str, JobFolder]) -> None:
    folder = _jobs["badly"]
    assert (final_status(folder)["state"], final_status(folder)["exit_code"]) == ("failed", 3)
    wait_for(lambda: b"run.on_end" in folder.events_file.read_bytes())
    follower = Follower(folder)
    texts = [event.as_json().get("text") for event in follower.poll()]
    assert "run.on_end: the command failed (exit status 9): nobody there" in texts
    assert (follower.state, follower.exit_code, status_json(folder)["exit_code"]) == ("failed", 3, 3)


@pytest.mark.launcher
@pytest.mark.parametrize("how", ["looked at", "stopped"])
def test_job_with_killed_supervisor_notifies_once(tmp_path: Path, how: str) -> None:
    told, go = tmp_path / "told", tmp_path / "go"
    command = f"echo $DSTUI_STATE $DSTUI_EXIT_CODE >> {told}"
    folder = Lab(tmp_path).start(f"all:wait {go}", "1:exit 7", run=f'on_end: "{command}"')
    ready(folder)
    wait_for(lambda: status_json(folder).get("state") == "running")
    os.kill(status_json(folder)["supervisor"]["pid"], signal.SIGKILL)
    if how == "looked at":
        go.touch()
        wait_for(lambda: not job_processes(folder))
        assert refreshed_json(folder)["state"] == "failed"
    else:
        assert stop(folder).state == "stopped"
    assert wait_for(lambda: told.exists() and told.read_text()) == ("failed 7\n" if how == "looked at" else "stopped 143\n")
    for _ in range(2):
        refreshed_json(folder)
        stop(folder)
    wait_for(lambda: not [p for p in psutil.process_iter(["cmdline"]) if str(folder.path) in (p.info["cmdline"] or ())])
    assert told.read_text().count("\n") == 1
