"""The start screen: what was found here, and what to start from: a recipe for this machine, a file of the folder, a shipped Plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dstui.adopt.recipes import Recipe, billions, recipes
from dstui.base.files import FileProblem
from dstui.base.text import one_line, sanitise
from dstui.documents.layers import Template
from dstui.documents.plan_files import SHIPPED
from dstui.machine.choice import is_busy
from dstui.machine.report import describe_gpus, summarise
from dstui.plan import Plan, PlanError
from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, fit, paragraph, row
from dstui.tui.kit.tools import in_thread
from dstui.tui.session.folder_scan import FolderContents

if TYPE_CHECKING:
    from dstui.forecast.forecast import Forecast
    from dstui.machine.snapshot import Machine


class _Weighed(NamedTuple):
    """The last recipes with their forecasts, cached because the screen is drawn often while machine and folder stay the same."""

    recipes: Sequence[Recipe] = ()
    machine: Machine | None = None
    found: tuple[Recipe, ...] = ()


_last = _Weighed()
ORDER = ("fits", "tight", "unknown", "too big")


def weighed(made: Sequence[Recipe], machine: Machine) -> tuple[Recipe, ...]:
    """Return the recipes with their forecasts: those that fit first, the fastest of them first."""
    global _last  # noqa: PLW0603 - a memory of one
    if _last.machine is not machine or _last.recipes != made:
        _last = _Weighed(made, machine, tuple(_recipes_for_model(made, machine) or _recipes_by_size(made, machine)))
    return _last.found


def _recipes_for_model(made: Sequence[Recipe], machine: Machine) -> list[Recipe]:
    """Return the recipes for the model that the script names; empty if it names none."""
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


def _recipes_by_size(made: Sequence[Recipe], machine: Machine) -> Iterator[Recipe]:
    """Return recipes by the size of model that they can train; one that trains no larger model than those before it is left out."""
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
"""Further answers besides a Recipe, a Draft, the name of a file or Both."""


class Both(NamedTuple):
    """A ds_config.json or an accelerate YAML together with the script beside it, as one choice."""

    config: str
    script: str


NOTHING = "no training script, no Plan, no ds_config.json, no accelerate YAML"
LABEL, PATH = 25, 52
CONFIGS = 3
"""Configurations that are offered together with the script. Others can be opened alone."""


class Start(Ask):
    """The start screen. Recipes appear as soon as the machine is probed."""

    BOX = 76

    def __init__(self, found: FolderContents, machine: Machine | None) -> None:
        super().__init__("What do you want to start from?", "", ())
        self.found, self.machine = found, machine
        self.judged: dict[str, str] = {}
        """Verdicts on the site's templates: whether each fits here."""

    def on_mount(self) -> None:
        """Draw it, and judge the site's templates beside the screen."""
        super().on_mount()
        self._judge_soon()

    def _judge_soon(self) -> None:
        if self.machine is not None and self.found.templates:
            in_thread(self, partial(self._judge, self.machine))

    def _judge(self, machine: Machine) -> None:
        from dstui.surroundings import judge_template

        for template in self.found.templates:
            self.app.call_later(self._take, template.name, judge_template(template, machine))

    def _take(self, name: str, judgement: str) -> None:
        self.judged[name] = judgement
        if not self.is_attached:
            return
        at = next((number for number, answer in enumerate(self.answers) if answer.label == self.rows.cursor), None)
        self.redraw()
        if at is not None:  # the label that the cursor was on may say more now
            self.rows.cursor = self.answers[at].label

    def show(self, machine: Machine | None) -> None:
        """Show what is now known of the machine. A cursor that was not moved stays on the first answer, which may have changed."""
        untouched = self.rows.cursor in (None, *(answer.label for answer in self.answers[:1]))
        if self.machine != machine:
            self.machine = machine
            self._judge_soon()
        self.redraw()
        if untouched and self.answers:
            self.rows.cursor = self.answers[0].label

    def lines(self) -> list[Row]:
        """Return what was found, and the answers grouped under titles."""
        sections = start_sections(self.found, self.machine, self.judged, self.room)
        self.answers = tuple(answer for _, answers in sections for answer in answers)
        rows = found_rows(self.found, self.machine, self.room)
        for title, answers in sections:
            rows += [BLANK, row((title, "accent"))]
            if any(answer.label[LABEL : LABEL + 1] in GLYPHS.values() for answer in answers):
                rows.append(row((f"{'':{2 + LABEL}}{'GPU' if self.machine and self.machine.gpus else 'RAM':>10}  left", "faint")))
            rows += [*(row((fit(a.key, 2), "accent"), a.label, key=a.label) for a in answers)]
        return [*rows, BLANK, row(("New here? `dstui tour` in a shell shows all of it.", "faint"))]


def found_rows(found: FolderContents, machine: Machine | None, width: int) -> list[Row]:
    """Return the machine in one line, and what the folder contains, for a width in cells."""
    scripts = ", ".join(f"{s.name} ({s.facts.integration})" if s.facts.integration else s.name for s in found.scripts)
    here = " and ".join(filter(None, (scripts, ", ".join(found.documents)))) or NOTHING
    rows = [row((summarise(machine), "set")) if machine else row(("Probing this machine…", "dim"))]
    if busy := [gpu.index for gpu in machine.gpus if is_busy(gpu)] if machine else []:
        text = f"{describe_gpus(busy)} {'is' if len(busy) == 1 else 'are'} in use: estimates count their free memory only"
        rows += paragraph(text, width, first=(Span(f"{GLYPHS['warning']} ", "warning"),))
    return [*rows, *paragraph(f"In this folder: {here}", width, "dim")]


def start_sections(found: FolderContents, machine: Machine | None, judged: Mapping[str, str], width: int) -> list[tuple[str, list[Answer]]]:
    """Return the groups of answers with their titles; the value of an answer is what to open. `judged`: which templates fit, by name."""
    unsaved = [Answer("u", f"of {time.strftime('%Y-%m-%d %H:%M', time.localtime(draft.at))}", draft) for draft in found.drafts]
    script = next(iter(found.scripts), None)
    offered = weighed(recipes(script, machine), machine) if script and machine else ()
    made = [_labelled(recipe, number) for number, recipe in enumerate(offered)]
    pairs = [Both(name, script.name) for name in found.configurations] if script else []
    both = [Answer("" if n else "s", f"{pair.script} with {pair.config}", pair) for n, pair in enumerate(pairs[:CONFIGS])]
    there = [Answer(str(number), name, name) for number, name in enumerate(found.documents, 1)]
    of_site = [Answer("t"[n:], _template_row(one, judged.get(one.name, ""), width), one) for n, one in enumerate(found.templates)]
    anyway = [
        Answer("q", fit("quickstart", LABEL) + "trains a tiny GPT in half a minute", QUICKSTART),
        Answer("b", fit("blank", LABEL) + "for a script that has no configuration yet", BLANK_PLAN),
        Answer("p", fit("a shipped Plan", LABEL) + "all of them, and which fit this machine", "shipped Plans"),
    ]
    sections = [
        ("Unsaved edits of an earlier session", unsaved),
        ("The script and its configuration", both),
        (f"A Plan for {script.name if script else ''} on this machine (estimates)", made),
        ("Open a file of this folder", there),
        ("Templates of this site", of_site),
        ("Open a recent file", [Answer("", _near_end(name), name) for name in found.recent]),
        ("Or start with", anyway),
    ]
    return [(title, answers) for title, answers in sections if answers]


def _template_row(template: Template, judgement: str, width: int) -> str:
    """Return a template in one line: its name, whether it fits here, what it is for."""
    return fit(f"{fit(sanitise(template.name), 15)} {fit(judgement, 12)}{sanitise(template.purpose)}", width - 4).rstrip()


def _near_end(path: str) -> str:
    """Return a path as it fits: of a long one the end, where its name is."""
    home = f"{Path.home()}/"
    short = f"~/{path.removeprefix(home)}" if path.startswith(home) else path
    return one_line(short if len(short) <= PATH else f"…{short[1 - PATH :]}")


def _labelled(recipe: Recipe, number: int) -> Answer:
    return Answer("r" if number == 0 else "", fit(recipe.name, LABEL) + recipe.says, recipe)


class Shipped(Ask):
    """Choose a shipped Plan. Result: its name."""

    def __init__(self, machine: Machine | None, model: str = "") -> None:
        """Create the dialog. `model`: the hub id that the script of the folder names, or ""."""
        super().__init__("Shipped Plans", "", [Answer("", name, name) for name in SHIPPED])
        self.machine, self.model = machine, model
        self.figures: dict[str, tuple[Span, ...]] = {}

    def on_mount(self) -> None:
        """Draw the names, and compute the forecasts in a thread."""
        super().on_mount()
        if self.machine is not None:
            in_thread(self, self._weigh)

    def lines(self) -> list[Row]:
        """Return each Plan with its forecast, and what it is for."""
        of = f"for {self.model}, which the script uses" if self.model else "for the model of each Plan; yours may differ"
        told = (
            f"Each is opened for the script of this folder. Memory per GPU, or host RAM, is {of}. After it: what remains free, or how many"
        )
        rows = [*paragraph(f"{told} times too much it is, and tokens per second.", self.room, "dim"), BLANK]
        for name, purpose in SHIPPED.items():
            rows.append(row(name, right=self.figures.get(name, ()), key=name))
            rows += paragraph(purpose, self.room, "dim", indent="  ")
        return rows

    def _weigh(self) -> None:
        for name, figures in self._estimates():
            self.app.call_later(self._show, name, figures)

    def _show(self, name: str, figures: tuple[Span, ...]) -> None:
        self.figures[name] = figures
        if self.is_attached:
            self.redraw()

    def _estimates(self) -> Iterator[tuple[str, tuple[Span, ...]]]:
        from dstui.assess import assess
        from dstui.documents.open import open_document
        from dstui.surroundings import gather
        from dstui.tui.forms.steps.figures import figure, severity

        assert self.machine is not None
        for name in SHIPPED:
            with suppress(FileProblem, PlanError):
                plan = self._with_model(open_document(name).plan)
                target, facts = gather(plan, self.machine)
                source = plan.model.source if plan.model is not None else None
                model = (source or "").rpartition("/")[2]
                found = assess(target, facts).forecast
                if found is not None:
                    yield name, (Span(f"{model} ", "dim"), Span(figure(found), STYLE_OF[severity(found)]))

    def _with_model(self, plan: Plan) -> Plan:
        named = self.model and plan.model is not None and plan.model.source
        return plan.set("model.source", self.model) if named else plan
