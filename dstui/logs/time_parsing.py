"""Parse and format times as users type and read them: the time of day, or a duration ago."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import datetime, timezone
from math import isfinite

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DAY = 86400


def parse_moment(text: str, latest: float) -> float | None:
    """Parse 14:02 or 14:02:11 (the last such time up to `latest`), or 10m and -10m (before it) to seconds; None for other texts."""
    ago = re.fullmatch(r"-?(\d+(?:\.\d+)?)([smhd])", text.strip())
    if ago:
        return latest - float(ago[1]) * UNITS[ago[2]]
    clock = re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?", text.strip())
    if not clock or int(clock[1]) > 23 or int(clock[2]) > 59 or int(clock[3] or 0) > 59:
        return None
    day = time.localtime(latest)
    found = time.mktime((*day[:3], int(clock[1]), int(clock[2]), int(clock[3] or 0), 0, 0, -1))
    return found if found <= latest else found - DAY


def format_clock(time_known: float) -> str:
    """Format a time as HH:MM:SS in this machine's time zone; "" if it is unknown or out of range."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(time_known)) if isfinite(time_known) else ""
    except (OverflowError, OSError, ValueError):
        return ""


def format_iso(time: float) -> str:
    """Format a time in UTC as in status.json."""
    return datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="milliseconds")


def parse_iso(text: str | None) -> float | None:
    """Parse an ISO time to seconds since the epoch; None if it is invalid."""
    with suppress(TypeError, ValueError, OverflowError):
        return datetime.fromisoformat(text or "").timestamp()
    return None
