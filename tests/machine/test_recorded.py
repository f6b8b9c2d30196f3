"""Snapshots in files are read back, even if another version or a person has changed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakenvml import Look

from dstui.base.files import FileProblem
from dstui.machine.codec import encode
from dstui.machine.recorded import read_machine
from dstui.machine.report import summarise
from dstui.machine.snapshot import Machine, Unknown


def saved(tmp_path: Path, data: Any) -> Path:
    file = tmp_path / "machine.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return file


def test_saved_machine_is_read_back_complete(probe_system: Look, tmp_path: Path) -> None:
    machine = probe_system("dgx-h100")
    again = read_machine(saved(tmp_path, machine.to_json()))
    assert again.source == "the snapshot machine.json"
    assert again.recorded and not machine.recorded
    assert {**encode(again), "source": "", "recorded": None} == {**encode(machine), "source": "", "recorded": None}


def test_documented_keys_have_the_documented_types(probe_system: Look) -> None:
    data = probe_system("a100-pcie-bridged-pairs").to_json()
    assert data["version"] == 1
    assert data["links"][0] == ["X", "NV12", "SYS", "SYS"]
    assert data["islands"] == [[0, 1], [2, 3]]
    assert [gpu["index"] for gpu in data["gpus"]] == [0, 1, 2, 3]
    assert isinstance(data["host"], dict) and isinstance(data["software"], dict)
    assert data["island_details"][0]["kind"] == "pair" and data["island_details"][0]["width"] == [12, 12]


def test_snapshot_of_a_newer_version_is_read_as_far_as_possible(probe_system: Look, tmp_path: Path) -> None:
    data = probe_system("rtx3090-pair").to_json()
    data["version"] = 7
    data["quantum_links"] = [1, 2]
    data["gpus"][0]["tachyons"] = {"deep": 1}
    data["gpus"][0]["temperature"] = {"core": 40, "edge": 35}
    del data["gpus"][0]["power"]
    data["island_details"][0]["kind"] = "torus"
    machine = read_machine(saved(tmp_path, data))
    assert machine.gpus[0].name == "NVIDIA GeForce RTX 3090"
    assert machine.gpus[0].temperature == Unknown("the snapshot has something else here")
    assert machine.gpus[0].power == Unknown("not in this snapshot")
    assert machine.islands[0].gpus == (0, 1)


def test_snapshot_with_links_alone_gets_its_islands(tmp_path: Path) -> None:
    data = {"gpus": [{"index": 0}, {"index": 1}, {"index": 2}], "links": [["X", "NV4", "SYS"], ["NV4", "X", "SYS"], ["SYS", "SYS", "X"]]}
    assert [island.gpus for island in read_machine(saved(tmp_path, data)).islands] == [(0, 1), (2,)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('{"gpus": [', "neither a snapshot nor a matrix: Expecting value: line 1"),
        ({"train_batch_size": 8}, "not a snapshot of a machine: it has no list `gpus`"),
        ({"gpus": [{"name": "H100"}]}, "gpus[0] has no `index`"),
        ({"gpus": [], "host": {"infiniband": [{"device": "mlx5_0", "port": 1}, {"device": "mlx5_1"}]}}, "host.infiniband[1] has no `port`"),
        ({"gpus": [{"index": 0}, {"index": 1}], "links": [["X", "NV4"]]}, "links is not a matrix of 2 x 2"),
        ({"gpus": [{"index": 0}], "links": [["X"]], "p2p": {"read": [["X", "OK"]]}}, "read is not a matrix of 1 x 1"),
    ],
)
def test_file_that_is_no_snapshot_gives_a_message(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(FileProblem) as problem:
        read_machine(saved(tmp_path, data))
    assert words in str(problem.value) and "machine.json" in str(problem.value)


def test_missing_file_gives_a_message(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="no such file"):
        read_machine(tmp_path / "nowhere.json")


def test_unprobed_machine_says_so_and_survives_a_round_trip() -> None:
    machine = Machine.unprobed()
    assert summarise(machine) == "machine not checked yet"
    assert machine.accelerator == "cpu"
    assert Machine.from_json(machine.to_json()) == machine
    assert not machine.host.memory and str(machine.host.memory) == "unknown"


def test_entry_of_another_type_is_skipped_and_others_stay(tmp_path: Path) -> None:
    data = {"gpus": [{"index": 0}], "links": [["X"]], "p2p": {"read": [["OK"]], "write": 5, "nvlink": [[1]], "pci": {}}}
    assert read_machine(saved(tmp_path, data)).p2p == {"read": (("OK",),)}
