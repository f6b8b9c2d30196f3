"""The site file: every mistake gives a message with its line, and dstui works without an unusable file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dstui.plan import PlanError
from dstui.site.site_file import read_site
from tests.command import dstui

PLAN = "version: 1\njob: {script: train.py}\ncluster: {hosts: {localhost: 1}}\ndeepspeed: {train_micro_batch_size_per_gpu: 1}\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("version: 2\n", "site.yaml:1: version: expected `version: 1`"),
        ("version: 1\ndefault: {}\n", "site.yaml:2: default: unknown key; did you mean 'defaults'?"),
        ("- 1\n", "a site file is a mapping"),
        ("version: 1\nwelcome: [a]\n", "site.yaml:2: welcome: expected a text of at most 2,000 characters"),
        ("version: 1\ndefaults:\n  cluster:\n    laucher: ssh\n", "site.yaml:4: defaults.cluster.laucher: unknown key; did you mean"),
        ("version: 1\ndefaults:\n  run: {silence: soon}\n", "site.yaml:3: defaults.run.silence: expected a number, not 'soon'"),
        ("version: 1\ndefaults: 3\n", "site.yaml:2: defaults: expected keys of a Plan"),
        ("version: 1\nlocked: {bf16.enabled: true}\n", "site.yaml:2: locked.bf16.enabled: not a key of a Plan: it begins with"),
        ("version: 1\nlocked:\n  name: {reason: x}\n", "site.yaml:3: locked.name: give value, or choices, or min and max"),
        ("version: 1\nlocked:\n  cluster.num_nodes: {max: four}\n", "site.yaml:3: locked.cluster.num_nodes.max: expected a number"),
        ("version: 1\nlocked:\n  cluster.num_nodes: {min: 4, max: 2}\n", "no number is at least 4 and at most 2"),
        ("version: 1\nlocked:\n  cluster.num_nodes: {most: 2, max: 2}\n", "locked.cluster.num_nodes.most: unknown key"),
        ("version: 1\nlaunchers: [rsh]\n", "site.yaml:2: launchers: expected a list of launchers, each one of local"),
        ("version: 1\ncauses: {OOM: {a: b}}\n", "site.yaml:2: causes.OOM: expected a text of at most"),
        (
            "version: 1\ndefaults: {cluster: {num_nodes: 8}}\nlocked:\n  cluster.num_nodes: {max: 4}\n",
            "site.yaml:2: defaults.cluster.num_nodes: '8' breaks the lock on line 4: at most 4",
        ),
        ("version: 1\nname: &a [*a]\n", "site.yaml:2:"),
        ("version: 1\nname: [\n", "site.yaml:3: "),
    ],
)
def test_mistake_gives_a_message_with_its_line(text: str, wrong: str) -> None:
    with pytest.raises(PlanError) as caught:
        read_site(text, "site.yaml", "/etc/dstui")
    assert wrong in re.sub(r"(yaml:\d+):\d+:", r"\1:", str(caught.value))


@pytest.mark.parametrize("how", ["broken", "writable", "folder", "large", "missing", "fifo"])
def test_unusable_file_is_ignored(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    site = tmp_path / "site.yaml"
    wrong = {
        "broken": "zzz: unknown key",
        "writable": "others may write it",
        "folder": "others may write its folder",
        "large": "larger than 1 MiB",
        "missing": "no such file",
        "fifo": "not a regular file",
    }[how]
    if how == "fifo":
        os.mkfifo(site, 0o644)
    elif how != "missing":
        site.write_text({"broken": "zzz: 1\n", "large": "#" * (10 << 20)}.get(how, "version: 1\nlocked: {name: other}\n"))
        site.chmod(0o666 if how == "writable" else 0o644)
    if how == "folder":
        tmp_path.chmod(0o777)
    monkeypatch.setenv("DSTUI_SITE", str(site))
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "train.py").write_text("import deepspeed\n")
    checked = dstui("check", "plan.yaml")
    assert checked.returncode == 0, checked.stdout
    assert "the site file is not used" in checked.stdout and wrong in checked.stdout
    assert "the site file is not used" not in dstui("check", "plan.yaml", "--no-site").stdout
