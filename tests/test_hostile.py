"""A sample of tests/long/test_commands.py: commands on generated, hostile input."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.runner import run_many


def test_no_input_kills_a_command_or_makes_it_act(tmp_path: Path) -> None:
    outcome = run_many(range(1, 121), tmp_path)
    assert not outcome.failures, "".join(outcome.failures)
