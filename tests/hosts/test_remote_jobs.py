"""Jobs on several hosts over the real sshd: how they start, end, break and are stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "machine"))

import fakenvml
import farm as farming
from farm import SSH, Farm, command_of, etc, forced
from remote_job import BEHAVE, RemoteJob

from dstui.hosts.agent import READY
from dstui.hosts.ssh import SSH_OPTIONS
from dstui.jobs.engine.lines import EngineStep, read_all
from dstui.jobs.store.ranks import read_record
from dstui.jobs.watch.usage import Sampler, summarise_usage
from tests.waiting import wait_for


@pytest.fixture
def remote_job(farm: Farm, tmp_path: Path) -> Iterator[RemoteJob]:
    """Return a job to start; its processes are killed afterwards."""
    job = RemoteJob(farm, tmp_path)
    yield job
    for host in ("h1", "h2", "login"):
        farm.cable(host, plugged=True)
    if job.dstui and job.dstui.poll() is None:
        job.interrupt(signal.SIGTERM)
        job.wait()


@pytest.mark.launcher
def test_deepspeed_trains_on_two_hosts(remote_job: RemoteJob) -> None:
    remote_job.start(job="{module: dstui.examples.train_tiny, args: [--steps, '3', --deepspeed_config, '{ds_config}']}")
    code, out, err = remote_job.wait()
    assert code == 0, out + err + remote_job.words()
    assert "[0 h1] step 3/3 loss" in out and "[1 h2] step 3/3 loss" in out
    steps = [[report.step for report in read_all(remote_job.folder.engine(rank)) if isinstance(report, EngineStep)] for rank in (0, 1)]
    assert steps == [[1, 2, 3]] * 2, "the hooks' reports are mirrored too"
    assert {name: host["state"] for name, host in remote_job.status["hosts"].items()} == {"h1": "ended", "h2": "ended"}
    assert {number: (rank["host"], rank["exit_code"]) for number, rank in remote_job.status["ranks"].items()} == {
        "0": ("h1", 0),
        "1": ("h2", 0),
    }
    assert remote_job.left("h1") == remote_job.left("h2") == []


@pytest.mark.deadline
def test_failed_rank_is_named_with_its_host_and_ends_the_job(remote_job: RemoteJob) -> None:
    remote_job.start("1:exit 3", "0:hang")
    code, out, err = remote_job.wait()
    assert code == 3, out + err
    assert "rank 1 on h2 ended with 3" in err and "[rank 1 on h2]" in out
    assert remote_job.left("h1") == remote_job.left("h2") == []
    assert remote_job.ended()["hosts"]["h2"]["exit_code"] == 3
    assert "[1 h2] ready\n" in remote_job.run("logs", str(remote_job.folder.path)).stdout
    assert "2 ranks  on 2 hosts" in remote_job.run("runs").stdout
    assert "rank 1 on h2" in remote_job.run("diagnose", str(remote_job.folder.path)).stdout


@pytest.mark.deadline
def test_killed_rank_is_reported_as_killed(remote_job: RemoteJob) -> None:
    remote_job.start("all:hang")
    remote_job.ready()
    remote_job.kill_rank(1, "h2")
    code, out, err = remote_job.wait()
    assert code == 137 and "rank 1 on h2 ended with 137" in err, out + err
    assert remote_job.left("h1") == remote_job.left("h2") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_to_dstui_leaves_nothing_on_any_host(remote_job: RemoteJob, number: int, code: int) -> None:
    remote_job.start("all:hang")
    remote_job.ready()
    remote_job.interrupt(number)
    ended, out, err = remote_job.wait()
    assert ended == code, out + err
    assert remote_job.status["state"] == "stopped"
    assert remote_job.left("h1") == remote_job.left("h2") == []


@pytest.mark.deadline
def test_cut_link_loses_no_line_and_is_reported(remote_job: RemoteJob) -> None:
    again = remote_job.path / "again"
    remote_job.start("all:count 800 0.01", f"all:wait {again}", "all:count 200 0.01")
    remote_job.ready()
    remote_job.farm.cable("h2", plugged=False)
    wait_for(lambda: remote_job.status["hosts"]["h2"]["state"] == "unreachable", otherwise=remote_job.words)
    assert remote_job.status["state"] == "running" and remote_job.status["hosts"]["h1"]["state"] == "reached"
    assert "(h2 unreachable for " in remote_job.run("runs").stdout
    remote_job.farm.cable("h2", plugged=True)
    wait_for(lambda: remote_job.status["hosts"]["h2"]["state"] == "reached", otherwise=remote_job.words)
    again.touch()
    code, out, err = remote_job.wait()
    assert code == 0, out + err
    for rank in (0, 1):
        assert [line for line in remote_job.log(rank).splitlines() if line.isdigit()] == [*map(str, range(800)), *map(str, range(200))]
    assert "h2 is unreachable" in err and "h2 is reached again" in err
    assert remote_job.left("h1") == remote_job.left("h2") == []


@pytest.mark.deadline
def test_permanently_lost_host_ends_the_job(remote_job: RemoteJob) -> None:
    remote_job.start("all:hang", run="host_lost: 3")
    remote_job.ready()
    remote_job.farm.cable("h2", plugged=False)
    code, out, err = remote_job.wait()
    assert code == 137 and "h2 has been unreachable for" in err and "no rank elsewhere has written a line since" in err, out + err
    assert remote_job.status["state"] == "failed" and "given up after" in remote_job.status["hosts"]["h2"]["problem"]
    assert remote_job.left("h1") == [] and remote_job.status["hosts"]["h1"]["state"] == "ended"
    assert "not confirmed on h2 that nothing is left" in err
    found = remote_job.diagnosis()
    assert (found["cause"], found["first_failing_rank"], found["host"]) == ("HOST-LOST", 1, "h2")
    remote_job.farm.cable("h2", plugged=True)
    assert remote_job.run("stop", str(remote_job.folder.path)).returncode == 0 and remote_job.left("h2") == []


@pytest.mark.deadline
def test_stacks_of_remote_ranks_are_shown_and_recorded_when_silent(remote_job: RemoteJob) -> None:
    remote_job.start("all:hang", run="silence: 2")
    remote_job.ready()
    shown = remote_job.run("stacks", str(remote_job.folder.path))
    assert shown.returncode == 0 and "ranks 0-1: in <lambda> (behave.py:" in shown.stdout, shown.stdout + shown.stderr
    wait_for(lambda: remote_job.events("stacks"), otherwise=remote_job.words)
    assert "behave.py:" in "".join(remote_job.events("stacks")[0]["lines"])
    assert remote_job.status["state"] == "running"
    assert remote_job.run("stop", str(remote_job.folder.path)).returncode == 0


def test_killed_supervisor_is_replaced_without_loss(remote_job: RemoteJob) -> None:
    remote_job.start("all:count 400 0.01")
    remote_job.ready()
    first = remote_job.status["supervisor"]["ticks"]
    assert remote_job.kill_on("login", "dstui.jobs.supervisor", str(remote_job.folder.path)) == 1
    code, out, err = remote_job.wait()
    assert code == 0, out + err + remote_job.words()
    assert remote_job.status["supervisor"]["ticks"] != first
    for rank in (0, 1):
        assert [line for line in remote_job.log(rank).splitlines() if line.isdigit()] == [str(number) for number in range(400)]
    assert remote_job.left("h1") == remote_job.left("h2") == []


def test_host_with_a_missing_requirement_is_named_before_start(remote_job: RemoteJob) -> None:
    remote_job.farm.run("h1", "touch", "/tmp/only-here.py")
    remote_job.start(job="{script: /tmp/only-here.py, workdir: /tmp}")
    code, out, err = remote_job.wait()
    assert code == 1, out + err
    assert "h2: there is no file /tmp/only-here.py (job.script): nothing was started" in err
    assert "h1: " not in err
    assert remote_job.left("h1") == remote_job.left("h2") == []


def test_host_that_answers_after_the_job_was_given_up_keeps_nothing(remote_job: RemoteJob) -> None:
    with etc(
        remote_job.farm, "h1", "authorized_keys", forced(remote_job.farm, "eval $SSH_ORIGINAL_COMMAND | (sleep 1; cat); touch /tmp/over")
    ):
        remote_job.start(job="{script: /nowhere.py, workdir: /tmp}")
        code, out, err = remote_job.wait()
        assert code == 1 and "h2: there is no file /nowhere.py" in err, out + err
        wait_for(lambda: "over" in remote_job.farm.run("h1", "ls", "/tmp").stdout.split())
        assert remote_job.left("h1") == remote_job.left("h2") == []


@pytest.mark.deadline
def test_unreachable_host_is_reported_and_stopped_later(remote_job: RemoteJob) -> None:
    remote_job.start("all:hang", words=("--detach",))
    assert remote_job.wait()[0] == 0
    remote_job.ready()
    remote_job.farm.cable("h2", plugged=False)
    stopped = remote_job.run("stop", str(remote_job.folder.path))
    assert stopped.returncode == 2 and "not confirmed on h2" in stopped.stderr, stopped
    assert remote_job.left("h1") == [] and remote_job.left("h2") != []
    assert remote_job.status["state"] == "stopped" and remote_job.status["hosts"]["h2"]["state"] == "unreachable"
    assert "not confirmed that nothing is left on h2" in remote_job.run("runs").stdout
    remote_job.farm.cable("h2", plugged=True)
    again = remote_job.run("stop", str(remote_job.folder.path))
    assert again.returncode == 0, again
    assert remote_job.left("h2") == [] and remote_job.status["hosts"]["h2"]["state"] == "ended"
    assert {rank["state"] for rank in remote_job.status["ranks"].values()} == {"ended"}, "their last lines are mirrored"


@pytest.mark.deadline
def test_another_login_node_ends_the_job_of_a_lost_one(remote_job: RemoteJob) -> None:
    remote_job.start("all:hang", words=("--detach",))
    assert remote_job.wait()[0] == 0
    remote_job.ready()
    refused = remote_job.run("stop", str(remote_job.folder.path), "--take-over", host="h2")
    assert refused.returncode == 2 and "login supervises the job: stop it there" in refused.stderr, refused
    remote_job.silence()
    silent = "no sign of life from login for 2 min: dstui stop job --take-over asks the job's hosts"
    assert silent in remote_job.run("runs", host="h2").stdout
    assert silent in remote_job.run("stop", str(remote_job.folder.path), host="h2").stderr
    stopped = remote_job.run("stop", str(remote_job.folder.path), "--take-over", host="h2")
    assert stopped.returncode == 0 and "no process is left" in stopped.stdout, stopped
    assert remote_job.left("h1") == remote_job.left("h2") == []
    assert (remote_job.status["state"], {host["state"] for host in remote_job.status["hosts"].values()}) == ("stopped", {"ended"})
    assert {rank["exit_code"] for rank in remote_job.status["ranks"].values()} == {143}


@pytest.mark.launcher
def test_pdsh_starts_ranks_and_agents_mirror_and_stop(remote_job: RemoteJob) -> None:
    if not shutil.which("pdsh"):
        pytest.skip("pdsh is not installed")
    remote_job.start("1:exit 3", "0:hang", cluster="launcher: pdsh")
    code, out, err = remote_job.wait()
    assert code == 3 and "rank 1 on h2 ended with 3" in err, out + err
    assert remote_job.left("h1") == remote_job.left("h2") == remote_job.left("login") == []


@pytest.mark.deadline
@pytest.mark.parametrize("launcher", [pytest.param("ssh", marks=pytest.mark.twin), "pdsh"])
def test_failed_job_restarts_on_every_host(remote_job: RemoteJob, launcher: str) -> None:
    if launcher == "pdsh" and not shutil.which("pdsh"):
        pytest.skip("pdsh is not installed")
    failed, go = remote_job.path / "failed", remote_job.path / "go"
    restarts = "restarts: {max: 1, backoff: 0, args: ['all:say again']}"
    remote_job.start(f"1:once {failed} 3", f"all:wait {go}", cluster=f"launcher: {launcher}", run=restarts)
    wait_for(lambda: all(remote_job.folder.log(rank, 2).exists() for rank in (0, 1)), otherwise=remote_job.words)
    assert {read_record(remote_job.folder.record(rank, 1))["exit_code"] for rank in (0, 1)} == {143, 3}, "it was stopped on both"
    go.touch()
    code, out, err = remote_job.wait()
    assert code == 0 and "attempt 2 of 2 starts" in err, out + err + remote_job.words()
    assert [remote_job.folder.log(rank, 2).read_text() for rank in (0, 1)] == ["ready\nagain\n"] * 2
    assert remote_job.left("h1") == remote_job.left("h2") == remote_job.left("login") == []


@pytest.mark.parametrize("launcher", ["ssh", "pdsh"])
def test_hosts_with_a_shared_tmp_have_separate_folders(tmp_path: Path, launcher: str) -> None:
    if reason := farming.missing() or ("" if launcher == "ssh" or shutil.which("pdsh") else "pdsh is not installed"):
        pytest.skip(reason)
    with Farm(2, shared_tmp=True) as farm:
        remote_job = RemoteJob(farm, tmp_path)
        remote_job.start("all:say done", cluster=f"launcher: {launcher}")
        code, out, err = remote_job.wait()
        assert code == 0, out + err + remote_job.words()
        assert [remote_job.log(rank) for rank in (0, 1)] == ["ready\ndone\n"] * 2
        left = [
            farm.run(host, "find", "/tmp", "-maxdepth", "1", "-name", f"dstui-{remote_job.status['tag']}*").stdout for host in ("h1", "h2")
        ]
        assert left == ["", ""]


def test_temporary_folder_named_by_a_host_is_used(remote_job: RemoteJob) -> None:
    for host in ("h1", "h2"):
        remote_job.farm.run(host, "mkdir", "-p", f"/tmp/of-{host}")
    with contextlib.ExitStack() as given:
        for host in ("h1", "h2"):
            given.enter_context(
                etc(remote_job.farm, host, "authorized_keys", forced(remote_job.farm, f"TMPDIR=/tmp/of-{host} eval $SSH_ORIGINAL_COMMAND"))
            )
        remote_job.start("all:hang")
        remote_job.ready()
        assert {name: host["folder"] for name, host in remote_job.status["hosts"].items()} == {
            host: f"/tmp/of-{host}/dstui-{remote_job.status['tag']}-{host}" for host in ("h1", "h2")
        }
        remote_job.interrupt(signal.SIGTERM)
        assert remote_job.wait()[0] == 143
    assert [remote_job.farm.run(host, "find", "/tmp", "-name", f"dstui-{remote_job.status['tag']}*").stdout for host in ("h1", "h2")] == [
        "",
        "",
    ]


def test_gpu_use_of_each_host_is_mirrored(remote_job: RemoteJob, tmp_path_factory: pytest.TempPathFactory) -> None:
    library, profile = fakenvml.current(tmp_path_factory), remote_job.path / "profile"
    profile.write_text(fakenvml.profile("rtx3090-pair"))
    python = remote_job.path / "python"
    variables = f"DS_ACCELERATOR=cpu LD_LIBRARY_PATH={library} FAKENVML_PROFILE={profile}"
    python.write_text(f'#!/bin/sh\nexport {variables}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    remote_job.start(
        job=f"{{script: {BEHAVE}, args: ['all:hang'], workdir: {remote_job.path}, python: {python}}}", env={"DS_ACCELERATOR": "cuda"}
    )
    remote_job.ready()
    sampler = Sampler(remote_job.folder, 0.1)
    try:
        wait_for(lambda: len(sampler.latest) == 2, otherwise=remote_job.words)
        assert {rank: (usage.host, usage.device) for rank, usage in sampler.latest.items()} == {0: ("h1", 0), 1: ("h2", 0)}
        assert summarise_usage(sampler.latest.values()).startswith("2 GPUs ") and sampler.note == ""
    finally:
        sampler.close()
    remote_job.interrupt(signal.SIGTERM)
    assert remote_job.wait()[0] == 143
    assert remote_job.left("h1") == remote_job.left("h2") == []
    wait_for(lambda: not any(b"nvml.py" in command_of(pid) for host in ("h1", "h2") for pid in remote_job.farm.pids(host)))


def test_secrets_reach_the_ranks_and_are_stored_nowhere_else(remote_job: RemoteJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_a_secret")
    script = remote_job.path / "tell.py"
    script.write_text("import os, time\nprint('ready', len(os.environ['HF_TOKEN']), flush=True)\ntime.sleep(1000)\n")
    remote_job.start(job=f"{{script: {script}, workdir: {remote_job.path}}}")
    remote_job.ready()
    for host in ("login", "h1", "h2"):
        for pid in remote_job.farm.pids(host):
            assert b"hf_a_secret" not in read_bytes(Path(f"/proc/{pid}/cmdline"))
    modes = remote_job.farm.run("h1", "sh", "-c", "ls -ld /tmp/dstui-*; grep -rl hf_a_secret /tmp/dstui-* | xargs ls -l").stdout
    assert all(line[4:10] == "------" for line in modes.splitlines()), modes
    assert "11" in remote_job.log(0)
    remote_job.interrupt(signal.SIGTERM)
    remote_job.wait()
    assert [path for path in remote_job.path.rglob("*") if path.is_file() and b"hf_a_secret" in path.read_bytes()] == []


@pytest.mark.deadline
def test_folder_made_by_another_user_on_a_host_is_refused(remote_job: RemoteJob) -> None:
    remote_job.start("all:hang", words=("--detach",))
    remote_job.wait()
    remote_job.ready()
    (supervisor,) = [pid for pid in remote_job.farm.pids("login") if b"dstui.jobs.supervisor" in read_bytes(Path(f"/proc/{pid}/cmdline"))]
    remote_job.farm.run("h2", "sh", "-c", f"chmod 777 /tmp/dstui-{remote_job.status['tag']}-h2")
    os.kill(supervisor, signal.SIGKILL)
    stopped = remote_job.run("stop", str(remote_job.folder.path))
    assert stopped.returncode == 2 and "not this user's own folder" in stopped.stderr, stopped
    assert remote_job.left("h1") == []
    remote_job.farm.run("h2", "sh", "-c", f"chmod 700 /tmp/dstui-{remote_job.status['tag']}-h2")
    assert remote_job.run("stop", str(remote_job.folder.path)).returncode == 0
    assert remote_job.left("h2") == []


def test_torchrun_on_this_machine_needs_no_sshd(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        f"version: 1\njob: {{script: {BEHAVE}, args: ['1:exit 4']}}\ncluster: {{hosts: {{localhost: 2}}, launcher: torchrun}}\n"
        "deepspeed: {train_micro_batch_size_per_gpu: 1}\n"
    )
    words = [sys.executable, "-m", "dstui", "--headless", str(tmp_path / "plan.yaml"), "--run-dir", str(tmp_path / "job")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False, env={**os.environ, "DS_ACCELERATOR": "cpu"})
    assert ran.returncode == 4 and "rank 1 on localhost ended with 4" in ran.stderr, ran


def read_bytes(path: Path) -> bytes:
    """Return a file's content; nothing if it has just been deleted."""
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


AGENT_IS_FORWARDED = "ForwardAgent yes\nForwardX11 yes\nRemoteForward 127.0.0.1:7777 127.0.0.1:22\n"


def forwarded(agent: str) -> list[str]:
    """Return a command that prints what is forwarded to a host: sshd agent sockets newer than `agent`, listeners on port 7777."""
    sockets = f'find /tmp/ssh-* "$HOME/.ssh/agent" -type s -newer {shlex.quote(agent)} 2>/dev/null'
    return ["sh", "-c", f"{sockets}; grep -c ':1E61 .* 0A ' /proc/net/tcp; :"]


@pytest.fixture
def agent(remote_job: RemoteJob) -> Iterator[str]:
    """Start a real ssh-agent on login, which ssh forwards by the user's configuration; yield its socket."""
    socket = str(remote_job.path / "agent")
    process = subprocess.Popen(remote_job.farm.command("login", ["ssh-agent", "-D", "-a", socket]), stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: Path(socket).exists())
        with etc(remote_job.farm, "login", "ssh_config", SSH + AGENT_IS_FORWARDED):
            words, env = shlex.join(forwarded(socket)), {**os.environ, "SSH_AUTH_SOCK": socket}
            told = remote_job.farm.run("login", "ssh", "h1", words, env=env).stdout.split()
            assert len(told) == 2 and told[1] == "1", f"the ssh of this test forwards nothing: {told}"
            wait_for(lambda: remote_job.farm.run("h1", *forwarded(socket)).stdout == "0\n")
            yield socket
    finally:
        process.kill()
        process.wait()


@pytest.mark.launcher
@pytest.mark.parametrize("launcher", ["ssh", "pdsh"])
def test_users_agent_and_ports_are_not_forwarded(remote_job: RemoteJob, agent: str, launcher: str) -> None:
    if launcher == "pdsh" and not shutil.which("pdsh"):
        pytest.skip("pdsh is not installed (.ci/run installs it)")
    remote_job.environment["SSH_AUTH_SOCK"] = agent
    remote_job.start("all:hang", cluster=f"launcher: {launcher}")
    remote_job.ready()
    for host in ("h1", "h2"):
        assert remote_job.farm.run(host, *forwarded(agent)).stdout == "0\n"
        for pid in remote_job.pids(host):
            assert b"\0SSH_AUTH_SOCK=" not in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    remote_job.interrupt(signal.SIGTERM)
    remote_job.wait()


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi --allow-run-as-root -np 1 -H h1", "mpirun.mpich -np 1 -hosts h1"])
def test_mpiruns_ssh_does_not_forward_them_either(remote_job: RemoteJob, agent: str, mpirun: str) -> None:
    words = mpirun.split()
    if not shutil.which(words[0]):
        pytest.skip(f"there is no {words[0]} here (.ci/run installs it)")
    shown = []
    for options in ({}, {name: " ".join(options) for name, options in SSH_OPTIONS.items()}):
        env = {**os.environ, "SSH_AUTH_SOCK": agent, **options}
        told = remote_job.farm.run("login", *words, *forwarded(agent), env=env)
        assert told.returncode == 0, told.stderr
        shown.append(told.stdout.split())
    assert len(shown[0]) == 2 and shown[1] == ["0"]


@pytest.mark.deadline
def test_host_cannot_forge_messages_of_dstui_in_a_line(remote_job: RemoteJob) -> None:
    program = remote_job.path / "liar.py"
    facts = {"time": time.time(), "there": True, "folder": "/tmp/job", "lacks": ["no disk\rdstui: all is well"]}
    hello = json.dumps({"is": "hello", "size": 0, **facts})
    program.write_text(f"import os, time\nos.write(1, {READY!r} + {hello.encode()!r} + b'\\n')\ntime.sleep(2)\n")
    with etc(remote_job.farm, "h1", "authorized_keys", forced(remote_job.farm, f"exec {sys.executable} {program}")):
        remote_job.start("all:hang")
        code, _, err = remote_job.wait()
    assert code == 1 and "dstui: h1: dstui: all is well: nothing was started" in err, err
