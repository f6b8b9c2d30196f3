"""What has happened, as messages: one dataclass each. Threads and flows post them; handlers of the app and its screens act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from dstui.check.reference import ReferenceVerdict
    from dstui.jobs.store.folder import JobFolder
    from dstui.machine.live import GpuState
    from dstui.machine.snapshot import Machine
    from dstui.plan import Plan
    from dstui.tui.session.file_lookups import Lookup


@dataclass(eq=False)
class Probed(Message):
    """This machine was looked at."""

    machine: Machine


@dataclass(eq=False)
class GpusRefreshed(Message):
    """The GPUs as they are this second, by index."""

    states: Mapping[int, GpuState]


@dataclass(eq=False)
class LookupsDone(Message):
    """The files around the Plan were looked up."""

    lookups: Mapping[Lookup, Any]


@dataclass(eq=False)
class Validated(Message):
    """DeepSpeed's own parser has judged the Plan of this text."""

    text: str
    verdict: ReferenceVerdict


@dataclass(eq=False)
class InterpreterNamed(Message):
    """The Plan names an interpreter of its own, and the user has not said yet whether it may be run for looking."""

    plan: Plan


@dataclass(eq=False)
class DraftFailed(Message):
    """A draft of unsaved edits could not be written: a sentence."""

    why: str


@dataclass(eq=False)
class JobStateChanged(Message):
    """The job that is looked at is in another state: running, succeeded, failed…; "" where none is looked at."""

    word: str


@dataclass(eq=False)
class PathChosen(Message):
    """Something was chosen that stands for a key of the Plan: its dotted path."""

    path: str


@dataclass(eq=False)
class FilesChanged(Message):
    """Files around the Plan were written or removed."""


@dataclass(eq=False)
class Launched(Message):
    """A job was started, in this folder; or one is chosen to be looked at."""

    folder: JobFolder
    again: bool = False
    """Whether it is to be started once more."""


@dataclass(eq=False)
class FixApplied(Message):
    """The Plan of a job that failed was repaired: what was done, in a sentence without its full stop."""

    text: str
