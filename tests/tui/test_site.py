"""The site file in the forms: values with their layer, locks with their reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.tui.session.messages import PathChosen
from tests.tui.conftest import PLAN, Open, screen, store, until

SITE = """\
version: 1
defaults: {deepspeed: {gradient_clipping: 0.5}}
locked:
  deepspeed.gradient_accumulation_steps: {value: 2, reason: all runs compare}
"""


async def test_locked_field_says_why_and_accepts_no_key(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "site.yaml").write_text(SITE)
    monkeypatch.setenv("DSTUI_SITE", str(tmp_path / "site.yaml"))
    async with open_app(size=(120, 40)) as pilot:
        await pilot.press("6")
        await until(pilot, lambda: "2 · locked: all r" in screen(pilot))
        pilot.app.screen.jump(PathChosen("deepspeed.gradient_accumulation_steps"))
        await until(pilot, lambda: pilot.app.screen.here.path == "deepspeed.gradient_accumulation_steps")
        await until(pilot, lambda: "Not possible now: 2 · locked" in screen(pilot))
        await pilot.press("enter")
        assert store(pilot).state.plan.text == PLAN
        await pilot.press("6")
        line = next(line for line in screen(pilot).splitlines() if "0.5" in line)
        assert "site" in line
        store(pilot).replace(PLAN.replace("gradient_accumulation_steps: 2", "gradient_accumulation_steps: 3"))
        await until(pilot, lambda: any(f.code == "PL080" for f in store(pilot).state.findings))
        (found,) = (f for f in store(pilot).state.findings if f.code == "PL080")
        assert store(pilot).apply(found.fix) and store(pilot).state.plan.text == PLAN
