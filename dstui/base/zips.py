"""Open zip files from outside only if reading them is bounded: by the size of their directory and the compression of their members."""

from __future__ import annotations

import zipfile
from typing import Any, BinaryIO, cast

MAX_DIRECTORY = 8 << 20
"""Bytes of the central directory. zipfile reads it at once and makes an object of half a kilobyte for each entry. Enough for 80,000
tensors."""
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compression methods that are accepted. The others expand without a bound at each read."""


def open_zip(file: BinaryIO) -> zipfile.ZipFile:
    """Open a zip for reading. Raises BadZipFile (also if the directory is too large) or OSError.

    zipfile's own function finds the directory, so that the check and the reader see the same record.
    """
    end = cast("Any", zipfile)._EndRecData(file)
    if end and end[cast("Any", zipfile)._ECD_SIZE] > MAX_DIRECTORY:
        raise zipfile.BadZipFile("its table of contents is too large: too many files")
    return zipfile.ZipFile(file)


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """Open a member for reading. Raises BadZipFile where its compression cannot be bounded."""
    if member.compress_type not in PACKED:
        raise zipfile.BadZipFile(f"{member.filename[:80]} uses an unusual compression")
    return archive.open(member)
