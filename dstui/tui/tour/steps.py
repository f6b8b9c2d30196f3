"""The steps of the tour as data: the text, the key, where the key works, and the condition that completes the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dstui.tui.forms.steps import MACHINE
from dstui.tui.forms.steps.batch import ACCUMULATION, BATCH
from dstui.tui.forms.steps.zero import ZERO
from dstui.tui.kit.keys import CHOOSING
from dstui.tui.tour.observe import MAIN, has_job, job_ended, launched_micro, micro, opened, place, shows_rank, step

if TYPE_CHECKING:
    from dstui.tui.app import DstuiApp

LARGEST = 16
"""The largest micro-batch for the last rank of dstui.examples.tour_tiny; a larger one causes the intended failure."""
FORM, ON_REVIEW, RUN = frozenset({"form"}), frozenset({"review"}), frozenset({"run"})
PALETTE, PLOT = frozenset({CHOOSING}), frozenset({"plot", "run"})

Seen = Callable[["DstuiApp"], object]


class TourStep(NamedTuple):
    """One step. It is complete when `done` is true for the app."""

    name: str
    title: str
    key: str
    at: frozenset[str]
    """The places where the key works, or the form that it needs. Elsewhere the panel first says how to get there."""
    text: str
    done: Seen
    needs: Seen = lambda _app: True
    """The result of earlier steps. If it is gone, the tour goes back by one step."""


def _nothing(_app: DstuiApp) -> bool:
    return False


def _broken(app: DstuiApp) -> bool:
    """Return whether the job that was shown last is the one that has to fail."""
    return launched_micro(app) > LARGEST


TOUR: tuple[TourStep, ...] = (
    TourStep(
        "doctor",
        "Is this machine ready?",
        ": doctor Enter",
        MAIN | PALETTE,
        "The colon opens a palette of everything that dstui does. Type doctor and press Enter: it imports torch and DeepSpeed as the "
        "ranks will, and looks at memory, disks, ports and limits.",
        lambda app: opened(app, "Examined"),
    ),
    TourStep(
        "plan",
        "A Plan",
        "]",
        FORM,
        "One line a check: ✔ is fine, ▲ is a warning, ✖ would end a job. Behind it a Plan is open: one YAML file with DeepSpeed's own "
        "keys, shown step by step. ] goes to the next step.",
        lambda app: place(app) == "form" and step(app) is not MACHINE,
    ),
    TourStep(
        "zero",
        "What the ranks share",
        "3",
        FORM,
        "This is the script to train, and how it learns where its configuration is: {ds_config}. 3 goes to the step that matters most "
        "to memory: ZeRO.",
        lambda app: step(app) is ZERO,
    ),
    TourStep(
        "why",
        "Why stage 2",
        "F1",
        frozenset({ZERO.id}),
        "Stage 2 splits optimizer states and gradients over the ranks: as fast as stage 0, and less memory in each. Stage 3 splits the "
        "weights too, for half as much traffic again. F1 says more about the field under the cursor.",
        lambda app: opened(app, "Help"),
    ),
    TourStep(
        "review",
        "Before a launch",
        "l",
        FORM,
        "Every setting has such a page. Now the launch: l goes to Review, which shows each file that will be written and the command. "
        "Nothing is started yet.",
        lambda app: place(app) == "review",
    ),
    TourStep(
        "launch",
        "The launch",
        "l",
        ON_REVIEW,
        "↑↓ choose a file. l once more starts the job: two ranks, here. It runs on its own, even after this terminal is closed: dstui "
        "attach finds it again.",
        has_job,
    ),
    TourStep(
        "ranks",
        "Ranks",
        "1",
        RUN,
        "Each rank has a cell: its state, step and loss. Below are the lines of all ranks; DeepSpeed needs some seconds for its imports. "
        "1 shows the log of rank 1 alone.",
        lambda app: shows_rank(app, 1),
        has_job,
    ),
    TourStep(
        "log",
        "The log",
        "a",
        RUN,
        "/ searches in it, & shows only lines that match, e goes to the next error, Enter shows a line whole. a shows all ranks again.",
        lambda app: shows_rank(app, None),
        has_job,
    ),
    TourStep(
        "plot",
        "A plot",
        "m",
        RUN,
        "Numbers in the lines become curves, and the engine reports its own: loss, learning rate, seconds a step. m draws them.",
        lambda app: opened(app, "Plot"),
        has_job,
    ),
    TourStep(
        "end",
        "The end of a job",
        "Esc",
        PLOT,
        "↑↓ choose a curve, + smooths it. Esc leads back to the job. The tour goes on when the job has ended, with the time that it took "
        "and its last loss in the first line.",
        job_ended,
        has_job,
    ),
    TourStep(
        "batch",
        "Something that fails",
        "6",
        FORM,
        "Most first runs fail, so this one will. In this tour a micro-batch over 16 is too much for the last rank. 6 goes to the batch.",
        lambda app: step(app) is BATCH,
    ),
    TourStep(
        "micro",
        "Change the Plan",
        "Enter",
        frozenset({BATCH.id}),
        "With the cursor on Micro-batch per GPU press Enter, Backspace to take the 8 away, type 32 and press Enter. What follows is "
        "checked at each key; z undoes an edit.",
        lambda app: LARGEST < micro(app) <= 2 * LARGEST and not app.main.typing,
    ),
    TourStep(
        "fail",
        "Launch it",
        "l l",
        frozenset({"form", "review"}),
        "l goes to Review, l once more starts it. Nothing there is wrong: only the run itself shows the failure.",
        _broken,
        lambda app: LARGEST < micro(app) <= 2 * LARGEST or _broken(app),
    ),
    TourStep(
        "why-failed",
        "Why did it end?",
        "d",
        RUN,
        "One rank raises after some steps, the launcher ends the other. When it is over, the cause is below the log, with the rank "
        "that failed first. d shows the whole diagnosis, and every line that proves it.",
        lambda app: _broken(app) and opened(app, "TextViewer"),
        _broken,
    ),
    TourStep(
        "fix",
        "The fix",
        "x",
        RUN,
        "A cause comes with fixes. If a fix is an edit of the Plan, x makes it: half the micro-batch, twice the accumulation, so "
        "the same batch in a step.",
        lambda app: micro(app) <= LARGEST and app.session.state.plan.get(ACCUMULATION, 1) > 1,
        _broken,
    ),
    TourStep(
        "again",
        "Once more",
        "l",
        ON_REVIEW,
        "Review shows the Plan with its new lines. l starts it again. x on a finding of the checks does the same before a launch.",
        lambda app: not _broken(app) and launched_micro(app) == micro(app),
        lambda app: micro(app) <= LARGEST,
    ),
    TourStep(
        "runs",
        "All runs",
        "J",
        MAIN,
        "Let it train to its end. J is the table of all your runs, the newest first, with what each changed, its loss and how it ended.",
        lambda app: opened(app, "RunsTable"),
    ),
    TourStep(
        "compare",
        "Two runs compared",
        "Space ↓ Space =",
        frozenset({"runs"}),
        "Space marks the newest run, ↓ passes over the one that failed, Space marks the first one. Then = shows what their Plans say "
        "differently, and what came of it.",
        lambda app: opened(app, "Compared"),
    ),
    TourStep(
        "home",
        "Keep the Plan",
        "F2",
        MAIN,
        "Four times the batch in a step. Last: keep the Plan. F2 saves it as plan.yaml in the folder of the tour; on step 2 it takes a "
        "script of yours in place of the tour's.",
        lambda app: app.session.state.saved and place(app) in MAIN,
    ),
    TourStep(
        "goodbye",
        "That was the tour",
        "q",
        MAIN,
        "Go on with your own: dstui train.py, dstui run -- YOUR COMMAND, dstui new. F1 shows the keys everywhere. Nothing outside of "
        "dstui-tour was written: delete it when you like. q leaves.",
        _nothing,
    ),
)
NAMES = tuple(each.name for each in TOUR)


def number_of(name: str) -> int:
    """Return the position of a step in the tour; the first for an unknown name."""
    return NAMES.index(name) if name in NAMES else 0


def starts_at_job(name: str) -> bool:
    """Return whether a tour that continues at this step needs a job on the screen."""
    return TOUR[number_of(name)].at in (RUN, PLOT)
