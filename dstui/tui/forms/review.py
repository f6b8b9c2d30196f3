"""Step 8: every file that will be written and its state on disk, the exact command, and the headless equivalent."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from dstui.base.text import counted
from dstui.plan.launchers import JOB_SCRIPT
from dstui.tui.forms.side_panes import tokens
from dstui.tui.forms.steps.step import nameless
from dstui.tui.kit.keys import key_of
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, fit, paragraph, row
from dstui.tui.kit.tools import in_thread, label
from dstui.tui.session.file_lookups import WrittenIn
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.documents.training_script import ChangedScript
    from dstui.plan import Plan
    from dstui.render.artifacts import Artifact

PLAN, HEADLESS, LAUNCH, LINES = "the Plan", "headless", "launch", "the script's lines"
WRITE_SCRIPT = "write the script"
HOLE = "hole "
"""Prefix of the key of a row that asks for the value of an open hole."""
HOLE_ROOM = 26
"""Characters of a hole's name and place on a line of a narrow screen. A longer name has a line of its own."""
MARKS = {"new": ("+", "ok"), "changed": ("~", "warning"), "same": ("=", "dim"), "": (".", "dim")}
"""The result of comparing a file with the disk -> its glyph and style; "" before the comparison."""
SCROLL_BAR = 1
"""Cells at the right that the scroll bar covers once the text is long."""
GOES_ON = "⋮"
"""In the margin of a continued line."""


class Review(Horizontal):
    """Files and commands on the left, the chosen one in full on the right, below them what prevents the launch."""

    def __init__(self) -> None:
        super().__init__(id="review")
        self.texts: dict[str, str] = {}
        """Name -> the text that `copy` copies and the right side shows."""
        self.last: tuple[str, Plan] | None = None
        """The last run of this name, and its Plan."""
        self._shown: tuple[State, Path | None] | None = None
        self.names, self.verdict = RowList(id="review-names", classes="pane"), RowList(id="review-verdict", classes="pane")
        self.content = RowList(id="review-content", classes="pane")

    def open(self, plan: Plan, name: str = "") -> None:
        """Take the focus, with the cursor on a name if one is given."""
        if name:
            self.names.cursor = name
        self.names.focus()
        self.find_last_run(plan)

    def find_last_run(self, plan: Plan) -> None:
        """Show what differs from the last run of this name; a thread looks for it."""
        in_thread(self, partial(self._find_last_run, plan))

    def _find_last_run(self, plan: Plan) -> None:
        from dstui.jobs.store.index import folders
        from dstui.jobs.store.plan_diff import last_run

        found = last_run(plan, folders())
        self.call_later(self._last_run_found, (found[0].name, found[1]) if found else None)

    def _last_run_found(self, last: tuple[str, Plan] | None) -> None:
        self.last = last
        if self._shown is not None:
            self.show(*self._shown)

    def compose(self) -> ComposeResult:
        """Compose the list, the verdict and the content."""
        with Vertical(id="review-left"):
            label(self.names, "What will be written and run", "")
            yield self.names
            label(self.verdict, "Before the launch", "")
            yield self.verdict
        yield self.content

    def on_mount(self) -> None:
        """Draw the rows."""
        self.names.focus()

    def show(self, state: State, path: Path | None) -> None:
        """Render the files, compare them with the disk, and draw."""
        from dstui.documents.training_script import changed_script
        from dstui.render.artifacts import artifacts
        from dstui.render.launch import RenderError

        self._shown = state, path
        try:
            made, problem = artifacts(state.launch_target()), ""
        except RenderError as error:
            made, problem = (), str(error)
        self.texts = {a.name: a.text for a in made} | {PLAN: state.plan.text, HEADLESS: headless_line(path)}
        self.texts[LAUNCH] = self.texts.get("launch.sh") or self.texts.get(JOB_SCRIPT, "")
        changed = changed_script(state.plan)
        self.texts[LINES] = self.texts[WRITE_SCRIPT] = _script_lines(state.plan, changed)
        opened, written = self.names.cursor is None, self.names.cursor == WRITE_SCRIPT and not (changed and changed.text)
        room = self.names.size.width - RowList.MARGIN
        self.names.show_rows([_cut(shown, room) for shown in _name_rows(made, state, path, changed)])
        if written:
            self.rest_on_launch()
        if opened:
            self.names.cursor = made[0].name if made else PLAN  # reading starts at the top; after Enter the cursor is on the launch
        width = (self.verdict.size.width or 40) - 3  # leaves room for a scroll bar
        self.verdict.show_rows([*_verdict_rows(state, problem, width), *_changed_rows(state.plan, self.last, width)])
        self._show_content()

    @property
    def chosen(self) -> tuple[str, str]:
        """Return name and text of the row under the cursor."""
        name = str(self.names.cursor)
        return name, self.texts.get(name, "")

    @on(RowList.Moved, "#review-names")
    def _moved(self) -> None:
        self._show_content()

    @on(RowList.Chosen, "#review-names")
    async def _chosen(self, event: RowList.Chosen) -> None:
        if event.key == LAUNCH:
            await self.run_action("screen.launch")
        elif event.key == WRITE_SCRIPT:
            await self.run_action("screen.complete('')")
        elif str(event.key).startswith(HOLE):
            await self.run_action(f"screen.complete('{str(event.key).removeprefix(HOLE)}')")
        else:
            self.content.focus()

    def rest_on_launch(self) -> None:
        """Move the cursor to the launch, so that Enter launches."""
        self.names.cursor = LAUNCH

    def _show_content(self) -> None:
        name, text = self.chosen
        label(self.content, name, "")
        self.content.show_rows(content_rows(name, text, self.content.size.width - RowList.MARGIN - SCROLL_BAR))


def content_rows(name: str, text: str, width: int) -> list[Row]:
    """Return a file or a command as rows; a mark shows where a long line continues."""
    rows: list[Row] = []
    for line in text.removesuffix("\n").split("\n"):
        first, *rest = _wrapped(line, width) if width > 0 else [line]
        rows += [_content_row(name, first), *(replace(_content_row(name, part), mark=GOES_ON) for part in rest)]
    return rows


def _wrapped(line: str, width: int) -> list[str]:
    return wrap(line, width, drop_whitespace=False, break_on_hyphens=False, expand_tabs=False, replace_whitespace=False) or [line]


def _content_row(name: str, line: str) -> Row:
    return Row(tokens(line) if name.endswith(".json") else (Span(line),))


def headless_line(path: Path | None) -> str:
    """Return the command that starts this run without the UI."""
    return f"dstui --headless {shlex.quote(str(path)) if path else 'PLAN.yaml   # save the Plan first: F2'}"


def _name_rows(made: tuple[Artifact, ...], state: State, path: Path | None, changed: ChangedScript | None) -> list[Row]:
    there = state.lookups.get(WrittenIn.of(state.plan))
    does = "queue it" if state.plan.cluster.submits else "launch it"
    launch = row(("→ ", "accent"), does, right=[("Enter", "dim")], key=LAUNCH)
    if state.known_machine.recorded:
        launch = row(("→ ", "faint"), (does, "faint"), right=[("recorded machine", "faint")], key=LAUNCH)
    rows = [launch, *_write_rows(changed), *_hole_rows(state.plan), row(("Files", "accent"))]
    rows += [_name_row(a.name, _on_disk(a, there), a.name) for a in made if a.name != "launch.sh"]
    saved = "new" if path is None else "same" if state.saved else "changed"
    rows.append(_name_row(path.name if path else "the Plan (not saved)", saved, PLAN))
    rows += [BLANK, row(("Command", "accent"))]
    if any(a.name == "launch.sh" for a in made):
        rows.append(row("what starts the ranks", right=[(counted(state.ranks, "rank"), "dim")], key="launch.sh"))
    rows.append(row("the same without this screen", key=HEADLESS))
    return [*rows, BLANK, row(("Code", "accent")), row(_lines_title(state.plan), key=LINES)]


def _lines_title(plan: Plan) -> str:
    from dstui.documents.training_script import script_facts_of

    if getattr(script_facts_of(plan), "integration", None):
        return "the lines that a script needs"
    name = (plan.job.script or plan.job.module or "the script").rpartition("/")[2]
    return f"the lines that {name} needs"


def _hole_rows(plan: Plan) -> list[Row]:
    """Return the rows of holes that nothing fills: the environment has no variable of that name."""
    from dstui.plan.holes import find_holes

    places: dict[str, list[str]] = {}
    for hole in find_holes(plan):
        if hole.name not in os.environ:
            places.setdefault(hole.name, []).append(hole.path)
    rows = [
        row(f"${{{name}}}", right=[(paths[0], "dim")] if len(name) + len(paths[0]) < HOLE_ROOM else (), key=f"{HOLE}{name}")
        for name, paths in places.items()
    ]
    return [row(("Open holes", "accent"), right=[("Enter: its value", "dim")]), *rows] if rows else []


def _write_rows(changed: ChangedScript | None) -> list[Row]:
    """Return the row that writes an adapted script, if there is a clear place for the lines."""
    return [row(("→ ", "accent"), f"write {changed.name}", key=WRITE_SCRIPT)] if changed and changed.text else []


def _script_lines(plan: Plan, changed: ChangedScript | None) -> str:
    """Return the lines that the script needs, as a diff for a plain loop; above it what must be done by hand."""
    from dstui.documents.training_script import code_for_script

    if changed is None:
        return code_for_script(plan)
    notes = "".join(f"# {note}\n" for note in changed.notes)
    written = f"# written whole as {changed.name}, which the Plan takes then; {plan.job.script} stays as it is\n" if changed.diff else ""
    return f"{notes}{written}{changed.diff or code_for_script(plan)}"


def _cut(shown: Row, room: int) -> Row:
    """Return a row whose last text ends with an ellipsis if it has nothing at its right and is too long."""
    *before, last = shown.left or (Span(""),)
    left = room - sum(cell_len(span.text) for span in before)
    if shown.right or left <= 0 or cell_len(last.text) <= left:
        return shown
    return replace(shown, left=(*before, Span(fit(last.text, left), last.style)))


def _on_disk(artifact: Artifact, there: Mapping[str, str] | None) -> str:
    if there is None:
        return ""
    return "new" if artifact.name not in there else "same" if there[artifact.name] == artifact.text else "changed"


def _name_row(name: str, on_disk: str, key: str) -> Row:
    glyph, style = MARKS[on_disk]
    return row((f"{glyph} ", style), name, right=[(on_disk, style)], key=key)


HAND_OVER = "none of the hosts is named. Name them in step 7, or give the cluster what dstui render --only sbatch (or k8s) writes."


def _verdict_rows(state: State, problem: str, width: int) -> list[Row]:
    if problem:
        return paragraph(problem, width, "error", first=(Span(f"{GLYPHS['error']} ", "error"),))
    rows: list[Row] = []
    grave = [f for f in state.findings if f.severity != "info"]
    for finding in grave:
        rows += paragraph(finding.message, width, first=(Span(f"{GLYPHS[finding.severity]} ", STYLE_OF[finding.severity]),))
        if finding.fix:
            rows += paragraph(
                finding.fix.text, width, "value", first=(Span(f"  {key_of('fix')}  " if finding.fix.by_key else "  →  ", "accent"),)
            )
    errors = state.counted("error")
    mark = {each: (Span(f"{GLYPHS[each]} ", each),) for each in ("warning", "error")}
    if state.known_machine.recorded:
        last = paragraph(
            "Nothing is launched: this machine is recorded (--machine). w writes the files.", width, "warning", first=mark["warning"]
        )
    elif errors:
        fixable = any(f.fix is not None and f.fix.by_key for f in grave)
        hint = " x applies the first fix." if fixable else ""
        last = paragraph(f"Cannot be launched: {errors} error{'s' if errors > 1 else ''}.{hint}", width, "error", first=mark["error"])
    elif nameless(state):
        last = paragraph(f"Nothing is started from here: {HAND_OVER}", width, "warning", first=mark["warning"])
    else:
        does = "queues it with SLURM" if state.plan.cluster.submits else "launches it"
        last = paragraph(f"{does}. The job does not need this screen: it goes on when you leave.", width, first=(Span("l ", "accent"),))
    return [*rows, *([BLANK] if rows else [row((GLYPHS["ok"], "ok"), " no errors, no warnings"), BLANK]), *last]


def _changed_rows(plan: Plan, last: tuple[str, Plan] | None, width: int) -> list[Row]:
    """Return the differences from the last run of this name."""
    if last is None:
        return []
    from dstui.jobs.store.plan_diff import changes

    name, before = last
    found = changes(before, plan)
    rows = [BLANK, row((f"Since {name}" if found else f"The same Plan as {name}", "title"))]
    return rows + [line for change in found for line in paragraph(str(change).replace("deepspeed.", "", 1), width, indent="  ")]
