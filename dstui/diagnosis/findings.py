"""What logs say, before it is judged: signatures that were found, ends of processes, facts of the launchers; and the verdict on it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dstui.diagnosis.diagnosis import Confidence, Evidence
from dstui.diagnosis.exits import Exit
from dstui.diagnosis.signature import Signature
from dstui.diagnosis.traces import Raised

Place = tuple[int, int]
"""File and line: where something was said."""
TEXT_CAP, END_CAP = 600, 120
FACTS = "facts"
"""The stream of a hit that no log tells: what the supervisor saw of the machine."""


def capped(text: str) -> str:
    """Return a line that is kept: of a long one its beginning and its end, which says how a command ended."""
    return text if len(text) <= TEXT_CAP else f"{text[: TEXT_CAP - END_CAP]} … {text[-END_CAP:]}"


@dataclass(slots=True)
class Hit:
    """A signature that was found in a line."""

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
    """The exception, where the line is one."""
    noticed: Place | None = None
    """Where it had its first consequence, if that was before."""
    sure: bool = True
    """Whether it allows no other reading, as far as its signature does."""


@dataclass(slots=True)
class Ended:
    """A process's end as a launcher told it; `noticed` is where that had its first consequence."""

    exit: Exit
    at: Place
    noticed: Place
    text: str
    stream: str
    rank: int | None = None
    host: str | None = None
    root: bool = False
    """Whether torchrun's table has it as the failure that it saw first."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A request to end the job, of which its folder knows."""

    cause: str
    at: float | None
    """When, in seconds since the epoch."""
    file: str
    text: str
    line: int = 1


@dataclass
class Findings:
    """Everything that the logs say, before it is judged."""

    files: list[str] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    named: list[Hit] = field(default_factory=list)
    """Exceptions that a line names without a traceback: the latest, as hits of USER-PY."""
    waits: dict[str, tuple[str, Hit]] = field(default_factory=dict)
    """Process, by its rank or the number of its stack -> the collective that it stands in, and the frame that shows it."""
    ends: list[Ended] = field(default_factory=list)
    started: dict[int, int] = field(default_factory=dict)
    """File, by its number -> the line at which a launcher first started ranks."""
    world: int | None = None
    pids: dict[int, int] = field(default_factory=dict)
    """Process id -> rank."""
    well: set[int] = field(default_factory=set)
    """Ranks that ended with 0."""
    well_at: Place | None = None
    """Where a launcher, or a shell, last said that something ended with 0."""
    all_well: bool = False
    """The launcher, or a shell, says that the run ended with 0."""
    killed: list[tuple[int, float | None, Place]] = field(default_factory=list)
    """Process ids that the launcher ended, and when it began to."""
    times: list[tuple[Place, float]] = field(default_factory=list)
    """When the launcher said something after that."""
    introduced: set[int] = field(default_factory=set)
    """Ranks that have introduced themselves."""
    labelled: set[int] = field(default_factory=set)
    """Ranks of which there is any line that PyTorch has labelled."""
    spoke: set[int] = field(default_factory=set)
    """Ranks whose failure has words: an exception, a symptom, a cascade."""
    enqueued: dict[int, int] = field(default_factory=dict)
    """Rank -> the last collective that it enqueued."""
    agents: set[str] = field(default_factory=set)
    """Streams in which torchrun itself speaks."""
    passed: list[Hit] = field(default_factory=list)
    """What ended the runs before the last, where one file holds several."""
    several_runs: bool = False
    """Whether one file holds more than one run: then nobody is sure which of them is meant."""
    end_untold: bool = False
    """Whether the program may have gone on after its last exception, so that nothing shows how it ended."""
    launcher_broke: bool = False
    """Whether the last file ends within a traceback of the launcher itself."""
    closing: int = 0
    """How many ranks torchrun had to end."""
    several_nodes: bool = False
    offsets: set[int] = field(default_factory=set)
    """Of each node of which the text tells it: the rank of its first process."""
    orphaned: Place | None = None
    tails: dict[str, list[str]] = field(default_factory=dict)
    """File -> its last lines."""
    loops: set[str] = field(default_factory=set)
    """Shapes of the lines above the tracebacks of the last file."""
    ending: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """File, by its number -> its last lines with words, more than `tails`, each with its number and all that bars have overwritten."""
    local: int | None = None
    """The highest rank on a host that torchrun's labels tell."""
    last: dict[int, int] = field(default_factory=dict)
    """File, by its number -> where its last lines begin."""
    final: dict[int, int] = field(default_factory=dict)
    """File, by its number -> its last line with words."""
    width: dict[int, float] = field(default_factory=dict)
    """File, by its number -> bytes of a line, on the average of its last ones."""
    begun: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """File, by its number -> where lines stand with which it begins too, and which of them."""
    traced: dict[int, array[int]] = field(default_factory=dict)
    """File, by its number -> the lines of tracebacks that were read: frames, not their source."""
    cut: list[str] = field(default_factory=list)
    """What shows that a log breaks off, a sentence each."""
    lines: int = 0
    tracebacks: int = 0
    """How many were told that nobody ignored."""
    loaded: Place = (-1, 0)
    """Where an op was last said to be ready."""
    preparing: bool = False
    """Whether the last progress bar of the data set is not at its end."""
    ended: dict[int, float] = field(default_factory=dict)
    """Rank -> when its process ended, in seconds since the epoch, where a job folder knows."""
    stop: Stop | None = None
    lost_hosts: list[Hit] = field(default_factory=list)
    """The hosts for which the supervisor gave the job up."""
    remarks: dict[str, str] = field(default_factory=dict)
    """Cause -> what the facts of the machine say of it."""

    ruled_out: set[str] = field(default_factory=set)
    """Causes that the facts of the machine speak against."""

    def copy(self) -> Findings:
        """Return a copy whose hits, ends and sets can be changed without changing these."""
        return replace(
            self,
            files=list(self.files),
            hits=[replace(hit) for hit in self.hits],
            named=[replace(hit) for hit in self.named],
            ends=[replace(end) for end in self.ends],
            well=set(self.well),
            spoke=set(self.spoke),
            remarks=dict(self.remarks),
        )

    @property
    def writer(self) -> int | None:
        """The rank whose own log the one file is: no other one introduces itself. Not rank 0, which may speak for all."""
        only = next(iter(self.introduced)) if len(self.introduced) == 1 and len(self.files) == 1 else 0
        return only or None

    def evidence(self, at: Place, text: str, rank: int | None = None, host: str | None = None) -> Evidence:
        """Return a line as evidence."""
        return Evidence(self.files[at[0]], at[1], capped(text.strip()), rank, host)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, before it is put into words. `signature` is None where there is none."""

    signature: Signature | None
    confidence: Confidence = "low"
    hits: Sequence[Hit] = ()
    """The hits that show it, the first one first."""
    rank: int | None = None
    others: Sequence[str] = ()
    sub: Sequence[Hit] = ()
    """Hits that the cause explains and that say more about it: the compiler's own error."""
