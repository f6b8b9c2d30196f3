"""Score the diagnosis on the labelled corpus of published logs (tests/long/corpus)."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dstui.diagnosis import Diagnosis, diagnose
from dstui.diagnosis.signatures import BY_ID

INDEX = Path(__file__).parent / "corpus" / "index.csv"
MADE = Path(__file__).parent / "corpus" / "made.csv"
SILENT = frozenset({"CUT", "UNKNOWN", "GOOD"})
"""Labels of texts that show no cause."""


@dataclass(frozen=True)
class Case:
    """A text and its labels."""

    address: str
    label: str
    also: tuple[str, ...]
    """Labels that are equally right."""
    rank: str
    """The rank that failed first: a number, `all`, `null` for none; empty if the text does not show it."""
    kind: str
    """failure, stop, cut (truncated text) or good."""
    sha256: str
    round: int
    """The newest round is only scored; older ones have been scored, and signatures may be derived from them."""

    @property
    def repository(self) -> str:
        """The OWNER/NAME where it was published."""
        return "/".join(self.address.lower().split("/")[3:5])

    @cached_property
    def right(self) -> frozenset[str | None]:
        """The correct causes; None: the text shows none."""
        labels = (self.label, *self.also)
        return frozenset(None if label in SILENT else (BY_ID[label].answer or label) if label in BY_ID else label for label in labels)


@dataclass(frozen=True)
class Result:
    """A case and its diagnosis."""

    case: Case
    found: Diagnosis

    @property
    def right(self) -> bool:
        """Return whether the first answer is right; for a good run, whether no failure is reported."""
        if self.case.kind == "good":
            return self.found.kind not in ("failure", "stop")
        if self.case.kind == "cut":
            return self.found.kind != "success" and (self.found.cause is None or self.found.cause in self.case.right)
        return self.found.cause in self.case.right

    @property
    def among_three(self) -> bool:
        """Return whether one of the first three causes is right: the cause, further causes, alternatives."""
        return self.right or not self.case.right.isdisjoint((*self.found.others, *self.found.could_be)[:2])

    @property
    def rank_right(self) -> bool | None:
        """Return whether the rank is right; None if the text shows none."""
        if self.case.kind != "failure" or not self.case.rank:
            return None
        if self.case.rank == "all":
            return self.found.every_rank
        return self.found.first_failing_rank == (None if self.case.rank == "null" else int(self.case.rank))


def cases() -> list[Case]:
    """Return the corpus."""
    with INDEX.open(newline="") as file:
        return [
            Case(
                address=row["address"],
                label=row["label"],
                also=tuple(row["also"].split()),
                rank=row["first_failing_rank"],
                kind=row["kind"],
                sha256=row["sha256"],
                round=int(row["round"]),
            )
            for row in csv.DictReader(file)
        ]


def diagnose_made_texts() -> Iterator[Result]:
    """Yield the diagnosis of each made text: failures of this project's scripts, formatted as people paste them."""
    with MADE.open(newline="") as file:
        for row in csv.DictReader(file):
            case = Case(row["name"], row["label"], tuple(row["also"].split()), row["first_failing_rank"], row["kind"], row["name"], 0)
            yield Result(case, diagnose([MADE.parent / "made" / f"{row['name']}.txt"]))


def diagnosed(texts: Path, wanted: Iterable[Case]) -> Iterator[Result]:
    """Yield the diagnosis of each case whose text is in the folder, unchanged since it was labelled."""
    for case in wanted:
        path = texts / f"{case.sha256[:16]}.txt"
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == case.sha256:
            yield Result(case, diagnose([path]))


@dataclass
class Score:
    """Counts of results."""

    results: list[Result] = field(default_factory=list)

    def share(self, kind: str, of: str) -> tuple[int, int]:
        """Return how many of a kind are right in one respect, and how many there are."""
        found = [getattr(result, of) for result in self.results if result.case.kind == kind]
        known = [one for one in found if one is not None]
        return sum(known), len(known)

    def confidence(self) -> dict[str, tuple[int, int]]:
        """Return confidence -> number of right causes, number of causes."""
        told = [result for result in self.results if result.found.cause is not None]
        levels = Counter(result.found.confidence for result in told)
        right = Counter(result.found.confidence for result in told if result.right)
        return {level: (right[level], levels[level]) for level in ("high", "medium", "low") if levels[level]}

    def false_successes(self) -> list[Result]:
        """Return failures, stops and truncated texts that were reported as successes."""
        return [r for r in self.results if r.found.kind == "success" and r.case.kind != "good"]

    def false_failures(self) -> list[Result]:
        """Return good runs that were reported as failures or stops."""
        return [r for r in self.results if r.case.kind == "good" and not r.right]

    def table(self) -> str:
        """Return all counts as lines."""
        rows = [("first answer right", "right"), ("right among three", "among_three"), ("first failing rank", "rank_right")]
        kinds = [(kind, *row, *self.share(kind, row[1])) for kind in ("failure", "stop", "cut", "good") for row in rows]
        lines = [f"{kind:8} {words:22} {right} of {known}" for kind, words, _, right, known in kinds if known]
        lines += [f"told with {level:7} confidence, and right: {right} of {told}" for level, (right, told) in self.confidence().items()]
        lines += [
            f"successes told of what was none: {len(self.false_successes())}",
            f"failures told of good runs: {len(self.false_failures())}",
        ]
        return "\n".join(lines)

    def misses(self) -> str:
        """Return one line for each wrong answer."""
        wrong = [r for r in self.results if not r.right or r.rank_right is False]
        return "\n".join(
            f"{r.case.sha256[:8]} {r.case.kind:7} {r.case.label:16} rank {r.case.rank or '-':4} told {r.found.cause} "
            f"({r.found.kind}, {r.found.confidence}) rank {'all' if r.found.every_rank else r.found.first_failing_rank} "
            f"others {','.join(r.found.others[:3])} {r.case.address.replace('https://github.com/', '')[:90]}"
            for r in wrong
        )
