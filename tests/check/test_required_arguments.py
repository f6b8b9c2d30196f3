"""A launch without an argument that the script's parser requires is reported, with argparse in the script itself as the oracle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dstui.check import PlanFacts, check_plan
from dstui.documents.training_script import script_facts_of
from dstui.plan import Plan, load
from dstui.plan.finding import Finding
from dstui.render.target import Target

DIRECT = """
import argparse
parser = argparse.ArgumentParser(description="trains")
parser.add_argument("data", help="the folder")
group = parser.add_argument_group("training")
group.add_argument("--lr", "-l", type=float, required=True)
group.add_argument("--layers", nargs="+")
group.add_argument("--fast", action="store_true")
parser.add_argument("rest", nargs=argparse.REMAINDER)
args, _ = parser.parse_known_args()
"""
IN_MAIN = """
from argparse import ArgumentParser, BooleanOptionalAction

def options():
    parser = ArgumentParser()
    for name in ("--seed", "--steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("--name", dest="model", required=True, choices=["small", "large"])
    parser.add_argument("--amp", action=BooleanOptionalAction)
    parser.add_argument("--verbose", "-v", action="count")
    parser.add_argument("files", nargs=2)
    return parser.parse_args()

def main():
    with open(__file__):
        args = options()

if __name__ == "__main__":
    main()
"""


def reported(folder: Path, text: str, *args: str) -> tuple[Plan, Finding | None]:
    """Return a Plan of a script with arguments, and the finding about required ones."""
    (folder / "train.py").write_text(text)
    plan = load("version: 1\njob: {script: train.py}", base=str(folder)).set("job.args", list(args))
    return plan, next(
        (f for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2) if f.code == "PL035"), None
    )


@pytest.mark.parametrize(
    ("text", "args"),
    [
        (DIRECT, ()),
        (DIRECT, ("some/folder",)),
        (DIRECT, ("some/folder", "--lr", "1")),
        (DIRECT, ("-l1", "some/folder", "--fast")),
        (DIRECT, ("--lr=1", "--fast", "some/folder")),
        (DIRECT, ("--lr", "1", "--layers", "2", "some/folder")),
        (IN_MAIN, ()),
        (IN_MAIN, ("one", "two", "--nam", "small")),
        (IN_MAIN, ("one", "--name", "small", "-vv")),
        (IN_MAIN, ("--no-amp", "--name", "small", "one", "two")),
        (
            IN_MAIN.replace('    parser.add_argument("files"', '    if not __file__:\n        parser.add_argument("files"'),
            ("--name", "small"),
        ),
        (IN_MAIN.replace("parse_args()", 'parse_args(["a", "b", "--name", "small"])'), ()),
        (IN_MAIN.replace("    main()", "    pass"), ()),
        (f"import sys\nsys.argv += ['--lr=1', 'x']\n{DIRECT}", ()),
        (DIRECT.replace('parser.add_argument("data"', 'parser.add_argument("data", nargs="?"'), ("--lr", "1")),
        (DIRECT.replace("(description", "(fromfile_prefix_chars='@', description"), ()),
    ],
    ids=range(16),
)
def test_arguments_are_missing_where_argparse_misses_them(tmp_path: Path, text: str, args: tuple[str, ...]) -> None:
    _, finding = reported(tmp_path, text, *args)
    done = subprocess.run([sys.executable, "train.py", *args], cwd=tmp_path, capture_output=True, text=True, check=False)
    refused = next((line.partition("error: ")[2] for line in done.stderr.splitlines() if "are required" in line), "")
    uncertain = "fromfile_prefix_chars" in text
    assert (finding is not None) == (bool(refused) and not uncertain), done.stderr
    if finding is not None:
        named = refused.partition(": ")[2].replace("--lr/-l", "--lr").removesuffix(", rest")
        assert finding.severity == "error" and finding.path == "job.args" and finding.why.endswith(f": {named}")


def test_missing_arguments_become_holes_that_the_launch_asks_for(tmp_path: Path) -> None:
    plan, finding = reported(tmp_path, DIRECT, "--layers", "2", "3")
    assert finding is not None and finding.message == "the parser of train.py requires data (line 4), --lr (line 6)"
    assert finding.fix is not None and finding.fix.patch is not None
    fixed = plan.patch(finding.fix.patch)
    assert fixed.job.args == ("--lr", "${LR}", "${DATA}", "--layers", "2", "3")
    codes = {f.code for f in check_plan(Target(fixed), PlanFacts(script=script_facts_of(fixed)), world_size=2)}
    assert "PL035" not in codes and "PL070" in codes


@pytest.mark.parametrize(("launcher", "lacks"), [("null", False), ("torchrun", True), ("accelerate", True)])
def test_local_rank_is_missing_only_where_the_launcher_does_not_pass_it(tmp_path: Path, launcher: str, lacks: bool) -> None:
    text = DIRECT.replace('"data", help="the folder"', '"--local_rank", type=int, required=True')
    plan, finding = reported(tmp_path, text, "--lr", "1")
    plan = plan.set("cluster.launcher", None if launcher == "null" else launcher)
    codes = {f.code for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2)}
    assert finding is None and ("PL035" in codes) == lacks


def test_holes_precede_an_option_that_takes_all_that_follow(tmp_path: Path) -> None:
    text = DIRECT.replace('"-l", type=float', 'nargs="+"').replace('parser.add_argument("rest", nargs=argparse.REMAINDER)', "")
    plan, finding = reported(tmp_path, text.replace('"data"', '"data", nargs=2'))
    assert finding is not None and finding.fix is not None and finding.fix.patch is not None
    assert plan.patch(finding.fix.patch).job.args == ("${DATA}", "${DATA_2}", "--lr", "${LR}")
