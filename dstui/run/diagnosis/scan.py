"""From lines to findings: every sign that a signature has, every exception, every exit, with who said it and where.

Pure: lines in, `Findings` out. A line is looked at closely only where it holds one of the literal texts of the signatures; a line that
differs from an earlier one in its digits alone is known from that one. So ordinary training output costs half a microsecond per line.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dstui.run.diagnosis.exits import Exit, exits_in
from dstui.run.diagnosis.lines import Label, rank_said, read_label
from dstui.run.diagnosis.model import Evidence
from dstui.run.diagnosis.signature import Sign, Signature
from dstui.run.diagnosis.signatures import ALL, BY_ID
from dstui.run.diagnosis.traces import HEADER, Raised, Traces

Place = tuple[int, int]
"""File and line: where something was said."""
Key = tuple[int, str]
"""File and label: one of the outputs that are interleaved in a file."""
Signs = Sequence[tuple[Sign, Signature]]
KEPT = 40
"""Hits of one signature in one stream that are kept."""
TEXT_CAP = 600
SHAPES = 100_000
"""Shapes of lines that are remembered; beyond it the memory starts anew."""
FACTS = (
    'File "', "Traceback", "During handling of", "direct cause of", "Exception", "Error", "Interrupt", "Exit", "Timeout", "Expired",
    "return code", "exitcode", "exit code", "xit status", "exits successfully", "srun: error", "closing signal", "noticed that process",
    "spawned with command", "Killing subprocess", "world_size", "nnodes=", "rank_mapping", "ended with", "deepspeed.launcher.launch",
    "ast enqueued", "Loading extension module", "Time to load", "--hostfile", "num_nodes", "  rank  ", "Map",
    "okenizer on dataset", "nproc",
    "Exit Code",
)  # fmt: skip
"""Literal texts of what is understood beside the signatures."""
DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True)
class Shape:
    """What lines that differ in their digits alone can hold."""

    signs: tuple[tuple[Sign, Signature], ...]
    facts: bool

    @property
    def harmless(self) -> bool:
        """Whether it is nothing but noise that is known."""
        return not self.facts and all(signature.role == "benign" for _, signature in self.signs)


def _bare(text: str) -> bytes:
    return text.encode().translate(None, DIGITS)


def _grouped(needles: Iterable[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Needles by four bytes that they share with many others, so that a line is asked for 100 short texts in the place of 400."""
    grams = {needle: {needle[i : i + GRAM] for i in range(max(len(needle) - GRAM, 0) + 1)} for needle in needles}
    shared = Counter(gram for found in grams.values() for gram in found)
    groups: dict[bytes, list[bytes]] = defaultdict(list)
    for needle, found in grams.items():
        groups[max(found, key=lambda gram: (shared[gram], gram))].append(needle)
    return list(groups.items())


GRAM = 4
SIGNS: dict[bytes, list[tuple[Sign, Signature]]] = defaultdict(list)
for _signature in ALL:
    for _sign in _signature.all_signs():
        SIGNS[_bare(_sign.text)].append((_sign, _signature))
FACT_NEEDLES = frozenset(_bare(text) for text in FACTS)
GROUPS = _grouped(dict.fromkeys([*SIGNS, *FACT_NEEDLES]))

TIME = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)[.,]?(\d*)|[ \[][WEIF](\d{1,2}?)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)")
SPAWNED = re.compile(r"process (\d+) spawned with command: .*'--local[-_]rank=(\d+)'")
KILLING = re.compile(r"Killing subprocess (\d+)")
WELL = re.compile(r"Process (\d+) exits successfully")
WORLD = re.compile(
    r"dist_world_size=(\d+)|(?<!local_)world_size[=:] ?(\d+)|^\W*(?:\S*/)?torchrun (?!.*--nnodes).*--nproc[-_]per[-_]node[= ](\d+)"
)
MAPPING = re.compile(r"global_rank_mapping=defaultdict\(<class 'list'>, (\{.*\})\)")
NODE = re.compile(r"nnodes=\d+, num_local_procs=\d+, node_rank=(\d+)")
ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (\d+)")
BLOCK_RANK = re.compile(r"^\s+rank\s+: (\d+) \(local_rank: (\d+)\)")
BLOCK_EXIT = re.compile(r"^\s+exitcode\s+: (-?\d+) \(pid: \d+\)")
PREPARING = re.compile(r"(?:Map|Running tokenizer on dataset)[^|]*:\s+(\d+)%\|")
ORPHAN = re.compile(r"^\s*\d+\s+1\s.*deepspeed\.launcher\.launch")
SEVERAL_NODES = re.compile(r"--num_nodes[= ](?:[2-9]|\d\d)|--hostfile[= ]\S+")


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
    time: float | None = None
    raised: Raised | None = None
    """The exception, where the line is one."""
    noticed: Place | None = None
    """Where it had its first consequence, if that was before."""


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


@dataclass(frozen=True, slots=True)
class Stop:
    """A request to end the job, of which its folder knows."""

    cause: str
    at: float | None
    """When, in seconds since the epoch."""
    file: str
    text: str


@dataclass
class Findings:
    """Everything that the logs say, before it is judged."""

    files: list[str] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    world: int | None = None
    pids: dict[int, int] = field(default_factory=dict)
    """Process id -> rank."""
    well: set[int] = field(default_factory=set)
    """Ranks that ended with 0."""
    all_well: bool = False
    """The launcher, or a shell, says that the run ended with 0."""
    killed: list[tuple[int, float | None, Place]] = field(default_factory=list)
    """Process ids that the launcher ended, and when it began to."""
    times: list[tuple[Place, float]] = field(default_factory=list)
    """When the launcher said something after that."""
    spoke: set[int] = field(default_factory=set)
    """Ranks whose failure has words: an exception, a symptom, a cascade."""
    enqueued: dict[int, int] = field(default_factory=dict)
    """Rank -> the last collective that it enqueued."""
    agents: set[str] = field(default_factory=set)
    """Streams in which torchrun itself speaks."""
    closing: bool = False
    """Whether torchrun had to end ranks that were left."""
    several_nodes: bool = False
    orphaned: Place | None = None
    tails: dict[str, list[str]] = field(default_factory=dict)
    """File -> its last lines."""
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

    def evidence(self, at: Place, text: str, rank: int | None = None, host: str | None = None) -> Evidence:
        """A line as evidence."""
        return Evidence(self.files[at[0]], at[1], text.strip()[:TEXT_CAP], rank, host)


class Scanner:
    """Feed it the lines of one file after another."""

    def __init__(self) -> None:
        self.found = Findings()
        self._shapes: dict[bytes, Shape | None] = {}
        self._noise: dict[bytes, int] = defaultdict(int)
        self._traces: dict[Key, Traces] = defaultdict(Traces)
        self._counts: dict[tuple[str, str, int], int] = defaultdict(int)
        self._closing: dict[Key, Place] = {}
        self._block: dict[Key, int] = {}
        self._mapping: dict[str, list[int]] = {}
        self._node = 0
        self._time: dict[Key, float] = {}
        self._file_rank: int | None = None

    def begin(self, name: str, rank: int | None) -> None:
        """A new file; `rank` where it is known to be one rank's own."""
        self.found.files.append(name)
        self._file_rank = rank

    def look(self, line: bytes) -> Shape | None:
        """What a line can hold; None for nothing, which is what most lines hold. Known noise that comes again and again is nothing."""
        bare = line.translate(None, DIGITS)
        if bare in self._shapes:
            shape = self._shapes[bare]
            if shape is not None and shape.harmless:
                self._noise[bare] += 1
                return shape if self._noise[bare] < KEPT else None
            return shape
        if len(self._shapes) >= SHAPES:
            self._shapes.clear()
        needles = [needle for gram, group in GROUPS if gram in bare for needle in group if needle in bare]
        signs = tuple(sign for needle in needles for sign in SIGNS.get(needle, ()))
        shape = self._shapes[bare] = Shape(signs, not FACT_NEEDLES.isdisjoint(needles)) if needles else None
        return shape

    def feed(self, number: int, line: str, shape: Shape) -> None:
        """One line of the current file, and what it can hold."""
        place = (len(self.found.files) - 1, number)
        label = read_label(line)
        if label.rank is None and self._file_rank is not None:
            label = Label(label.text, label.stream, self._file_rank, label.host, None)
        key = (place[0], label.stream)
        trace = self._traces[key]
        code = trace.is_code(label.text)
        raised = None
        if when := _time_of(line):
            self._time[key] = when
        if shape.facts:
            self.found.tracebacks += HEADER in label.text and not trace.ignoring
            raised = trace.feed(label.text, number)
            self._facts(label, place, key, line)
        signs = [(sign, signature) for sign, signature in shape.signs if not code or signature.in_code]
        self._signatures(signs, label, place, key, raised)

    def _signatures(self, signs: Signs, label: Label, place: Place, key: Key, raised: Raised | None) -> None:
        matched = False
        for sign, signature in signs:
            if sign.matches(label.text):
                matched |= signature.role not in ("benign", "hint", "performance")
                self._keep(signature, label, place, key, raised)
        if raised and not matched and raised.traced and raised.name != "SystemExit":
            self._keep(BY_ID["CONFIG-ASSERT" if raised.in_config else "USER-PY"], label, place, key, raised)

    def _keep(self, signature: Signature, label: Label, place: Place, key: Key, raised: Raised | None) -> None:
        rank = label.rank if label.rank is not None else rank_said(label.text)
        if signature.role in ("root", "symptom", "cascade") and rank is not None and not (raised and raised.ignored):
            self.found.spoke.add(rank)
        self._counts[(signature.id, label.stream, place[0])] += 1
        if self._counts[(signature.id, label.stream, place[0])] > KEPT or (self.found.hits and self._same(signature, place)):
            return
        stream = f"{place[0]}:{label.stream}"
        hit = Hit(signature, place, label.text[:TEXT_CAP], stream, rank, label.host, label.task, self._time.get(key), raised)
        self.found.hits.append(hit)

    def _same(self, signature: Signature, place: Place) -> bool:
        last = self.found.hits[-1]
        return last.signature is signature and last.at == place

    def _facts(self, label: Label, place: Place, key: Key, line: str) -> None:
        text, found = label.text, self.found
        if "closing signal" in text:
            self._closing.setdefault(key, place)
            found.closing = True
            found.agents.add(key[1])
        self._ends(label, place, key)
        self._launcher_facts(text, line, place)
        if (enqueued := ENQUEUED.search(text)) and (rank := label.rank if label.rank is not None else rank_said(text)) is not None:
            found.enqueued[rank] = int(enqueued[1])
        elif ORPHAN.match(text):
            found.orphaned = place
        elif "Loading extension module" in text or "Time to load" in text:
            found.loaded = place
        elif bars := PREPARING.findall(text):
            found.preparing = bars[-1] != "100"
        if SEVERAL_NODES.search(text):
            found.several_nodes = True
        if found.killed and "sigkill_handler" in text and (when := _time_of(line)):
            found.times.append((place, when))

    def _launcher_facts(self, text: str, line: str, place: Place) -> None:
        found = self.found
        if spawned := SPAWNED.search(text):
            local = int(spawned[2])
            ranks = self._mapping_of_node()
            found.pids[int(spawned[1])] = ranks[local] if local < len(ranks) else local
        elif killing := KILLING.search(text):
            found.killed.append((int(killing[1]), _time_of(line), place))
        elif well := WELL.search(text):
            found.well.add(found.pids.get(int(well[1]), -int(well[1])))
        elif world := WORLD.search(text):
            found.world = max(found.world or 0, int(world[1] or world[2] or world[3]))
        elif mapping := MAPPING.search(text):
            self._mapping = _literal(mapping[1])
        elif node := NODE.search(text):
            self._node = int(node[1])

    def _ends(self, label: Label, place: Place, key: Key) -> None:
        if block := BLOCK_RANK.match(label.text):
            self._block[key] = int(block[1])
            self.found.agents.add(key[1])
        elif (code := BLOCK_EXIT.match(label.text)) and key in self._block:
            self._end(Exit(int(code[1]), self._block.pop(key)), place, label, key)
        for found in exits_in(label.text):
            if found.local:
                self.found.agents.add(key[1])
            self._end(found, place, label, key)

    def _end(self, end: Exit, at: Place, label: Label, key: Key) -> None:
        # torchrun ends the others of its node before it says who had ended by itself.
        noticed = self._closing.get(key, at) if key[1] in self.found.agents else at
        if end.whole and end.code == 0:
            self.found.all_well = True
        rank = None if end.local else end.rank
        self.found.ends.append(Ended(end, at, noticed, label.text[:TEXT_CAP], f"{key[0]}:{key[1]}", rank, label.host))

    def _mapping_of_node(self) -> list[int]:
        hosts = list(self._mapping.values())
        return hosts[self._node] if self._node < len(hosts) else []


def _literal(text: str) -> dict[str, list[int]]:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(ranks, list) for ranks in found.values()) else {}


def _time_of(text: str) -> float | None:
    """A moment as seconds within its year, from whatever stamp the line has; the year is not always told."""
    found = TIME.search(text)
    if found is None:
        return None
    if found[3]:
        month, day, hour, minute, second, fraction = found[2], found[3], found[4], found[5], found[6], found[7]
    else:
        month, day, hour, minute, second, fraction = found.groups()[7:]
    days = int(month) * 31 + int(day)
    return float(f"{((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)}.{fraction or 0}")
