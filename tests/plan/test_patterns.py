"""Patterns of the user's own: what is refused, where, and that no pattern that is taken can stand still for ever."""

from __future__ import annotations

import pytest

from dstui.plan import PlanError, load
from dstui.plan.patterns import METRICS, wrong_with
from dstui.run.metrics.line_patterns import PATTERNS

PLAN = "version: 1\njob: {script: train.py}\nrun:\n  silence: 60\n  metrics:\n    reward: 'reward[=: ]+([-+0-9.e]+)'\n"


def errors(text: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        load(text, "plan.yaml")
    return str(caught.value).splitlines()


def test_a_pattern_is_text_as_it_stands() -> None:
    assert load(PLAN + "    n: (\\d+)\n    m/x: 1(2)\n").run.metrics == {
        "reward": "reward[=: ]+([-+0-9.e]+)",
        "n": "(\\d+)",
        "m/x": "1(2)",
    }
    assert load("version: 1\njob: {script: train.py}\n").run.metrics == {}


def test_what_is_wrong_with_a_pattern_is_said_with_its_place() -> None:
    assert errors(PLAN + "    x: (\n    loss: 'cost (.)'\n") == [
        "plan.yaml:7:8: run.metrics.x: no regular expression: missing ), unterminated subpattern at position 0",
        "plan.yaml:8:11: run.metrics.loss: dstui finds this one by itself: give yours another name",
    ]
    assert "a mapping NAME: 'regular expression'" in errors("version: 1\njob: {script: t.py}\nrun: {metrics: [a]}\n")[0]
    assert "a mapping NAME: 'regular expression'" in errors("version: 1\njob: {script: t.py}\nrun: {metrics: {a: [b]}}\n")[0]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("reward [0-9]+", "no groups"),
        ("(reward) ([0-9]+)", "2 groups"),
        ("(?:a+)+(b)", "a repeat or a choice inside a repeat"),
        ("(?:foo|bar)*(b)", "a repeat or a choice inside a repeat"),
        ("(?:a?){50}(b)", "a repeat or a choice inside a repeat"),
        ("(?=(a+)+)", "a repeat or a choice inside a repeat"),
        (".*a.*b.*(c)", "more than 2 repeats of nearly any character"),
        ("[^x]*a\\D+b[\\S]*(c)", "more than 2 repeats of nearly any character"),
    ],
)
def test_a_pattern_that_gives_no_number_or_could_stand_still_is_refused(pattern: str, said: str) -> None:
    assert said in wrong_with("reward", pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "reward[=: ]+([-+0-9.e]+)",
        "(?i)avg reward:\\s*([-+]?\\d+(?:\\.\\d+)?(?:e[-+]?\\d+)?)",
        ".*kl=(\\S+)",
        "'rewards/chosen': ([^,}]+)",
        "n = (\\d{1,3}(?:,\\d{3})*)",
        "(?:reward|score) (\\d+)",
    ],
)
def test_an_ordinary_pattern_is_taken(pattern: str) -> None:
    assert wrong_with("reward", pattern) == ""


@pytest.mark.parametrize("name", ["", "1st", "a b", "x" * 41, "step"])
def test_a_name_is_a_word_that_is_free(name: str) -> None:
    assert wrong_with(name, "(1)")


def test_every_metric_that_is_found_has_a_name_that_is_taken_and_said() -> None:
    assert {pattern.name for pattern in PATTERNS} - {"step"} == METRICS.keys() - {"overflows"}
