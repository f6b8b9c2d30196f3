"""Metric patterns of the user: which are refused, where, and that no accepted pattern can hang."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstui.jobs.metrics.line_patterns import PATTERNS
from dstui.plan import PlanError, load
from dstui.plan.patterns import METRICS, compile_pattern, metric_problem

PLAN = "version: 1\njob: {script: train.py}\nrun:\n  silence: 60\n  metrics:\n    reward: 'reward[=: ]+([-+0-9.e]+)'\n"


def errors(text: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        load(text, "plan.yaml")
    return str(caught.value).splitlines()


def test_pattern_is_literal_text() -> None:
    assert load(PLAN + "    n: (\\d+)\n    m/x: 1(2)\n").run.metrics == {
        "reward": "reward[=: ]+([-+0-9.e]+)",
        "n": "(\\d+)",
        "m/x": "1(2)",
    }
    assert load("version: 1\njob: {script: train.py}\n").run.metrics == {}


def test_invalid_pattern_is_reported_with_its_position() -> None:
    assert errors(PLAN + "    x: (\n    loss: 'cost (.)'\n") == [
        "plan.yaml:7:8: run.metrics.x: not a regular expression of RE2: missing ): (",
        "plan.yaml:8:11: run.metrics.loss: dstui already has a metric of this name: give yours another name",
    ]
    assert "a mapping NAME: 'regular expression'" in errors("version: 1\njob: {script: t.py}\nrun: {metrics: [a]}\n")[0]
    assert "a mapping NAME: 'regular expression'" in errors("version: 1\njob: {script: t.py}\nrun: {metrics: {a: [b]}}\n")[0]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("reward [0-9]+", "no groups"),
        ("(reward) ([0-9]+)", "2 groups"),
        ("(?<=reward )([0-9]+)", "lookaround"),
        ("(?!x)([0-9]+)", "lookaround"),
        (r"(a)\1", "backreference"),
        ("(?P<x>a)(?P=x)", "backreference"),
        ("([0-9]++)", "possessive"),
        ("([0-9]{,3})", "write {0,3}"),
        (r"([0-9])\Z", r"$ or \z"),
        ("((?:a{100}){100})", "repeats too much"),
        ("((?:.?){900})", "repeats too much"),
        ("[", "not a regular expression of RE2: missing ]"),
        ("(\ud800)", "not UTF-8"),
        ("(" * 400 + ")" * 401, "not a regular expression"),
        ("(" + "a" * 1000 + ")", "more than 1000 characters"),
    ],
)
def test_pattern_without_a_number_or_unsupported_by_re2_is_refused(pattern: str, said: str) -> None:
    assert said in metric_problem("reward", pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "reward[=: ]+([-+0-9.e]+)",
        "(?i)avg reward:\\s*([-+]?\\d+(?:\\.\\d+)?(?:e[-+]?\\d+)?)",
        ".*kl=(\\S+)",
        "'rewards/chosen': ([^,}]+)",
        "n = (\\d{1,3}(?:,\\d{3})*)",
        "(?:reward|score) (\\d+)",
        ".*a.*b.*(c)",
        "(?:foo|bar)+(b)",
        "[(?=]([*+]+)",
        r"\(\?=(\++)",
        "(?:a?){30}(b)",
        "[0-9a-z ]*" * 12 + "(x)",
    ],
)
def test_ordinary_pattern_is_accepted(pattern: str) -> None:
    assert metric_problem("reward", pattern) == ""


@pytest.mark.parametrize("name", ["", "1st", "a b", "x" * 41, "step"])
def test_name_must_be_a_free_word(name: str) -> None:
    assert metric_problem(name, "(1)")


def test_every_builtin_metric_name_is_reserved_and_reported() -> None:
    found = {pattern.name for pattern in PATTERNS} - {"step"}
    assert found - METRICS.keys() == set(), "add its name and meaning to METRICS of dstui/plan/patterns.py"
    assert METRICS.keys() - found == {"overflows"}


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^x]", r"\w", r"\S", r"\pL", "é", "(?i)a", "^", "$", r"\b", "[0-9a-z ]"])
REPEATS = st.sampled_from(["*", "+", "?", "*?", "{3}", "{20}", "{0,30}", "{200}"])
PATTERNS_OF_ANYBODY = st.recursive(
    ATOMS,
    lambda inner: (
        st.tuples(inner, REPEATS).map(lambda parts: f"(?:{parts[0]}){parts[1]}")
        | st.lists(inner, min_size=2, max_size=4).map("".join)
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})")
    ),
    max_leaves=12,
)
ADVERSARIAL = ("a" * 1000, "ab" * 500, "é" * 1000, "a" * 999 + "!", "".join("ab"[n * n * 7 // 3 % 2] for n in range(1000)), "a b 1 " * 170)


@settings(max_examples=150, deadline=None)
@given(pattern=PATTERNS_OF_ANYBODY)
def test_no_accepted_pattern_hangs_on_any_line(pattern: str) -> None:
    pattern = f"{pattern}(x)"
    if metric_problem("reward", pattern):
        return
    for expression, encoding in ((compile_pattern(pattern), None), (compile_pattern(pattern, in_bytes=True), "utf-8")):
        for line in ADVERSARIAL:
            then = time.thread_time()
            expression.search(line.encode(encoding) if encoding else line)
            assert time.thread_time() - then < 1.0


def test_pattern_is_refused_without_re2_instead_of_using_re(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert errors(PLAN) == [
        "plan.yaml:6:13: run.metrics.reward: regular expressions need google-re2, which cannot be imported here: "
        "python -m pip install google-re2"
    ]


def test_re2_is_loaded_with_the_first_pattern() -> None:
    program = f"""import sys
import dstui.cli, dstui.tui.app, dstui.tui.run_screen, dstui.commands.logs
from dstui.plan import load
load({PLAN.partition("run:")[0]!r})
assert "re2" not in sys.modules
load({PLAN!r})
assert "re2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
