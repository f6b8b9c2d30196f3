"""Jobs on several hosts, over the real sshd: how they start, end, break and are stopped."""

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
from far import BEHAVE, Far
from farm import SSH, Farm, command_of, etc, forced

from dstui.hosts.agent import READY
from dstui.hosts.ssh import SSH_OPTIONS
from dstui.jobs.engine.lines import EngineStep, read_all
from dstui.jobs.store.ranks import read_record
from dstui.jobs.watch.usage import Sampler, summarise_usage
from tests.waiting import wait_for


@pytest.fixture
def far(farm: Farm, tmp_path: Path) -> Iterator[Far]:
    """A job to be started; whatever is left of it afterwards is killed."""
    job = Far(farm, tmp_path)
    yield job
    for host in ("h1", "h2", "login"):
        farm.cable(host, plugged=True)
    if job.dstui and job.dstui.poll() is None:
        job.interrupt(signal.SIGTERM)
        job.wait()


@pytest.mark.launcher
def test_deepspeed_trains_on_two_hosts(far: Far) -> None:
    far.start(job="{module: dstui.examples.train_tiny, args: [--steps, '3', --deepspeed_config, '{ds_config}']}")
    code, out, err = far.wait()
    assert code == 0, out + err + far.words()
    assert "[0 h1] step 3/3 loss" in out and "[1 h2] step 3/3 loss" in out
    steps = [[report.step for report in read_all(far.folder.engine(rank)) if isinstance(report, EngineStep)] for rank in (0, 1)]
    assert steps == [[1, 2, 3]] * 2, "what the hooks report comes home too"
    assert {name: host["state"] for name, host in far.status["hosts"].items()} == {"h1": "ended", "h2": "ended"}
    assert {number: (rank["host"], rank["exit_code"]) for number, rank in far.status["ranks"].items()} == {"0": ("h1", 0), "1": ("h2", 0)}
    assert far.left("h1") == far.left("h2") == []


@pytest.mark.deadline
def test_a_rank_that_fails_is_named_with_its_host_and_ends_the_job(far: Far) -> None:
    far.start("1:exit 3", "0:hang")
    code, out, err = far.wait()
    assert code == 3, out + err
    assert "rank 1 on h2 ended with 3" in err and "[rank 1 on h2]" in out
    assert far.left("h1") == far.left("h2") == []
    assert far.ended()["hosts"]["h2"]["exit_code"] == 3
    assert "[1 h2] ready\n" in far.run("logs", str(far.folder.path)).stdout
    assert "2 ranks  on 2 hosts" in far.run("runs").stdout
    assert "rank 1 on h2" in far.run("diagnose", str(far.folder.path)).stdout


@pytest.mark.deadline
def test_a_rank_that_is_killed_is_known_as_such(far: Far) -> None:
    far.start("all:hang")
    far.ready()
    far.kill_rank(1, "h2")
    code, out, err = far.wait()
    assert code == 137 and "rank 1 on h2 ended with 137" in err, out + err
    assert far.left("h1") == far.left("h2") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_dstui_leaves_nothing_on_any_host(far: Far, number: int, code: int) -> None:
    far.start("all:hang")
    far.ready()
    far.interrupt(number)
    ended, out, err = far.wait()
    assert ended == code, out + err
    assert far.status["state"] == "stopped"
    assert far.left("h1") == far.left("h2") == []


@pytest.mark.deadline
def test_a_cut_link_costs_no_line_and_is_told(far: Far) -> None:
    far.start("all:count 3000 0.01")
    far.ready()
    far.farm.cable("h2", plugged=False)
    wait_for(lambda: far.status["hosts"]["h2"]["state"] == "unreachable", otherwise=far.words)
    assert far.status["state"] == "running" and far.status["hosts"]["h1"]["state"] == "reached"
    assert "(h2 unreachable for " in far.run("runs").stdout
    far.farm.cable("h2", plugged=True)
    wait_for(lambda: far.status["hosts"]["h2"]["state"] == "reached", otherwise=far.words)
    code, out, err = far.wait()
    assert code == 0, out + err
    for rank in (0, 1):
        assert [line for line in far.log(rank).splitlines() if line.isdigit()] == [str(number) for number in range(3000)]
    assert "h2 is unreachable" in err and "h2 is reached again" in err
    assert far.left("h1") == far.left("h2") == []


@pytest.mark.deadline
def test_a_host_that_is_gone_for_good_ends_the_job(far: Far) -> None:
    far.start("all:hang", run="host_lost: 3")
    far.ready()
    far.farm.cable("h2", plugged=False)
    code, out, err = far.wait()
    assert code == 137 and "h2 has been unreachable for" in err and "no rank elsewhere has written a line since" in err, out + err
    assert far.status["state"] == "failed" and "given up after" in far.status["hosts"]["h2"]["problem"]
    assert far.left("h1") == [] and far.status["hosts"]["h1"]["state"] == "ended"
    assert "not confirmed on h2 that nothing is left" in err
    found = far.diagnosis()
    assert (found["cause"], found["first_failing_rank"], found["host"]) == ("HOST-LOST", 1, "h2")
    far.farm.cable("h2", plugged=True)
    assert far.run("stop", str(far.folder.path)).returncode == 0 and far.left("h2") == []


@pytest.mark.deadline
def test_where_ranks_of_other_hosts_are_is_shown_and_noted_when_they_fall_silent(far: Far) -> None:
    far.start("all:hang", run="silence: 2")
    far.ready()
    shown = far.run("stacks", str(far.folder.path))
    assert shown.returncode == 0 and "ranks 0-1: in <lambda> (behave.py:" in shown.stdout, shown.stdout + shown.stderr
    wait_for(lambda: far.events("stacks"), otherwise=far.words)
    assert "behave.py:" in "".join(far.events("stacks")[0]["lines"])
    assert far.status["state"] == "running"
    assert far.run("stop", str(far.folder.path)).returncode == 0


def test_a_supervisor_that_is_killed_is_replaced_and_nothing_is_lost(far: Far) -> None:
    far.start("all:count 800 0.01")
    far.ready()
    first = far.status["supervisor"]["ticks"]
    assert far.kill_on("login", "dstui.jobs.supervisor", str(far.folder.path)) == 1
    code, out, err = far.wait()
    assert code == 0, out + err + far.words()
    assert far.status["supervisor"]["ticks"] != first
    for rank in (0, 1):
        assert [line for line in far.log(rank).splitlines() if line.isdigit()] == [str(number) for number in range(800)]
    assert far.left("h1") == far.left("h2") == []


def test_a_host_that_lacks_something_is_named_before_anything_starts(far: Far) -> None:
    far.farm.run("h1", "touch", "/tmp/only-here.py")
    far.start(job="{script: /tmp/only-here.py, workdir: /tmp}")
    code, out, err = far.wait()
    assert code == 1, out + err
    assert "h2: there is no file /tmp/only-here.py (job.script): nothing was started" in err
    assert "h1: " not in err
    assert far.left("h1") == far.left("h2") == []


def test_a_host_that_answers_only_when_the_job_is_given_up_keeps_nothing_of_it(far: Far) -> None:
    with etc(far.farm, "h1", "authorized_keys", forced(far.farm, "eval $SSH_ORIGINAL_COMMAND | (sleep 1; cat); touch /tmp/over")):
        far.start(job="{script: /nowhere.py, workdir: /tmp}")
        code, out, err = far.wait()
        assert code == 1 and "h2: there is no file /nowhere.py" in err, out + err
        wait_for(lambda: "over" in far.farm.run("h1", "ls", "/tmp").stdout.split())
        assert far.left("h1") == far.left("h2") == []


@pytest.mark.deadline
def test_a_host_that_cannot_be_reached_is_told_and_stopped_later(far: Far) -> None:
    far.start("all:hang", words=("--detach",))
    assert far.wait()[0] == 0
    far.ready()
    far.farm.cable("h2", plugged=False)
    stopped = far.run("stop", str(far.folder.path))
    assert stopped.returncode == 2 and "not confirmed on h2" in stopped.stderr, stopped
    assert far.left("h1") == [] and far.left("h2") != []
    assert far.status["state"] == "stopped" and far.status["hosts"]["h2"]["state"] == "unreachable"
    assert "not confirmed that nothing is left on h2" in far.run("runs").stdout
    far.farm.cable("h2", plugged=True)
    again = far.run("stop", str(far.folder.path))
    assert again.returncode == 0, again
    assert far.left("h2") == [] and far.status["hosts"]["h2"]["state"] == "ended"
    assert {rank["state"] for rank in far.status["ranks"].values()} == {"ended"}, "what they wrote at last has come home"


@pytest.mark.deadline
def test_where_the_login_node_is_gone_another_one_ends_the_job(far: Far) -> None:
    far.start("all:hang", words=("--detach",))
    assert far.wait()[0] == 0
    far.ready()
    refused = far.run("stop", str(far.folder.path), "--take-over", host="h2")
    assert refused.returncode == 2 and "login supervises the job: stop it there" in refused.stderr, refused
    far.silence()
    silent = "no sign of life from login for 2 min: dstui stop job --take-over asks the job's hosts"
    assert silent in far.run("runs", host="h2").stdout
    assert silent in far.run("stop", str(far.folder.path), host="h2").stderr
    stopped = far.run("stop", str(far.folder.path), "--take-over", host="h2")
    assert stopped.returncode == 0 and "no process is left" in stopped.stdout, stopped
    assert far.left("h1") == far.left("h2") == []
    assert (far.status["state"], {host["state"] for host in far.status["hosts"].values()}) == ("stopped", {"ended"})
    assert {rank["exit_code"] for rank in far.status["ranks"].values()} == {143}


@pytest.mark.launcher
def test_pdsh_starts_the_ranks_and_the_agents_bring_home_and_stop(far: Far) -> None:
    if not shutil.which("pdsh"):
        pytest.skip("there is no pdsh here")
    far.start("1:exit 3", "0:hang", cluster="launcher: pdsh")
    code, out, err = far.wait()
    assert code == 3 and "rank 1 on h2 ended with 3" in err, out + err
    assert far.left("h1") == far.left("h2") == far.left("login") == []


@pytest.mark.deadline
@pytest.mark.parametrize("launcher", [pytest.param("ssh", marks=pytest.mark.twin), "pdsh"])
def test_a_job_that_failed_starts_anew_on_every_host(far: Far, launcher: str) -> None:
    if launcher == "pdsh" and not shutil.which("pdsh"):
        pytest.skip("there is no pdsh here")
    failed, go = far.path / "failed", far.path / "go"
    restarts = "restarts: {max: 1, backoff: 0, args: ['all:say again']}"
    far.start(f"1:once {failed} 3", f"all:wait {go}", cluster=f"launcher: {launcher}", run=restarts)
    wait_for(lambda: all(far.folder.log(rank, 2).exists() for rank in (0, 1)), otherwise=far.words)
    assert {read_record(far.folder.record(rank, 1))["exit_code"] for rank in (0, 1)} == {143, 3}, "it was stopped on both"
    go.touch()
    code, out, err = far.wait()
    assert code == 0 and "attempt 2 of 2 starts" in err, out + err + far.words()
    assert [far.folder.log(rank, 2).read_text() for rank in (0, 1)] == ["ready\nagain\n"] * 2
    assert far.left("h1") == far.left("h2") == far.left("login") == []


@pytest.mark.parametrize("launcher", ["ssh", "pdsh"])
def test_hosts_that_share_one_tmp_have_a_folder_each(tmp_path: Path, launcher: str) -> None:
    if reason := farming.missing() or ("" if launcher == "ssh" or shutil.which("pdsh") else "there is no pdsh here"):
        pytest.skip(reason)
    with Farm(2, shared_tmp=True) as farm:
        far = Far(farm, tmp_path)
        far.start("all:say done", cluster=f"launcher: {launcher}")
        code, out, err = far.wait()
        assert code == 0, out + err + far.words()
        assert [far.log(rank) for rank in (0, 1)] == ["ready\ndone\n"] * 2
        left = [farm.run(host, "find", "/tmp", "-maxdepth", "1", "-name", f"dstui-{far.status['tag']}*").stdout for host in ("h1", "h2")]
        assert left == ["", ""]


def test_the_temporary_folder_that_a_host_names_is_taken(far: Far) -> None:
    for host in ("h1", "h2"):
        far.farm.run(host, "mkdir", "-p", f"/tmp/of-{host}")
    with contextlib.ExitStack() as given:
        for host in ("h1", "h2"):
            given.enter_context(
                etc(far.farm, host, "authorized_keys", forced(far.farm, f"TMPDIR=/tmp/of-{host} eval $SSH_ORIGINAL_COMMAND"))
            )
        far.start("all:hang")
        far.ready()
        assert {name: host["folder"] for name, host in far.status["hosts"].items()} == {
            host: f"/tmp/of-{host}/dstui-{far.status['tag']}-{host}" for host in ("h1", "h2")
        }
        far.interrupt(signal.SIGTERM)
        assert far.wait()[0] == 143
    assert [far.farm.run(host, "find", "/tmp", "-name", f"dstui-{far.status['tag']}*").stdout for host in ("h1", "h2")] == ["", ""]


def test_what_the_gpus_of_each_host_do_comes_home(far: Far, tmp_path_factory: pytest.TempPathFactory) -> None:
    library, profile = fakenvml.current(tmp_path_factory), far.path / "profile"
    profile.write_text(fakenvml.profile("rtx3090-pair"))
    python = far.path / "python"
    variables = f"DS_ACCELERATOR=cpu LD_LIBRARY_PATH={library} FAKENVML_PROFILE={profile}"
    python.write_text(f'#!/bin/sh\nexport {variables}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    far.start(job=f"{{script: {BEHAVE}, args: ['all:hang'], workdir: {far.path}, python: {python}}}", env={"DS_ACCELERATOR": "cuda"})
    far.ready()
    sampler = Sampler(far.folder, 0.1)
    try:
        wait_for(lambda: len(sampler.latest) == 2, otherwise=far.words)
        assert {rank: (usage.host, usage.device) for rank, usage in sampler.latest.items()} == {0: ("h1", 0), 1: ("h2", 0)}
        assert summarise_usage(sampler.latest.values()).startswith("2 GPUs ") and sampler.note == ""
    finally:
        sampler.close()
    far.interrupt(signal.SIGTERM)
    assert far.wait()[0] == 143
    assert far.left("h1") == far.left("h2") == []
    wait_for(lambda: not any(b"nvml.py" in command_of(pid) for host in ("h1", "h2") for pid in far.farm.pids(host)))


def test_secrets_reach_the_ranks_and_stand_nowhere_else(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_a_secret")
    script = far.path / "tell.py"
    script.write_text("import os, time\nprint('ready', len(os.environ['HF_TOKEN']), flush=True)\ntime.sleep(1000)\n")
    far.start(job=f"{{script: {script}, workdir: {far.path}}}")
    far.ready()
    for host in ("login", "h1", "h2"):
        for pid in far.farm.pids(host):
            assert b"hf_a_secret" not in read_bytes(Path(f"/proc/{pid}/cmdline"))
    modes = far.farm.run("h1", "sh", "-c", "ls -ld /tmp/dstui-*; grep -rl hf_a_secret /tmp/dstui-* | xargs ls -l").stdout
    assert all(line[4:10] == "------" for line in modes.splitlines()), modes
    assert "11" in far.log(0)
    far.interrupt(signal.SIGTERM)
    far.wait()
    assert [path for path in far.path.rglob("*") if path.is_file() and b"hf_a_secret" in path.read_bytes()] == []


@pytest.mark.deadline
def test_a_folder_that_another_user_has_made_on_a_host_is_refused(far: Far) -> None:
    far.start("all:hang", words=("--detach",))
    far.wait()
    far.ready()
    (supervisor,) = [pid for pid in far.farm.pids("login") if b"dstui.jobs.supervisor" in read_bytes(Path(f"/proc/{pid}/cmdline"))]
    far.farm.run("h2", "sh", "-c", f"chmod 777 /tmp/dstui-{far.status['tag']}-h2")
    os.kill(supervisor, signal.SIGKILL)
    stopped = far.run("stop", str(far.folder.path))
    assert stopped.returncode == 2 and "not this user's own folder" in stopped.stderr, stopped
    assert far.left("h1") == []
    far.farm.run("h2", "sh", "-c", f"chmod 700 /tmp/dstui-{far.status['tag']}-h2")
    assert far.run("stop", str(far.folder.path)).returncode == 0
    assert far.left("h2") == []


def test_torchrun_on_this_machine_needs_no_sshd(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        f"version: 1\njob: {{script: {BEHAVE}, args: ['1:exit 4']}}\ncluster: {{hosts: {{localhost: 2}}, launcher: torchrun}}\n"
        "deepspeed: {train_micro_batch_size_per_gpu: 1}\n"
    )
    words = [sys.executable, "-m", "dstui", "--headless", str(tmp_path / "plan.yaml"), "--run-dir", str(tmp_path / "job")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False, env={**os.environ, "DS_ACCELERATOR": "cpu"})
    assert ran.returncode == 4 and "rank 1 on localhost ended with 4" in ran.stderr, ran


def read_bytes(path: Path) -> bytes:
    """What a file holds; nothing where it has just gone."""
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


AGENT_IS_FORWARDED = "ForwardAgent yes\nForwardX11 yes\nRemoteForward 127.0.0.1:7777 127.0.0.1:22\n"


def forwarded(agent: str) -> list[str]:
    """A command that tells what is forwarded to a host: sshd's sockets of agents that are newer than this one, who listens on port 7777."""
    sockets = f'find /tmp/ssh-* "$HOME/.ssh/agent" -type s -newer {shlex.quote(agent)} 2>/dev/null'
    return ["sh", "-c", f"{sockets}; grep -c ':1E61 .* 0A ' /proc/net/tcp; :"]


@pytest.fixture
def agent(far: Far) -> Iterator[str]:
    """The socket of a real ssh-agent on login, which a login from there forwards by itself."""
    socket = str(far.path / "agent")
    process = subprocess.Popen(far.farm.command("login", ["ssh-agent", "-D", "-a", socket]), stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: Path(socket).exists())
        with etc(far.farm, "login", "ssh_config", SSH + AGENT_IS_FORWARDED):
            words, env = shlex.join(forwarded(socket)), {**os.environ, "SSH_AUTH_SOCK": socket}
            told = far.farm.run("login", "ssh", "h1", words, env=env).stdout.split()
            assert len(told) == 2 and told[1] == "1", f"the hosts of this test forward nothing: {told}"
            wait_for(lambda: far.farm.run("h1", *forwarded(socket)).stdout == "0\n")
            yield socket
    finally:
        process.kill()
        process.wait()


@pytest.mark.launcher
@pytest.mark.parametrize("launcher", ["ssh", "pdsh"])
def test_the_users_agent_and_ports_are_forwarded_to_no_host(far: Far, agent: str, launcher: str) -> None:
    if launcher == "pdsh" and not shutil.which("pdsh"):
        pytest.skip("there is no pdsh here (.ci/run installs it)")
    far.environment["SSH_AUTH_SOCK"] = agent
    far.start("all:hang", cluster=f"launcher: {launcher}")
    far.ready()
    for host in ("h1", "h2"):
        assert far.farm.run(host, *forwarded(agent)).stdout == "0\n"
        for pid in far.pids(host):
            assert b"\0SSH_AUTH_SOCK=" not in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    far.interrupt(signal.SIGTERM)
    far.wait()


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi --allow-run-as-root -np 1 -H h1", "mpirun.mpich -np 1 -hosts h1"])
def test_nor_by_the_ssh_of_mpirun(far: Far, agent: str, mpirun: str) -> None:
    words = mpirun.split()
    if not shutil.which(words[0]):
        pytest.skip(f"there is no {words[0]} here (.ci/run installs it)")
    shown = []
    for options in ({}, {name: " ".join(options) for name, options in SSH_OPTIONS.items()}):
        env = {**os.environ, "SSH_AUTH_SOCK": agent, **options}
        told = far.farm.run("login", *words, *forwarded(agent), env=env)
        assert told.returncode == 0, told.stderr
        shown.append(told.stdout.split())
    assert len(shown[0]) == 2 and shown[1] == ["0"]


@pytest.mark.deadline
def test_a_host_cannot_take_dstuis_own_words_from_a_line(far: Far) -> None:
    program = far.path / "liar.py"
    facts = {"time": time.time(), "there": True, "folder": "/tmp/job", "lacks": ["no disk\rdstui: all is well"]}
    hello = json.dumps({"is": "hello", "size": 0, **facts})
    program.write_text(f"import os, time\nos.write(1, {READY!r} + {hello.encode()!r} + b'\\n')\ntime.sleep(100)\n")
    with etc(far.farm, "h1", "authorized_keys", forced(far.farm, f"exec {sys.executable} {program}")):
        far.start("all:hang")
        code, _, err = far.wait()
    assert code == 1 and "dstui: h1: dstui: all is well: nothing was started" in err, err
