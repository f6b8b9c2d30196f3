"""Versions of installed packages, read without importlib.metadata, which serves as the reference."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from dstui.machine import software

FOLDERS = {
    "a wheel": ("torch-2.13.0+cu126.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cu126\n\nVersion: 9\n"),
    "from an old setup.py": ("deepspeed-0.10.0-py3.9.egg/EGG-INFO/PKG-INFO", "Metadata-Version: 1.0\nName: deepspeed\nVersion: 0.10.0\n"),
    "from a distribution of Linux": ("mpi4py-3.1.4.egg-info/PKG-INFO", "Name: mpi4py\nVersion:  3.1.4\n"),
    "for its developers": ("transformers.egg-info/PKG-INFO", "Name: transformers\nversion: 5.0.dev0\n"),
    "with a hyphen": ("nvidia_ml_py-13.580.82.dist-info/METADATA", "Name: nvidia-ml-py\nVersion: 13.580.82\n"),
    "as older wheels write it": ("Nvidia_ML.py-12.0.dist-info/METADATA", "Name: nvidia-ml-py\nVersion: 12.0\n"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_version_equals_importlib_metadatas(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = FOLDERS[kind]
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    if ".egg/" in name:
        monkeypatch.syspath_prepend(file.parents[1])  # as its easy-install.pth does
    monkeypatch.syspath_prepend(tmp_path)
    distribution = text.partition("Name: ")[2].partition("\n")[0]
    assert software.versions(distribution) == {distribution: metadata.version(distribution)}


def test_all_installed_packages_have_the_version_of_importlib_metadata() -> None:
    names = {distribution.name.lower().replace("_", "-").replace(".", "-") for distribution in metadata.distributions()}
    assert len(names) > 20
    assert software.versions(*names) == {name: metadata.version(name) for name in names}


def test_first_of_two_equal_names_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("below", "1.0"), ("above", "2.0")):
        info = tmp_path / folder / f"deepspeed-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: deepspeed\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path / folder)
    assert software.versions("deepspeed") == {"deepspeed": "2.0"} == {"deepspeed": metadata.version("deepspeed")}


def test_unreadable_metadata_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch-1.0.dist-info").mkdir()
    (tmp_path / "deepspeed-1.0.dist-info").mkdir()
    (tmp_path / "deepspeed-1.0.dist-info" / "METADATA").write_bytes(b"\xff\xfe\x00 nothing\nVersion:\n")
    (tmp_path / "mpi4py-1.0.dist-info").write_text("a file")
    monkeypatch.setattr("sys.path", ["", "/nowhere", str(tmp_path / "mpi4py-1.0.dist-info"), str(tmp_path)])
    assert software.versions("torch", "deepspeed", "mpi4py", "accelerate") == dict.fromkeys(("torch", "deepspeed", "mpi4py", "accelerate"))
