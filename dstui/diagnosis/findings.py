"""The content of logs before it is judged: matched signatures, ends of processes, facts of the launchers; and the verdict.

`Collected` is filled while lines are read. Every later stage gets `Findings`, which cannot change.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.diagnosis.diagnosis import Confidence, Evidence
from dstui.diagnosis.recognition.exits import Exit
from dstui.diagnosis.recognition.traces import Raised
from dstui.diagnosis.signature import Signature

Place = tuple[int, int]
"""The position of a text: file and line."""
TEXT_CAP, END_CAP = 600, 120
FACTS = "facts"
"""The stream of hits that come from the supervisor's facts about the machine, not from a log."""


def capped(text: str) -> str:
    """Return a line for storage: of a long one its beginning and its end, which shows how a command ended."""
    return text if len(text) <= TEXT_CAP else f"{text[: TEXT_CAP - END_CAP]} … {text[-END_CAP:]}"


@dataclass(frozen=True, slots=True)
class Hit:
    """A signature that matched a line."""

    signature: Signature
    at: Place
    text: str
    stream: str
    rank: int | None = None
    host: str | None = None
    task: int | None = None
    local: int | None = None
    time: float | None = None
    raised: Raised | None = None
    """The exception, if the line is one."""
    noticed: Place | None = None
    """The place of its first consequence, if that was reported earlier."""
    sure: bool = True
    """True if no other reason is possible, as far as its signature says."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process reported by a launcher; `noticed` is the position of its first consequence."""

    exit: Exit
    at: Place
    noticed: Place
    text: str
    stream: str
    rank: int | None = None
    host: str | None = None
    root: bool = False
    """True if torchrun's table lists it as the first failure."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A request to end the job, recorded in its folder."""

    cause: str
    at: float | None
    """The time in seconds since the epoch."""
    place: Place
    text: str


@dataclass(frozen=True)
class Findings:
    """Everything found in the logs, before it is judged."""

    files: tuple[str, ...] = ()
    hits: tuple[Hit, ...] = ()
    named: tuple[Hit, ...] = ()
    """Exceptions in lines without a traceback: the latest ones, as hits of USER-PY."""
    waits: Mapping[str, tuple[str, Hit]] = field(default_factory=dict)
    """Process, by its rank or the number of its stack -> its current collective, and the frame that shows it."""
    ends: tuple[Ended, ...] = ()
    started: Mapping[int, int] = field(default_factory=dict)
    """File number -> the line at which a launcher first started ranks."""
    world: int | None = None
    pids: Mapping[int, int] = field(default_factory=dict)
    """Process id -> rank."""
    well: frozenset[int] = frozenset()
    """Ranks that exited with 0."""
    well_at: Place | None = None
    """The last place where a launcher, or a shell, reported an exit with 0."""
    all_well: bool = False
    """True if the launcher, or a shell, reports that the run exited with 0."""
    killed: tuple[tuple[int, float | None, Place], ...] = ()
    """Process ids that the launcher ended, and when it began to."""
    times: tuple[tuple[Place, float], ...] = ()
    """The times of later messages of the launcher."""
    introduced: frozenset[int] = frozenset()
    """Ranks that have identified themselves in their output."""
    labelled: frozenset[int] = frozenset()
    """Ranks with any line labelled by PyTorch."""
    spoke: frozenset[int] = frozenset()
    """Ranks that printed something about their failure: an exception, a symptom, a cascade."""
    enqueued: Mapping[int, int] = field(default_factory=dict)
    """Rank -> the last collective that it enqueued."""
    agents: frozenset[str] = frozenset()
    """Streams with output of torchrun itself."""
    passed: tuple[Hit, ...] = ()
    """The ends of earlier runs, if one file holds several."""
    several_runs: bool = False
    """True if one file holds more than one run: then nobody is sure which of them is meant."""
    end_untold: bool = False
    """True if the program may have continued after its last exception, so that its end is unknown."""
    launcher_broke: bool = False
    """True if the last file ends within a traceback of the launcher itself."""
    closing: int = 0
    """The number of ranks that torchrun had to end."""
    several_nodes: bool = False
    offsets: frozenset[int] = frozenset()
    """The rank of the first process of each node, if the text tells it."""
    orphaned: Place | None = None
    tails: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """File -> its last lines."""
    loops: frozenset[str] = frozenset()
    """Shapes of the lines above the tracebacks of the last file."""
    ending: Mapping[int, Sequence[tuple[int, str]]] = field(default_factory=dict)
    """File number -> its last non-blank lines, more than in `tails`, each with its number and with overwritten text."""
    local: int | None = None
    """The highest local rank in torchrun's labels."""
    last: Mapping[int, int] = field(default_factory=dict)
    """File number -> where its last lines begin."""
    final: Mapping[int, int] = field(default_factory=dict)
    """File number -> its last non-blank line."""
    width: Mapping[int, float] = field(default_factory=dict)
    """File number -> mean bytes per line of its last lines."""
    commands: Mapping[int, Sequence[tuple[int, str]]] = field(default_factory=dict)
    """File number -> the lines with a command at a shell's prompt, and its program."""
    begun: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """File number -> positions of lines equal to its first lines, and which of them."""
    traced: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """File number -> the lines of tracebacks: frames, without their source."""
    cut: tuple[str, ...] = ()
    """Signs that a log breaks off, as sentences."""
    lines: int = 0
    deepspeed: bool = False
    """True if the text speaks of DeepSpeed."""
    tracebacks: int = 0
    """The number of tracebacks, except ignored ones."""
    loaded: Place = (-1, 0)
    """The last place where an op was reported as ready."""
    preparing: bool = False
    """True if the last progress bar of the data set is not at its end."""
    ended: Mapping[int, float] = field(default_factory=dict)
    """Rank -> the end of its process, in seconds since the epoch, from a job folder."""
    stop: Stop | None = None
    lost_hosts: tuple[Hit, ...] = ()
    """The hosts for which the supervisor gave up the job."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Cause -> what the facts about the machine say about it."""

    ruled_out: frozenset[str] = frozenset()
    """Causes that the facts about the machine contradict."""

    @property
    def writer(self) -> int | None:
        """The rank whose own log the single file is: no other one identifies itself. Not rank 0, which may print for all."""
        only = next(iter(self.introduced)) if len(self.introduced) == 1 and len(self.files) == 1 else 0
        return only or None

    def evidence(self, at: Place, text: str, rank: int | None = None, host: str | None = None) -> Evidence:
        """Return a line as evidence."""
        return Evidence(self.files[at[0]], at[1], capped(text.strip()), rank, host)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the rules. `signature` is None if there is none."""

    signature: Signature | None
    confidence: Confidence = "low"
    hits: Sequence[Hit] = ()
    """The hits that show it, the first one first."""
    rank: int | None = None
    others: Sequence[str] = ()
    sub: Sequence[Hit] = ()
    """Hits that the cause explains and that add details, such as the compiler's own error."""


@dataclass
class Collected:
    """The fields of `Findings`, which explains them, while they are collected."""

    files: list[str] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    named: list[Hit] = field(default_factory=list)
    waits: dict[str, tuple[str, Hit]] = field(default_factory=dict)
    ends: list[Ended] = field(default_factory=list)
    started: dict[int, int] = field(default_factory=dict)
    world: int | None = None
    pids: dict[int, int] = field(default_factory=dict)
    well: set[int] = field(default_factory=set)
    well_at: Place | None = None
    all_well: bool = False
    killed: list[tuple[int, float | None, Place]] = field(default_factory=list)
    times: list[tuple[Place, float]] = field(default_factory=list)
    introduced: set[int] = field(default_factory=set)
    labelled: set[int] = field(default_factory=set)
    spoke: set[int] = field(default_factory=set)
    enqueued: dict[int, int] = field(default_factory=dict)
    agents: set[str] = field(default_factory=set)
    passed: list[Hit] = field(default_factory=list)
    several_runs: bool = False
    end_untold: bool = False
    launcher_broke: bool = False
    closing: int = 0
    several_nodes: bool = False
    offsets: set[int] = field(default_factory=set)
    orphaned: Place | None = None
    tails: dict[str, list[str]] = field(default_factory=dict)
    loops: set[str] = field(default_factory=set)
    ending: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    local: int | None = None
    last: dict[int, int] = field(default_factory=dict)
    final: dict[int, int] = field(default_factory=dict)
    width: dict[int, float] = field(default_factory=dict)
    commands: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    begun: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    traced: dict[int, array[int]] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    lines: int = 0
    deepspeed: bool = False
    tracebacks: int = 0
    loaded: Place = (-1, 0)
    preparing: bool = False
    ended: dict[int, float] = field(default_factory=dict)
    stop: Stop | None = None
    lost_hosts: list[Hit] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)
    ruled_out: set[str] = field(default_factory=set)

    def finished(self) -> Findings:
        """Return the findings, which later changes of this collection do not reach."""
        return Findings(**{each.name: _frozen(getattr(self, each.name)) for each in fields(self)})


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, set):
        return frozenset(value)
    return MappingProxyType(dict(value)) if isinstance(value, dict) else value
