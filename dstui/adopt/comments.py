"""Transfer the comments of a ds_config.json to the imported Plan. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from dstui.adopt.positions import Comment, Position, Positions
from dstui.base.text import sanitise
from dstui.plan import Plan, PlanError, load

MISSING = object()


def with_comments(text: str, places: Positions) -> tuple[str, list[int]]:
    """Return a Plan's text with the comments of its configuration, and the lines (of that file) of comments without a place.

    A comment beside a key stays beside it. One on its own lines goes above the next key, or to the end.
    """
    plan = load(text)
    keys = sorted((place, path) for path, place in places.keys.items())
    above, beside, dropped = defaultdict[int, list[str]](list), dict[int, str](), list[int]()
    lines = text.split("\n")
    for comment in places.comments:
        words = _words(comment.text)
        path, own_line = _key_of(comment, keys)
        line = _line_in(plan, path, lines) if path else len(lines)
        if line is None:
            dropped.append(comment.place.line)
        elif own_line:
            above[line] += words
        elif words:
            beside[line] = "; ".join(filter(None, [beside.get(line), *words]))
    found: list[str] = []
    for number, line_text in enumerate(lines, 1):
        indent = line_text[: len(line_text) - len(line_text.lstrip())] if line_text else "  "
        found += [f"{indent}# {word}" for word in above[number]]
        found.append(f"{line_text}  # {beside[number]}" if number in beside else line_text)
    made = "\n".join(found)
    return (made, dropped) if _is_same(made, plan) else (text, [comment.place.line for comment in places.comments])


def _key_of(comment: Comment, keys: Sequence[tuple[Position, str]]) -> tuple[str, bool]:
    """Return the key that a comment belongs to, and whether it goes above that key; no key at the end of the file."""
    at = bisect_left(keys, (comment.place, ""))
    if not comment.alone and at and keys[at - 1][0].line == comment.place.line:
        return keys[at - 1][1], False
    return (keys[at][1] if at < len(keys) else ""), True


def _line_in(plan: Plan, path: str, lines: Sequence[str]) -> int | None:
    """Return the line of the Plan that holds only this key of the configuration."""
    path = f"deepspeed.{path}"
    line = plan.line_of(path) if plan.get(path, MISSING) is not MISSING else None
    name = path.rpartition(".")[2]
    return line if line and lines[line - 1].lstrip().startswith((f"{name}:", f'"{name}":')) else None


def _words(text: str) -> list[str]:
    """Return the lines of a comment without its marks."""
    if text.startswith("/*"):
        inside = text[2:].removesuffix("*/")
        lines = [line.strip().removeprefix("*").strip() for line in inside.split("\n")]
    else:
        lines = [text.lstrip("/#").strip()]
    return [sanitise(line) for line in lines if line]


def _is_same(text: str, plan: Plan) -> bool:
    """Return whether the text still has the values of the Plan."""
    try:
        return load(text).data == plan.data
    except PlanError:
        return False
