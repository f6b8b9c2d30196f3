"""The first minute without a file: what was found here, and three ways on: a recipe for this machine, what is there already, blank."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dstui.adopt.recipes import Recipe, billions, recipes
from dstui.base.text import one_line
from dstui.machine.descriptions import summarise
from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.kit.text_row import BLANK, Row, fit, paragraph, row
from dstui.tui.session.folder_scan import FolderContents

if TYPE_CHECKING:
    from dstui.forecast.forecast import Forecast
    from dstui.machine.snapshot import Machine


class _Weighed(NamedTuple):
    """The last recipes and their figures: the screen is drawn often, the machine and the folder stay."""

    recipes: Sequence[Recipe] = ()
    machine: Machine | None = None
    found: tuple[Recipe, ...] = ()


_last = _Weighed()
ORDER = ("fits", "tight", "unknown", "too big")


def weighed(made: Sequence[Recipe], machine: Machine) -> tuple[Recipe, ...]:
    """Return the recipes with their figures: those that fit first, and of them the fastest."""
    global _last  # noqa: PLW0603 - a memory of one
    if _last.machine is not machine or _last.recipes != made:
        _last = _Weighed(made, machine, tuple(_of_model(made, machine) or _of_any(made, machine)))
    return _last.found


def _of_model(made: Sequence[Recipe], machine: Machine) -> list[Recipe]:
    """For the model that they name; empty where they name none."""
    from dstui.forecast.forecast import forecast
    from dstui.forecast.model import facts_of_config
    from dstui.forecast.presets import preset
    from dstui.plan import load
    from dstui.tui.forms.steps.figures import figure

    estimates: list[tuple[Recipe, Forecast]] = []
    for recipe in made:
        plan = load(recipe.text, "plan.yaml")
        known = preset(plan.model.source) if plan.model and plan.model.source else None
        if known is not None:
            estimates.append((recipe, forecast(plan, facts_of_config(known), machine)))
    estimates.sort(key=lambda pair: (ORDER.index(pair[1].verdict), -pair[1].speed.tokens if pair[1].speed else 0.0))
    return [replace(recipe, says=f"{figure(found)}{' tok/s' if found.fits and found.speed else ''}") for recipe, found in estimates]


def _of_any(made: Sequence[Recipe], machine: Machine) -> Iterator[Recipe]:
    """For how large a model they are; one that holds no larger one than those before it is no choice."""
    from dstui.forecast.largest import largest
    from dstui.plan import load

    before = 0.0
    for recipe in made:
        most = largest(load(recipe.text, "plan.yaml"), machine)
        if not most:
            yield recipe
        elif most > 1.05 * before:
            before = most
            yield replace(recipe, says=f"{recipe.speed}; to {billions(most)}")


QUICKSTART, BLANK_PLAN = "quickstart", ""
"""Beside a Recipe, a Draft, the name of a file or Both: what an answer may be."""


class Both(NamedTuple):
    """A ds_config.json or an accelerate YAML, and the script that lies beside it: one choice."""

    config: str
    script: str


NOTHING = "no training script, no Plan, no ds_config.json, no accelerate YAML"
LABEL, PATH = 25, 52
CONFIGS = 3
"""So many configurations are offered with the script; the others can be opened by themselves."""


class Start(Ask):
    """The start screen. Recipes are offered as soon as the machine was probed."""

    def __init__(self, found: FolderContents, machine: Machine | None) -> None:
        super().__init__("Start from what?", "", ())
        self.found, self.machine = found, machine

    def show(self, machine: Machine | None) -> None:
        """Now this is known of the machine. Who has not moved yet stands on the first answer still, which may be another one now."""
        untouched = self.rows.cursor in (None, *(answer.label for answer in self.answers[:1]))
        self.machine = machine
        self.redraw()
        if untouched and self.answers:
            self.rows.cursor = self.answers[0].label

    def lines(self) -> list[Row]:
        """Return what was found, and the answers under their titles."""
        sections = start_sections(self.found, self.machine)
        self.answers = tuple(answer for _, answers in sections for answer in answers)
        rows = found_rows(self.found, self.machine, self.room)
        for title, answers in sections:
            rows += [BLANK, row((title, "accent")), *(row((fit(a.key, 2), "accent"), a.label, key=a.label) for a in answers)]
        return rows


def found_rows(found: FolderContents, machine: Machine | None, width: int) -> list[Row]:
    """Return the machine in one line, and what is in the folder, `width` cells wide."""
    scripts = ", ".join(f"{s.name} ({s.facts.integration})" if s.facts.integration else s.name for s in found.scripts)
    here = " and ".join(filter(None, (scripts, ", ".join(found.documents)))) or NOTHING
    rows = [row((summarise(machine), "set")) if machine else row(("This machine is being looked at…", "dim"))]
    return [*rows, *paragraph(f"In this folder: {here}", width, "dim")]


def start_sections(found: FolderContents, machine: Machine | None) -> list[tuple[str, list[Answer]]]:
    """Return the ways on, each under its title; the value is what to open."""
    unsaved = [Answer("u", f"of {time.strftime('%Y-%m-%d %H:%M', time.localtime(draft.at))}", draft) for draft in found.drafts]
    script = next(iter(found.scripts), None)
    offered = weighed(recipes(script, machine), machine) if script and machine else ()
    made = [_labelled(recipe, number) for number, recipe in enumerate(offered)]
    pairs = [Both(name, script.name) for name in found.configurations] if script else []
    both = [Answer("" if n else "s", f"{pair.script} with {pair.config}", pair) for n, pair in enumerate(pairs[:CONFIGS])]
    there = [Answer(str(number), name, name) for number, name in enumerate(found.documents, 1)]
    anyway = [
        Answer("q", fit("quickstart", LABEL) + "a tiny GPT, half a minute", QUICKSTART),
        Answer("b", fit("blank", LABEL) + "nothing but a script", BLANK_PLAN),
        Answer("p", fit("a Plan of dstui's", LABEL) + "all, and whether they fit here", "shipped Plans"),
    ]
    sections = [
        ("Unsaved edits that a session left behind", unsaved),
        ("The script and its configuration", both),
        (f"A Plan for {script.name if script else ''} on this machine (estimates)", made),
        ("Open what is here", there),
        ("Open what was open last, elsewhere", [Answer("", _near_end(name), name) for name in found.recent]),
        ("Or begin with", anyway),
    ]
    return [(title, answers) for title, answers in sections if answers]


def _near_end(path: str) -> str:
    """Return a path as it fits: of a long one the end, where its name is."""
    home = f"{Path.home()}/"
    short = f"~/{path.removeprefix(home)}" if path.startswith(home) else path
    return one_line(short if len(short) <= PATH else f"…{short[1 - PATH :]}")


def _labelled(recipe: Recipe, number: int) -> Answer:
    return Answer("r" if number == 0 else "", fit(recipe.name, LABEL) + recipe.says, recipe)
