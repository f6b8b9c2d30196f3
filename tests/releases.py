"""What tests make once and keep in DSTUI_RELEASES (a folder, made if it is not there): older releases of DeepSpeed, accelerate, checkpoints."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version as version_of
from pathlib import Path

import pytest

from dstui.plan.catalogue import NEWEST

MADE_BY = f"python{platform.python_version()}-torch{version_of('torch')}-deepspeed{version_of('deepspeed')}"
"""What made it is part of its name: a checkpoint that another Python wrote may hide that this one's cannot be read."""
FOLDER = Path(os.environ.get("DSTUI_RELEASES", "~/.cache/dstui-releases")).expanduser() / MADE_BY


def installed(version: str) -> str:
    """The folder of a release, installed there if need be. Skips the test where it cannot be had."""
    if version == NEWEST:
        return ""
    target = FOLDER / version
    if not (target / "deepspeed").is_dir():
        target.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(target)]
        done = subprocess.run(
            [*words, f"deepspeed=={version}"], check=False, env={**os.environ, "DS_ACCELERATOR": "cpu"}, capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"DeepSpeed {version} cannot be installed here: {done.stderr.strip()[-200:]}")
    return str(target)


def accelerate() -> Path:
    """The folder of accelerate, installed there if need be: for PYTHONPATH. Skips the test where it cannot be had."""
    return _beside("accelerate", "huggingface_hub", "safetensors", "httpx", "httpcore", "h11", "anyio", "idna", "certifi")


def peft() -> Path:
    """The same for PEFT, which needs accelerate beside it."""
    return _beside("peft")


def lightning() -> Path:
    """The same for Lightning."""
    return _beside("lightning", "lightning-utilities", "pytorch-lightning", "torchmetrics")


def _beside(name: str, *needed: str) -> Path:
    target = FOLDER / name
    if not (target / name).is_dir():
        words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
        done = subprocess.run([*words, name, *needed], check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{name} cannot be installed here: {done.stderr.strip()[-200:]}")
    return target
