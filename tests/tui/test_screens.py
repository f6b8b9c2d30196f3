"""The main screens, cell by cell, at three sizes and without colour, compared to tests/tui/baselines/.

After an intended change, `python -m pytest tests/tui/test_screens.py --write-screens` rewrites the files, and the diff shows the change. A
file has the screen's text, a letter for the style of each cell (the last letter of a line applies to its rest), and the list of styles.
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
    """A screen: the keys that lead to it, and a text that shows it is ready."""

    keys: tuple[str, ...]
    text: str
    plan: str = HERE
    job: bool = False
    """True if it needs the job that failed."""


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
"""Names of screens that one app shows in sequence."""


def render(pilot: Pilot[int]) -> str:
    """Return text, styles and legend of the current screen."""
    strips = pilot.app.screen._compositor.render_strips()
    names: dict[str, str] = {}
    text, styles = [], []
    for strip in strips:
        cells = "".join(
            names.setdefault(str(segment.style), LETTERS[min(len(names), len(LETTERS) - 1)]) * segment.cell_length for segment in strip
        )
        known = strip.text.find(PLACE) + len(PLACE) if PLACE in strip.text else None  # the path of this test run follows
        text.append(strip.text[:known].rstrip())
        styles.append(cells[:known].rstrip(cells[-1:]) + cells[-1:])
    legend = [f"{letter} {name}" for name, letter in names.items()]
    return "\n".join([*text, "", *styles, "", *legend, ""])


async def settled(pilot: Pilot[int], quiet: float = 0.5) -> str:
    """Return the screen once nothing has changed for `quiet` seconds."""
    shown, since = render(pilot), time.monotonic()
    while time.monotonic() - since < quiet:
        await pilot.pause(0.05)
        if (now := render(pilot)) != shown:
            shown, since = now, time.monotonic()
    return shown


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("names", TOGETHER, ids=" ".join)
async def test_screens_match_their_baselines(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, names: tuple[str, ...], variant: str
) -> None:
    for home in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):  # without the runs and theme of other tests
        monkeypatch.setenv(home, str(Path.cwd() / home))
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    if variant == "mono":
        monkeypatch.setenv("NO_COLOR", "1")
    async with open_app(SCREENS[names[0]].plan, gpus=4, size=VARIANTS[variant]) as pilot:
        for name in names:
            await open_screen(pilot, SCREENS[name])
            if request.config.getoption("--write-screens"):
                (BASELINES / f"{name}-{variant}.txt").write_text(await settled(pilot))
            else:
                await wait_for_baseline(pilot, BASELINES / f"{name}-{variant}.txt")


async def open_screen(pilot: Pilot[int], shown: Shown) -> None:
    """Go to a screen from any other."""
    if shown.job:
        await show_job(pilot, job(Path.cwd() / "job"))
    await pilot.press(*shown.keys)
    await until(pilot, lambda: shown.text in screen(pilot))


async def wait_for_baseline(pilot: Pilot[int], file: Path) -> None:
    """Wait until the screen equals a file."""
    expected = file.read_text()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if render(pilot) == expected:
            return
        await pilot.pause(0.05)
    raise AssertionError("\n".join(unified_diff(expected.splitlines(), render(pilot).splitlines(), file.name, "now", lineterm="")))
