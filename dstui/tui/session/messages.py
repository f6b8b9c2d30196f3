"""Messages: one dataclass per event. Threads and flows post them; the app and its screens handle them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from textual.message import Message

from dstui.base.dataclass import dataclass

if TYPE_CHECKING:
    from dstui.check.reference import ReferenceVerdict
    from dstui.jobs.store.folder import JobFolder
    from dstui.machine.live import GpuState
    from dstui.machine.snapshot import Machine
    from dstui.plan import Plan
    from dstui.tui.session.file_lookups import Lookup


@dataclass(eq=False)
class Probed(Message):
    """The machine was probed."""

    machine: Machine


@dataclass(eq=False)
class GpusRefreshed(Message):
    """The current state of the GPUs, by index."""

    states: Mapping[int, GpuState]


@dataclass(eq=False)
class LookupsDone(Message):
    """The files around the Plan were looked up."""

    lookups: Mapping[Lookup, Any]


@dataclass(eq=False)
class Validated(Message):
    """DeepSpeed's own parser has judged the Plan with this text."""

    text: str
    verdict: ReferenceVerdict


@dataclass(eq=False)
class InterpreterNamed(Message):
    """The Plan names an interpreter that the user has not allowed dstui to run yet."""

    plan: Plan


@dataclass(eq=False)
class DraftFailed(Message):
    """A draft could not be written; the reason in a sentence."""

    why: str


@dataclass(eq=False)
class JobStateChanged(Message):
    """The state of the job in view has changed: running, succeeded, failed…; "" if there is none."""

    word: str


@dataclass(eq=False)
class PathChosen(Message):
    """A row was chosen that stands for a key of the Plan: its dotted path."""

    path: str


@dataclass(eq=False)
class FilesChanged(Message):
    """Files around the Plan were written or removed."""


@dataclass(eq=False)
class Launched(Message):
    """A job was started in this folder, or chosen to be shown."""

    folder: JobFolder
    again: bool = False
    """True to launch it once more."""


@dataclass(eq=False)
class FixApplied(Message):
    """The Plan of a failed job was fixed; describes the change, without a full stop."""

    text: str
