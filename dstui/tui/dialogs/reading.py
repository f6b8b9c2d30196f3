"""Texts to read: the help, a line of the log, and rows of any kind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from textual import events, on

from dstui.base.limits import parse_json
from dstui.base.text import sanitise
from dstui.plan.scalars import yaml_scalar
from dstui.tui.dialogs.dialog import FULL, Lines, ToRead
from dstui.tui.forms.fields import Field, default_of, format_value, help_for, why_default
from dstui.tui.kit.keys import in_pane, key_of
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, STYLE_OF, Row, Span, fit, paragraph, row
from dstui.tui.session.state import UNSET

if TYPE_CHECKING:
    from dstui.logs.log_blocks import LogLine
    from dstui.logs.log_rows import LogRows
    from dstui.plan.catalogue import Key
    from dstui.plan.finding import Finding

READERS = {"trainer": "the Trainer", "accelerate": "accelerate"}
"""The programs that fill "auto", as people call them."""


class TextViewer(Lines, ToRead):
    """Rows to read. Any key that does not scroll closes it with None; choosing a row closes it with the key of that row."""

    ROWS = "reading"
    SCROLLING = (*ToRead.SCROLLING, "enter")
    BOX = 114

    def __init__(self, title: str, rows: Callable[[int], Iterable[Row]]) -> None:
        """`rows` returns the rows for a width in cells."""
        super().__init__(title)
        self.rows_for = rows

    def lines(self) -> list[Row]:
        """Return the rows for the width of the screen."""
        return list(self.rows_for(self.room))

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(event.key)


FIX: Final = "fix"
"""The result of a dialog whose fix is to be applied."""


class Reason(TextViewer):
    """The diagnosis. The key that applies its fix on the run does so here too."""

    @on(events.Key)
    def _apply(self, event: events.Key) -> None:
        if key_of("fix") in (event.character, event.key):
            event.stop()
            event.prevent_default()
            self.dismiss(FIX)


class LinesViewer(Lines, ToRead):
    """Lines of a command's output, wrapped where they are too long."""

    ROWS = "help"

    def __init__(self, title: str, texts: Iterable[str]) -> None:
        super().__init__(title)
        self.texts = [line for text in texts for line in text.splitlines()]

    def lines(self) -> list[Row]:
        """Return the lines; the rest of a long one is indented."""
        return [part for line in self.texts for part in self._wrapped(line)]

    def _wrapped(self, line: str) -> list[Row]:
        if cell_len(line) <= self.room:
            return [row(line)]
        begin = " " * (len(line) - len(line.lstrip()))
        return paragraph(line.strip(), self.room, first=(Span(begin),))


class Help(Lines, ToRead):
    """The help. Scrolls with the arrow keys; any other key closes it."""

    ROWS = "help"

    def __init__(self, pane: str, about: Field | Finding | None, origin: str = "", says: str = "") -> None:
        """`origin`: where the value of the field comes from; `says`: what the field says of itself, such as one of a GPU."""
        super().__init__("Help")
        self.pane, self.about, self.origin, self.says = pane, about, origin, says

    def lines(self) -> list[Row]:
        """Return the help for the place where it was called."""
        if self.about is None or isinstance(self.about, Field):
            return help_rows(self.pane, self.about, self.room, self.origin, self.says)
        return [*finding_rows(self.about, self.room), BLANK, *help_rows(self.pane, None, self.room)]


class FindingPage(Lines, ToRead):
    """A finding whole, with the page of its rule; read with the arrows, any other key closes it."""

    ROWS = "help"

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.code)
        self.finding = finding

    def lines(self) -> list[Row]:
        """Return what was found, what to do, and what is known of the rule."""
        return finding_rows(self.finding, self.room)


def finding_rows(finding: Finding, width: int) -> list[Row]:
    """Return a finding with the page of its rule as rows, `width` cells wide."""
    from dstui.check.pages import rule_page

    rows = [row((finding.path.removeprefix("deepspeed."), "name"), ("  ", ""), (finding.severity, STYLE_OF[finding.severity]))]
    rows += paragraph(finding.message, width)
    if finding.why:
        rows += [BLANK, *paragraph(finding.why, width, "dim")]
    if finding.fix is not None:
        rows += [BLANK, *paragraph(finding.fix.text, width, "value", first=row(("fix  ", "accent")).left)]
    page = rule_page(finding.code).splitlines()[1:]
    about = [part for line in page for part in _page_rows(line, finding.why, width)]
    more = paragraph(f"dstui docs {finding.code} prints this page.", width, "faint") if page else []
    return [*rows, BLANK, *about, BLANK, *more]


NAMED: Final = re.compile(r"  (\w+ {2,})(\S.*)")
"""A line of a rule's page with a name before its text."""


def _page_rows(line: str, told: str, width: int) -> list[Row]:
    """Return a line of a rule's page, wrapped beside its name; nothing if it only repeats DeepSpeed's words that are `told` above."""
    if (named := NAMED.fullmatch(line)) is None:
        return paragraph(line.strip(), width, "dim")
    name, text = named.groups()
    repeats = name.strip() == "says" and text.strip("… ") in told
    return [] if repeats else paragraph(text, width, "dim", first=row((name, "dim")).left)


def help_rows(pane: str, field: Field | None, width: int, origin: str = "", says: str = "") -> list[Row]:
    """Return the help as rows, `width` cells wide."""
    rows: list[Row] = []
    if says:
        rows += [*paragraph(says, width), BLANK]
    elif field is not None:
        rows += [row((field.path.removeprefix("deepspeed."), "name")), *paragraph(help_for(field.path), width)]
        rows += [*_default_rows(field, width), *_fact("in force", origin, width), BLANK]
    return rows + [line for k in in_pane(pane) for line in paragraph(k.help, width, first=row((fit(k.shown, 9), "accent")).left)]


def _default_rows(field: Field, width: int) -> list[Row]:
    """Return what is known of a field's type, its default and the reason for it."""
    from dstui.plan.catalogue import lookup

    key = lookup(field.path.removeprefix("deepspeed.")) if field.path.startswith("deepspeed.") else None
    facts = _own_facts(field) if key is None else _catalogue_facts(key)
    return [line for name, text in facts for line in _fact(name, text, width)]


def _own_facts(field: Field) -> list[tuple[str, str]]:
    """Return the facts of a field that is dstui's own."""
    default, unset = default_of(field), next((option.label for option in field.options if option.value is UNSET), "none")
    shown = unset if default in (UNSET, None, ()) else format_value(default)
    return [("default", shown), ("because", why_default(field.path))]


def _catalogue_facts(key: Key) -> list[tuple[str, str]]:
    """Return the facts of a key of DeepSpeed."""
    from dstui.check.auto_values import FILLED

    default = yaml_scalar(key.default) if isinstance(key.default, bool) else key.default
    nothing = "none: DeepSpeed has no default" if key.why else ""
    return [
        ("type", key.type),
        ("default", nothing if key.default is None else f"{default}: DeepSpeed's default"),
        ("because", key.why),
        ("auto", "; ".join(f"{who} fills it from {FILLED[by][key.path]}" for by, who in READERS.items() if key.path in FILLED[by])),
        ("values", ", ".join(map(str, key.choices))),
        ("ZeRO stages", ", ".join(map(str, key.stages))),
        ("since", key.since or ""),
        ("until", key.until or ""),
        ("source", key.source),
        *(("explained", page) for page in key.pages),
    ]


def _fact(name: str, text: str, width: int) -> list[Row]:
    return paragraph(text, width, first=row((fit(name, 12), "dim")).left) if text else []


def json_lines(line: str) -> list[str]:
    """Return a line that ends in a JSON object with that object spread over lines; any other line as it is."""
    head, brace, _ = line.partition("{")
    if not brace or not line.rstrip().endswith("}"):
        return [line]
    try:
        found = parse_json(line[len(head) :])
    except (ValueError, RecursionError):
        return [line]
    if not isinstance(found, dict) or not found:
        return [line]
    spread = json.dumps(found, indent=2, ensure_ascii=False).split("\n")
    return [*([head] if head.strip() else []), *map(sanitise, spread)]


BEFORE, AFTER = 8, 40
"""Lines of the same rank before and after it."""
REACH = 2000
"""Rows that are searched for them."""


class WholeLine(ToRead):
    """One line of the log, unwrapped, with its context. Scrolls with the arrow keys; any other key closes it."""

    DEFAULT_CSS = """
    WholeLine RowList { height: 1; max-height: 100%; }
    """

    ROWS, BOX = "whole-line", FULL

    def __init__(self, lines: LogRows, number: int, hosts: dict[int, str]) -> None:
        from dstui.logs.time_parsing import format_clock

        line, who = lines.line(number), lines.ranks_of(number)
        host = hosts.get(line.rank, "") if line.rank is not None and len(who) < 2 else ""
        super().__init__("  ".join(filter(None, (ranks_text(who) or "Line", f"on {host}" if host else "", format_clock(line.time)))))
        members = [(number, each._replace(text=f"r{each.rank}  {each.text}")) for each in lines.members(number)]
        self.number, self.near = number, members or rank_context(lines, number)
        self._wrapped_at = 0

    def on_mount(self) -> None:
        """Draw it when the width is known, and scroll to the line."""
        self.rows.focus()
        self.call_after_refresh(self._show)

    @on(RowList.Resized)
    def _resized(self) -> None:
        """Wrap the lines again for another width."""
        if self._wrapped_at not in (0, self.rows.size.width):
            self._show()

    def _show(self) -> None:
        rows: list[Row] = []
        at, view = -1, self.rows
        self._wrapped_at = view.size.width
        for number, line in self.near:
            at = len(rows) if number == self.number and at < 0 else at
            texts, style = (json_lines(line.text), "title") if number == self.number else ([line.text], "dim")
            rows += [piece for text in texts for piece in paragraph(text, view.size.width - 4, style)]
        view.show_rows(rows)
        height = min(len(rows), (self.app.size.height - 1) * 9 // 10 - 2)
        view.styles.height = height
        self.call_after_refresh(view.scroll_to, y=max(at - height // 3, 0), animate=False)


def rank_context(lines: LogRows, number: int) -> list[tuple[int, LogLine]]:
    """Return a row of the log and the rows around it of the same rank."""
    rank = lines.line(number).rank

    def lines_of_rank(rows: range, most: int) -> list[tuple[int, LogLine]]:
        found: list[tuple[int, LogLine]] = []
        for n in rows:
            if len(found) == most:
                break
            line = lines.line(n)
            if line.rank == rank or (line.repeats > 1 and rank in lines.ranks_of(n)):
                found.append((n, line))
        return found

    before = lines_of_rank(range(number - 1, max(lines.first, number - REACH) - 1, -1), BEFORE)
    return [*before[::-1], (number, lines.line(number)), *lines_of_rank(range(number + 1, min(lines.end, number + REACH)), AFTER)]


def ranks_text(ranks: list[int]) -> str:
    """Format ranks: `rank 3`, `ranks 0-7, 9`."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)
    return f"rank{'s' if len(set(ranks)) > 1 else ''} {text}" if text else ""
