"""Drafts: unsaved edits on disk, so that a crash, a kill or a lost connection loses none of them; and the Plans that were open last.

Every session has one file in the user's state folder, which is deleted as soon as nothing is unsaved. The document itself is never touched.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_file, make_folder, read_text, write_atomic
from dstui.base.limits import parse_json
from dstui.base.regular_files import read_regular

if TYPE_CHECKING:
    from dstui.plan import Plan


@dataclass(frozen=True, slots=True)
class Draft:
    """A document with unsaved edits, and the session that edits it."""

    document: str
    """The identity of the edited document: see `document_of`."""
    began: str
    """The text on disk from which the edits began."""
    text: str
    source: str
    base: str
    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    ticks: int = field(default_factory=lambda: _ticks(os.getpid()))
    """The start of that process, in clock ticks since boot."""

    @property
    def file(self) -> Path:
        """Return the file of this session's draft."""
        return drafts_folder() / f"{self.host}-{self.pid}-{self.ticks}.json"

    @property
    def left_behind(self) -> bool:
        """Return whether its session has ended; on another host (a shared home) that is unknown and assumed."""
        return self.host != socket.gethostname() or _ticks(self.pid) != self.ticks

    def keep(self) -> None:
        """Write the draft; delete it if nothing is unsaved. Raises FileProblem or OSError."""
        import json

        if self.text == self.began:
            self.forget()
        else:
            make_folder(self.file.parent, 0o700)
            write_atomic(self.file, json.dumps(asdict(self)), replace=True, private=True)

    def forget(self) -> None:
        """Delete the draft."""
        with suppress(OSError):
            self.file.unlink(missing_ok=True)


def drafts_folder() -> Path:
    """Return the folder of all drafts of this user."""
    from platformdirs import user_state_path

    return user_state_path("dstui") / "drafts"


def document_of(plan: Plan, path: Path | None) -> str:
    """Return the identity of a document across sessions: its file or, if it has none yet, its origin and folder."""
    return str(path.absolute()) if path is not None else f"{Path(plan.source).absolute()} in {Path.cwd()}"


def unnamed_here(document: str) -> bool:
    """Return whether a document has no file yet and was started in this folder."""
    return document.endswith(f" in {Path.cwd()}")


def left_behind() -> list[Draft]:
    """Return the drafts of ended sessions, the newest first. Unreadable ones are skipped."""
    import json

    found = []
    with suppress(OSError):
        for file in drafts_folder().glob("*.json"):
            with suppress(OSError, ValueError, TypeError, RecursionError):
                found.append(Draft(**json.loads(read_regular(file))))
    return sorted((draft for draft in found if draft.left_behind), key=lambda draft: -draft.at)


def take_over(old: Draft, mine: Draft) -> None:
    """Continue the edits of an ended session in this one; at every moment they are on disk."""
    with suppress(FileProblem, OSError):
        mine.keep()
        old.forget()


def _ticks(pid: int) -> int:
    from dstui.jobs.store.processes import find

    process = find(pid)
    return process.ticks if process is not None else 0


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
