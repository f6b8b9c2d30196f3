"""The README and docs/: every dstui command parses, cheap commands run on the page's own files, and links have targets.

A block with a title (```yaml title="plan.yaml") is a file; the commands of a page run in order in a folder with all its files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from dstui.base.arguments import Parser
from dstui.cli import TAKE_A_COMMAND
from dstui.commands import COMMANDS, session_parser
from dstui.plan import load
from tests.command import dstui

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "decisions" not in path.parts)]
FENCED = re.compile(r'^( *)```(\w*)(?: title="([^"]+)")?\n(.*?)^\1```', re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`((?:[\w./]*/)?dstui(?: [^`]*)?)`(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CHEAP = ("check", "render", "forecast", "import", "docs", "schema", "completion", "explain", "new")


def shell_lines(text: str) -> list[str]:
    """Return the lines of the page's shell blocks, without comments and with continuation lines joined."""
    blocks = [block for _, language, _, block in FENCED.findall(text) if language == "sh"]
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def commands_of(line: str) -> list[list[str]]:
    """Return the words of each dstui command in a line of shell."""
    found: list[list[str]] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|<>"):
            start = next((place for place, each in enumerate(words) if Path(each).name == "dstui"), None)
            if start is not None and all("=" in each or each in ("exec", "srun", "sudo") for each in words[:start]):
                found.append(words[start + 1 :])
            words = []
        else:
            words.append(word)
    return found


def all_commands() -> list[tuple[str, str, list[str]]]:
    found = []
    for page in PAGES:
        text = page.read_text()
        inline = [code.replace("\\|", "/").replace("\n", " ") for code in INLINE.findall(FENCED.sub("", text))]
        named = [code for code in inline if len(code.split()) > 2 or "." in code or code == "dstui"]  # `dstui check` only names a command
        for line in [*shell_lines(text), *named]:
            found += [(str(page.relative_to(ROOT)), line, words) for words in commands_of(line)]
    return found


def test_every_command_in_the_documentation_parses(capsys: pytest.CaptureFixture[str]) -> None:
    wrong, seen = [], set()
    for page, line, words in all_commands():
        name = words[0] if words and words[0] in COMMANDS else ""
        seen.add(name)
        try:
            parse(name, words[1:] if name else words)
        except SystemExit as end:
            if end.code:
                wrong.append(f"{page}: {line}: {capsys.readouterr().err.strip().splitlines()[-1]}")
    assert wrong == []
    assert len(seen) > 15, "nearly every command is shown somewhere; the reference page has all"


def parse(name: str, words: list[str]) -> None:
    if not name:
        session_parser().parse_args(words[: words.index("--")] if "--" in words else words)
        return
    parser = Parser(prog=f"dstui {name}")
    import_module(f"dstui.commands.{name}").add_arguments(parser)
    parser.parse_args(words[: words.index("--")] if "--" in words and name in TAKE_A_COMMAND else words)


OWN_TEST = ("site.md",)
"""Pages whose commands need more than their files; other tests run these."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in OWN_TEST and FENCED.search(page.read_text())], ids=lambda page: page.stem
)
def test_commands_of_a_page_work_as_written(page: Path, tmp_path: Path) -> None:
    text, ran = page.read_text(), 0
    shutil.copy(ROOT / "screenshots/dgx_h100.json", tmp_path / "node.json")  # the output of `dstui machine --save node.json` on such a node
    for _, language, name, block in FENCED.findall(text):
        if name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(block)
        elif language == "yaml" and block.startswith("version: 1"):
            load(block)
    commands = [(line, words) for line in shell_lines(text) for words in commands_of(line)]
    home, site = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}, tmp_path / "site.yaml"
    for line, words in (each for each in commands if set(CHEAP) & set(each[1][:1]) or "--dry-run" in each[1]):
        ran += 1
        done = dstui(*words, cwd=tmp_path, env={**home, "DSTUI_SITE": str(site) if site.exists() else ""})
        status = int(ends[1]) if (ends := re.search("# ends with ([0-9])", line)) else 0
        assert done.returncode == status, f"{page.name}: dstui {shlex.join(words)}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
    if page.parent.name == "howto" and 'title="plan.yaml"' in text:
        assert ran, "a page with a Plan shows a command that works on it"


def test_commands_that_need_more_than_this_machine_say_what() -> None:
    unmarked = []
    for page in (path for path in PAGES if path.parent.name == "howto" or path.stem == "tutorial"):
        for line in shell_lines(page.read_text()):
            for words in commands_of(line):
                starts = "--headless" in words and "--dry-run" not in words and "quickstart" not in words
                if (starts or {"doctor", "tune"} & set(words[:1])) and "#" not in line:
                    unmarked.append(f"{page.relative_to(ROOT)}: {line}: add a comment that says where it runs")
    assert unmarked == []


def test_ci_steps_of_the_page_check_a_plan(tmp_path: Path) -> None:
    """Run the page's GitHub step, pre-commit hook and GitLab job on its own Plan, and on a Plan that the site file forbids."""
    text = (ROOT / "docs/howto/ci.md").read_text()
    blocks = FENCED.findall(text)
    (tmp_path / "plans").mkdir()
    tmp_path.chmod(0o755)
    for _, _, name, block in blocks:
        if name:
            (tmp_path / "plans" / name).write_text(block)
    (tmp_path / "site.yaml").write_text("version: 1\nlocked: {deepspeed.zero_optimization.stage: {min: 2, reason: policy}}\n")
    (tmp_path / "site.yaml").chmod(0o644)
    steps = [yaml.safe_load(block) for _, language, name, block in blocks if language == "yaml" and not name]
    hook = next(step["repos"][0]["hooks"][0] for step in steps if "repos" in step)
    job = next(step["check-plans"] for step in steps if "check-plans" in step)
    assert re.search(hook["files"], "plans/plan.yaml") and not re.search(hook["files"], "site.yaml")
    lines = [next(step[0]["run"] for step in steps if isinstance(step, list)), f"{hook['entry']} plans/plan.yaml", *job["script"]]
    broken = (tmp_path / "plans/plan.yaml").read_text().replace("stage: 2", "stage: 1")
    for expected in (0, 1):
        for line in lines:
            words = [
                found
                for word in shlex.split(line)[1:]
                for found in (sorted(map(str, Path(tmp_path).glob(word))) if "*" in word else [word])
            ]
            done = dstui(*words, cwd=tmp_path, env={"DSTUI_SITE": str(tmp_path / job["variables"]["DSTUI_SITE"])})
            assert done.returncode == expected, (line, done.stdout, done.stderr)
            assert not expected or "policy" in done.stdout
        (tmp_path / "plans/plan.yaml").write_text(broken)


def test_every_link_has_a_target() -> None:
    broken = []
    for page in PAGES:
        for target in LINK.findall(FENCED.sub("", page.read_text())):
            path, _, anchor = target.partition("#")
            if "://" in target or path.startswith("reference/") or "/reference/" in path:  # generated when the site is built (docs/site)
                continue
            there = page if not path else page.parent / path
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]' installs it")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "zero_optimization.stage" in (tmp_path / "reference/deepspeed/index.html").read_text()
    assert "DS001" in (tmp_path / "reference/rules/index.html").read_text()
    assert "dstui doctor" in (tmp_path / "reference/cli/index.html").read_text()


def test_recording_is_small_and_complete() -> None:
    file = ROOT / "screenshots/quickstart.cast"
    head, *events = map(json.loads, file.read_text().splitlines())
    assert file.stat().st_size < 300_000 and head["version"] == 2
    times = [at for at, kind, text in events if kind == "o" and isinstance(text, str)]
    assert times == sorted(times) and len(times) == len(events) and times[-1] <= 60
    drawn = "".join(text for _, _, text in events)
    assert all(words in drawn for words in ("ZeRO stage", "succeeded", "dstui runs")) and str(ROOT) not in drawn
