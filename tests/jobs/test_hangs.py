"""Which ranks are behind or silent, and what counts as a hang."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.jobs.metrics.measurements import RankView
from dstui.jobs.watch.hangs import Watch, verdict

NOW = 10_000.0
SILENCE = 60.0


def view(step: int | None = None, ago: float | None = 0.5, state: str = "started") -> RankView:
    return RankView("h1", state=state, step=step, last_line_at=None if ago is None else NOW - ago)


def sixteen_ranks(**odd: RankView) -> dict[int, RankView]:
    """Return sixteen ranks at step 120, silent for 94 s, with exceptions such as `r11=…`."""
    return {rank: odd.get(f"r{rank}", view(120, 94)) for rank in range(16)}


def test_rank_that_others_wait_for_is_named() -> None:
    hang = verdict(sixteen_ranks(r11=view(119, 97)), NOW, SILENCE)
    assert hang is not None and hang.missing == (11,)
    assert str(hang) == "15 of 16 ranks have waited for 1 min 34 s at step 120; rank 11: it has not reached it"


def test_ranks_that_ended_or_never_came_are_named() -> None:
    hang = verdict(sixteen_ranks(r3=view(80, 500, "ended"), r4=view(None, None, "waiting")), NOW, SILENCE)
    assert hang is not None and hang.absent == (3, 4) and hang.living == 14
    assert str(hang).endswith("; ranks 3 and 4 are not running")


def test_no_rank_is_blamed_if_none_is_behind() -> None:
    assert "rank 1" not in str(verdict(sixteen_ranks(), NOW, SILENCE))
    assert str(verdict({0: view(7, 61), 1: view(None, 90)}, NOW, SILENCE)) == (
        "all 2 ranks that run have written nothing for 1 min 01 s, the last reported step is 7: silent work, or a hang"
    )
    assert str(verdict({0: view(None, 61)}, NOW, SILENCE)).startswith(
        "rank 0, the only one that runs, has written nothing for 1 min 01 s: "
    )


def test_many_missing_ranks_are_counted() -> None:
    views = {rank: view(120 if rank < 4 else 119, 94) for rank in range(64)}
    assert "; 60 ranks (4, 5, 6, 7, 8, 9, …): they have not reached it" in str(verdict(views, NOW, SILENCE))


@pytest.mark.parametrize(
    "views",
    [
        {},
        {0: view(5, 3), 1: view(5, 3000)},  # most scripts print on one rank only
        {0: view(5, 3000, "ended"), 1: view(5, 3000, "lost")},
        {0: view(None, None, "waiting")},
        {0: view(None, None)},
        {0: view(5, SILENCE)},
        {0: view(5, -30)},  # a clock that is ahead of ours
    ],
)
def test_there_is_no_hang_unless_all_living_ranks_are_silent(views: dict[int, RankView]) -> None:
    assert verdict(views, NOW, SILENCE) is None


def test_hang_is_reported_once_at_its_begin_and_end() -> None:
    watch, views = Watch(SILENCE), {0: view(5, 0), 1: view(5, 0)}
    said = [watch.news(views, NOW + seconds) for seconds in (1, 59, 61, 62, 200)]
    assert [bool(sentence) for sentence in said] == [False, False, True, False, False]
    views[0].last_line_at = NOW + 201
    assert [watch.news(views, NOW + seconds) for seconds in (201, 202)] == ["the ranks continue, after 3 min 20 s without a line", None]
    assert watch.news(views, NOW + 300) is not None
    for ended in views.values():
        ended.state = "lost"
    assert watch.news(views, NOW + 301) is None


some = st.builds(
    view, st.none() | st.integers(0, 5), st.none() | st.floats(-10, 200), st.sampled_from(["waiting", "started", "ended", "lost"])
)


@given(st.dictionaries(st.integers(0, 20), some))
def test_verdict_covers_every_rank_once_and_has_text(views: dict[int, RankView]) -> None:
    living = {rank for rank, one in views.items() if one.state == "started"}
    hang = verdict(views, NOW, SILENCE)
    if hang:
        assert not {*hang.waiting} & {*hang.missing}
        assert {*hang.waiting, *hang.missing} <= living and {*hang.absent} == views.keys() - living
        assert hang.seconds > SILENCE and hang.waiting and str(hang).isprintable()
