"""Summarise an ended job in a few lines."""

from __future__ import annotations

import math

from dstui.jobs.metrics.measurements import RankView
from dstui.jobs.watch.follow import Follower
from dstui.plan.patterns import METRICS

LEFT_OUT = ("loss", "epoch")
"""Metrics that the summary does not repeat among the last values; speeds have a line of their own."""


def summary(follower: Follower) -> str:
    """Return state, duration, last step and loss, speed, the last values of other metrics, exit status and job folder."""
    words = [f"{follower.state} after {duration_text(follower.duration)}"]
    leader = next((view for _, view in sorted(follower.ranks.items()) if view.loss is not None), None)
    if leader is not None and leader.loss is not None:
        at = f" at step {leader.step:,}" if leader.step is not None else ""
        words.append(f"last loss {leader.loss:.4g}{at}")
    words += [f"{rate_text(value)} {name}" for name, value in follower.rates.items()]
    failed = {rank: view for rank, view in sorted(follower.ranks.items()) if view.exit_code}
    lines = ["  ".join(words)]
    if last := last_values(follower):
        lines.append("last values: " + ", ".join(f"{name} {value_text(name, value)}" for name, value in last.items()))
    if failed:
        lines.append("exit status by rank: " + ", ".join(f"{rank}: {_code_text(view)}" for rank, view in failed.items()))
    lines += follower.warnings
    code = "unknown" if follower.exit_code is None else follower.exit_code
    return "\n".join([*lines, f"exit status {code}", f"job folder {follower.folder.path}"])


def _code_text(view: RankView) -> str:
    return f"{view.exit_code}" + (f" (killed after rank {view.killed_after} had failed)" if view.killed_after is not None else "")


def last_values(follower: Follower) -> dict[str, float]:
    """Return the newest value of each metric except loss and speed: dstui's own in their order, then those of the Plan."""
    latest = {
        name: value for name, value in follower.latest.items() if name not in LEFT_OUT and not (name in METRICS and name.endswith("/s"))
    }
    order = [*METRICS, *latest]
    return {name: latest[name] for name in dict.fromkeys(order) if name in latest}


def value_text(name: str, value: float) -> str:
    """Format a metric's value with its unit: seconds, bytes, counts, else four digits."""
    if name == "step_time":
        return f"{value:.3g} s" if not value < 1 else f"{1000 * value:.3g} ms"
    if "memory" in name:
        return f"{value / (1 << 30):.3g} GB"
    whole = math.isfinite(value) and value == int(value) and 10 <= abs(value) < 1e12
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def duration_text(seconds: float) -> str:
    """Format a duration: 12.3 s, 4 min 05 s, 2 h 03 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02} min" if hours else f"{minutes} min {rest:02} s"


def rate_text(value: float) -> str:
    """Format a rate: 41.2k, 12.1."""
    return f"{value / 1000:.1f}k" if value >= 10_000 else f"{value:.1f}"
