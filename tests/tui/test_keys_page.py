"""docs/keys.md equals the table of keys, and no key has two meanings on one screen.

`python -m tests.tui.test_keys_page > docs/keys.md` rewrites it.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from dstui.tui.forms.form_parts import FormRows
from dstui.tui.kit.keymap import FIXED, FORM_KEYS, LIST_KEYS, keymap, remappable
from dstui.tui.kit.keys import ACTIONS, DIALOGS, KEYS, OVER, PINNED, KeyHint, bindings, in_pane, valid
from dstui.tui.kit.row_list import RowList
from dstui.tui.run.log_view import LogView

PAGE = Path(__file__).parents[2] / "docs" / "keys.md"
PANES = {
    "form": "Steps 1 to 7: a form",
    "review": "Step 8: review and launch",
    "run": "Step 9: a job, or the list of jobs",
    "filter": "While a filter of the log is typed (`&`)",
    "search": "While a search in the log is typed (`/`)",
    "plot": "The plot of the metrics (`m`)",
    "runs": "The table of runs (`J`)",
    "compare": "Runs beside each other (`=` in their table)",
    "typing": "While a value is typed in a form",
    "choosing": "A dialog with answers or a list",
    "line": "A dialog with a line to type",
    "reading": "A dialog with a text",
}
WIDGETS: dict[str, tuple[type[RowList], ...]] = {
    "form": (RowList, FormRows),
    "review": (RowList,),
    "run": (RowList, LogView),
    "plot": (RowList,),
    "runs": (RowList,),
    "compare": (RowList,),
}
"""The lists of each screen, which have keys of their own."""
NAMES = {"left_square_bracket": "[", "right_square_bracket": "]", "slash": "/", "question_mark": "?", "ampersand": "&", "minus": "-"}
NAMES |= {"asterisk": "*", "plus": "+", "equals_sign": "=", "escape": "Esc", "colon": ":", "less_than_sign": "<", "greater_than_sign": ">"}
NOTE = """\
# Keys

Every key by screen, from `dstui/tui/kit/keys.py`. A key has one meaning on one screen. Everything that a letter does is in the palette too
(ctrl+p). The second column names the action for the settings, where it may have other keys: [settings.md](settings.md). In every list the arrows, j and k, page up and down, home, end and Enter move and choose; in a form space and ←→ change a value and
d takes it out of the Plan; in the log ←→ show the rest of long lines.
"""


def keys_of(key: KeyHint) -> str:
    """Return the keys of a hint as they are labelled on a keyboard."""
    names = ["0-9"] if key.action == "digit" else [NAMES.get(name, name) for name in filter(None, key.keys.split(","))]
    return " ".join(f"`{name}`" for name in names or [key.display])


def page() -> str:
    parts = [NOTE]
    for pane, title in PANES.items():
        rows = [
            f"| {keys_of(key)} | {f'`{key.id}`' if key.id in remappable() else ''} | {key.label} | {key.help.replace('|', chr(92) + '|')} |"
            for key in KEYS
            if pane in key.where
        ]
        parts.append("\n".join([f"## {title}", "", "| key | action | | |", "| --- | --- | --- | --- |", *rows, ""]))
    return "\n".join(parts)


def test_keys_page_equals_the_table() -> None:
    assert PAGE.read_text() == page(), "python -m tests.tui.test_keys_page > docs/keys.md"


def test_keys_page_covers_every_screen() -> None:
    assert set(PANES) == {pane for key in KEYS for pane in key.where}


@pytest.mark.parametrize("pane", PANES)
def test_no_key_has_two_meanings_on_one_screen(pane: str) -> None:
    meanings = defaultdict(set)
    for binding in bindings(frozenset({pane})):
        meanings[binding.key].add(binding.action.partition("(")[0])
    for widget in WIDGETS.get(pane, ()):
        for own in widget.BINDINGS:
            for key in own.key.split(","):  # type: ignore[union-attr]
                meanings[key].add(own.action.partition("(")[0])  # type: ignore[union-attr]
    lists = [{"sideways", "move"}, {"turn", "sideways"}]  # the key of one list replaces that of another
    assert {key: found for key, found in meanings.items() if len(found) > 1 and found not in lists} == {}


@pytest.mark.parametrize("pane", sorted(OVER | DIALOGS))
def test_footer_of_every_dialog_shows_the_way_back(pane: str) -> None:
    assert "Esc" in [hint.in_footer for hint in valid(pane, ACTIONS)]


def test_no_list_key_can_be_an_action_key() -> None:
    lists = {key for widgets in WIDGETS.values() for widget in widgets for own in widget.BINDINGS for key in own.key.split(",")}  # type: ignore[union-attr]
    assert lists <= LIST_KEYS | FORM_KEYS
    assert keymap({"stop": ["j"]}).problems and keymap({"launch": ["d"]}).problems and not keymap({"rank": ["d"]}).bindings


def test_everything_with_keys_has_a_name_for_the_settings() -> None:
    actions: dict[str, set[str]] = {}
    for key in KEYS:
        if key.keys and key.id not in FIXED:
            actions.setdefault(key.id, set()).add(key.action)
    assert {name: found for name, found in actions.items() if len(found) > 1} == {}
    usual = {key.id: [name for name in key.keys.split(",") if name != "ctrl+c"] for key in KEYS if key.keys and key.id in remappable()}
    assert keymap(usual).problems == []


@pytest.mark.parametrize(
    ("wished", "why"),
    [
        ({"launch": ["x"]}, "is the key of 'fix'"),
        ({"save": ["S"]}, "types nothing"),
        ({"lunch": ["f9"]}, "did you mean 'launch'"),
        ({"launch": ["hyper+l"]}, "no key is called"),
        ({"leave": ["ctrl+c"]}, "'ctrl+c' always leaves dstui: take another key"),
        ({"write": ["O"]}, "is the key of 'other-model'"),
    ],
)
def test_impossible_key_is_refused_with_a_reason(wished: dict[str, list[str]], why: str) -> None:
    made = keymap(wished)
    assert [why in problem for _, problem in made.problems] == [True]
    assert tuple(made.hints) == KEYS and not made.bindings


def test_two_actions_may_swap_their_keys() -> None:
    made = keymap({"launch": ["x"], "fix": ["l"], "write": ["O"], "other-model": ["alt+o"]})
    assert not made.problems
    assert {key.shown for key in made.hints if key.id in ("launch", "again")} == {"x"}


if __name__ == "__main__":
    print(page(), end="")


def test_help_explains_the_keys_of_the_footer_first_and_each_key_once() -> None:
    shown = [key.shown for key in in_pane("run")]
    footer = [key.shown for key in valid("run", ACTIONS) if key.hint < PINNED]
    assert shown[0] == footer[0] and [key for key in shown if key in footer] == footer and shown.count("l") == 1


@pytest.mark.parametrize(
    ("pane", "pairs"),
    [("form", ["[ ]", "x F5", "z Z", "tab ⇧tab"]), ("run", ["[ ]", "e E", "n N", "w W"]), ("plot", ["+ -"]), ("runs", ["> <"])],
)
def test_help_lists_a_key_and_its_counterpart_together(pane: str, pairs: list[str]) -> None:
    shown = f" {' '.join(key.shown for key in in_pane(pane))} "
    assert [pair for pair in pairs if f" {pair} " not in shown] == []
