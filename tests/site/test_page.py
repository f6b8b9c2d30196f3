"""docs/site.md: its files and commands work as written, with its site file active."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from tests.command import dstui

PAGE = (Path(__file__).parents[2] / "docs" / "site.md").read_text()
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


def test_commands_of_the_page_work_as_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "templates").mkdir()
    env = {**os.environ, "DSTUI_SITE": ""}
    told = {}
    for language, title, text in BLOCK.findall(PAGE):
        if title:
            (tmp_path / title).write_text(text)
            (tmp_path / title).chmod(0o644)
        for line in text.splitlines() if language == "sh" else ():
            command, _, remark = line.partition("#")
            if command.startswith("export "):
                env["DSTUI_SITE"] = command.partition("=")[2].strip().replace("$PWD", str(tmp_path))
                continue
            ran = dstui(*shlex.split(command)[1:], cwd=tmp_path, env=env)
            assert ran.returncode == int(remark.strip().removeprefix("ends with ") or 0), f"{line}\n{ran.stdout}{ran.stderr}"
            told[command.strip()] = ran.stdout
    assert len(told) == 9
    assert "sft" in told["dstui new"] and "fine-tuning on one node, as we do it" in told["dstui new"]
    assert "[site (" in told["dstui explain plan.yaml gradient_clipping"]
    refused = told["dstui check plan.yaml --set deepspeed.bf16.enabled=false"]
    assert "this site allows only true" in refused and "ask #gpu-help" in refused
