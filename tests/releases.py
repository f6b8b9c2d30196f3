"""Packages and files that tests make once and keep in the folder DSTUI_RELEASES: older DeepSpeed releases, accelerate, checkpoints."""

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
"""The versions that built the files, as part of the folder's name: a checkpoint of another Python or torch may behave differently."""
FOLDER = Path(os.environ.get("DSTUI_RELEASES", "~/.cache/dstui-releases")).expanduser() / MADE_BY


def installed(version: str) -> str:
    """Return the folder of a DeepSpeed release, installing it if needed. Skips the test if it cannot be installed."""
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
    """Return a PYTHONPATH entry with accelerate, installing it if needed. Skips the test if it cannot be installed."""
    return _install("accelerate", "huggingface_hub", "safetensors", "httpx", "httpcore", "h11", "anyio", "idna", "certifi")


def peft() -> Path:
    """Return a PYTHONPATH entry with PEFT, which also needs accelerate's."""
    return _install("peft")


def lightning() -> Path:
    """Return a PYTHONPATH entry with Lightning."""
    return _install("lightning", "lightning-utilities", "pytorch-lightning", "torchmetrics")


def _install(name: str, *needed: str) -> Path:
    target = FOLDER / name
    if not (target / name).is_dir():
        words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
        done = subprocess.run([*words, name, *needed], check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{name} cannot be installed here: {done.stderr.strip()[-200:]}")
    return target
