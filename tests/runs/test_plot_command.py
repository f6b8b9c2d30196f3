"""`dstui plot`: curves of runs as text and as an SVG picture, labelled by name."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.jobs.made import dstui, make_job
from tests.runs.test_table import at, log, plan

FALLING = [4 - 3 * n / 40 for n in range(40)]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return a folder with two runs: one whose loss falls, and one whose loss stays."""
    runs = tmp_path / "dstui_runs"
    make_job(runs / "run-falls", plan(), log(*FALLING), **at(1))
    make_job(runs / "run-stays", plan(), log(*[4.0] * 40), **at(2))
    return tmp_path


def test_two_runs_are_plotted_together_with_labels(here: Path) -> None:
    code, out, err = dstui("plot", "run-falls", "run-stays", "--ascii", "--height", "10", cwd=here)
    lines = out.splitlines()
    assert (code, err) == (0, "") and out.isascii() and lines[0].startswith("loss  2 runs")
    assert "+ stays" in lines[1] and "* falls" in out[out.index("stays") :], "each label is at the end of its line"
    assert lines[3].index("*") < lines[7].index("*"), "the line falls to the right"
    assert lines[-1].split() == ["10", "20", "30", "40"]


def test_terminal_gets_braille_or_ascii(here: Path) -> None:
    assert re.search("[⠁-⣿]", dstui("plot", "run-falls", cwd=here)[1])


def test_missing_metrics_and_runs_give_messages(here: Path) -> None:
    assert dstui("plot", "run-falls", "--metric", "lss", cwd=here)[::2] == (1, "dstui: no run has lss; they have loss, tokens/s\n")
    assert dstui("plot", "nobody", cwd=here)[0] == 1
    make_job(here / "dstui_runs" / "mute", plan(), {0: "hello\n"})
    assert dstui("plot", "mute", cwd=here)[0] == 1


def test_picture_is_valid_svg_and_never_overwrites_unasked(here: Path) -> None:
    make_job(here / "dstui_runs" / "run-<b>&x", plan(), {0: "step 1 loss 3\nstep 2 loss nan\nstep 3 loss 2\n"})
    words = ("plot", "run-<b>&x", "run-falls", "--metric", "loss", "--metric", "tokens/s", "--smooth", "0.6", "-o", "c.svg")
    assert dstui(*words, cwd=here)[:2] == (0, "written  c.svg\n")
    root = Xml.fromstring((here / "c.svg").read_text())
    texts = [part.text for part in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"loss", "tokens/s", "falls", "<b>&x", "✖"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) >= 3
    (here / "c.svg").write_text("mine")
    assert dstui(*words, cwd=here)[0] == 2 and (here / "c.svg").read_text() == "mine"
    assert dstui(*words, "--force", cwd=here)[0] == 0


def test_logarithmic_scale_reports_omitted_values(here: Path) -> None:
    make_job(here / "dstui_runs" / "zero", plan(), log(10.0, 0.0, 0.1))
    code, out, err = dstui("plot", "zero", "--log", "--ascii", cwd=here)
    assert code == 0 and "1 values of 0 or less" in err and "10 |" in out and "0.1 |" in out
