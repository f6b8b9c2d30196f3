"""Find a setting: every field of the forms and every key that DeepSpeed knows, by any part of its name or help."""

from __future__ import annotations

from dstui.tui.dialogs.pick import Pick
from dstui.tui.forms.fields import help_for
from dstui.tui.forms.steps import STEPS
from dstui.tui.kit.text_row import Row, fit, row
from dstui.tui.session.state import State


class Find(Pick):
    """The result is a dotted path of the Plan."""

    def __init__(self, state: State) -> None:
        super().__init__("Find a setting", "a part of its name: bucket, warmup, nvme…")
        self.entries = _entries(state)

    def matching(self, text: str) -> list[Row]:
        """The settings with it in their name or help."""
        return matching(self.entries, text)


def _entries(state: State) -> list[tuple[str, str]]:
    """(path, label) of every setting: those with a form first."""
    from dstui.plan.catalogue import KEYS

    forms = [(f.path, f"{step.title}: {f.label}") for step in STEPS for f in step.fields(state) if f.help is None and "." in f.path]
    known = {path for path, _ in forms}
    return forms + [(f"deepspeed.{p}", "") for p in KEYS if f"deepspeed.{p}" not in known]


def matching(entries: list[tuple[str, str]], text: str, limit: int = 200) -> list[Row]:
    """The entries in which every word of `text` occurs."""
    words = text.lower().split()
    rows: list[Row] = []
    for path, label in entries:
        name = path.removeprefix("deepspeed.")
        if all(w in f"{name} {label}".lower() for w in words) or (len(words) == 1 and len(text) > 3 and words[0] in help_for(path).lower()):
            rows.append(row((fit(name, 36), "name"), (f"  {fit(label, 22)}", "dim"), key=path))
            if len(rows) == limit:
                break
    return rows
