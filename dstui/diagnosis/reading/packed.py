"""Logs that are compressed or in UTF-16: a gzip is read as a stream; a zip, such as one of `dstui bundle`, is unpacked temporarily.

A few kilobytes can expand to terabytes, so both have a limit. The members of a zip are written only into a temporary folder of their own.
"""

from __future__ import annotations

import codecs
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from dstui.base.files import FileProblem, reason
from dstui.base.zips import open_member, open_zip

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
UTF16 = {codecs.BOM_UTF16_LE: 1, codecs.BOM_UTF16_BE: 0}
"""The byte-order mark of UTF-16 -> the byte of each character that is zero in ASCII text."""
MOSTLY = 0.4
MAX_EXPANDED = 1 << 30
"""Bytes that one file may expand to."""
MAX_MEMBERS = 4096
GZIP_FORMAT = 16 + zlib.MAX_WBITS
MAX_PADDING = 64 << 20
"""Zero bytes after a gzip that are skipped; a sparse file may have any number of them."""
CHUNK = 1 << 20
KEPT = (".log", ".txt", ".out", ".err", ".json", ".jsonl", ".yaml", ".index", ".gz")
"""Suffixes of the members of a zip that are unpacked: logs and files of a job folder."""
TOO_LARGE = f"it expands to more than {MAX_EXPANDED >> 30} GiB: unpack it, and give the log that matters"


class Expanding:
    """A gzip as a stream of its expanded bytes; `broken`: it is truncated."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self._member: zlib._Decompress | None = zlib.decompressobj(wbits=GZIP_FORMAT)
        self._packed = b""
        self._left, self._padding = MAX_EXPANDED, MAX_PADDING
        self.broken = False

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; b"" at the end. Raises FileProblem for an invalid or too large gzip."""
        while self._member is not None:
            self._packed = self._packed or self._file.read(CHUNK)
            self.broken = not self._packed
            if self.broken:
                return b""
            try:
                found = self._member.decompress(self._packed, size)
            except zlib.error as error:
                raise FileProblem(f"{self._name}: not a whole gzip ({error})") from None
            self._packed = self._member.unconsumed_tail
            if self._member.eof:
                self._packed = self._member.unused_data
                self._member = self._next_member()
            self._left -= len(found)
            if self._left < 0:
                raise FileProblem(f"{self._name}: {TOO_LARGE}")
            if found:
                return found
        return b""

    def _next_member(self) -> zlib._Decompress | None:
        """Return a decompressor for the next gzip member, after zeros that fill a block; None if there is none."""
        while self._padding > 0:
            self._packed = (self._packed or self._file.read(CHUNK)).lstrip(b"\0")
            if self._packed:
                break
            if not (more := self._file.read(CHUNK)):
                return None
            self._padding -= len(more)
            self._packed = more.lstrip(b"\0")
        return zlib.decompressobj(wbits=GZIP_FORMAT) if self._packed.startswith(GZIP[:1]) else None


def is_utf16(head: bytes) -> bool:
    """Return whether a file with this beginning is UTF-16: a byte-order mark, and many zeros where ASCII has them."""
    zero = UTF16.get(head[:2])
    high = head[2 + zero :: 2] if zero is not None else b""
    return high.count(0) > MOSTLY * len(high)


class Transcoded:
    """A UTF-16 text, as PowerShell's `>` writes it, as a stream of UTF-8."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")

    def read(self, size: int) -> bytes:
        """Return about `size` bytes; b"" at the end."""
        while raw := self._file.read(size):
            if text := self._decoder.decode(raw):
                return text.encode(errors="replace")
        return self._decoder.decode(b"", final=True).encode(errors="replace")


def is_zip(path: Path | str) -> bool:
    """Return whether a path leads to a zip; `-` means standard input, from which nothing is consumed."""
    if str(path) == "-":
        return cast("BufferedReader", sys.stdin.buffer).peek(len(ZIP))[: len(ZIP)] == ZIP
    try:
        return Path(path).is_file() and _head(Path(path)) == ZIP
    except (OSError, ValueError):
        return False


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(ZIP))


@contextmanager
def unpacked(path: Path | str) -> Iterator[Path]:
    """Yield a temporary folder with the content of a zip; `-` means standard input. Raises FileProblem."""
    with tempfile.TemporaryDirectory(prefix="dstui-") as name, tempfile.NamedTemporaryFile(prefix="dstui-") as copy:
        folder, archived = Path(name), Path(path)
        try:
            if str(path) == "-":
                archived = Path(copy.name)
                _take_in(sys.stdin.buffer, copy.file)
            with archived.open("rb") as file, open_zip(file) as archive:
                _unpack(archive, folder, str(path))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:  # an encrypted zip is a RuntimeError
            raise FileProblem(f"{path}: this zip cannot be read ({error})") from None
        except (OSError, ValueError) as error:
            raise FileProblem(f"{path}: {reason(error)}") from None
        inside = [child for child in folder.iterdir() if child.is_dir()]
        yield inside[0] if len(inside) == 1 and len(list(folder.iterdir())) == 1 else folder


def _take_in(source: BinaryIO, file: IO[bytes]) -> None:
    """Copy a whole stream into a file, since a zip's directory is at its end."""
    left = MAX_EXPANDED
    while chunk := source.read(CHUNK):
        left -= len(chunk)
        if left < 0:
            raise FileProblem(f"-: {TOO_LARGE}")
        file.write(chunk)
    file.flush()


def _unpack(archive: zipfile.ZipFile, folder: Path, name: str) -> None:
    left = MAX_EXPANDED
    members = [member for member in archive.infolist() if not member.is_dir() and PurePosixPath(member.filename).suffix in KEPT]
    for member in members[:MAX_MEMBERS]:
        parts = PurePosixPath(member.filename).parts
        if ".." in parts or PurePosixPath(member.filename).is_absolute():
            continue
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_member(archive, member) as packed, target.open("xb") as file:
            while chunk := packed.read(CHUNK):
                left -= len(chunk)
                if left < 0:
                    raise FileProblem(f"{name}: {TOO_LARGE}")
                file.write(chunk)
