"""Checks on the records in a job folder, which another program or another version may have written.

A form is a table: key -> a check of its value. A missing key counts as None, which is always valid; other keys are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from dstui.base.limits import MAX_RANKS
from dstui.logs.log_folder import FINAL
from dstui.logs.time_parsing import parse_iso

Form = Callable[[Any], bool]

STATES = ("queued", "starting", "running", *FINAL)
RANK_STATES = ("waiting", "started", "ended", "lost")
HOST_STATES = ("starting", "reached", "unreachable", "ended")
MAX_HOSTS = 4096
"""Hosts that a job may have."""
MAX_ATTEMPTS = 1 << 16
"""Attempts that a job may have."""
LARGEST_PID = (1 << 31) - 1
LATEST = 253402300799.0
"""The last second of the year 9999, the limit of datetime."""
LONGEST_TEXT = 1 << 20


def sound(record: Mapping[str, Any], form: Mapping[str, Form]) -> bool:
    """Return whether a record has this form."""
    return all((value := record.get(key)) is None or will_do(value) for key, will_do in form.items())


def rank_number(text: str) -> int | None:
    """Return the rank, or attempt, with these digits; None if they are invalid."""
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text) and int(text) < MAX_RANKS else None


def integer_between(least: int, most: int) -> Form:
    """Return a check for integers within these bounds; booleans are not integers."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: Any) -> bool:
    """Return whether a value is a valid time."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LATEST and isfinite(value)


def is_text(value: Any) -> bool:
    """Return whether a value is a text of limited length that a system call accepts."""
    return isinstance(value, str) and len(value) <= LONGEST_TEXT and "\0" not in value


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def is_named_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_text, value.values()))


def is_slurm_job(value: Any) -> bool:
    """Return whether a value is a SLURM job number: it appears on command lines."""
    return isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value) is not None


def is_time(value: Any) -> bool:
    return isinstance(value, str) and parse_iso(value) is not None


is_code = integer_between(0, 255)
is_pid = integer_between(0, LARGEST_PID)
is_tick = integer_between(0, 1 << 62)


def record(**form: Form) -> Form:
    """Return a check for objects of this form."""
    return lambda value: isinstance(value, dict) and sound(value, form)


def one_of(words: tuple[str, ...]) -> Form:
    return lambda value: isinstance(value, str) and value in words


def _is_ranks(value: Any) -> bool:
    return isinstance(value, dict) and all(rank_number(number) is not None and RANK(facts) for number, facts in value.items())


def _is_hosts(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MAX_HOSTS and all(is_text(name) and HOST(facts) for name, facts in value.items())


def _is_host_launches(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MAX_HOSTS and all(HOST_LAUNCH(host) and "env" in host for host in value.values())


def _is_master(value: Any) -> bool:
    """Check MASTER_ADDR and MASTER_PORT, both None if the rank has none: file names are made of them."""
    return isinstance(value, list) and len(value) == 2 and all(part is None or (is_text(part) and "/" not in part) for part in value)


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(integer_between(-(1 << 62), 1 << 62), value.values()))


def _is_rank_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(integer_between(0, MAX_RANKS), value))


PROCESS = record(pid=is_pid, ticks=is_tick, host=is_text, boot=is_text, started=is_text)
RANK = record(host=is_text, pid=is_pid, state=one_of(RANK_STATES), exit_code=is_code, killed_after=integer_between(0, MAX_RANKS - 1))
HOST = record(state=one_of(HOST_STATES), since=is_time, problem=is_text, exit_code=is_code, folder=is_text)

is_version = integer_between(1, 1 << 30)

STATUS: Mapping[str, Form] = {
    "version": is_version,
    "state": one_of(STATES),
    "supervisor": PROCESS,
    "front": PROCESS,
    "launcher": PROCESS,
    "launcher_exit": is_code,
    "attempt": integer_between(1, MAX_ATTEMPTS - 1),
    "started": is_time,
    "ended": is_time,
    "next_attempt": is_time,
    "exit_code": is_code,
    "command": is_texts,
    "ranks": _is_ranks,
    "hosts": _is_hosts,
    "tag": is_text,
    "disk_full": is_text,
    "slurm_job": is_slurm_job,
}
HOST_LAUNCH = record(command=is_texts, env=is_named_texts)
CLUSTER = {"reach": one_of(("ssh", "srun", "here")), "folder": is_text, "hosts": _is_host_launches, "port": integer_between(1, 65535)}
RESTARTS = {"max": integer_between(0, 1 << 30), "backoff": is_number, "args": is_texts}
LAUNCH: Mapping[str, Form] = {
    "version": is_version,
    "python": is_text,
    "options": is_texts,
    "script": is_texts,
    "args": is_texts,
    "env": is_named_texts,
    "workdir": is_text,
    "base": is_text,
    "bind": is_text,
    "restarts": lambda value: record(**RESTARTS)(value) and value.keys() >= RESTARTS.keys(),
    "silence": is_number,
    "host_lost": is_number,
    "metrics": is_named_texts,
    "on_end": is_text,
    "observe": lambda value: isinstance(value, str) and re.fullmatch(r"engine|process|off|probe-[0-9]{1,3}", value) is not None,
    "cluster": lambda value: record(**CLUSTER, allocation=is_text)(value) and all(value.get(key) is not None for key in CLUSTER),
}
SHIM: Mapping[str, Form] = {
    "rank": integer_between(0, MAX_RANKS - 1),
    "host": is_text,
    "pid": is_pid,
    "shim": is_pid,
    "ticks": is_tick,
    "boot": is_text,
    "started": is_number,
    "ended": is_number,
    "lost": is_number,
    "world_size": integer_between(0, MAX_RANKS),
    "local_rank": integer_between(0, MAX_RANKS),
    "gpus": is_text,
    "master": _is_master,
    "tag": is_text,
    "limits": _is_counts,
    "exit_code": is_code,
    "signal": is_text,
    "max_rss": integer_between(0, 1 << 60),
}
STOP: Mapping[str, Form] = {"exit_code": is_code, "by": is_pid, "command": is_text}
EVENT: Mapping[str, Form] = {
    "t": is_number,
    "event": is_text,
    "text": is_text,
    "rank": integer_between(0, MAX_RANKS - 1),
    "host": is_text,
    "state": is_text,
    "exit_code": is_code,
    "seconds": is_number,
    "attempt": integer_between(1, MAX_ATTEMPTS - 1),
    "ranks": _is_rank_list,
    "killed": _is_counts,
    "least": record(disk_free=lambda value: isinstance(value, dict)),
}
