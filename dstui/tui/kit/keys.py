"""All keys with their actions and panes: one table for the bindings, the footer, the help and the palette.

A letter has the same meaning wherever it is valid; elsewhere it does nothing. Every letter's action also has an F-key or is in the palette,
since letters are text while something is typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from textual.binding import Binding

ANYWHERE: Final = frozenset({"form", "review", "run"})
FORM, REVIEW, RUN = frozenset({"form"}), frozenset({"review"}), frozenset({"run"})
PLOT: Final = "plot"
"""The screen of the metrics, on top of the run."""
RUNS: Final = "runs"
"""The table of runs, on top of any screen."""
COMPARE: Final = "compare"
"""The comparison of runs, on top of their table."""
OVER: Final = frozenset({PLOT, RUNS, COMPARE})
TYPING: Final = frozenset({"typing"})
"""While a value is typed. The keys of other panes are then text, except those with priority."""
FILTER: Final = frozenset({"filter"})
"""While a filter of the log is typed."""
SEARCH: Final = frozenset({"search"})
"""While a search in the log is typed."""
CHOOSING: Final = "choosing"
"""A dialog with rows to choose from."""
LINE: Final = "line"
"""A dialog with a line to type."""
READING: Final = "reading"
"""A dialog with a text."""
DIALOGS: Final = frozenset({CHOOSING, LINE, READING})
PINNED: Final = 90


IDS: Final[Mapping[str, str]] = {
    "recommend(1)": "hardware",
    "smooth(1)": "smooth",
    "smooth(-1)": "smooth-less",
    "order(1)": "sort",
    "order(-1)": "sort-back",
    "command_palette": "palette",
    "dedup": "fold",
}
"""Names of actions in the settings, if they differ from the action's own."""
TITLES: Final[Mapping[str, str]] = {
    "previous-step": "Previous step",
    "next-step": "Next step",
    "fix": "Fix what was found",
    "hardware": "Hardware: plan for another machine",
    "recommend": "Plans that fit this machine",
    "other-model": "Other model of the Plan",
    "add-model": "Add model to the Plan",
    "breakdown": "Memory, part by part",
    "copy": "Copy what is shown",
    "copy-all": "Copy all lines of the log",
    "own-editor": "Editor: open in your own",
    "level": "Level: warnings and errors only",
    "host": "Host: the ranks and log of one",
    "fold": "Fold the log",
    "wrap": "Wrap long lines of the log",
    "timestamps": "Times before the lines of the log",
    "time": "Time: go to a time or a step in the log",
    "rank": "Rank: the log of one",
    "metrics": "Metrics as a plot",
    "reason": "Why it ended, in full",
    "stacks": "Stacks: where each rank is in its code",
    "bundle": "Bundle for a bug report",
    "jobs": "Runs: the table of all",
}
"""Titles of actions by their names in the settings, if the label in the footer alone does not say enough."""
ALWAYS: Final = frozenset({"ctrl+c"})


def is_chord(key: str) -> bool:
    """Return whether a key types nothing: an F-key, or one with ctrl or alt."""
    *modifiers, last = key.split("+")
    return "ctrl" in modifiers or "alt" in modifiers or (last.startswith("f") and last[1:].isdigit())


class KeyHint(NamedTuple):
    """A key (or several) and its action. `where`: the panes in which it is valid; `hint` is 0 for keys that the footer omits."""

    keys: str
    action: str
    label: str
    help: str
    where: frozenset[str] = ANYWHERE
    hint: int = 0
    """The position in the footer, from the left; from PINNED on at its right edge, which is always visible."""
    display: str = ""
    footer: str = ""
    """The footer's text instead of `display`, if one hint there is for several keys."""
    priority: bool = False
    """True if it is also valid while something is typed."""

    @property
    def name(self) -> str:
        """Return the action without arguments; "" if Textual itself handles the key."""
        return self.action.partition("(")[0]

    @property
    def id(self) -> str:
        """The action's name in the settings."""
        direction = "next-" if "(1" in self.action else "previous-" if "(-1" in self.action else ""
        return IDS.get(self.action) or direction + self.name.replace("_", "-")

    def binding_id(self, key: str) -> str:
        """Return the id of the binding of a key; a keymap has other keys for it. ctrl+c has none: it always leaves."""
        return "" if key in ALWAYS else f"dstui.{self.id}.{'chord' if is_chord(key) else 'letter'}"

    @property
    def shown(self) -> str:
        """Return the key as a sentence shows it."""
        return self.display or self.keys.partition(",")[0]

    @property
    def in_footer(self) -> str:
        """Return the key as the footer shows it: one hint may be for several keys."""
        return self.footer or self.shown

    @property
    def title(self) -> str:
        """Return what the action is called where there is more room than in the footer."""
        return TITLES.get(self.id) or self.label.capitalize()


KEYS: Final = (
    KeyHint("", "", "choose", "Move over the rows.", FORM | REVIEW | {CHOOSING}, 1, "↑↓"),
    KeyHint("", "", "move", "Move in the text.", frozenset({READING}), 1, "↑↓"),
    KeyHint("", "", "take", "Choose what the cursor is on. The letter before an answer chooses it too.", frozenset({CHOOSING}), 2, "Enter"),
    KeyHint("", "", "done", "Accept what was typed.", frozenset({LINE}), 1, "Enter"),
    KeyHint("", "dismiss(None)", "close", "Close without a change.", DIALOGS, 3, "Esc"),
    KeyHint("", "set_row", "set", "Set, open or go to what the cursor is on.", FORM, 2, "Enter"),
    KeyHint("", "onward", "next step", "The next step; from the last one the launch.", FORM, 2, "Enter"),
    KeyHint("", "", "done", "Keep what was typed; ctrl+z undoes it.", TYPING, 1, "Enter Esc"),
    KeyHint("", "undo", "undo", "Undo the last edit.", TYPING, 2, "ctrl+z"),
    KeyHint("left_square_bracket,f3", "step(-1)", "step", "The previous step.", hint=3, display="[", footer="[ ]"),
    KeyHint("right_square_bracket,f4", "step(1)", "next", "The next step.", display="]"),
    KeyHint("1,2,3,4,5,6,7,8,9,0", "digit", "step", "The step with this number; on the run, the log of the rank with it.", display="1-9"),
    KeyHint("x", "fix", "fix", "Apply the fix of the finding under the cursor, or of the first; on the run, of the diagnosis.", hint=4),
    KeyHint("f5", "fix", "fix", "Apply the fix, also while typing.", ANYWHERE | TYPING, priority=True, display="F5"),
    KeyHint("H", "recommend(1)", "hardware", "Plan for another machine, by name: 8xH100-80.", FORM | REVIEW),
    KeyHint("r", "recommend", "plans", "The plans that fit this machine, the best first; Enter chooses one.", FORM | REVIEW, 7),
    KeyHint("O", "other_model", "other model", "The next of several models: forms and preview then show it.", FORM, 6),
    KeyHint("A", "add_model", "add model", "One more model in this run, a teacher or a second one to train.", FORM),
    KeyHint("M", "breakdown", "memory", "What fills GPU, RAM and NVMe, part by part, and what is unknown.", FORM | REVIEW),
    KeyHint("l", "launch", "launch", "Go to Review, where l starts the job; on a job, start it again.", FORM | RUN),
    KeyHint("", "launch", "launch", "Start the job, detached from this terminal.", REVIEW, 1, "l"),
    KeyHint("", "again", "again", "Start this job again, with its Plan as it is now.", RUN, 2, "l"),
    KeyHint("P", "probe", "probe", "Run the ranks up to the end of deepspeed.initialize: what it resolves; nothing is trained.", REVIEW, 7),
    KeyHint("w", "write", "write files", "Write ds_config.json and the other files to a folder.", REVIEW, 4),
    KeyHint(
        "c",
        "copy",
        "copy",
        "Copy what is shown: the file, the command; of a log the selection, else the chosen line, else the visible lines.",
        hint=8,
    ),
    KeyHint("Y", "copy_all", "copy all", "Copy every line of the log that is shown, by the filter and the rank chosen.", RUN),
    KeyHint("V", "own_editor", "editor", "The Plan in $VISUAL or $EDITOR, at the line of the field; one step of undo.", FORM | REVIEW),
    KeyHint("V", "own_editor", "editor", "The script in $VISUAL or $EDITOR, at the line that failed.", RUN),
    KeyHint("z,ctrl+z", "undo", "undo", "Undo the last edit.", FORM | REVIEW, 5),
    KeyHint("Z,ctrl+y", "redo", "redo", "Redo an edit that was undone.", FORM | REVIEW, display="Z"),
    KeyHint("slash", "find", "find", "Find a setting; on the run, search the log, for a text or an expression.", hint=7, display="/"),
    KeyHint("n", "match(1)", "next match", "The next line that matches.", RUN),
    KeyHint("N", "match(-1)", "match before", "The previous line that matches.", RUN),
    KeyHint(
        "ampersand",
        "filter",
        "filter",
        "Only lines that match: loss|eval !step r0-3 level:warn host:h2 since:10m.",
        RUN,
        13,
        display="&",
    ),
    KeyHint("", "", "keep", "Keep the filter and close the line.", FILTER, 1, "Enter"),
    KeyHint("", "", "show all", "Show every line again.", FILTER, 2, "Esc"),
    KeyHint("", "", "earlier filters", "The filters that were typed before.", FILTER, 3, "↑↓"),
    KeyHint("", "", "go there", "Go to the last match; n and N go to others.", SEARCH, 1, "Enter"),
    KeyHint("", "", "text / expression", "Search for the typed text itself, or for a regular expression.", SEARCH, 2, "Tab"),
    KeyHint("", "", "end", "End the search.", SEARCH, 3, "Esc"),
    KeyHint("", "", "earlier searches", "The searches that were typed before.", SEARCH, 4, "↑↓"),
    KeyHint("e", "problem(1)", "next error", "The next line with an error.", RUN, 5),
    KeyHint("E", "problem(-1)", "error before", "The previous line with an error.", RUN),
    KeyHint("w", "warning(1)", "next warning", "The next line with a warning.", RUN),
    KeyHint("W", "warning(-1)", "warning before", "The previous line with a warning.", RUN),
    KeyHint("f", "follow", "follow", "Follow the end of the log.", RUN, 4),
    KeyHint(
        "a", "all_ranks", "all", "All ranks: their log, every line of it; in the plot a line for each, or the mean of all.", RUN | {PLOT}, 3
    ),
    KeyHint("v", "level", "level", "Warnings and errors only; then errors only; then every line again.", RUN, 6),
    KeyHint("h", "host", "host", "One host: its ranks and their log; then the next one. For many hosts a list, the worst first.", RUN, 10),
    KeyHint(
        "u",
        "dedup",
        "fold",
        "Fold the log: lines of several ranks that differ only in numbers as one row (×64), those that are the same, or each by itself.",
        RUN,
        12,
    ),
    KeyHint("L", "wrap", "wrap", "Long lines in several rows, or cut at the edge, where ←→ show the rest; remembered.", RUN),
    KeyHint("T", "timestamps", "times", "Before each line the time of day, the time since the start, or none; remembered.", RUN),
    KeyHint("t", "time", "time", "Go to a time or a step in the log.", RUN, 7),
    KeyHint("", "", "whole line", "Show a whole line, with its rank and the lines of that rank around it.", RUN, display="Enter"),
    KeyHint("", "look", "look", "In the list of jobs: open the one under the cursor.", RUN, 1, "↑↓ Enter"),
    KeyHint("g", "rank", "rank", "The log of one rank, by its number.", RUN, 1, footer="0-9 g"),
    KeyHint("m", "metrics", "metrics", "The metrics over the steps, as a plot; and back to the log.", RUN | {PLOT}, 6),
    KeyHint("D", "dashboard", "dashboard", "Plots and GPUs beside the log, or the log alone; remembered.", RUN, 12),
    KeyHint("", "", "metric", "Choose a metric.", frozenset({PLOT}), 1, "↑↓"),
    KeyHint("plus,equals_sign", "smooth(1)", "smooth", "Smooth more, by a moving average.", frozenset({PLOT}), 3, "+", "+ -"),
    KeyHint("minus", "smooth(-1)", "smooth less", "Smooth less, down to none.", frozenset({PLOT}), display="-"),
    KeyHint("y", "log", "log", "A logarithmic scale for the values, or the plain one.", frozenset({PLOT}), 4),
    KeyHint("asterisk", "pin", "pin", "Put this plot first on the dashboard, or back; remembered.", frozenset({PLOT}), 6, "*"),
    KeyHint("o", "overlay", "other run", "Add another run's line to this plot, or remove it.", frozenset({PLOT}), 5),
    KeyHint(
        "d", "reason", "why", "The whole diagnosis: every line that shows it, what would confirm it, other causes, what to do.", RUN, 3
    ),
    KeyHint("p", "stacks", "stacks", "Where in its Python code each rank is, and who waits for whom; the job continues.", RUN, 6),
    KeyHint("P", "probe", "resolved", "The configuration that DeepSpeed had in this run, and how it differs from the Plan.", RUN),
    KeyHint("b", "bundle", "bundle", "Write a zip for a bug report, with secrets masked.", RUN, 11),
    KeyHint("s", "stop", "stop", "Stop the job, after a question.", RUN, 2),
    KeyHint("J", "jobs", "runs", "The table of all runs: open another one, sort, filter, compare.", RUN, 9),
    KeyHint("J", "jobs", "runs", "The table of all runs.", FORM | REVIEW | {COMPARE}),
    KeyHint("J", "jobs", "runs", "The table of all runs.", frozenset({PLOT}), 7),
    KeyHint("", "look", "look", "Open the run under the cursor.", frozenset({RUNS}), 1, "Enter"),
    KeyHint("space", "mark", "mark", "Mark the run for a comparison, or remove the mark.", frozenset({RUNS}), 2, "Space"),
    KeyHint("equals_sign", "compare", "compare", "Compare the marked runs, up to eight.", frozenset({RUNS}), 3, "="),
    KeyHint("m", "curves", "curves", "The curves of these runs in one plot.", frozenset({RUNS, COMPARE}), 4),
    KeyHint("greater_than_sign", "order(1)", "sort", "Sort by the next column.", frozenset({RUNS}), 5, ">", "< >"),
    KeyHint("less_than_sign", "order(-1)", "sort before", "Sort by the previous column.", frozenset({RUNS}), display="<"),
    KeyHint("r", "reverse", "reverse", "Reverse the order.", frozenset({RUNS}), 8),
    KeyHint("slash", "condition", "filter", "Only the runs that match: stage=3 loss<2 failed.", frozenset({RUNS}), 6, "/"),
    KeyHint("c", "columns", "columns", "Which columns there are, in which order; remembered.", frozenset({RUNS}), 9),
    KeyHint("l", "start_again", "again", "Start the run under the cursor again, with its Plan as it is now.", frozenset({RUNS}), 7),
    KeyHint("y,c", "copy_markdown", "copy", "Copy the table as Markdown.", frozenset({COMPARE}), 1),
    KeyHint("C", "checkpoints", "checkpoints", "The content of a checkpoint, whether this Plan can resume from it, whole weights from it."),
    KeyHint("tab", "pane(1)", "pane", "The next pane.", hint=8, display="tab", priority=True),
    KeyHint("shift+tab", "pane(-1)", "pane before", "The previous pane.", display="⇧tab", priority=True),
    KeyHint("escape", "escape", "back", "Close, or go back.", ANYWHERE, display="Esc"),
    KeyHint("escape", "escape", "back", "Close, or go back.", OVER, hint=PINNED, display="Esc"),
    KeyHint("f2,ctrl+s", "save", "save", "Save the Plan.", ANYWHERE | TYPING, hint=9, display="F2", priority=True),
    KeyHint(
        "f1,question_mark",
        "help",
        "help",
        "What the keys do, and what the field under the cursor means.",
        ANYWHERE | TYPING | FILTER | SEARCH | OVER | DIALOGS,
        hint=PINNED,
        display="F1",
    ),
    KeyHint("colon", "command_palette", "commands", "Every action by name.", ANYWHERE | OVER, display=":"),
    KeyHint("ctrl+p", "command_palette", "commands", "Every action by name.", ANYWHERE | TYPING | OVER, hint=11, display="ctrl+p"),
    KeyHint("", "leave", "quit", "Leave dstui from here too.", DIALOGS, 99, "ctrl+q"),
    KeyHint(
        "q,ctrl+q,ctrl+c",
        "leave",
        "quit",
        "Leave; asks only if something would be lost. A running job continues.",
        ANYWHERE | OVER,
        hint=99,
    ),
)


def _panes_of_actions() -> dict[str, frozenset[str]]:
    panes: dict[str, frozenset[str]] = {}
    for key in KEYS:
        panes[key.name] = panes.get(key.name, frozenset()) | key.where
    return panes


PANES: Final[Mapping[str, frozenset[str]]] = _panes_of_actions()
"""The panes in which each action is valid, by any of its keys."""
ACTIONS: Final = frozenset(filter(None, PANES))
APP_KEYS: Final = frozenset({"leave", "help", "command_palette", "save", "checkpoints", "jobs"})
"""Actions that are the same in both modes and in screens on top of them."""


WHY_NOT: Final[Mapping[str, str]] = {
    "undo": "nothing was edited",
    "redo": "nothing was undone",
    "fix": "no finding has a fix",
    "other_model": "the Plan has one model",
    "stop": "no job runs here",
    "stacks": "no rank runs",
    "follow": "the log is followed",
    "reason": "there is no diagnosis",
    "own_editor": "nothing has failed",
}
"""The reason why an action has nothing to act on; those that are not here need an open job."""
LOG_KEYS: Final = frozenset(
    {"all_ranks", "level", "dedup", "match", "filter", "problem", "warning", "follow", "dashboard", "wrap", "timestamps", "copy_all"}
)
"""Actions of the part of the run screen that shows a job."""


def bindings(panes: frozenset[str]) -> list[Binding]:
    """Return the bindings of a screen with these panes."""
    return _bindings(key for key in KEYS if key.where & panes and key.name not in APP_KEYS)


def log_bindings() -> list[Binding]:
    """Return the bindings of a job's log."""
    return _bindings(key for key in KEYS if key.where & RUN and key.name in LOG_KEYS)


def app_bindings() -> list[Binding]:
    """Return the bindings of the app."""
    return _bindings(key for key in KEYS if key.name in APP_KEYS)


def _bindings(keys: Iterable[KeyHint]) -> list[Binding]:
    made = []
    for key in keys:
        for name in filter(None, key.keys.split(",")):
            action = f"digit({name})" if key.action == "digit" else key.action
            priority = key.priority or (name not in ALWAYS and is_chord(name))
            made.append(Binding(name, action, key.help, show=False, priority=priority, id=key.binding_id(name) or None))
    return made


class _Table:
    """The current keys: those of KEYS, or the user's own."""

    hints: Sequence[KeyHint] = KEYS


def table() -> Sequence[KeyHint]:
    """Return the current keys, for everything that shows them."""
    return _Table.hints


def show_table(hints: Sequence[KeyHint]) -> None:
    """Set the keys to show from now on. Textual applies the bindings (`App.set_keymap`)."""
    _Table.hints = hints


def key_of(action: str) -> str:
    """Return the key of an action in the usual notation, for a sentence. The action is named as in the settings."""
    return next((key.shown for key in _Table.hints if key.id == action and key.keys), action)


def in_pane(pane: str) -> list[KeyHint]:
    """Return the keys of a pane in the order of the footer, each with its counterpart, then the others.

    What a key does in general is left out where the footer names it.
    """
    here = [k for k in _Table.hints if pane in k.where]
    hinted = {k.shown for k in here if k.hint}
    places = {k.name: k.hint for k in reversed(here) if k.name and k.hint}
    places["redo"] = places.get("undo", 0)
    return sorted((k for k in here if k.hint or k.shown not in hinted), key=lambda k: k.hint or places.get(k.name) or PINNED - 1)


def valid(pane: str, possible: frozenset[str]) -> list[KeyHint]:
    """Return the keys for the footer of a pane, in order; `possible` are the actions that would have an effect now."""
    here = [k for k in _Table.hints if k.hint and pane in k.where and (not k.action or k.name in possible)]
    return sorted(here, key=lambda k: k.hint)
