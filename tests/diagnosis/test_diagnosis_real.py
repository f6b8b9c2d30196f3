"""Real crash logs (made by tests/long/make_crash_logs.py under the real launchers): cause and rank, however the lines arrive."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from dstui.diagnosis import diagnose

LOGS = Path(__file__).parent / "crash_logs"
ANY = -1
"""Several ranks fail at once: any of them may be first."""
EXPECTED: dict[str, tuple[str, int | None]] = {
    "config-auto": ("AUTO-UNRESOLVED", ANY),
    "config-batch": ("BATCH-ASSERT", ANY),
    "config-both": ("BOTH-PRECISION", ANY),
    "config-scheduler": ("OPT-SCHED-NAME", ANY),
    "config-stage-4": ("UNKNOWN-KEY", ANY),
    **{f"{launcher}-raise": ("USER-PY", 1) for launcher in ("deepspeed", "torchrun")},
    **{f"{launcher}-kill": ("KILLED-UNKNOWN", 1) for launcher in ("deepspeed", "torchrun")},
    **{f"{launcher}-segfault": ("SIGSEGV", 1) for launcher in ("deepspeed", "torchrun")},
    **{f"{launcher}-abort": ("SIGABRT", 1) for launcher in ("deepspeed", "torchrun")},
    **{f"{launcher}-exit-3": ("EARLY-EXIT", 1) for launcher in ("deepspeed", "torchrun")},
    **{f"{launcher}-exit-1": ("EARLY-EXIT", 1) for launcher in ("deepspeed", "torchrun")},
    **{f"{launcher}-skip": ("DESYNC-EARLY-EXIT", 1) for launcher in ("deepspeed", "torchrun")},
    **{f"{launcher}-memory": ("ALLOC-REFUSED", 1) for launcher in ("deepspeed", "torchrun")},
    "import": ("IMPORT-MISSING", None),
    "shape": ("USER-SHAPE", ANY),
    "success": ("SUCCESS", None),
    "no-checkpoint": ("CKPT-LATEST", None),
    "no-script": ("NO-SCRIPT", None),
    "strict-arguments": ("LOCAL-RANK-ARG", 0),
    "no-launcher": ("MPI4PY", ANY),
    "hostfile-twice": ("HOSTFILE-BAD", None),
    "exclude-all": ("EXCLUDE-ALL", None),
    "port-in-use": ("PORT-IN-USE", None),
    "never-joins": ("RDZV-TIMEOUT", 1),
    "deepspeed-SIGINT": ("CTRL-C", None),
    "torchrun-SIGTERM": ("CTRL-C", None),
}
LABELLED = re.compile(r"\[rank(\d+)\]: ?(.*)")


def agrees(paths: list[Path], name: str) -> None:
    """Assert the expected diagnosis of these files."""
    cause, rank = EXPECTED[name]
    found = diagnose(paths)
    assert found.cause == cause
    assert found.kind == {"CTRL-C": "stop", "SUCCESS": "success"}.get(cause, "failure")
    assert rank in (found.first_failing_rank, ANY)


@pytest.mark.parametrize("name", EXPECTED)
def test_real_crash_is_named_with_its_rank(name: str) -> None:
    agrees([LOGS / f"{name}.txt"], name)


@pytest.mark.parametrize("prefix", ["worker-1: ", "0: ", "2026-03-01T10:00:00.123456789Z stdout F ", "[1,0]<stdout>:"])
@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith(("deepspeed", "torchrun-r", "torchrun-k", "config"))])
def test_label_before_every_line_changes_nothing(tmp_path: Path, name: str, prefix: str) -> None:
    log = tmp_path / "log"
    log.write_text("".join(prefix + line + "\n" for line in (LOGS / f"{name}.txt").read_text().splitlines()))
    cause, rank = EXPECTED[name]
    found = diagnose([log])
    assert found.cause == cause
    assert rank in (found.first_failing_rank, ANY) or prefix in ("0: ", "[1,0]<stdout>:")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith(("deepspeed", "torchrun", "config"))])
def test_rank_files_and_launcher_file_give_the_same_in_any_order(tmp_path: Path, name: str, turned: bool) -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for line in (LOGS / f"{name}.txt").read_text().splitlines():
        found = LABELLED.match(line)
        files[f"rank_{found[1]}.log" if found else "launcher.log"].append(found[2] if found else line)
    paths = []
    for file, lines in files.items():
        (tmp_path / file).write_text("\n".join(lines))
        paths.append(tmp_path / file)
    agrees(sorted(paths, reverse=turned), name)


@pytest.mark.parametrize("name", EXPECTED)
def test_crlf_colours_and_a_progress_bar_change_nothing(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log"
    bar = b" 33%|###   | 1/3\r 66%|####  | 2/3\r"
    lines = (LOGS / f"{name}.txt").read_bytes().splitlines()
    log.write_bytes(b"".join((bar if b"step" in line else b"\x1b[0m") + line + b"\r\n" for line in lines))
    agrees([log], name)
