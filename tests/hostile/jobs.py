"""Hostile job folders: nothing that they name may be started, signalled or believed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.hostile.plans import GOOD, plan
from tests.hostile.values import Values, dump_json
from tests.machines import gpus, machine

BEGAN = "2026-01-02T03:04:05.000+00:00"
LINES = (
    *(
        b"step 1 loss 2.5 lr 1e-4\n",
        b"Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'\n",
        b"\x1b]52;c;aGk=\x07\n",
    ),
    *(
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        b"x" * 100_000 + b"\n",
        b"\r50%|##\r100%|###\n",
        b"\0\0\0\n",
    ),
    *(
        b"[rank1]: NCCL WARN \x1b[31mtimeout\x1b[0m\n",
        b"exits with return code = -9\n",
        b"step " + b"9" * 400 + b" loss nan\n",
        b"\n\n\n",
        b"\xff\xfe\n",
    ),
)


def records(values: Values, folder: Path, victim: dict[str, Any]) -> dict[str, Any]:
    """Return file -> content, before tampering. `victim`: an unrelated process that is recorded as if it were the job's."""
    process = {**victim, "started": BEGAN}
    living = {"host": values.one_of("h1", values.text()), "pid": victim["pid"], "state": "started", "exit_code": None}
    rank = {"rank": 0, "host": victim["host"], "pid": victim["pid"], "tag": "a-tag", "started": 1767323000.0, "world_size": 2}
    evil = str(folder / "evil.sh")
    return {
        "status.json": {
            "version": 1, "state": values.one_of("running", "starting", "failed", "succeeded", values.text()), "attempt": values.one_of(1, 1, 2),
            "started": BEGAN, "ended": None, "exit_code": None, "command": ["deepspeed"], "tag": values.one_of("a-tag", ""),
            **{name: values.one_of(None, process) for name in ("supervisor", "front", "launcher")}, "ranks": {"0": living, "1": living},
        },
        "launch.json": {
            "python": evil, "on_end": values.one_of(f"touch {values.canary}", evil), "base": str(folder), "silence": 300, "script": [evil],
            "options": [], "args": [], "env": {}, "workdir": str(folder), "restarts": {"max": 3, "backoff": 0, "args": []}, "metrics": GOOD["patterns"],
        },
        "stop.json": {"exit_code": values.one_of(0, 143, 99999), "by": victim["pid"]},
        "ranks/rank_0.json": {**rank, "exit_code": values.one_of(None, 1, 0, -9)},
        "ranks/rank_1.json": {**rank, "rank": 1, "ended": 1767323105.0, "exit_code": 1},
        "machine.json": json.loads(dump_json(machine(*gpus(2)).to_json())),
    }  # fmt: skip


def files(values: Values, folder: Path, victim: dict[str, Any]) -> dict[str, bytes]:
    """Return all files of a hostile job folder."""
    found = {name: dump_json(values.tampered(data)) for name, data in records(values, folder, victim).items() if values.chance(0.8)}
    found["plan.yaml"] = dump_json(plan(values))
    event = {"t": 1767323000.0, "event": "notice", "text": values.text()}
    found["events.jsonl"] = "\n".join(dump_json(values.tampered(event)) for _ in range(3))
    logs = ["logs/rank_0.log", "logs/rank_1.log", "launcher.log", *(["attempts/2/logs/rank_0.log"] if values.chance(0.2) else [])]
    return {
        **{name: text.encode("utf-8", "backslashreplace") for name, text in found.items()},
        **{log: b"".join(values.random.choices(LINES, k=values.random.randrange(12))) for log in logs},
        "arrivals.index": values.random.randbytes(values.one_of(0, 16, 1000)),
    }


def link_elsewhere(path: Path) -> None:
    """Create a symbolic link to a worthless file, which receives what is later written to the path."""
    other = path.with_name(f"{path.name}.elsewhere")
    other.write_text("root:x:0:0:root:/root:/bin/sh\n")
    path.symlink_to(other.name)


def replace_by_special_file(values: Values, path: Path) -> None:
    """Replace a file by something that blocks, never ends, or is not a file."""
    path.unlink()
    values.one_of(
        lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero"), path.mkdir, lambda: path.symlink_to(path.name),
        lambda: link_elsewhere(path), lambda: path.write_bytes(b"{" * 50_000), lambda: path.write_bytes(b"\xff" * 2_000_000),
    )()  # fmt: skip
