"""The real machine of the test run, and probe programs that misbehave."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dstui.machine import software
from dstui.machine.child import run_command
from dstui.machine.codec import known
from dstui.machine.probe import probe
from dstui.machine.snapshot import Machine, Unknown


@pytest.fixture(scope="module")
def here() -> Machine:
    return probe()


def test_host_agrees_with_the_system(here: Machine) -> None:
    host = here.host
    assert host.cpus_usable == len(os.sched_getaffinity(0))
    assert host.memory_total == int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert host.kernel == os.uname().release
    assert isinstance(host.shm_total, int) and host.shm_total > 0
    assert not isinstance(host.disks, Unknown) and "/" in [disk.mount for disk in host.disks]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_port_in_use_is_found(family: socket.AddressFamily) -> None:
    with socket.create_server(("", 0), family=family) as server:
        port = server.getsockname()[1]
        ports = probe().host.ports
        assert not isinstance(ports, Unknown) and port in ports
    assert port not in known(probe().host.ports, ())


@pytest.mark.xdist_group("torch")
def test_software_agrees_with_the_packages(here: Machine) -> None:
    import torch

    found = here.software
    assert found.torch == torch.__version__ and found.torch_cuda == torch.version.cuda
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.deepspeed and found.pynvml
    assert found.gxx == shutil.which("g++") and found.ssh == shutil.which("ssh")


def test_full_probe_omits_no_fact(here: Machine) -> None:
    unlooked = [
        name for name, value in {**here.to_json()["host"], **here.to_json()["software"]}.items() if value == {"unknown": "not probed"}
    ]
    assert unlooked == []


def test_another_interpreter_reports_its_packages(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    found = probe(python=str(tmp_path / "bare/bin/python")).software
    assert found.torch is None and found.deepspeed is None
    assert found.python == ".".join(map(str, sys.version_info[:3]))


def test_missing_interpreter_is_a_reason() -> None:
    found = probe(python="/nowhere/python").software
    assert found.torch == Unknown("/nowhere/python: No such file or directory")


def test_path_in_the_home_folder_names_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jo")
    assert software.tilde("/home/jo/venv/bin/python") == "~/venv/bin/python"
    assert software.tilde("/home/joan/venv/bin/python") == "/home/joan/venv/bin/python"


def test_cuda_of_torch_is_found_without_importing_it(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "version.py").write_text(
        "__version__ = '2.9.1+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    )
    command = [sys.executable, software.__file__]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    _, facts = json.loads(ran.stdout.splitlines()[0])
    assert (facts["torch"], facts["torch_cuda"], facts["torch_hip"]) == ("2.9.1+cu130", "13.0", None)


def run(code: str, deadline: float = 10.0, stdin: bytes = b"") -> list[tuple[str, object]]:
    return run_command([sys.executable, "-c", code], deadline, stdin=stdin)


def test_failing_program_gives_its_last_line() -> None:
    assert run("print('[\"host\", {}]'); raise SystemExit('no such luck')") == [("host", {}), ("failed", "no such luck")]


def test_silent_program_has_failed() -> None:
    assert run("") == [("failed", "it ended without an answer")]


def test_output_of_a_login_shell_is_no_fact() -> None:
    assert run("print('Welcome!'); print('[ OK ] all fine'); print('[\"done\", null]')") == [("done", None)]


@pytest.mark.deadline
def test_output_of_a_late_program_is_kept_and_it_is_killed() -> None:
    began = time.monotonic()
    lines = run("import os, time; print('[\"pid\", %d]' % os.getpid(), flush=True); time.sleep(600)", deadline=2)
    assert time.monotonic() - began < 60
    assert lines[1] == ("late", "no answer within 2 s")
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(lines[0][1])), 0)


def test_long_standard_input_reaches_a_slow_reader() -> None:
    code = "import sys, json; text = sys.stdin.buffer.read(); print(json.dumps(['host', len(text)])); print('[\"done\", null]')"
    assert run(code, stdin=b"x" * 3_000_000)[0] == ("host", 3_000_000)


def test_program_that_does_not_read_its_input_is_no_problem() -> None:
    assert run("print('[\"done\", null]')", stdin=b"x" * 3_000_000) == [("done", None)]


@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH", "CFLAGS"])
def test_libaio_headers_are_found_in_the_compilers_search_path(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: exists(path) and path.is_relative_to(tmp_path))
    for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CFLAGS", "CXXFLAGS", "CPPFLAGS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "libaio.h").touch()
    assert not software.headers_of_libaio()
    monkeypatch.setenv(variable, f"-O2 -I{tmp_path}" if variable == "CFLAGS" else f"/nowhere:{tmp_path}")
    assert software.headers_of_libaio()
