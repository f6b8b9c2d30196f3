"""`dstui doctor --fleet` compares hosts. tests/long/test_fleet.py does so with sixteen real hosts and planted faults."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dstui.base.files import FileProblem
from dstui.commands.doctor import _lines
from dstui.doctor.case import Case
from dstui.doctor.fleet import Change, changes, compare, parse_fleet, read_baseline, save
from dstui.hosts.ssh import Failure
from dstui.machine.snapshot import Driver, Gpu, Host, NvLink
from tests import machines
from tests.command import dstui
from tests.machines import gpu

GIB = 1 << 30


def host(name: str, *gpus: Gpu, memory: int = 64 * GIB, driver: str = "580.95") -> Case:
    found = machines.machine(
        *(gpus or tuple(replace(gpu(index), nvlink=NvLink(count=18, active=18)) for index in range(2))),
        host=Host(memory_total=memory, memory_limit=None, shm_total=32 * GIB, shm_free=32 * GIB, nofile=65536, memlock=None),
        driver=Driver(state="ok", version=driver, cuda="13.0", modules=()),
    )
    return Case(host=name, machine=found, ready={"xids": {}}, here=False)


def test_odd_host_comes_first_wherever_it_is() -> None:
    weak = tuple(replace(gpu(index), nvlink=NvLink(count=18, active=17 if index else 18)) for index in range(2))
    gone = replace(host("h4"), ready={}, failure=Failure("ssh-refused", "h4 refuses the connection", "start sshd there"))
    fleet = compare([host("h1", driver="570.1"), host("h2"), host("h3", *weak, memory=32 * GIB), gone, host("h5"), host("h6")])
    reports = fleet.reports
    assert [(report.host, report.verdict) for report in reports[:3]] == [("h4", "fail"), ("h3", "warn"), ("h1", "warn")]
    assert reports[1].odd == {"NVLinks up": ("1 x 18 of 18, 1 x 17 of 18", "18 of 18"), "memory": (32 * GIB, 64 * GIB)}
    assert reports[2].odd == {"NVIDIA driver": ("570.1", "580.95")}
    text = "\n".join(_lines(fleet))
    assert "✖ h4  reach: h4 refuses the connection\n      → start sshd there\n" in text
    assert "memory 32 GB; most have 64 GB" in text and "alike: h2, h5, h6" in text
    assert text.endswith("6 hosts: 1 failed, 2 with differences, 3 alike")


def test_problem_of_every_host_makes_none_odd() -> None:
    few = [replace(case, machine=replace(case.machine, host=replace(case.machine.host, nofile=1024))) for case in (host("h1"), host("h2"))]
    fleet = compare(few)
    assert {report.verdict for report in fleet.reports} == {"ok"} and not fleet.is_ready
    assert [result.id for result in fleet.shared] == ["open-files"]
    assert "▲ all: open-files: 1024 open files per process" in "\n".join(_lines(fleet))


def test_firmware_differences_of_equal_hosts_are_ignored() -> None:
    assert {report.verdict for report in compare([host("h1"), host("h2", memory=64 * GIB - 300_000_000)]).reports} == {"ok"}


def test_baseline_shows_changes(tmp_path: Path) -> None:
    save(compare([host("h1"), host("h2"), host("h3")]).reports, tmp_path / "fleet.json", replace=False)
    before = read_baseline(tmp_path / "fleet.json")
    assert changes(compare([host("h1"), host("h2"), host("h3")]).reports, before) == []
    after = changes(compare([host("h1", driver="590.1"), host("h2", driver="590.1"), host("h4", driver="590.1")]).reports, before)
    assert after == [
        Change("h3", None, "in the fleet", None),
        Change("h1", "NVIDIA driver", "580.95", "590.1"),
        Change("h2", "NVIDIA driver", "580.95", "590.1"),
        Change("h4", None, None, "in the fleet"),
    ]


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2, "hosts": {}}', '{"version": 1, "hosts": {"h1": 3}}', "[" * 5000])
def test_invalid_baseline_gives_a_message(text: str, tmp_path: Path) -> None:
    (tmp_path / "fleet.json").write_text(text)
    with pytest.raises(FileProblem, match=r"fleet\.json"):
        read_baseline(tmp_path / "fleet.json")


def test_hosts_come_from_a_hostfile_or_a_list(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("h1 slots=8\nh2 slots=4\n")
    assert parse_fleet(str(tmp_path / "hostfile")) == {"h1": 8, "h2": 4}
    assert parse_fleet("node[08-10],gpu1") == dict.fromkeys(["node08", "node09", "node10", "gpu1"], 0)
    for wrong in ("node[1-", "-oProxyCommand=x", str(tmp_path / "none")):
        with pytest.raises(FileProblem):
            parse_fleet(wrong)


def test_mistyped_hostfile_is_said_to_be_taken_for_a_host(tmp_path: Path) -> None:
    done = dstui("doctor", "--fleet", "hostfile.invalid", cwd=tmp_path)
    assert done.returncode == 1 and "hostfile.invalid  reach: its name cannot be resolved" in done.stdout
    assert "there is no file hostfile.invalid here and no such partition: it is taken for the name of a host" in done.stderr


def test_single_machine_is_a_fleet_with_a_baseline(tmp_path: Path) -> None:
    first = dstui("doctor", "--fleet", "localhost", "--save", "fleet.json", cwd=tmp_path)
    assert first.returncode in (0, 1) and "saved to fleet.json" in first.stderr
    again = dstui("doctor", "--fleet", "localhost", "--against", "fleet.json", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["changed"] == [] and again.returncode == first.returncode
    assert dstui("doctor", "--fleet", "localhost", "--save", "fleet.json", cwd=tmp_path).returncode in (0, 1, 2)
    for words in (["--fleet", "localhost", "quickstart"], ["--against", "fleet.json"], ["--fleet", "localhost", "--against", "none.json"]):
        assert dstui("doctor", *words, cwd=tmp_path).returncode == 2
