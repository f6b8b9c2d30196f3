"""What is left to say when a job has ended, in a few lines."""

from __future__ import annotations

from dstui.run.follow import Follower


def summary(follower: Follower) -> str:
    """State, duration, last step and loss, speed, exit status, job folder."""
    words = [f"{follower.state} after {duration_text(follower.duration)}"]
    leader = next((view for _, view in sorted(follower.ranks.items()) if view.loss is not None), None)
    if leader is not None and leader.loss is not None:
        at = f" at step {leader.step:,}" if leader.step is not None else ""
        words.append(f"last loss {leader.loss:.4g}{at}")
    words += [f"{rate_text(value)} {name}" for name, value in follower.rates.items()]
    failed = {rank: view.exit_code for rank, view in sorted(follower.ranks.items()) if view.exit_code}
    lines = ["  ".join(words)]
    if failed:
        lines.append("exit status by rank: " + ", ".join(f"{rank}: {code}" for rank, code in failed.items()))
    return "\n".join([*lines, f"exit status {follower.exit_code}", f"job folder {follower.folder.path}"])


def duration_text(seconds: float) -> str:
    """12.3 s, 4 min 05 s, 2 h 03 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02} min" if hours else f"{minutes} min {rest:02} s"


def rate_text(value: float) -> str:
    """41.2k, 12.1."""
    return f"{value / 1000:.1f}k" if value >= 10_000 else f"{value:.1f}"
