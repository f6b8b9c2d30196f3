"""Reading logs of any size with bounded memory: each line once, in chunks; of a huge file its head and its tail.

100 MB of ordinary training output take half a second of CPU time, nearly all of it for finding out that nothing is in it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from dstui.files import FileProblem, reason
from dstui.logs.decode import LONGEST, decode
from dstui.run.diagnosis.findings import Findings
from dstui.run.diagnosis.lines import rank_of_file
from dstui.run.diagnosis.scan import Scanner
from dstui.run.diagnosis.shapes import DIGITS

CHUNK = 1 << 20
HEAD, TAIL = 64 << 20, 448 << 20
"""Bytes of a huge file that are read at its two ends; in between only lines are counted."""
TAIL_LINES = 12
MOST_BLANK = 50
"""Lines from the end among which the last ones with words are looked for."""
SUFFIXES = (".log", ".txt", ".out", ".err")
MOST_FILES = 4096


def read_logs(paths: Iterable[Path | str], names: dict[str, int] | None = None) -> Findings:
    """Scan files, folders of logs and, as `-`, standard input. Raises FileProblem where one cannot be read.

    `names`: ranks of files, by path, where that is known better than from their names.
    """
    scanner = Scanner()
    for path in log_files(paths):
        rank = (names or {}).get(path, rank_of_file(path))
        scanner.begin(path, rank)
        try:
            if path == "-":
                _scan(sys.stdin.buffer, scanner, path)
            else:
                with Path(path).open("rb") as file:
                    _scan(file, scanner, path)
        except OSError as error:
            raise FileProblem(f"{path}: {error.strerror or error}") from None
    return scanner.found


def log_files(paths: Iterable[Path | str]) -> list[str]:
    """The files to read: of a folder, whatever looks like a log. Raises FileProblem for what is not there, or is no log."""
    found: list[str] = []
    for path in paths:
        if str(path) == "-":
            found.append("-")
            continue
        try:
            mode = Path(path).stat().st_mode
        except (OSError, ValueError) as error:
            raise FileProblem(f"{path}: {reason(error)}") from None
        if stat.S_ISDIR(mode):
            inside = [str(file) for file in sorted(Path(path).rglob("*")) if file.suffix in SUFFIXES and file.is_file()]
            if not inside:
                raise FileProblem(f"{path}: no log in this folder (files that end in {', '.join(SUFFIXES)})")
            found += inside[:MOST_FILES]
        elif stat.S_ISREG(mode):
            found.append(str(path))
        else:
            raise FileProblem(f"{path}: neither a file nor a folder")
    return list(dict.fromkeys(found))


def _scan(file: BinaryIO, scanner: Scanner, name: str) -> None:
    tail: deque[tuple[int, bytes]] = deque(maxlen=MOST_BLANK)
    nothing = scanner.shapes.nothing
    for first, lines in _chunks(file):
        scanner.found.lines += len(lines)
        # The loop that all of a log goes through: 0.6 µs for a line that is like one before.
        for number, line in enumerate(lines, first):
            if line.translate(None, DIGITS) not in nothing:
                _scan_line(scanner, number, line)
        tail.extend(enumerate(lines[-MOST_BLANK:], first + max(len(lines) - MOST_BLANK, 0)))
    last = [(number, decode(line)) for number, line in tail if line and not line.isspace()][-TAIL_LINES:]
    scanner.found.tails[name] = [line for _, line in last]
    scanner.end(last)


def _scan_line(scanner: Scanner, number: int, line: bytes) -> None:
    """A line that is like none before, or can hold something; what a progress bar has overwritten counts too."""
    if len(line) > LONGEST:
        line = line[: LONGEST // 2] + b" " + line[-LONGEST // 2 :]
    for segment in line.split(b"\r") if b"\r" in line else (line,):
        if (shape := scanner.shapes.match(segment)) is not None:
            scanner.feed(number, decode(segment), shape)


def _chunks(file: BinaryIO) -> Iterator[tuple[int, list[bytes]]]:
    """Lines, some at a time, and the number of the first. A line that never ends is given in pieces of CHUNK."""
    size = os.fstat(file.fileno()).st_size if file.seekable() else 0
    number, rest = 1, b""
    while chunk := file.read(CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield number, lines
            number += len(lines)
        if len(rest) > CHUNK:
            yield number, [rest]
            rest = b""
        if size > HEAD + TAIL and HEAD <= file.tell() < size - TAIL:
            number += _skip(file, size - TAIL)
            rest = b""
    if rest:
        yield number, [rest]


def _skip(file: BinaryIO, until: int) -> int:
    """Read on to an offset, and then to the next line's beginning; how many lines were passed over."""
    passed = 0
    while file.tell() < until and (chunk := file.read(min(CHUNK, until - file.tell()))):
        passed += chunk.count(b"\n")
    file.readline()
    return passed + 1
