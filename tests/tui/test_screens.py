"""What the main screens look like, cell for cell, at three sizes and without colour, against what tests/tui/baselines/ holds.

Where a change is meant, `python -m pytest tests/tui/test_screens.py --write-screens` writes them anew, and the diff shows what changed.
A file has the text of the screen, then a letter for the style of each cell (a letter at a line's end stands for the rest), then the styles.
"""

from __future__ import annotations

import string
import time
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.conftest import PLAN, Open, screen, until
from tests.tui.test_reason import job, show_job

BASELINES = Path(__file__).parent / "baselines"
PLACE = "job folder /"
PATIENCE = 30.0
LETTERS = string.ascii_letters + string.digits
VARIANTS = {"80x24": (80, 24), "120x40": (120, 40), "mono": (120, 40)}
HERE = PLAN.replace("  script: train.py\n", "  script: train.py\n  python: /opt/venv/bin/python\n  workdir: /opt/project\n")
WRONG = HERE.replace("stage: 2", "stage: 7").replace("lr: 1e-4", "lr: fast")


@dataclass(frozen=True)
class Shown:
    """A screen: the keys that lead to it, and a text on it that says that it is there."""

    keys: tuple[str, ...]
    text: str
    plan: str = HERE
    job: bool = False
    """Whether it is of a job that failed."""


SCREENS = {
    "machine": Shown(("1",), "A100 80GB"),
    "zero": Shown(("3",), "What is sharded"),
    "batch-typing": Shown(("6", "enter", "8"), "Enter Esc done"),
    "checks": Shown(("3", "tab", "tab"), "stage", plan=WRONG),
    "review": Shown(("escape", "8"), "Before the launch"),
    "help": Shown(("1", "f1"), "F1"),
    "no-job": Shown(("9",), "9 Run"),
    "failed-run": Shown((), "OOM-GPU", job=True),
}
TOGETHER = (("machine", "zero", "help", "review", "no-job"), ("batch-typing",), ("checks",), ("failed-run",))
"""The names of the screens that one app shows one after another."""


def looks(pilot: Pilot[int]) -> str:
    """Text, styles and legend of what is on the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    names: dict[str, str] = {}
    text, styles = [], []
    for strip in strips:
        cells = "".join(
            names.setdefault(str(segment.style), LETTERS[min(len(names), len(LETTERS) - 1)]) * segment.cell_length for segment in strip
        )
        known = strip.text.find(PLACE) + len(PLACE) if PLACE in strip.text else None  # what follows is a folder of this test run
        text.append(strip.text[:known].rstrip())
        styles.append(cells[:known].rstrip(cells[-1:]) + cells[-1:])
    legend = [f"{letter} {name}" for name, letter in names.items()]
    return "\n".join([*text, "", *styles, "", *legend, ""])


async def settled(pilot: Pilot[int], quiet: float = 0.5) -> str:
    """What is shown once nothing has changed for so many seconds."""
    shown, since = looks(pilot), time.monotonic()
    while time.monotonic() - since < quiet:
        await pilot.pause(0.05)
        if (now := looks(pilot)) != shown:
            shown, since = now, time.monotonic()
    return shown


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("names", TOGETHER, ids=" ".join)
async def test_screens_look_as_they_did(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, names: tuple[str, ...], variant: str
) -> None:
    for home in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):  # where no other test's runs and theme are
        monkeypatch.setenv(home, str(Path.cwd() / home))
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    if variant == "mono":
        monkeypatch.setenv("NO_COLOR", "1")
    async with open_app(SCREENS[names[0]].plan, gpus=4, size=VARIANTS[variant]) as pilot:
        for name in names:
            await go(pilot, SCREENS[name])
            if request.config.getoption("--write-screens"):
                (BASELINES / f"{name}-{variant}.txt").write_text(await settled(pilot))
            else:
                await looks_as(pilot, BASELINES / f"{name}-{variant}.txt")


async def go(pilot: Pilot[int], shown: Shown) -> None:
    """To this screen, from any other."""
    if shown.job:
        await show_job(pilot, job(Path.cwd() / "job"))
    await pilot.press(*shown.keys)
    await until(pilot, lambda: shown.text in screen(pilot))


async def looks_as(pilot: Pilot[int], file: Path) -> None:
    """Wait until the screen is that of the file."""
    expected = file.read_text()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if looks(pilot) == expected:
            return
        await pilot.pause(0.05)
    raise AssertionError("\n".join(unified_diff(expected.splitlines(), looks(pilot).splitlines(), file.name, "now", lineterm="")))
