"""`dstui runs`: list the started jobs, running or ended."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem
from dstui.base.output import refuse, say, tell
from dstui.base.text import sanitise
from dstui.commands import runs_table
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import find, runs
from dstui.jobs.store.plan_diff import Change, changes, history, plan_of
from dstui.jobs.store.records import STATE_GLYPHS, JobStatus
from dstui.jobs.store.status import no_sign_of_life, orphan_hint, unconfirmed
from dstui.jobs.watch.summary import duration_text
from dstui.plan import PlanError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--json", action="store_true", help="every run's status, with its folder")
    parser.add_argument("--changes", action="store_true", help="under each run, what its Plan changed since the run of that name before it")
    parser.add_argument("--diff", nargs=2, metavar="RUN", help="instead, what changed from the Plan of one run to that of another")
    runs_table.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """List the jobs, the latest last. Return 0; 1 if a named run does not exist; 2 if a Plan or a condition is invalid."""
    if args.diff:
        return _diff(args.diff, args.json)
    if runs_table.is_asked_for(args):
        return runs_table.run(args)
    known = runs()
    since = list(history(folder for folder, _ in known)) if args.changes else [None] * len(known)
    if args.json:
        reported = [{"changes": _changes_json(changed)} if args.changes else {} for changed in since]
        listed = [{**_json(folder, status), **more} for (folder, status), more in zip(known, reported, strict=True)]
        tell(json.dumps({"version": 1, "runs": listed}, indent=1))
        return 0
    if not known:
        tell("No runs yet: dstui --headless PLAN starts one.")
    for (folder, status), changed in zip(known, since, strict=True):
        tell(_line(folder, status))
        if changed is not None:
            _say(changed, "        ")
    return 0


def _diff(names: list[str], as_json: bool) -> int:
    try:
        before, after = (plan_of(find(name)) for name in names)
    except LookupError as error:
        say(str(error))
        return 1
    except (FileProblem, PlanError) as error:
        return refuse(str(error))
    found = changes(before, after)
    if as_json:
        tell(json.dumps({"version": 1, "changes": _changes_json(found)}, indent=1))
    else:
        _say(found, "")
    return 0


def _say(changed: tuple[Change, ...], indent: str) -> None:
    for change in changed or ("the same Plan",):
        tell(f"{indent}{sanitise(str(change))}")


def _changes_json(changed: tuple[Change, ...] | None) -> list[dict[str, Any]] | None:
    return None if changed is None else [change.as_json() for change in changed]


def _json(folder: JobFolder, status: JobStatus) -> dict[str, Any]:
    observed = {
        "waits": status.waits or None,
        "foreign": status.foreign or None,
        "unheard": status.unheard,
        "orphaned": status.orphaned or None,
    }
    return {**status.as_json(), **{name: fact for name, fact in observed.items() if fact is not None}, "folder": str(folder.path)}


def _line(folder: JobFolder, status: JobStatus) -> str:
    began = status.started
    ended = status.ended or datetime.now().timestamp()
    when = f"{datetime.fromtimestamp(began):%Y-%m-%d %H:%M}" if began else "?"
    ranks = len(status.ranks)
    words = (
        f"{STATE_GLYPHS[status.state]} {status.state:<9}",
        f"{'' if status.exit_code is None else status.exit_code:>3}",
        when,
        f"{duration_text(ended - began) if began else '?':>12}",
        f"{ranks:>4} rank{'' if ranks == 1 else 's'}",
        *([f"on {len(status.hosts)} host{'' if len(status.hosts) == 1 else 's'}"] if status.hosts else ()),
        _short(folder.path),
        *(
            [f"(not confirmed that nothing is left on {', '.join(unsure)}: dstui stop tries again)"]
            if (unsure := unconfirmed(status))
            else ()
        ),
        *([f"(SLURM job {status.slurm_job}: {status.waits})"] if status.waits else ()),
        *([f"({status.foreign})"] if status.foreign else ()),
        *([f"({cut})"] if (cut := _cut_off(status)) else ()),
        *([f"({silent})"] if (silent := no_sign_of_life(folder, status)) else ()),
        *([f"({hint})"] if (hint := orphan_hint(folder, status)) else ()),
    )
    return "  ".join(words)


def _cut_off(status: JobStatus) -> str:
    """Return the unreachable hosts of a running job, and for how long the first has been; "" if there are none."""
    now, hosts = datetime.now().timestamp(), {} if status.final else status.hosts
    cut = {sanitise(name): now - (host.since or now) for name, host in hosts.items() if host.state == "unreachable"}
    return f"{', '.join(cut)} unreachable for {duration_text(max(cut.values()))}" if cut else ""


def _short(path: Path) -> str:
    """Return the folder, relative if it is below the current one."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
