"""`dstui machine` on the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import fakenvml
import pytest

from dstui.cli import main
from dstui.machine.recorded import mask_names
from tests import command


def dstui(*words: str) -> subprocess.CompletedProcess[str]:
    return command.dstui("machine", *words)


@pytest.fixture
def four_a100(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = tmp_path / "profile"
    profile.write_text(fakenvml.profile("a100-pcie-bridged-pairs"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("FAKENVML_PROFILE", str(profile))


def test_report_shows_gpus_links_islands_host_and_software(four_a100: None) -> None:
    ran = dstui()
    assert ran.returncode == 0 and ran.stderr == ""
    assert ran.stdout.startswith("4 x A100 80GB, 2 NVLink pairs\ndriver 570.172.08, CUDA up to 12.8\n")
    assert "GPU2  SYS   SYS   X     NV12\n" in ran.stdout
    assert "GPUs 0 and 1: pair, 12 links between two, 300 GB/s\n" in ran.stdout
    assert "RAM" in ran.stdout and "deepspeed" in ran.stdout
    assert "· the GPUs form 2 islands (0, 1; 2, 3)\n" in ran.stdout


def test_json_is_the_snapshot(four_a100: None) -> None:
    ran = dstui("--json")
    data = json.loads(ran.stdout)
    assert ran.returncode == 0 and data["version"] == 1
    assert data["islands"] == [[0, 1], [2, 3]]


def test_saved_snapshot_works_elsewhere(four_a100: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = tmp_path / "machine.json"
    assert dstui("--save", str(saved)).returncode == 0
    monkeypatch.delenv("FAKENVML_PROFILE")
    ran = dstui("--machine", str(saved))
    assert ran.stdout.startswith("4 x A100 80GB, 2 NVLink pairs\nfrom the snapshot machine.json\n")


def test_snapshot_does_not_overwrite_another_file_unasked(tmp_path: Path) -> None:
    taken = tmp_path / "notes.txt"
    taken.write_text("mine\n")
    ran = dstui("--save", str(taken))
    assert ran.returncode == 2 and "notes.txt" in ran.stderr and "Traceback" not in ran.stderr
    assert taken.read_text() == "mine\n"
    assert dstui("--save", str(taken), "--force").returncode == 0
    assert json.loads(taken.read_text())["version"] == 1


@pytest.mark.parametrize("name", ["notes.txt", "folder"])
def test_obstacle_is_reported_before_the_probe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr("dstui.commands.machine.probe", lambda *_, **__: pytest.fail("the machine was probed"))
    assert main(["machine", "--save", str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


def test_unreadable_machine_file_gives_a_message_and_status_2(tmp_path: Path) -> None:
    ran = dstui("--machine", str(tmp_path / "none.txt"))
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr.startswith("dstui: ") and "no such file" in ran.stderr


def test_machine_with_a_failing_driver_says_why(four_a100: None, tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("! nvmlInitWithFlags - - 18\n")
    ran = dstui()
    assert ran.returncode == 0
    assert ran.stdout.startswith("no GPU, ")
    assert "NVIDIA driver: the driver's library and kernel module have different versions: reboot, or reload the driver\n" in ran.stdout


def test_serial_numbers_are_only_included_on_request(four_a100: None) -> None:
    assert json.loads(dstui("--json").stdout)["gpus"][1]["serial"] == {"unknown": "left out by default"}
    assert json.loads(dstui("--json", "--full").stdout)["gpus"][1]["serial"] == "1650900000001"


def test_snapshot_names_no_user() -> None:
    data = {
        "environment": {"HF_HOME": "/home/jo/hf", "TMP": "/scratch/jo/tmp", "X": "/home/jones"},
        "disks": [{"mount": "/home/jo"}, {"free": 7}],
    }
    expected = {"environment": {"HF_HOME": "~/hf", "TMP": "/scratch/USER/tmp", "X": "/home/jones"}, "disks": [{"mount": "~"}, {"free": 7}]}
    assert mask_names(data, "jo", "/home/jo") == expected
    assert mask_names("/root/hf", "root", "/root") == "/root/hf"


def watched(*words: str, lines: int) -> list[str]:
    """Return the first lines of `dstui machine --watch`, then close the pipe."""
    argv = [sys.executable, "-m", "dstui", "machine", "--watch", "0.2", *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        read = [process.stdout.readline() for _ in range(lines)]
        process.stdout.close()
        assert process.wait() in (141, -signal.SIGPIPE)
    return read


def test_load_is_printed_line_by_line_until_the_pipe_closes(four_a100: None) -> None:
    last = json.loads(watched("--json", lines=8)[-1])
    assert [load["name"] for load in last["loads"]] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3", "CPU and RAM"]
    assert last["loads"][0]["capacity"] == 80 * 1024**3
    assert last["gpus_unknown"] is None


def test_load_without_gpus_is_cpu_and_ram_with_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    last = watched(lines=12)[-1]
    assert "CPU and RAM" in last
    assert " GB of " in last or " MB of " in last
    assert "GPUs n/a: NVML is not there" in last or "GPU 0" in last  # GPUs of this machine are listed if there are any
