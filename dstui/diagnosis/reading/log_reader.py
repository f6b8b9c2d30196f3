"""Read logs of any size with bounded memory: each line once, in chunks; of a huge file its head and its tail.

After MAX_NEW lines that do not recur, the middle of a file of such lines is only examined near words about a failure.

100 MB of ordinary training output take half a second of CPU time, nearly all of it to find out that they contain nothing.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Protocol, cast

from dstui.base.files import FileProblem, reason
from dstui.base.regular_files import open_within
from dstui.diagnosis.findings import Collected, Findings
from dstui.diagnosis.reading.packed import GZIP, Expanding, Transcoded, is_utf16
from dstui.diagnosis.recognition.dumps import LARGEST, NAMED, Dump, add_dumps, is_dump, read_dump
from dstui.diagnosis.recognition.labels import rank_of_file
from dstui.diagnosis.recognition.scan import Scanner
from dstui.diagnosis.recognition.shapes import DIGITS
from dstui.logs.decode import LONGEST, decode, overwritten

CHUNK = 1 << 20
Chunk = tuple[int, list[bytes]]
"""The number of the first line, and the lines."""
HEAD, TAIL = 64 << 20, 448 << 20
"""Bytes of a huge file that are read at its two ends. In between, lines are only counted."""
HEAD_SHOWN = 1024
"""Bytes at the beginning that show the encoding of a file."""
HEAD_LINES = 20
"""Lines at the beginning that show the prefix of all lines."""
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
"""Colour escapes, which notebooks insert within words."""
HEADER = b"Traceback (most recent"
BEFORE = 8
"""Lines above the head of a traceback that show what the program was doing."""
MAX_NEW = 200_000
"""Lines unlike all earlier ones that are examined, of all files together. Beyond it, parts of such lines are searched for ERRORS only."""
NEW_IN_CHUNK = 100
"""Such lines in one chunk that show that its lines do not recur."""
ERRORS = (
    b"rror", b"xception", b"raceback", b"illed", b"atal", b"bort", b"SIG", b"ailed", b"FAILED", b"CANCELLED", b"out of memory", b"atchdog",
)  # fmt: skip
"""Words of lines about a failure."""
ABOVE, BELOW = 5, 60
"""Lines around a line with one of ERRORS that are examined, too."""
LAST_LINES = 1000
"""Lines at the end of a file that are examined in any case."""
TAIL_LINES = 12
MAX_BLANK = 50
"""Lines from the end among which the last non-blank ones are searched."""
SUFFIXES = (".log", ".txt", ".out", ".err")
NO_LOGS = ("contents.txt", "diagnosis.txt")
MAX_FILES = 4096


def read_logs(paths: Iterable[Path | str]) -> Findings:
    """Return what files, folders of logs and, as `-`, standard input contain. Raises FileProblem if one cannot be read."""
    return collect_logs(paths).finished()


def collect_logs(paths: Iterable[Path | str], names: dict[str, int] | None = None, within: Path | None = None) -> Collected:
    """Scan files, folders of logs and, as `-`, standard input. Raises FileProblem if one cannot be read.

    `names`: the ranks of files by path, if their names do not tell. `within`: the folder that contains all files, named without links;
    links that lead out of it are skipped.
    """
    scanner, dumps = Scanner(), list[Dump]()
    for path in log_files(paths):
        rank = (names or {}).get(path, rank_of_file(path))
        scanner.begin(path, rank)
        try:
            if path == "-":
                _read(cast("BufferedReader", sys.stdin.buffer), scanner, path)
            else:
                with _opened(path, within) as file:
                    if is_dump(path, file.peek(HEAD_SHOWN)[:HEAD_SHOWN]):
                        dumps += _dump(file, scanner.found, path)
                    else:
                        _read(file, scanner, path)
        except OSError as error:
            raise FileProblem(f"{path}: {error.strerror or error}") from None
    add_dumps(scanner.found, dumps)
    return scanner.found


def _dump(file: BufferedReader, found: Collected, path: str) -> list[Dump]:
    """Read what the flight recorder of a rank wrote; add a note if it cannot be used."""
    dump = read_dump(path, len(found.files) - 1, file.read(LARGEST))
    if dump is None:
        found.cut.append(f"{path} is not a whole dump of PyTorch's flight recorder.")
    return [dump] if dump else []


def _opened(path: str, within: Path | None) -> BufferedReader:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if within is None else open_within(path, within)
    return open(os.open(os.devnull, os.O_RDONLY) if fd is None else fd, "rb")  # noqa: PTH123 - a descriptor


def log_files(paths: Iterable[Path | str]) -> list[str]:
    """Return the files to read; of a folder those that look like logs. Raises FileProblem for missing files and other kinds of files."""
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
            inside = [str(file) for file in sorted(Path(path).rglob("*")) if _is_log(file)]
            if not inside:
                raise FileProblem(f"{path}: no log in this folder (files that end in {', '.join(SUFFIXES)})")
            found += inside[:MAX_FILES]
        elif stat.S_ISREG(mode):
            found.append(str(path))
        else:
            raise FileProblem(f"{path}: neither a file nor a folder")
    return list(dict.fromkeys(found))


def _is_log(path: Path) -> bool:
    """Return whether a file of a folder looks like a log. Other files of `dstui bundle` do not."""
    name = path.with_suffix("") if path.suffix == ".gz" else path
    named = name.suffix in SUFFIXES or rank_of_file(name.suffix) is not None or NAMED.match(path.name) is not None
    return named and path.name not in NO_LOGS and path.is_file()


def _read(file: BufferedReader, scanner: Scanner, name: str) -> None:
    """Read one file, compressed or not."""
    head = file.peek(CHUNK)[:HEAD_SHOWN]
    if is_utf16(head):
        _scan(Transcoded(file), scanner, name)
        return
    if not head.startswith(GZIP):
        _scan(file, scanner, name, _size(file))
        return
    expanding = Expanding(file, name)
    _scan(expanding, scanner, name)
    if expanding.broken:
        scanner.found.cut.append(f"{name} breaks off: the gzip is not whole.")


def _size(file: BufferedReader) -> int:
    """Return the size of a file in bytes; 0 if unknown."""
    return os.fstat(file.fileno()).st_size if file.seekable() else 0


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; b"" at the end."""
        ...


def _scan(file: Readable, scanner: Scanner, name: str, size: int = 0) -> None:
    """Scan the lines of a file; `size`: its bytes, if it is seekable."""
    begun = False
    tail: deque[tuple[int, bytes]] = deque(maxlen=MAX_BLANK)
    nothing = scanner.shapes.nothing
    for (first, lines), last_one in _with_last(_chunks(file, size)):
        scanner.found.lines += len(lines)
        if not begun:
            scanner.learn_beginning([decode(line[:LONGEST]) for line in lines[:HEAD_LINES] if line.strip()])
            if len(scanner.found.files) == 1:
                scanner.shapes.learn_beginning(lines[:HEAD_LINES])
            begun = True
        # All lines of a log pass through this loop: 0.6 µs for a line like an earlier one.
        new = scanner.shapes.searched + NEW_IN_CHUNK if scanner.shapes.searched > MAX_NEW else sys.maxsize
        for number, line in enumerate(lines, first):
            if line.translate(None, DIGITS) not in nothing:
                _scan_line(scanner, number, line, lines[max(number - first - BEFORE, 0) : number - first])
                if scanner.shapes.searched > new:
                    _scan_errors(scanner, first, lines, number + 1 - first, LAST_LINES if last_one else 0)
                    break
        tail.extend(enumerate(lines[-MAX_BLANK:], first + max(len(lines) - MAX_BLANK, 0)))
    scanner.found.deepspeed |= scanner.shapes.deepspeed
    worded = [(number, line) for number, line in tail if line and not line.isspace()]
    last = worded[-TAIL_LINES:]
    scanner.found.tails[name] = [decode(line) for _, line in last]
    scanner.found.width[len(scanner.found.files) - 1] = sum(len(line) + 1 for _, line in tail) / max(len(tail), 1)
    scanner.end([(number, decode(line)) for number, line in last], [(number, overwritten(line)) for number, line in worded])


def _scan_errors(scanner: Scanner, first: int, lines: list[bytes], begin: int, whole: int) -> None:
    """Scan only the lines from index `begin` on that are near a line about a failure, and the last `whole` ones."""
    text = b"\n".join(lines[begin:])
    if b"\x1b" in text:
        text = COLOUR.sub(b"", text)
    ends = [found.start() for found in re.finditer(b"\n", text)]
    marked = set(range(max(len(lines) - whole, begin), len(lines)))
    for word in ERRORS:
        at = text.find(word)
        while at >= 0:
            index = bisect_left(ends, at)
            marked.update(range(begin + max(index - ABOVE, 0), min(begin + index + BELOW, len(lines))))
            at = text.find(word, ends[index]) if index < len(ends) else -1
    for index in sorted(marked):
        _scan_line(scanner, first + index, lines[index], lines[max(index - BEFORE, 0) : index])


def _with_last(chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, bool]]:
    """Yield each chunk, and whether only a few lines follow it."""
    held = next(chunks, None)
    for chunk in chunks:
        if held is not None:
            yield held, len(chunk[1]) < LAST_LINES
        held = chunk
    if held is not None:
        yield held, True


def _scan_line(scanner: Scanner, number: int, line: bytes, before: list[bytes]) -> None:
    """Scan a line of a new shape, or one that may have a sign, with the lines above it. Text overwritten by a progress bar counts too."""
    if len(line) > LONGEST:
        line = line[: LONGEST // 2] + b" " + line[-LONGEST // 2 :]
    if b"\x1b" in line:
        line = COLOUR.sub(b"", line)
    for segment in line.split(b"\r") if b"\r" in line else (line,):
        if (shape := scanner.shapes.match(segment)) is not None:
            above = before if HEADER in segment else before[-1:] if shape.signs else []
            scanner.feed(number, decode(segment), shape, [decode(one[-LONGEST:]) for one in above])


def _chunks(file: Readable, size: int) -> Iterator[Chunk]:
    """Yield lines in chunks, each with the number of its first line. A line without end is split into pieces of CHUNK."""
    number, rest, position = 1, b"", 0
    while chunk := file.read(CHUNK):
        position += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield number, lines
            number += len(lines)
        if len(rest) > CHUNK:
            yield number, [rest]
            rest = b""
        if size > HEAD + TAIL and HEAD <= position < size - TAIL:
            skipped = _skip(file, size - TAIL - position)
            number, position, rest = number + skipped, size - TAIL, b""
    if rest:
        yield number, [rest]


def _skip(file: Readable, count: int) -> int:
    """Skip `count` bytes and return the number of lines in them. The next read begins within a line."""
    passed = 0
    while count > 0 and (chunk := file.read(min(CHUNK, count))):
        passed += chunk.count(b"\n")
        count -= len(chunk)
    return passed
