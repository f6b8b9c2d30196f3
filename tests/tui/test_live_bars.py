"""Progress bars of several ranks below the log: one row per bar, however many ranks draw it, and at most three."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.jobs.metrics.measurements import RankView
from dstui.tui.run.live_bars import bar_rows, live_bars
from tests.logs.made_logs import MadeJob
from tests.owned import add_to_index
from tests.tui.conftest import Open, attach, job_view, screen, until

BAR = "Epoch 1:  {}%|████▉     | {}/300 [00:12<00:13, 11.90it/s, loss=0.5]"


def shown_bars(bars: list[str], width: int = 100) -> list[str]:
    views = {rank: RankView("here", state="started", live=bar, live_is_bar=True) for rank, bar in enumerate(bars)}
    return [" ".join(row.text.split()) for row in bar_rows(live_bars(views), width)]


@pytest.mark.parametrize(
    ("bars", "rows"),
    [
        ([BAR.format(49, 148)] * 16, ["×16 Epoch 1 49 % 148/300 [00:12<00:13, 11.90it/s, loss=0.5]"]),
        ([BAR.format(49, 148), BAR.format(3, 11)], ["×2 Epoch 1 3 to 49 % 11 to 148/300 [00:12<00:13, 11.90it/s, loss=0.5]"]),
        (["train: 40%|## | 1.20k/3.00k [1:02<?]"], ["r0 train 40 % 1.20k/3.00k [1:02<?]"]),
        (["50%|#####"], ["r0 50%|#####"]),
        (["148it [00:12, 11.9it/s]", "152it [00:12, 11.8it/s]"], ["×2 148it [00:12, 11.9it/s]"]),
        ([f"{name}:  1%|| 1/99" for name in "abcde"], ["r0 a 1 % 1/99", "r1 b 1 % 1/99", "r2 c 1 % 1/99 +2 more"]),
        (["%|" * 4000, "9" * 4000 + "%|x| 1/2"], ["r0 " + "%|" * 200, "r1 " + "9" * 400]),
    ],
)
def test_bars_that_differ_only_in_progress_make_one_row(bars: list[str], rows: list[str]) -> None:
    assert shown_bars(bars, width=500) == rows
    assert all(len(row) <= 60 for row in shown_bars(bars, width=60 - len(" +2 more")))


async def test_bar_of_all_ranks_is_pinned_below_the_log_and_a_ranks_bar_is_in_its_log(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 4)
    add_to_index(made.folder)
    assert made.folder.lock() is not None
    for rank in range(4):
        made.say(rank, "step 1 loss 2.0")
        made.say(rank, "\r" + BAR.format(0, 0) + "\r" + BAR.format(49, 148), end="")
    made.update(1)
    async with open_app(size=(80, 24)) as pilot:
        await attach(pilot, made.folder)
        await until(pilot, lambda: "×4 Epoch 1  49 %  148/300" in screen(pilot))
        assert screen(pilot).splitlines()[-2].strip().startswith("×4")
        made.say(2, "\r" + BAR.format(50, 150), end="")
        await until(pilot, lambda: "×4 Epoch 1  49 to 50 %  148 to 150/300" in screen(pilot))
        await pilot.press("2")
        await until(pilot, lambda: "Epoch 1:  50%|" in screen(pilot))
        assert not job_view(pilot).bars.display
