"""Probes of hosts over the real ssh: the snapshot, and the name of each failure."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from farm import Farm, etc, forced

from dstui.doctor.gather import READY
from dstui.hosts.connection import BOOT, source
from dstui.hosts.ssh import SIGNS, failure, python_command, ssh_command
from dstui.machine.remote import Program, script


def machine(farm: Farm, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `dstui machine` on the host login."""
    return farm.run("login", sys.executable, "-m", "dstui", "machine", *words, timeout=60)


def views(farm: Farm, tmp_path: Path, hosts: Sequence[str], deadline: float = 20) -> dict[str, dict[str, Any]]:
    """Return host -> what `dstui machine --hosts` found there."""
    file = tmp_path / "hostfile"
    file.write_text("".join(f"{host} slots=2\n" for host in hosts))
    ran = machine(farm, "--hosts", str(file), "--json", "--deadline", str(deadline))
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    return {view["host"]: view for view in json.loads(ran.stdout)["hosts"]}


def test_every_host_is_probed_without_installation(farm: Farm, tmp_path: Path) -> None:
    found = views(farm, tmp_path, ["h1", "h2"])
    for host in ("h1", "h2"):
        seen = found[host]["machine"]
        assert found[host]["failure"] is None
        assert seen["host"]["name"] == host and seen["source"] == f"host {host}"
        assert seen["host"]["cpus_usable"] and seen["software"]["deepspeed"]
        assert seen["gpus"] == [] or seen["driver"]["state"] == "ok"


def test_report_has_a_line_per_host_and_a_fix_per_failure(farm: Farm, tmp_path: Path) -> None:
    file = tmp_path / "hostfile"
    file.write_text("# the cluster\nh1 slots=2\nworker-9 slots=1\n")
    lines = machine(farm, "--hosts", str(file)).stdout.splitlines()
    assert lines[0].startswith("h1        2 slots  ") and "deepspeed" in lines[0]
    assert lines[1] == "worker-9  1 slot  not ready: its name cannot be resolved"
    assert "/etc/hosts" in lines[2]


def test_each_failure_has_a_name_and_a_fix(farm: Farm, tmp_path: Path) -> None:
    known = (farm.etc("login") / "ssh/known_hosts").read_text()
    without = "".join(line + "\n" for line in known.splitlines() if not line.startswith("h1,"))
    swapped = known.replace("h1,", "hx,").replace("h2,", "h1,").replace("hx,", "h2,")
    with etc(farm, "login", "known_hosts", without):
        assert views(farm, tmp_path, ["h1"])["h1"]["failure"]["id"] == "key-unknown"
    with etc(farm, "login", "known_hosts", swapped):
        found = views(farm, tmp_path, ["h1"])["h1"]["failure"]
        assert found["id"] == "key-changed" and "ssh-keygen -R h1" in found["fix"]
    with etc(farm, "h1", "authorized_keys", ""):
        found = views(farm, tmp_path, ["h1"])["h1"]["failure"]
        assert found["id"] == "login" and found["fix"].startswith("ssh-copy-id h1")
    with etc(farm, "h1", "authorized_keys", forced(farm, "echo no Python here >&2; exit 127")):
        assert views(farm, tmp_path, ["h1"])["h1"]["failure"]["id"] == "no-python"


@pytest.mark.deadline
def test_hanging_host_costs_no_more_than_the_deadline(farm: Farm, tmp_path: Path) -> None:
    with etc(farm, "h2", "authorized_keys", forced(farm, "sleep 600")):
        began = time.monotonic()
        found = views(farm, tmp_path, ["h1", "h2"], deadline=6)
        assert time.monotonic() - began < 60
    assert found["h2"]["failure"]["id"] == "silent" and "within 6 s" in found["h2"]["failure"]["problem"]
    assert found["h1"]["failure"] is None and found["h1"]["machine"]


@pytest.mark.deadline
def test_unplugged_host_does_not_answer(farm: Farm, tmp_path: Path) -> None:
    farm.cable("h2", plugged=False)
    try:
        found = views(farm, tmp_path, ["h2"], deadline=4)["h2"]["failure"]
    finally:
        farm.cable("h2", plugged=True)
    assert found["id"] == "unreachable"


def test_output_of_a_login_shell_is_no_fact(farm: Farm, tmp_path: Path) -> None:
    with etc(farm, "h1", "authorized_keys", forced(farm, "echo Welcome to h1; echo [ OK ]; eval $SSH_ORIGINAL_COMMAND")):
        found = views(farm, tmp_path, ["h1"])["h1"]
    assert found["machine"] and found["machine"]["host"]["name"] == "h1"


@pytest.mark.deadline
def test_many_hosts_take_the_time_of_the_slowest(farm: Farm, tmp_path: Path) -> None:
    names = [f"node{number}" for number in range(8)]
    address = farm.addresses["h1"]
    hosts = (farm.etc("login") / "hosts").read_text() + "".join(f"{address} {name}\n" for name in names)
    keys = (farm.etc("login") / "ssh/known_hosts").read_text().replace("h1,", ",".join([*names, "h1"]) + ",")
    slow = forced(farm, "sleep 8; echo all well >&2; exit 1")
    with etc(farm, "login", "known_hosts", keys), etc(farm, "login", "../hosts", hosts), etc(farm, "h1", "authorized_keys", slow):
        began = time.monotonic()
        found = views(farm, tmp_path, names)
    assert time.monotonic() - began < 40, "in sequence they would take over 64 s"
    assert {view["failure"]["problem"] for view in found.values()} == {"all well"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h1 slots=2\nh1 slots=2\n", "line 2: the host 'h1' is given a second time"),
        ("h1 slots=two\n", "line 1: 'h1 slots=two' is not"),
        ("# nobody\n", "no hosts in it"),
    ],
)
def test_hostfile_refused_by_deepspeed_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "hostfile"
    file.write_text(text)
    command = [sys.executable, "-m", "dstui", "machine", "--hosts", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and words in ran.stderr and "hostfile" in ran.stderr and "Traceback" not in ran.stderr


def old_interpreters() -> list[str]:
    """Return other interpreters of this machine, on the PATH; of pyenv's, which may be switched off there, those that it starts."""
    found = [Path(path) for minor in (6, 8, 9) if (path := shutil.which(f"python3.{minor}"))]
    kept = [python for path in found for python in path.parent.parent.glob(f"versions/{path.name[len('python') :]}.*/bin/python")]
    return [str(path) for path in kept or found]


@pytest.mark.parametrize("python", old_interpreters() or [sys.executable])
def test_programs_sent_to_hosts_run_on_python_3_8_and_newer(python: str) -> None:
    asked = subprocess.run([python, "-c", "import sys; print(sys.version_info >= (3, 8))"], capture_output=True, text=True, check=False)
    if asked.returncode:
        pytest.skip(f"{python} does not run")
    wanted = {
        "python": python,
        "script": None,
        "model": None,
        "hub": "org/model",
        "folders": ["/"],
        "token": None,
        "names": [],
        "listen": None,
        "connect": None,
    }
    program = Program(READY, {**wanted, "seconds": 0.0, "imports": False, "env": {"HF_ENDPOINT": "http://127.0.0.1:9"}})
    ran = subprocess.run([python, "-"], input=script(20, program), capture_output=True, check=False)
    nowhere = {**dict.fromkeys(("folder", "known", "name"), "/nowhere/job"), "have": {}, "files": {}, "needs": {}, "make": False}
    opening = json.dumps({**nowhere, "tag": "", "attempt": 1, "ranks": [], "stays": False}).encode() + b"\n"
    agent = subprocess.run([python, "-I", "-S", "-c", BOOT], input=source() + opening, capture_output=True, check=False)
    if asked.stdout == "False\n":
        assert (ran.returncode, agent.returncode) == (1, 1)
        assert all(b"is too old: 3.8 is needed" in one.stderr for one in (ran, agent))
        return
    assert (agent.returncode, agent.stderr) == (0, b"") and b'"is": "hello"' in agent.stdout
    assert ran.returncode == 0, ran.stderr
    kinds = {json.loads(line)[0] for line in ran.stdout.splitlines()}
    assert {"host", "software", "ready", "driver", "done"} <= kinds


def test_ssh_asks_nothing_and_ends_by_itself() -> None:
    command = ssh_command("h1", ["echo", "a b"], connect_seconds=2.4)
    assert command[0] == "ssh" and command[-3:] == ["--", "h1", "env -u SSH_AUTH_SOCK echo 'a b'"]
    assert {"BatchMode=yes", "ConnectTimeout=2", "ServerAliveInterval=3"} <= set(command)


def test_first_existing_interpreter_is_used() -> None:
    words = python_command("/nowhere/python", sys.executable, "python3")
    ran = subprocess.run(words, input="import sys; print(sys.executable)", capture_output=True, text=True, check=True)
    assert Path(ran.stdout.strip()).resolve() == Path(sys.executable).resolve()
    nothing = subprocess.run(python_command("/nowhere/python"), capture_output=True, text=True, check=False)
    assert (nothing.returncode, nothing.stderr) == (127, "no Python here\n")


@pytest.mark.parametrize(
    ("said", "sign"),
    [
        ("ssh: Could not resolve hostname h9: Name or service not known", "name"),
        ("ssh: connect to host h1 port 22: Connection refused", "refused"),
        ("ssh: connect to host h1 port 22: Connection timed out", "unreachable"),
        ("ssh: connect to host h1 port 22: No route to host", "unreachable"),
        ("root@h1: Permission denied (publickey).", "login"),
        ("Host key verification failed.", "key-unknown"),
        ("kex_exchange_identification: Connection closed by remote host", "closed"),
        ("ssh: No such file or directory", "no-ssh"),
        ("srun: error: Unable to create step for job 2: Requested node configuration is not available", "allocation"),
        ("Python 3.6 is too old: 3.8 is needed", "old-python"),
        ("bash: fork: retry: Resource temporarily unavailable", "other"),
    ],
)
def test_ssh_errors_are_understood(said: str, sign: str) -> None:
    found = failure("h1", said)
    assert found.id == sign and found.fix
    assert {known.id for known in SIGNS} >= {sign} - {"other"}
