"""The hosts of a job, one line each: state, ranks, last step, last line, and usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from dstui.jobs.store.ranks import ranks_in_words
from dstui.tui.kit.text_row import Row, Span, fit, row
from dstui.tui.run.rank_cell import GLYPH, LIVES, Cell, age_text, counts, steps_text

if TYPE_CHECKING:
    from dstui.jobs.store.records import HostStatus
    from dstui.jobs.watch.usage import Usage


LONGEST = 14
"""Cells for a name."""


def short_names(hosts: Mapping[int, str]) -> dict[int, str]:
    """Return rank -> host name without the domain and account that all share, cut to LONGEST."""
    names = list(dict.fromkeys(hosts.values()))
    short = _if_distinct(names, [name.rpartition("@")[2] for name in names])
    domain = _common_domain(short)
    short = _if_distinct(short, [name.removesuffix(domain) if domain else name for name in short])
    short = _if_distinct(short, [end_of(name) for name in short])
    of = dict(zip(names, short, strict=True))
    return {rank: of[host] for rank, host in hosts.items()}


def _if_distinct(names: list[str], shorter: list[str]) -> list[str]:
    """Return the short names if they still differ, else the long ones."""
    return shorter if len(set(shorter)) == len(set(names)) else names


def _common_domain(names: list[str]) -> str:
    """Return the common domain, such as `.cluster.example.com`; "" if there is none, and for addresses, which differ at the end."""
    if any(not name.replace(".", "").strip("0123456789") or ":" in name for name in names):
        return ""
    domains = {name.partition(".")[2] for name in names}
    return f".{domains.pop()}" if len(domains) == 1 and all(domains) else ""


def end_of(name: str) -> str:
    """Return a name in at most LONGEST cells: its end, where the number is."""
    if cell_len(name) <= LONGEST:
        return name
    end = name
    while cell_len(end) > LONGEST - 1:
        end = end[1:]
    return f"…{end}"


HOST_WORST = (
    "unreachable",
    "failed",
    "lost",
    "unknown",
    "silent",
    "behind",
    "slow",
    "waiting",
    "starting",
    "stopped",
    "killed",
    "running",
    "ended",
)
"""The possible states of a host, the worst first."""
HOST_GLYPH = {**GLYPH, "unreachable": ("▲", "error"), "slow": ("◐", "warning"), "starting": ("○", "dim")}
SLOW = 5.0
"""Seconds without a line, while another host has written one, after which a host that is behind in steps counts as slow."""
DOTS = 16
"""The most ranks of a host with a glyph each in its line; more are counted."""
ALL_HOSTS = ""
"""The key of the row for the ranks of all hosts."""
NAME = 24
"""Cells for the name of a host."""


class HostLine(NamedTuple):
    """One host of a job."""

    name: str
    word: str
    """Its state: one of HOST_WORST."""
    says: str
    """Its state with an explanation: `silent for 94 s: rank 11`."""
    ranks: tuple[Cell, ...] = ()
    usage: str = ""
    """The use of its ranks together; "" if unknown."""

    @property
    def age(self) -> float | None:
        """Return the seconds since the last line of any of its ranks; None if none has written one."""
        return min((c.age for c in self.ranks if c.age is not None), default=None)

    @property
    def step(self) -> int | None:
        """Return the furthest step of its ranks; None if none is known."""
        return max((c.step for c in self.ranks if c.step is not None), default=None)


def host_lines(
    cells: Sequence[Cell], contacts: Mapping[str, HostStatus], now: float, usage: Mapping[int, Usage] | None = None
) -> list[HostLine]:
    """Return the hosts, the worst first, then in the order of their ranks.

    `contacts`: what the supervisor says of each host. `now`: seconds since the epoch.
    """
    ranks: dict[str, list[Cell]] = {}
    for cell in cells:
        ranks.setdefault(cell.host, []).append(cell)
    for name in contacts:
        ranks.setdefault(name, [])
    lines = [HostLine(name, "", "", tuple(on_it), _together(on_it, usage or {})) for name, on_it in ranks.items()]
    lead = max((line.step for line in lines if line.step is not None), default=None)
    newest = min((line.age for line in lines if line.age is not None), default=0.0)
    evaluated = [_evaluated(line, contacts.get(line.name), now, lead, newest) for line in lines]
    return sorted(evaluated, key=lambda line: _place(line.word))


def _together(cells: Iterable[Cell], usage: Mapping[int, Usage]) -> str:
    from dstui.jobs.watch.usage import summarise_usage

    return summarise_usage(usage[cell.rank] for cell in cells if cell.rank in usage and cell.word in LIVES)


def _evaluated(line: HostLine, contact: HostStatus | None, now: float, lead: int | None, newest: float) -> HostLine:
    """Return the line with its state. `lead`: the furthest step of all hosts; `newest`: seconds since the last line of any."""
    if contact is not None and contact.state == "unreachable":
        lasting = f" for {seconds_text(now - contact.since)}" if contact.since is not None else ""
        return line._replace(word="unreachable", says=f"unreachable{lasting}{_because(contact)}")
    words = {cell.word for cell in line.ranks}
    word = min(words, key=_place, default="starting")
    if word == "killed" and words & {"running", "waiting"}:
        word = "running"
    behind = lead - line.step if lead is not None and line.step is not None else 0
    if word in ("running", "behind") and behind > 0 and line.age is not None and line.age >= newest + SLOW:
        return line._replace(word="slow", says=f"slow: {behind:,} step{'s' if behind > 1 else ''} behind")
    if not words and contact is not None and contact.state == "ended":
        word = "failed" if contact.exit_code else "ended"
    return line._replace(word=word, says=_says(line, word, contact))


def _place(word: str) -> int:
    return HOST_WORST.index(word) if word in HOST_WORST else 0


def _says(line: HostLine, word: str, contact: HostStatus | None) -> str:
    """Return the state, with the ranks that it applies to if not all, and an explanation."""
    if not line.ranks:
        code = f" (exit status {contact.exit_code})" if contact is not None and contact.exit_code else ""
        return f"{word}{code}{_because(contact)}"
    about = [cell for cell in line.ranks if cell.word == word]
    who = ranks_in_words(cell.rank for cell in about)
    if word == "waiting":
        return f"waiting for {who}{_because(contact)}"
    if word == "silent":
        age = min((cell.age for cell in about if cell.age is not None), default=None)
        word = f"silent for {seconds_text(age)}" if age is not None else word
    if word == "behind":
        return f"{max(about, key=lambda cell: cell.behind).state}: {who}"
    if word in ("running", "ended", "killed", "stopped"):
        return word
    codes = {cell.exit_code for cell in about if cell.exit_code}
    code = f" ({codes.pop()})" if len(codes) == 1 else ""
    return f"{word}{code}: {who}" if len(about) < len(line.ranks) or len(about) == 1 else f"{word}{code}"


def _because(contact: HostStatus | None) -> str:
    return f": {contact.problem}" if contact is not None and contact.problem else ""


def seconds_text(seconds: float) -> str:
    """Format a duration: 12 s; 4 min; 2 h."""
    seconds = max(seconds, 0.0)
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


class Columns(NamedTuple):
    """The widths of the columns of all lines, in cells."""

    name: int
    numbers: int
    ranks: int

    @classmethod
    def of(cls, lines: Sequence[HostLine], width: int) -> Columns:
        """Return the widths for these lines on a screen of this width."""
        name = max((cell_len(line.name) for line in lines), default=0)
        most = max((len(line.ranks) for line in lines), default=0)
        return cls(
            min(name, NAME, max(width // 4, 8)), max((len(_numbers(line)) for line in lines), default=0) if most <= DOTS else 0, most
        )


def host_row(line: HostLine, columns: Columns, width: int, *, opened: bool = False) -> Row:
    """Return a host's line of `width` cells. `opened`: its ranks are listed below it."""
    glyph, style = HOST_GLYPH.get(line.word, ("·", "dim"))
    spans = [Span(f" {glyph} ", style), Span(f"{fit(line.name, columns.name)}  ", "title" if opened else "")]
    if not opened:
        spans += _ranks(line, columns)
    calm = line.word in ("running", "ended", "killed", "stopped", "starting")
    spans.append(Span(f"{line.says}  ", "dim" if calm else style))
    spans += [Span(text, "dim") for text in _facts(line, opened)]
    return Row(tuple(_cut(spans, width)))


def _ranks(line: HostLine, columns: Columns) -> list[Span]:
    """Return the numbers of its ranks and a glyph for each; counts if there are many."""
    if columns.ranks > DOTS:
        return counts(line.ranks)
    dots = [Span(*GLYPH.get(cell.word, ("·", "dim"))) for cell in line.ranks]
    return [Span(f"{_numbers(line):<{columns.numbers}} ", "dim"), *dots, Span(" " * (columns.ranks - len(line.ranks) + 2))]


def _numbers(line: HostLine) -> str:
    return ranks_in_words(cell.rank for cell in line.ranks).partition(" ")[2] if line.ranks else ""


def _facts(line: HostLine, opened: bool) -> Iterable[str]:
    """Yield its step, the time since its last line, and its usage."""
    if step := steps_text(line.ranks):
        yield f"{step}  "
    if line.age is not None and line.word == "unreachable":
        yield f"last line {age_text(line.age)} ago  "
    elif line.age is not None and line.word in ("running", "behind", "slow"):
        yield f"{age_text(line.age)} ago  " if line.age >= 1 else "now  "
    if line.usage and not opened:
        yield line.usage


def _cut(spans: Iterable[Span], width: int) -> Iterable[Span]:
    """Yield as many spans as fit."""
    left = width
    for span in spans:
        needed = cell_len(span.text)
        if needed > left:
            yield Span(fit(span.text.rstrip(), left), span.style)
            return
        yield span
        left -= needed


def waited_for(lines: Sequence[HostLine]) -> str:
    """Return the hosts whose ranks have not started while others have: `waiting for h2: rank 3`; "" if all have."""
    late = [(line.name, [cell.rank for cell in line.ranks if cell.word == "waiting"]) for line in lines]
    late = [(name, ranks) for name, ranks in late if ranks]
    if not late:
        return ""
    named = "; ".join(f"{name}: {ranks_in_words(sorted(ranks))}" for name, ranks in late[:3])
    return f"waiting for {named}{f' and {len(late) - 3} more hosts' if len(late) > 3 else ''}"


def host_choices(lines: Sequence[HostLine], text: str, width: int) -> list[Row]:
    """Return the hosts with this text in their name as rows to choose from, keyed by host name; ALL_HOSTS stands for all."""
    columns = Columns.of(lines, width)
    found = [replace(host_row(line, columns, width), key=line.name) for line in lines if text.strip().lower() in line.name.lower()]
    return found if text.strip() else [row(("all hosts", "accent"), key=ALL_HOSTS), *found]
