"""Zips that anybody may have written, opened only where reading them is bounded: their directory, and how their members are packed."""

from __future__ import annotations

import zipfile
from typing import Any, BinaryIO, cast

MOST_DIRECTORY = 8 << 20
"""Bytes of the table of contents, which zipfile reads at once and makes an object of half a kilobyte for each entry of: enough for 80,000
tensors."""
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members may be packed; the other ways expand without a bound at each read."""


def open_zip(file: BinaryIO) -> zipfile.ZipFile:
    """Open a zip for reading. Raises BadZipFile, also for a directory that is too large; OSError.

    The size of the directory is asked of the function by which zipfile itself finds it, so that both see the same record.
    """
    end = cast("Any", zipfile)._EndRecData(file)
    if end and end[cast("Any", zipfile)._ECD_SIZE] > MOST_DIRECTORY:
        raise zipfile.BadZipFile("its table of contents is too large: too many files")
    return zipfile.ZipFile(file)


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """Open a member for reading. Raises BadZipFile where its compression cannot be bounded."""
    if member.compress_type not in PACKED:
        raise zipfile.BadZipFile(f"{member.filename[:80]} is packed in an unusual way")
    return archive.open(member)
