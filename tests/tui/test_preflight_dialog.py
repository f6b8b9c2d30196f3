"""The preflight before a launch on other hosts: problems are listed by host, and nothing starts without a yes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.tui.flows.launching import remote_hosts
from tests.tui.conftest import PLAN, Open, screen, store, text_of, until

FAR = PLAN + "cluster: {hosts: {far-1: 1, far-2: 1}}\n"
REFUSES = "#!/bin/sh\necho 'ssh: connect to host far port 22: Connection refused' >&2\nexit 255\n"
HANGS = "#!/bin/sh\nexec sleep 20\n"


def ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put another ssh first on the PATH."""
    program = folder / "bin/ssh"
    program.parent.mkdir()
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


async def test_refusing_hosts_are_named_with_advice_and_nothing_starts(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh(tmp_path, monkeypatch, REFUSES)
    async with open_app(FAR) as pilot:
        await pilot.press("8", "l")
        await until(pilot, lambda: "That is all, of 2 hosts" in screen(pilot))
        said = " ".join(text_of(pilot, "#preflight").split())
        for host in ("far-1", "far-2"):
            assert f"✖ {host} reach: nothing listens on its ssh port → start sshd on {host}" in said
        assert "l launch anyway" in said
        await pilot.press("b")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert not (tmp_path / "dstui_runs").exists()


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_unresponsive_hosts_are_named_while_waiting_and_escape_leaves(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    ssh(tmp_path, monkeypatch, HANGS)
    async with open_app(FAR, size=size) as pilot:
        await pilot.press("8", "l")
        await until(pilot, lambda: "0 of 2 hosts have answered" in screen(pilot) and "Waiting for far-1, far-2." in screen(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert not (tmp_path / "dstui_runs").exists()


async def test_local_job_starts_without_preflight(open_app: Open) -> None:
    async with open_app() as pilot:
        assert remote_hosts(store(pilot).state.launch_target()) == ()
    async with open_app(FAR) as pilot:
        assert remote_hosts(store(pilot).state.launch_target()) == ("far-1", "far-2")
    async with open_app(FAR.replace("hosts:", "launcher: nossh, hosts:")) as pilot:
        assert remote_hosts(store(pilot).state.launch_target()) == ()
