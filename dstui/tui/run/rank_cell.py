"""A rank as a cell of the strip, and totals of many ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dstui.tui.kit.text_row import Row, Span, fit

if TYPE_CHECKING:
    from dstui.jobs.metrics.measurements import RankView
    from dstui.jobs.watch.usage import Usage


GLYPH = {
    "waiting": ("○", "dim"),
    "running": ("●", "ok"),
    "behind": ("▲", "warning"),
    "silent": ("◐", "warning"),
    "ended": ("✔", "ok"),
    "failed": ("✖", "error"),
    "lost": ("✖", "error"),
    "killed": ("■", "dim"),
    "stopped": ("■", "warning"),
    "unknown": ("·", "warning"),
}
LIVES = ("running", "behind", "silent")
OVER = ("ended", "failed", "killed", "stopped")
BY_STOPPING = (129, 130, 137, 143)
"""Exit statuses of ranks that a stop has ended: 128 + SIGHUP, SIGINT, SIGKILL, SIGTERM."""
FAR = 20
"""Steps behind the furthest rank from which a rank is a straggler: lines are written, and read, at different times."""


class Cell(NamedTuple):
    """The state of a rank."""

    rank: int
    host: str
    word: str
    step: int | None
    loss: float | None
    age: float | None
    usage: str = ""
    """Its use: `GPU 97 %  71.2 GB  612 W`."""
    exit_code: int | None = None
    killed_after: int | None = None
    """The rank that had failed first, if this one was then killed."""
    behind: int = 0
    """Steps that a straggler is behind the furthest rank."""

    @property
    def state(self) -> str:
        """Return its state: `running`, `187 behind`, `failed (137)`."""
        if self.word == "behind":
            return f"{self.behind:,} behind" if self.behind < 1000 else f"{self.behind // 1000:,}k behind"
        return self.word + (f" ({self.exit_code})" if self.exit_code else "")

    def words(self, *, usage: bool = True) -> str:
        """Return the text behind the glyph of a cell with text."""
        lives = self.word in LIVES
        facts = [self.state]
        facts += [f"after rank {self.killed_after} failed"] if self.killed_after is not None else []
        facts += [f"step {self.step:,}"] if self.step is not None else []
        facts += [f"loss {self.loss:#.4g}"] if self.loss is not None else []
        facts += [f"{age_text(self.age)} ago" if self.age >= 1 else "now"] if self.age is not None and lives else []
        return "  ".join([*facts, self.usage] if usage and self.usage and lives else facts)


def cells_of(
    ranks: Mapping[int, RankView],
    now: float,
    silence: float,
    usage: Mapping[int, Usage] | None = None,
    unseen: Collection[str] = (),
) -> list[Cell]:
    """Return the cells of a job's ranks. A running rank without a line for `silence` seconds is silent.

    `unseen`: hosts that report no ends of ranks, now or any more: the state of their running ranks is unknown.
    """
    lead = max((view.step for view in ranks.values() if view.step is not None), default=0)
    cells = []
    for number, view in sorted(ranks.items()):
        age = now - view.last_sign if view.last_sign is not None else None
        used = str((usage or {}).get(number, ""))
        word = word_of(view, age, silence) if view.state != "started" or view.host not in unseen else "unknown"
        behind = lead - view.step if view.step is not None and word == "running" else 0
        word = "behind" if behind >= FAR else word
        cells.append(Cell(number, view.host, word, view.step, view.loss, age, used, view.exit_code, view.killed_after, behind))
    return cells


def as_stopped(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells of a stopped job: a rank that the stop ended has not failed."""
    return [cell._replace(word="stopped") if cell.word in ("failed", "lost") and cell.exit_code in BY_STOPPING else cell for cell in cells]


def word_of(view: RankView, age: float | None, silence: float) -> str:
    """Return the state of a rank in one word; killed means by its launcher, after another rank had failed."""
    if view.killed_after is not None and view.state in ("ended", "lost"):
        return "killed"
    if view.state == "ended":
        return "ended" if not view.exit_code else "failed"
    if view.state == "started":
        return "silent" if age is not None and age >= silence else "running"
    return view.state


def stragglers_first(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells in their order, with those that are behind first."""
    return sorted(cells, key=lambda cell: -cell.behind if cell.word == "behind" else 0)


def spans(cell: Cell, width: int, *, usage: bool, chosen: bool) -> list[Span]:
    """Return a cell in this many screen cells, with text if there is room. `usage`: include what the rank uses."""
    glyph, style = GLYPH.get(cell.word, ("·", "dim"))
    number = Span(f"{cell.rank:>3} ", "title" if chosen else "")
    room = width - 6
    if room >= len("running  step 1"):
        text = cell.words(usage=usage)
        text = text if len(text) <= room else text.replace(" ago", "")
        return [number, Span(f"{glyph} ", style), Span(fit(text, room), "title" if chosen else "")]
    step = f"{cell.step if cell.step is not None else cell.word}"
    late = f" {age_text(cell.age)}" if cell.age is not None and cell.age >= 2 and cell.word not in OVER else ""
    text = cell.state if cell.word == "behind" else step + late
    return [number, Span(f"{glyph} ", style), Span(fit(text, room), style if cell.word == "behind" else "")]


def age_text(seconds: float | None) -> str:
    """Format how long ago something was, in a few cells."""
    if seconds is None:
        return ""
    return f"{seconds:.0f}s" if seconds < 100 else f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"


WORST = ("failed", "lost", "unknown", "silent", "behind", "stopped", "killed", "waiting", "running", "ended")


def worst_first(cells: Sequence[Cell]) -> list[Cell]:
    """Sort by state, then by how far behind they are."""
    return sorted(cells, key=lambda c: (WORST.index(c.word) if c.word in WORST else 0, c.step if c.step is not None else -1, c.rank))


def total_row(cells: Sequence[Cell]) -> Row:
    """Return totals: ranks and hosts, how many run, and the spread of their steps."""
    hosts = len({c.host for c in cells})
    where = f" on {hosts:,} hosts" if hosts > 1 else ""
    return Row((Span(f" {len(cells):,} rank{'s' * (len(cells) != 1)}{where}  ", "title"), *counts(cells), Span(steps_text(cells), "dim")))


def steps_text(cells: Sequence[Cell]) -> str:
    """Return the step of all ranks, or the first and the last."""
    steps = [c.step for c in cells if c.step is not None]
    if not steps:
        return ""
    return f"step {min(steps):,}" if min(steps) == max(steps) else f"steps {min(steps):,} to {max(steps):,}"


def counts(cells: Sequence[Cell]) -> list[Span]:
    """Return the number of ranks in each state, the worst first."""
    numbers = Counter(c.word for c in cells)
    return [
        span
        for word in sorted(numbers, key=lambda w: WORST.index(w) if w in WORST else 0)
        for span in (Span(f"{GLYPH.get(word, ('·', 'dim'))[0]} ", GLYPH.get(word, ("·", "dim"))[1]), Span(f"{numbers[word]:,} {word}  "))
    ]
