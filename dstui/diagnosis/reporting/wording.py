"""Format a diagnosis as text: what happened, where first, the lines that show it, the confidence, what to do."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from dstui.diagnosis.diagnosis import Diagnosis, Evidence
from dstui.diagnosis.signatures import BY_ID
from dstui.jobs.store.ranks import ranks_in_words

SURE = {"high": "sure", "medium": "likely", "low": "a guess"}
GLYPHS = {"failure": "✖", "stop": "■", "benign": "✔", "success": "✔"}
WIDTH = 100
LONGEST, END = 220, 70
"""Characters of a line of evidence that are shown, and how many of them from its end."""


def in_words(diagnosis: Diagnosis) -> str:
    """Return the whole diagnosis as lines, without a newline at the end."""
    parts = [_headline(diagnosis)]
    if diagnosis.why:
        parts.append(_wrapped(diagnosis.why))
    if diagnosis.evidence:
        parts.append("\n".join(("  what shows it:", *map(_line, diagnosis.evidence))))
    if diagnosis.others:
        parts.append("\n".join(("  besides, and independently of it:", *(f"    {named(one)}" for one in diagnosis.others))))
    if diagnosis.last_error:
        parts.append("\n".join(("  the last error of the text is another one:", _line(diagnosis.last_error))))
    if diagnosis.could_be:
        also = "also " if diagnosis.found else ""
        parts.append(
            "\n".join((f"  it could {also}be:", *(_wrapped(named_with_proof(one), "    ", "      ") for one in diagnosis.could_be)))
        )
    parts += map(_wrapped, diagnosis.notes)
    if diagnosis.fixes:
        parts.append(
            "\n".join(("  what to do:", *(_wrapped(f"{fix.text}{_edit(fix.patch)}", "    - ", "      ") for fix in diagnosis.fixes)))
        )
    if diagnosis.confirm and diagnosis.confidence != "high":
        parts.append(_wrapped(f"what would confirm it: {diagnosis.confirm}"))
    return "\n".join(parts)


def in_markdown(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as Markdown, to be pasted into an issue or a chat."""
    head, *page = _headline(diagnosis).split("\n")
    parts = [f"**{_plain(head)}**", *(_plain(line.strip()) for line in page)]
    if diagnosis.why:
        parts.append(_plain(diagnosis.why))
    shown = [*diagnosis.evidence, *([diagnosis.last_error] if diagnosis.last_error else [])]
    if shown:
        parts.append(_fenced([_line(line).strip() for line in shown]))
    lists = (
        ("Besides", [named(one) for one in diagnosis.others]),
        ("It could also be", [named_with_proof(one) for one in diagnosis.could_be]),
        ("Notes", diagnosis.notes),
        ("What to do", [f"{fix.text}{_edit(fix.patch)}" for fix in diagnosis.fixes]),
    )
    parts += ["\n".join((f"{title}:", "", *(f"- {_plain(line)}" for line in lines))) for title, lines in lists if lines]
    return "\n\n".join(parts)


def _fenced(lines: list[str]) -> str:
    """Return lines as a code block, with a fence that none of them can close."""
    longest = max((len(found) for line in lines for found in re.findall(r"`+", line)), default=0)
    fence = "`" * max(longest + 1, 3)
    return "\n".join((fence, *lines, fence))


def _plain(text: str) -> str:
    """Return text with all markup escaped."""
    return re.sub(r"([\\`*_<>\[\]#|])", r"\\\1", text)


def _headline(diagnosis: Diagnosis) -> str:
    rank = "every rank" if diagnosis.every_rank else f"rank {diagnosis.first_failing_rank}"
    where = f" [{rank}{f' on {diagnosis.host}' if diagnosis.host else ''}]" if _has_rank(diagnosis) else ""
    if diagnosis.cause is None:
        return f"? {diagnosis.title}.{where}"
    more = f", all of {ranks_in_words(diagnosis.ranks)}" if len(diagnosis.ranks) > 1 else ""
    page = f"{diagnosis.cause} ({SURE[diagnosis.confidence]}{more}); more: dstui docs {diagnosis.cause}"
    stop = "" if diagnosis.title.endswith(("?", "!")) else "."
    return f"{GLYPHS.get(diagnosis.kind or '', '?')} {diagnosis.title}{stop}{where}\n  {page}"


def _has_rank(diagnosis: Diagnosis) -> bool:
    return diagnosis.first_failing_rank is not None


def _line(line: Evidence) -> str:
    rank = "" if line.rank is None else f"[{line.rank}] "
    text = line.text if len(line.text) <= LONGEST else f"{line.text[: LONGEST - END]} … {line.text[-END:]}"
    return f"    {_short(line.file)}:{line.line}: {rank}{text}"


def _short(file: str) -> str:
    """Return the file, relative if it is below the current folder."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def named(one: str) -> str:
    """Return a cause by its id and title."""
    return f"{one}: {BY_ID[one].title}" if one in BY_ID else one


def named_with_proof(one: str) -> str:
    """Return a possible cause with the fact that would prove it."""
    proof = BY_ID[one].confirm if one in BY_ID else ""
    return f"{named(one)}. To confirm: {proof}" if proof else f"{named(one)}."


def _edit(patch: object) -> str:
    return " (an edit of the Plan)" if patch else ""


def _wrapped(text: str, first: str = "  ", rest: str = "  ") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
