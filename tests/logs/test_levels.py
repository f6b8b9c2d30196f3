"""Levels of lines: usual spellings, complete tracebacks, and no progress bars."""

from __future__ import annotations

import pytest

from dstui.logs.levels import ALL, ERROR, WARNING, Levels, level_of, may_have_level

LINES = {
    ERROR: [
        "ERROR: no such file",
        "[2026-01-01 00:00:00,000] [ERROR] [launch.py:325:sigkill_handler] exits with return code = 1",
        "RuntimeError: CUDA out of memory",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "[rank0]:[E1121 14:02:15.123 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation timeout",
        "E1121 14:02:15.123000 4711 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1)",
        "[E] something",
        "train.py: error: unrecognized arguments: --foo",
        "Segmentation fault (core dumped)",
        "CRITICAL:root:no way",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "  what():  NCCL watchdog thread terminated",
        "Traceback (most recent call last):",
    ],
    WARNING: [
        "WARNING:root:careful",
        "[WARNING] async_io requires the dev libaio",
        "[W] NCCL watchdog",
        "[rank1]:[W1121 14:02:15.000 ProcessGroupNCCL.cpp:1250] Warning: not destroyed",
        "W1121 14:02:15.123000 4711 torch/distributed/run.py:766] OMP_NUM_THREADS",
        "/x/lib.py:10: UserWarning: old",
        "warning: deprecated",
    ],
    ALL: [
        "step 1204 loss 1.8312",
        "errors so far: 0",
        "[INFO] no warnings",
        " 10%|█ | 3/30 [00:01<00:09, ERROR: 0]",
        "mean_absolute_error 0.5",
        "",
    ],
}


@pytest.mark.parametrize(("level", "line"), [(level, line) for level, lines in LINES.items() for line in lines])
def test_line_has_its_level(level: int, line: str) -> None:
    assert level_of(line.encode()) == level
    assert level == ALL or may_have_level(b"a\n" + line.encode())


@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_traceback_is_kept_complete_without_following_lines(prefix: str) -> None:
    trace = [
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "    main()",
        "    ~~~~^^",
        "KeyboardInterrupt",
    ]
    lines = ["step 1", *(prefix + line for line in trace), "step 2"]
    levels = Levels(ERROR)
    assert [line for line in lines if levels.keep(3, line.encode())] == lines[1:-1]


def test_traceback_of_one_rank_keeps_no_line_of_another() -> None:
    levels = Levels(ERROR)
    assert levels.keep(1, b"Traceback (most recent call last):")
    assert not levels.keep(2, b"  indented")
    assert levels.keep(1, b"  indented")


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[31mERROR\x1b[0m no such file",
        "2026-01-01 | \x1b[31m\x1b[1mERROR   \x1b[0m | train:12 - no such file",
        "\x1b[38;2;255;0;0mERR\x1b[1mOR\x1b[0m: no such file",
        " 10%|█ | 3/30 [00:01<00:09]\r\x1b[KERROR: no such file",
    ],
)
def test_level_is_read_from_the_shown_text(line: str) -> None:
    assert Levels(ERROR).keep(1, line.encode())


@pytest.mark.parametrize(
    "trace",
    [
        ["Traceback (most recent call last):", '  File \x1b[35m"a.py"\x1b[0m', "\x1b[1;35mKeyboardInterrupt\x1b[0m"],
        ["\x1b[31m╭──\x1b[0m Traceback (most recent call last) ──╮", "\x1b[31m│\x1b[0m a.py:3", "╰──╯", "\x1b[1mKeyboardInterrupt"],
    ],
)
def test_coloured_traceback_is_kept_complete(trace: list[str]) -> None:
    levels = Levels(ERROR)
    assert [line for line in ("step 1", *trace, "step 2") if levels.keep(3, line.encode())] == trace


def test_fast_path_gives_the_same_levels() -> None:
    lines = [b"step %d" % n for n in range(600)]
    lines[300:303] = [b"Traceback (most recent call last):", b'  File "a.py", line 1', b"KeyError: 1"]
    lines[255], lines[590] = b"[E] at the end of a piece", b"\x1b[31mERROR\x1b[0m red"
    logs = [n % 2 for n in range(600)]
    logs[300:303] = [1, 1, 1]
    alone = Levels(ERROR)
    expected = [n for n, line in enumerate(lines) if alone.keep(logs[n], line)]
    assert Levels(ERROR).select(logs, lines) == expected
    assert {255, 300, 301, 302, 590} <= set(expected)
