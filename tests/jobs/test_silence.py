"""Ranks that fall silent: an event of the job, and words of its diagnosis, while it hangs and after somebody stopped it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstui.diagnosis import diagnose_job
from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from tests.jobs.lab import Lab, end_of
from tests.jobs.made import dstui
from tests.waiting import wait_for

pytestmark = pytest.mark.launcher


def told(folder: JobFolder, name: str) -> list[dict[str, Any]]:
    return [event for _, event in folder.numbered_events() if event.get("event") == name]


def test_a_hang_and_its_straggler_are_events_that_the_diagnosis_tells(tmp_path: Path) -> None:
    words = ("all:say step 11 loss 0.5", "0:say step 12 loss 0.4", "all:hang")
    folder = Lab(tmp_path).start(*words, run="silence: 1")
    event = wait_for(lambda: told(folder, "silence"))[0]
    assert (event["step"], event["missing"], event["absent"]) == (12, [1], [])
    hangs = diagnose_job(folder)
    assert "no rank has written anything for" in hangs.title and "rank 1 had not come as far as the others" in hangs.title
    assert hangs.cause is None and hangs.could_be == ("HANG",) and hangs.evidence[-1].file == str(folder.events_file)
    stop(folder)
    assert end_of(folder)["state"] == "stopped"
    code, said, _ = dstui("diagnose", folder.path, cwd=tmp_path)
    assert code == 0 and "somebody" in said.lower() and "Before that no rank had written anything" in " ".join(said.split())
    assert len(told(folder, "silence")) == 1


def test_ranks_that_go_on_were_no_hang(tmp_path: Path) -> None:
    folder = Lab(tmp_path).start(f"all:wait {tmp_path / 'go'}", "all:say step 1 loss 0.5", "all:hang", run="silence: 1")
    wait_for(lambda: told(folder, "silence"))
    (tmp_path / "go").touch()
    over = wait_for(lambda: told(folder, "silence_over"))
    assert over[0]["seconds"] > 0
    wait_for(lambda: len(told(folder, "silence")) == 2)  # told anew, of the new silence
    stop(folder)
