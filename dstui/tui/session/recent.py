"""The Plans that were open last, for the start screen and the palette: a list of paths in the user's state folder."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from dstui.base.files import FileProblem, is_file, read_text, write_atomic
from dstui.base.limits import parse_json

KEPT, LONGEST = 20, 4096


def recent_plans(most: int = KEPT) -> list[Path]:
    """Return those that are still there, the last one first. Blocks as long as their disks do; never raises."""
    found = [Path(path) for path in _listed()]
    return [path for path in found if is_file(path)][:most]


def note_plan(path: Path) -> None:
    """Put a Plan's file at the head of the list. Where that is not possible, the list is as it was."""
    name = str(path.absolute())
    with suppress(FileProblem, OSError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps([name, *(other for other in _listed() if other != name)][:KEPT], indent=1) + "\n", replace=True)


def _file() -> Path:
    from platformdirs import user_state_path

    return user_state_path("dstui") / "recent.json"


def _listed() -> list[str]:
    try:
        found = parse_json(read_text(_file())) if is_file(_file()) else []
    except (FileProblem, OSError, ValueError):
        return []
    texts = found if isinstance(found, list) else []
    return [path for path in texts if isinstance(path, str) and 0 < len(path) <= LONGEST and "\0" not in path]
