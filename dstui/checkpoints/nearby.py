"""Find checkpoints a few levels below some folders: folders with a `latest` file, or with the files of one tag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

DEEP, FOLDERS, MAX_FOUND = 3, 2000, 9
"""Levels and folders that are searched, and checkpoints that are returned."""


def checkpoints_near(places: Iterable[Path]) -> list[Path]:
    """Return the folders with a `latest` file, newest first. May block on a slow disk; never raises."""
    found: dict[Path, float] = {}
    for place in places:
        for folder in islice(_below(place, DEEP), FOLDERS):
            with suppress(OSError):
                for name in ("latest", "latest_universal"):
                    if (folder / name).is_file():
                        found.setdefault(folder.resolve(), (folder / name).stat().st_mtime)
    return sorted(found, key=lambda path: -found[path])[:MAX_FOUND]


def _below(folder: Path, levels: int) -> Iterator[Path]:
    """Yield a folder and those below it, without following links or entering hidden folders."""
    yield folder
    with suppress(OSError):
        for inner in sorted(folder.iterdir()) if levels else ():
            if not inner.name.startswith(".") and not inner.is_symlink() and inner.is_dir():
                yield from _below(inner, levels - 1)
