"""The Plan in the user's editor: opened at the field's line, one undo step, and kept if it is no longer a Plan."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dstui.base.editor import editor_command
from tests.owned import add_to_index
from tests.tui.conftest import Open, letters, store, until
from tests.tui.test_reason import job, show_job


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"EDITOR": "vim"}, ["vim", "+7", "plan.yaml"]),
        ({"EDITOR": "vim", "VISUAL": "/usr/bin/nano -w"}, ["/usr/bin/nano", "-w", "+7", "plan.yaml"]),
        ({"EDITOR": "code --wait"}, ["code", "--wait", "--goto", "plan.yaml:7"]),
        ({"EDITOR": "hx"}, ["hx", "plan.yaml:7"]),
        ({"EDITOR": "my-editor"}, ["my-editor", "plan.yaml"]),
    ],
)
def test_editor_gets_the_line_in_its_own_syntax(chosen: dict[str, str], words: list[str]) -> None:
    assert editor_command(chosen, Path("plan.yaml"), 7) == words


def test_common_editor_is_used_without_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name == "vim")
    assert editor_command({}, Path("plan.yaml"), 1) == ["vim", "+1", "plan.yaml"]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert editor_command({}, Path("plan.yaml"), 1) == []


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the editor without handing over a terminal, since a pilot has none."""

    @contextmanager
    def suspend(_app: object) -> Iterator[None]:
        yield

    monkeypatch.setattr("dstui.tui.app.DstuiApp.suspend", suspend)


def editor(folder: Path, script: str) -> str:
    """Write an editor that is a command such as sed; "$1" is +LINE, "$2" the file."""
    file = folder / "vi"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.usefixtures("terminal")
async def test_change_by_the_editor_is_one_undo_step(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'echo "$1" > {tmp_path}/line; sed -i "s/stage: 2/stage: 3/; s/^name: small/name: other/" "$2"'
    monkeypatch.setenv("VISUAL", editor(tmp_path, script))
    async with open_app() as pilot:
        before = store(pilot).state.plan.text
        await pilot.press("3", "V")
        await until(pilot, lambda: store(pilot).state.plan.get("deepspeed.zero_optimization.stage") == 3)
        assert store(pilot).state.plan.get("name") == "other"
        assert "# a comment that stays" in store(pilot).state.plan.text
        assert (tmp_path / "line").read_text().strip() == f"+{before[: before.index('stage: 2')].count(chr(10)) + 1}"
        await pilot.press("z")
        await until(pilot, lambda: store(pilot).state.plan.text == before)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('echo "stage: [" >> "$2"', "This is not a valid Plan"),
        ("exit 3", "ended with status 3"),
        ("true", "Nothing was changed"),
    ],
)
async def test_invalid_plan_changes_nothing_and_is_kept(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("VISUAL", editor(tmp_path, script))
    async with open_app() as pilot:
        before = store(pilot).state.plan.text
        await pilot.press("V")
        await until(pilot, lambda: any(said in note.message for note in pilot.app._notifications))
        assert store(pilot).state.plan.text == before
        kept = tmp_path / "state" / "dstui" / "refused-plan.yaml"
        assert kept.exists() == ("stage" in script)
        assert not kept.exists() or (kept.read_text() == before + "stage: [\n" and oct(kept.stat().st_mode)[-3:] == "600")


async def test_missing_terminal_is_reported(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "vi")
    async with open_app() as pilot:
        await pilot.press("V")
        await until(pilot, lambda: any("needs its own terminal" in note.message for note in pilot.app._notifications))


@pytest.mark.usefixtures("terminal")
async def test_script_opens_at_the_failed_line_and_a_foreign_file_after_a_question(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", editor(tmp_path, f'echo "$@" > {tmp_path}/opened'))
    (tmp_path / "train.py").write_text("raise KeyError('labels')\n")
    frames = f'Traceback (most recent call last):\n  File "{tmp_path}/train.py", line 1, in <module>\n'
    library = '  File "/usr/lib/python3/site-packages/torch/x.py", line 9, in y\n'
    folder = job(tmp_path / "a-run", logs=("", f"{frames}{library}KeyError: 'labels'\n"))
    elsewhere = tmp_path.parent / f"{tmp_path.name}-other.py"
    elsewhere.write_text("")
    other = job(tmp_path / "b-run", logs=("", f"{frames.replace(f'{tmp_path}/train.py', str(elsewhere))}KeyError: 'labels'\n"))
    add_to_index(folder)
    add_to_index(other)
    async with open_app() as pilot:
        await show_job(pilot, folder)
        await pilot.press("V")
        await until(pilot, lambda: (tmp_path / "opened").exists() and (tmp_path / "opened").read_text())
        assert (tmp_path / "opened").read_text().split() == ["+1", str(tmp_path / "train.py")]
        (tmp_path / "opened").unlink()
        await show_job(pilot, other)
        await pilot.press("V")
        await until(pilot, lambda: letters(pilot) == "ny")
        await pilot.press("n")
        await until(pilot, lambda: not letters(pilot))
        assert not (tmp_path / "opened").exists()
