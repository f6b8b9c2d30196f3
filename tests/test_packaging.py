"""The package: the light installation, the container image and the sdist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = (ROOT / "pyproject.toml").read_text()
CONTAINERFILE = (ROOT / "Containerfile").read_text()


def dependencies() -> list[str]:
    table = re.search(r"^dependencies = \[\n(.*?)^\]", CONFIG, re.MULTILINE | re.DOTALL)
    assert table
    return re.findall(r'^  "(.*)",', table[1], re.MULTILINE)


def test_light_installation_has_all_dependencies_but_torch_and_deepspeed() -> None:
    lines = (ROOT / "configs/light.txt").read_text().splitlines()
    heavy = [name for name in dependencies() if re.match(r"(torch|deepspeed)\b", name)]
    assert len(heavy) == 2
    assert [line for line in lines if not line.startswith("#")] == [name for name in dependencies() if name not in heavy]


def test_every_dependency_has_a_tested_version() -> None:
    pinned = {re.split(r"==", line)[0].lower() for line in (ROOT / "configs/constraints.txt").read_text().splitlines() if "==" in line}
    assert {re.split(r"[<>=]", name)[0].lower() for name in dependencies()} <= pinned


def test_container_copies_what_the_wheel_is_built_from() -> None:
    copied = [word for line in re.findall(r"^COPY (.*)", CONTAINERFILE, re.MULTILINE) for word in shlex.split(line)[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    assert {"pyproject.toml", "dstui", "configs", "README.md"} <= set(copied), "hatch reads the readme and the shipped Plans"
    ignored = (ROOT / ".containerignore").read_text().split()
    assert not set(ignored) & set(copied)


def test_sdist_has_no_pictures(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.sdist", reason="hatchling is not installed")
    files = [file.relative_path for file in builder.SdistBuilder(str(ROOT)).recurse_included_files()]
    assert "dstui/cli.py" in files and "configs/light.txt" in files
    assert [file for file in files if file.endswith((".png", ".cast")) or file.startswith("tests/long/corpus/")] == []
