"""The head of a job: state, elapsed and remaining time, step, loss, usage and, when it has ended, the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from dstui.jobs.store.plan_diff import changes
from dstui.tui.forms.navigation import TitleBar, configuration
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span, fit, paragraph
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.forecast.forecast import Forecast
    from dstui.jobs.metrics.buckets import Buckets
    from dstui.jobs.watch.follow import Follower
    from dstui.jobs.watch.usage import Sampler
    from dstui.plan import Plan
    from dstui.tui.run.watched_job import WatchedJob


STATES = {
    "queued": ("◌", "accent"),
    "starting": ("○", "accent"),
    "running": ("●", "ok"),
    "succeeded": ("✔", "ok"),
    "failed": ("✖", "error"),
    "lost": ("✖", "error"),
    "stopped": ("■", "warning"),
}
BARS = "▁▂▃▄▅▆▇█"
SPARK = 16
"""Cells for the loss of the whole run."""
NOTE_LINES = 3
"""The most lines of a note, enough for one with instructions."""
GAP = 3
"""Cells between two facts."""


class Fact(NamedTuple):
    """One fact of the head, and its priority if there is no room: the largest number is dropped first."""

    place: int
    spans: tuple[Span, ...]
    metric: str = ""
    """The metric whose newest value it is; "" for one with a remark, which a sparkline has no room for."""

    @property
    def width(self) -> int:
        """Return its width in cells."""
        return sum(cell_len(span.text) for span in self.spans)


class Sparks(NamedTuple):
    """Rows of name, sparkline and newest value, and the metrics in them."""

    rows: list[Row]
    names: list[str]


class RunHead(RowList):
    """The head: two lines, or three if there is more to show."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="run-head")
        self._losses: Buckets
        self._spark = ""
        self.sparks: Sparks | None = None
        """Sparklines of the metrics, if there is room for them and no other place."""

    def begin(self) -> None:
        """Start with another job."""
        from dstui.jobs.metrics.buckets import Buckets

        self._losses, self._spark = Buckets(), ""

    def add_loss(self, step: int, value: float) -> None:
        """Add a loss of the first rank."""
        self._losses.add(step, value)
        self._spark = ""

    def show(self, follower: Follower, folder: Path, note: str, sampler: Sampler | None, expected: Forecast | None = None) -> None:
        """Draw the head. `note`: a current activity, shown instead of the job's folder; `expected`: what was forecast."""
        width = (self.size.width or 110) - self.MARGIN
        if self._losses.last is not None and not self._spark:
            self._spark = spark([point.mean for point in self._losses.points], SPARK)
        sparked, below = (self.sparks.names, self.sparks.rows) if self.sparks else ([], [])
        facts = (
            first_facts(follower, self._losses.last, "" if sparked else self._spark, expected),
            more_facts(follower, sampler, expected),
        )
        lines = [[fact for fact in line if fact.metric not in sparked] for line in facts]
        rows = [*(fitting(line, width) for line in lines if line), *below]
        rows += paragraph(note, width - 1, "accent")[:NOTE_LINES] if note else [Row(_place(folder, width))]
        if len(rows) != len(self.rows):
            self.styles.height = len(rows)
        self.show_rows(rows)


def _place(folder: Path, width: int) -> tuple[Span, ...]:
    text = fit(str(folder), min(cell_len(str(folder)), width - 12))
    return (Span("job folder ", "dim"), Span(text, "dim"))


def first_facts(follower: Follower, loss: float | None, line: str, expected: Forecast | None = None) -> list[Fact]:
    """Return state, time, step, loss (of each model if there are several), remaining time, speed."""
    from dstui.jobs.watch.summary import duration_text

    state = str(follower.state)
    glyph, style = STATES.get(state, ("·", "dim"))
    code = f" (exit status {follower.exit_code})" if follower.exit_code else ""
    facts = [Fact(0, (Span(f"{glyph} {state}{code}", style), Span(f"  {clock(follower.duration)}", "title")))]
    facts += [Fact(0, (Span(follower.notices.waits, "dim"),))] if follower.notices.waits else []
    steps = [view.step for view in follower.ranks.values() if view.step is not None]
    total = f" / {follower.progress[1]:,}" if follower.progress else ""
    facts += [Fact(1, (Span("step ", "dim"), Span(f"{max(steps):,}", "title"), Span(total, "dim")))] if steps else []
    if not steps and (counted := max((view.counts.get("loss", 0) for view in follower.ranks.values()), default=0)):
        facts.append(Fact(1, (Span("loss line ", "dim"), Span(f"{counted:,}", "title"), Span(" (no steps in the log)", "dim"))))
    if loss is not None:
        style = "title" if isfinite(loss) else "error"
        value = (Span("loss ", "dim"), Span(f"{loss:.4g}", style), *source_of("loss", follower))
        facts.append(_metric_fact(2, "loss" if isfinite(loss) else "", *value))
        facts += [Fact(5, (Span(line, "accent"),))] if line else []
    for model, newest in losses_by_model(follower).items():
        spans = (Span(f"{model} loss ", "dim"), Span(f"{newest:.4g}", "title" if isfinite(newest) else "error"))
        facts.append(_metric_fact(2, f"{model}_loss", *spans))
    facts += [Fact(6, progress_bar(*follower.progress))] if follower.progress and state == "running" else []
    facts += [Fact(3, (Span("ETA ", "dim"), Span(duration_text(follower.remaining), "title")))] if follower.remaining else []
    for name, rate in sorted(follower.rates.items(), reverse=True):
        foreseen = expected.speed.tokens if expected is not None and expected.speed is not None and name == "tokens/s" else None
        facts.append(_metric_fact(4, name, Span(si(rate), "title"), Span(f" {name}", "dim"), *_foreseen(si(foreseen) if foreseen else "")))
    return facts


def _metric_fact(place: int, metric: str, *spans: Span) -> Fact:
    return Fact(place, spans, metric if len(spans) == 2 else "")


BAR = 12
"""Cells of the bar of the steps."""


def progress_bar(done: int, total: int) -> tuple[Span, ...]:
    """Return the share of the steps that are done, as a bar and in percent."""
    share = min(done / total, 1.0) if total else 0.0
    full = int(share * BAR)
    return Span("█" * full, "accent"), Span("░" * (BAR - full), "lines"), Span(f" {share:.0%}", "dim")


def _foreseen(text: str) -> tuple[Span, ...]:
    return (Span(f" (forecast {text})", "dim"),) if text else ()


def source_of(name: str, follower: Follower) -> tuple[Span, ...]:
    """Return where a number is from if the engines report others themselves; empty if it is from the engine too."""
    engines = [view.by_engine for view in follower.ranks.values() if view.by_engine]
    return (Span(" (log)", "dim"),) if engines and not any(name in known for known in engines) else ()


def losses_by_model(follower: Follower) -> dict[str, float]:
    """Return the last loss of each of several models, as a script prints them (`student_loss 2.1`), if it prints no total."""
    from dstui.plan.patterns import METRICS

    latest = follower.latest
    named = [name for name in latest if name.endswith("_loss") and name not in METRICS]
    return {} if "loss" in latest else {name.removesuffix("_loss"): latest[name] for name in named}


def more_facts(follower: Follower, sampler: Sampler | None, expected: Forecast | None = None) -> list[Fact]:
    """Return what the ranks use beside what was forecast, and further metrics: the Plan's own first."""
    from dstui.jobs.watch.summary import value_text
    from dstui.jobs.watch.usage import summarise_usage
    from dstui.machine.report import format_size
    from dstui.plan.patterns import METRICS

    facts = []
    if sampler is not None:
        used = summarise_usage(sampler.latest.values())
        bytes_ = (expected.gpu.bytes or expected.host.bytes) if expected is not None else None
        facts += [Fact(0, (Span(used, "title"), *_foreseen(format_size(bytes_) if bytes_ else "")))] if used else []
        facts += [Fact(9 if used else 0, (Span(sampler.note, "dim"),))] if sampler.note else []
    latest = follower.latest
    above = {f"{model}_loss" for model in losses_by_model(follower)}
    others = [name for name in latest if name not in METRICS and name not in above]
    own = [name for name in others if name in follower.measure.own_names]
    names = own + [name for name in REPORTED if name in latest] + [name for name in others if name not in own]
    for place, name in enumerate(names, 1):
        label, value = Span(f"{name.replace('_', ' ')} ", "dim"), Span(value_text(name, latest[name]), "title")
        facts.append(_metric_fact(place, name, label, value, *source_of(name, follower)))
    overflows = int(max(latest.get("overflows", 0), latest.get("skipped", 0)))
    if overflows:
        facts.append(Fact(1, (Span(f"{overflows:,} overflow{'s' if overflows > 1 else ''}", "warning"),)))
    return facts


REPORTED = (
    "step_time",
    "lr",
    "grad_norm",
    "loss_scale",
    "memory_peak",
    "eval_loss",
    "perplexity",
    "accuracy",
    "mfu",
    "trainable_parameters",
)
"""The metrics in the second line, the most important first. All others are in the plot."""


def fitting(facts: Sequence[Fact], width: int) -> Row:
    """Return as many facts as fit, in order."""
    kept = list(facts)
    while len(kept) > 1 and sum(fact.width for fact in kept) + GAP * (len(kept) - 1) > width:
        kept.remove(max(reversed(kept), key=lambda fact: fact.place))
    return Row(tuple(_joined(kept)))


def _joined(facts: Iterable[Fact]) -> Iterable[Span]:
    for place, fact in enumerate(facts):
        if place:
            yield Span(" " * GAP)
        yield from fact.spans


def stop_stage(seconds: float) -> str:
    """Return the progress of a stop: what was sent, and what follows when."""
    from dstui.jobs.supervisor.escalation import STEP

    rungs = (
        "asked the ranks to end",
        "SIGTERM to every process of the job",
        "SIGKILL to the processes that are left",
        "looking for processes that are left",
    )
    at = min(int(seconds // STEP), len(rungs) - 1)
    after = f"; in {STEP * (at + 1) - seconds:.0f} s: {rungs[at + 1]}" if at + 1 < len(rungs) else ""
    return f"stopping, {seconds:.0f} s: {rungs[at]}{after}"


def clock(seconds: float | None) -> str:
    """Format a duration: 0:17, 42:05, 3:02:11."""
    whole = int(seconds or 0)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def si(value: float) -> str:
    """Format a rate in three digits: 41.2k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


ROUNDING = 1e-9
"""Means of equal numbers may differ by less than this part of them."""


def spark(values: Sequence[float], cells: int) -> str:
    """Return values as a sparkline, each cell the mean of its share of them."""
    finite = [v for v in values if isfinite(v)]
    if len(finite) < 2:
        return ""
    size = max(len(finite) / cells, 1.0)
    parts = [finite[int(n * size) : max(int((n + 1) * size), int(n * size) + 1)] for n in range(min(cells, len(finite)))]
    means = [sum(p) / len(p) for p in parts if p]
    low, high = min(means), max(means)
    varies = high - low > ROUNDING * max(abs(low), abs(high))
    return "".join(BARS[round((m - low) / (high - low) * 7)] if varies else BARS[0] for m in means)


class JobTitle(TitleBar):
    """The title bar of the run screen: about the job in view, else about the Plan."""

    def __init__(self, job: Callable[[], WatchedJob | None]) -> None:
        super().__init__()
        self._job = job

    def show(self, state: State, path: Path | None) -> None:
        """Draw the title."""
        job = self._job()
        if job is None:
            super().show(state, path)
        else:
            self.show_rows([job_title(job.name, job.plan, state.plan, self.size.width or 80)])


def job_title(name: str, plan: Plan | None, opened: Plan, width: int) -> Row:
    """Return the title of a job with its own Plan's configuration: `dstui  quickstart-20261123-184200   ZeRO-2 · bf16 · AdamW`."""
    differs = plan is not None and bool(changes(plan, opened))
    note = "   the open Plan differs" if differs else ""
    right = (Span(f"{configuration(plan)} "),) if plan is not None else ()
    room = width - sum(cell_len(span.text) for span in right) - len(note) - len(" dstui   ")
    left = (Span(" dstui ", "accent"), Span(f" {fit(name, max(min(cell_len(name), room), 0))}", "title"), Span(note, "warning"))
    return Row(left, right)
