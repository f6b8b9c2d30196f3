"""Pages about causes: what it is, why it happens, how to recognise and fix it, and its source in DeepSpeed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from dstui.diagnosis.signature import Signature
from dstui.diagnosis.signatures import ALL
from dstui.site.installed import site_note

KINDS = {
    "root": "failure",
    "symptom": "failure: ranks wait for another one",
    "quiet": "exits with 0, but is not the run that was meant",
    "hint": "a note beside a cause",
    "cascade": "follows from another failure, and is never the cause",
    "benign": "harmless",
    "stop": "ended on purpose, or by a scheduler",
    "success": "ended well",
    "performance": "slower than need be",
}
UNNAMED = ("cascade", "benign", "hint", "performance", "success")
"""Roles that a diagnosis never reports as the cause of a failure."""
DOCUMENT = """# Why runs end

The causes that `dstui diagnose` names, by id. `dstui docs ID` also shows the messages that identify it. Generated from the signatures:
`dstui docs --causes > docs/causes.md`.
"""
WIDTH = 110
MAX_WORDS = 6
SHORTEST = 6
"""Characters of a sign that is meaningful by itself."""


def cause_titles() -> dict[str, str]:
    """Return the ids of all causes, each with its title."""
    return {signature.id: signature.title for signature in ALL}


def cause_pages(name: str) -> Iterator[str]:
    """Return the pages of a cause: its own, and those of signatures that are reported under its id."""
    asked = name.upper()
    for signature in ALL:
        if asked in (signature.id, signature.answer):
            yield "\n".join(_page(signature))


def causes_document() -> str:
    """Return docs/causes.md: every cause that a diagnosis can report, by id, with the same text as its page."""
    lines = [DOCUMENT]
    for signature in sorted(ALL, key=lambda one: (one.answer or one.id, bool(one.answer))):
        if signature.role in UNNAMED:
            continue
        lines += [
            "",
            f"**{signature.title}.**" if signature.answer else f"## {signature.id}\n\n**{signature.title}.** ({KINDS[signature.role]})",
        ]
        lines += [signature.cause] if signature.cause else []
        lines += [f"\n- To confirm: {signature.confirm}"] if signature.confirm else [""]
        lines += [f"- Fix: {way.text}" for way in signature.all_remedies()]
        lines += [f"- Could also be: {', '.join(signature.alike)}"] if signature.alike else []
        lines += [f"- At this site: {note}"] if not signature.answer and (note := site_note(signature.id)) else []
        lines += [f"- Source: {_cited(signature)}"] if signature.source else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _cited(signature: Signature) -> str:
    """Return the source as Markdown."""
    return f"<{signature.source}>" if len(signature.cited) == 1 else ", ".join(f"`{part}`" for part in signature.cited)


def _page(signature: Signature) -> Iterator[str]:
    reported = f", reported as {signature.answer}" if signature.answer else ""
    yield f"{signature.id}  ({KINDS[signature.role]}{reported})"
    yield _wrapped("", f"{signature.title}.")
    if signature.cause:
        yield _wrapped("why", signature.cause)
    words = [sign.text for sign in signature.all_signs() if len(sign.text) >= SHORTEST]
    if words:
        yield _wrapped("words", ", ".join(f"`{text.strip()}`" for text in dict.fromkeys(words[:MAX_WORDS])))
    if signature.confirm:
        yield _wrapped("proof", signature.confirm)
    for way in signature.all_remedies():
        yield _wrapped("fix", way.text + (" (offered as an edit of the Plan)" if way.patch else ""))
    if note := site_note(signature.id):
        yield _wrapped("here", note)
    if signature.explains:
        yield _wrapped("explains", ", ".join(signature.explains))
    if signature.alike:
        yield _wrapped("alike", ", ".join(signature.alike))
    if signature.source:
        yield _wrapped("source", ", ".join(signature.cited))


def _wrapped(head: str, text: str) -> str:
    first = f"  {head:9}" if head else "  "
    rest = " " * 11 if head else "  "
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
