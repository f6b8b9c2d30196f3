"""Select the lines that need a closer look: those with a literal text of a signature or of other facts.

A line that differs from an earlier one only in digits has the same result, which holds for most lines of a log.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from dstui.base.dataclass import dataclass
from dstui.diagnosis.recognition.launchers import NEEDLES
from dstui.diagnosis.signature import Sign, Signature
from dstui.diagnosis.signatures import ALL

FACTS = (
    'File "', "File ~", "File /", ":\\", "Cell In", "Input In [", "<ipython-input", ".py in ",
    "Traceback", "During handling of", "direct cause of", "Exception", "Error", "Interrupt", "Exit", "Timeout", "Expired", "StopIteration",
    "NotFound", "Refused",
    "return code", "with code", "exitcode", "exit code", "xit status", "exits successfully", "srun: error", "closing signal",
    "noticed that process", "terminated with",
    "spawned with command", "Killing subprocess", "world_size", "nnodes", "rank_mapping", "ended with", "deepspeed.launcher.launch",
    "ast enqueued", "Loading extension module", "Time to load", "--hostfile", "num_nodes", "Map",
    "okenizer on dataset", "nproc", "Exit Code", "MainThread", "most recent call first",
    "distributed_c10d.py", "deepspeed/comm/", "Process ", "Thread ", "│ /", "❱", "$ ",
    "(local_rank: ", "Failures:", "Root Cause", "exit with status code", "MPI_ABORT", "Abort(", "RUNNING AT", "KILLED BY SIGNAL",
    "crashed with exit", "exited abnormally", "of rank ", "EXIT CODE", "EXIT STATUS", "Exit code", "Child process with", "Global rank",
    "Container rank",
    "died from signal", "exited with code", "make: ***", "Successfully installed", "exited with status code", " exit_code=",
    "is failed because", "RAY_IGNORE_UNHANDLED_ERRORS", "It usually means",
    "operation counts", "launched up to operation", "not launched any operations", "Missing communicator data", "managed by process",
    "> in cluster <", "process information not found", ") MISMATCH", ") INCOMPLETE", ",MISMATCH", ",ERROR",
    *NEEDLES,
)  # fmt: skip
"""Literal texts of facts besides the signatures."""
NAMED = re.compile(rb"(?<![\w.])(?:[A-Za-z_]\w*\.)+(?:_*[A-Z]\w*|error|timeout|gaierror|herror)(?:: |$)")
"""A class with its module, as at the end of a traceback."""
LABEL_ENDS = (b"]", b")", b">", b":")
MAX_LABELS = 3
BEGINNING = 300
"""Bytes of a line in which that must be."""
DIGITS = b"0123456789"
GRAM = 4
MAX_SHAPES = 100_000
"""Shapes of lines that are remembered. Beyond this number, or MAX_BYTES of them, the memory is cleared."""
MAX_BYTES = 32 << 20
ENOUGH = 40
"""Lines of one shape of known noise that are examined."""
FIRST_LINES, LONG_ENOUGH = 4, 24
"""Lines at the beginning of a file by which another beginning is recognised, and the minimum length of each."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts that lines which differ only in digits can contain."""

    signs: tuple[tuple[Sign, Signature], ...]
    facts: bool
    first: int | None = None
    """The one of the first lines of the file that it equals, if any."""

    @property
    def harmless(self) -> bool:
        """Return whether it can contain only known noise."""
        return not self.facts and all(signature.role == "benign" for _, signature in self.signs)


def _bare(text: str) -> bytes:
    return text.encode().translate(None, DIGITS)


def _begins_with_class(bare: bytes) -> bool:
    """Return whether a line begins, after a few labels, with a class and its module."""
    found = NAMED.search(bare)
    labels = bare[: found.start()].split() if found else []
    return found is not None and len(labels) <= MAX_LABELS and all(label.endswith(LABEL_ENDS) for label in labels)


def _grouped(needles: Iterable[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Group texts by four bytes that many share, so that a line is searched for 100 short texts instead of 400."""
    grams = {needle: {needle[i : i + GRAM] for i in range(max(len(needle) - GRAM, 0) + 1)} for needle in needles}
    shared = Counter(gram for found in grams.values() for gram in found)
    groups: dict[bytes, list[bytes]] = defaultdict(list)
    for needle, found in grams.items():
        groups[max(found, key=lambda gram: (shared[gram], gram))].append(needle)
    return list(groups.items())


SIGNS: dict[bytes, list[tuple[Sign, Signature]]] = defaultdict(list)
for _signature in ALL:
    for _sign in _signature.all_signs():
        SIGNS[_bare(_sign.text)].append((_sign, _signature))
FACT_NEEDLES = frozenset(_bare(text) for text in FACTS)
GROUPS = _grouped(dict.fromkeys([*SIGNS, *FACT_NEEDLES]))


class Shapes:
    """The shapes seen so far."""

    def __init__(self) -> None:
        self.nothing: set[bytes] = set()
        """Shapes of lines without anything, with digits removed."""
        self._known: dict[bytes, Shape] = {}
        self._noise: dict[bytes, int] = defaultdict(int)
        self._first: dict[bytes, int] = {}
        self._expected: set[bytes] = set()
        self._held = 0
        self.deepspeed = False
        """True if a line speaks of DeepSpeed."""
        self.searched = 0
        """Lines unlike all earlier ones, each of which was searched for every literal text."""

    def learn_beginning(self, lines: list[bytes]) -> None:
        """Learn the first lines of a file: a few long ones are examined wherever they recur."""
        long = dict.fromkeys(bare for line in lines if len(bare := line.translate(None, DIGITS)) >= LONG_ENOUGH)
        self._first = {line: place for place, line in enumerate(list(long)[:FIRST_LINES])}
        self.forget()

    def expect(self, name: str) -> None:
        """Also examine lines that begin with this exception class."""
        if (bare := _bare(name)) not in self._expected:
            self._expected.add(bare)
            self.forget()

    def forget(self) -> None:
        """Clear the memory of shapes."""
        self._known.clear()
        self.nothing.clear()
        self._held = 0

    def match(self, line: bytes) -> Shape | None:
        """Return what a line can contain; None for nothing, which is the usual case. Frequent known noise counts as nothing."""
        bare = line.translate(None, DIGITS)
        if bare in self.nothing:
            return None
        shape = self._known.get(bare)
        if shape is None:
            shape = self._find(bare)
        elif shape.harmless:
            self._noise[bare] += 1
            if self._noise[bare] == ENOUGH:
                self.nothing.add(bare)
        return shape

    def _find(self, bare: bytes) -> Shape | None:
        self.searched += 1
        self.deepspeed = self.deepspeed or b"deepspeed" in bare.lower()
        self._held += len(bare)
        if len(self._known) + len(self.nothing) >= MAX_SHAPES or self._held > MAX_BYTES:
            self.forget()
            self._held = len(bare)
        needles = [needle for gram, group in GROUPS if gram in bare for needle in group if needle in bare]
        named = _begins_with_class(bare[:BEGINNING]) or bare.startswith(tuple(self._expected))
        first = None if needles else self._first.get(bare)
        if not needles and not named and first is None:
            self.nothing.add(bare)
            return None
        signs = tuple(sign for needle in needles for sign in SIGNS.get(needle, ()))
        shape = self._known[bare] = Shape(signs, named or not FACT_NEEDLES.isdisjoint(needles), first)
        return shape
