"""`dstui runs`: list the started jobs, running or ended; as a table that is sorted, filtered, compared, or counted by failure."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dstui.base import output
from dstui.base.files import FileProblem
from dstui.base.output import refuse, say, tell
from dstui.base.text import sanitise
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import find, runs
from dstui.jobs.store.plan_diff import Change, changes, history, plan_of
from dstui.jobs.store.records import STATE_GLYPHS, JobStatus
from dstui.jobs.store.status import no_sign_of_life, orphan_hint, unconfirmed
from dstui.jobs.watch.summary import duration_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--json", action="store_true", help="every run's status, with its folder")
    parser.add_argument("--changes", action="store_true", help="under each run, what its Plan changed since the run of that name before it")
    parser.add_argument("--diff", nargs=2, metavar="RUN", help="instead, what changed from the Plan of one run to that of another")
    _add_table_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """List the jobs, the latest last. Return 0; 1 if a named run does not exist; 2 if a Plan or a condition is invalid."""
    if args.diff:
        return _diff(args.diff, args.json)
    if any(getattr(args, name) for name in OPTIONS):
        return _run_table(args)
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
    before, after = (plan_of(find(name)) for name in names)
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


OPTIONS = ("sort", "reverse", "where", "columns", "places", "since", "by", "compare", "markdown")
"""Any of these options shows the runs as a table."""


def _add_table_arguments(parser: argparse.ArgumentParser) -> None:
    table = parser.add_argument_group(
        "as a table", "A KEY is a column, a metric, or a key of the Plan by the end of its path: stage, lr, loss."
    )
    table.add_argument("--sort", metavar="KEY", help="sort by this key, ascending (default: started)")
    table.add_argument("--reverse", action="store_true", help="reverse the order")
    table.add_argument(
        "--where",
        action="append",
        metavar="CONDITIONS",
        help="only the runs that match all of: 'stage=3 loss<2 failed took>1h memory>40GB !quickstart'",
    )
    table.add_argument("--columns", metavar="KEY,…", help="these columns instead of the usual ones; `dstui runs --columns help` names all")
    table.add_argument("--in", nargs="+", dest="places", metavar="FOLDER", help="all runs in these folders, of any user, read-only")
    table.add_argument("--since", metavar="WHEN", help="started since then: 7d, 12h, 2026-11-23")
    table.add_argument("--by", choices=("cause", "host", "user"), help="instead, count the failures")
    table.add_argument("--compare", nargs="+", metavar="RUN", help="instead, compare two to eight runs: Plans, metrics, time and memory")
    table.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.epilog = "example: dstui runs --sort loss --where 'stage=3 failed' --columns name,loss,stage,lr"


def _run_table(args: argparse.Namespace) -> int:
    from dstui.runs.kept import Kept

    if args.columns == "help":
        return _tell_columns()
    kept = Kept()
    try:
        return _compare(args, kept) if args.compare else _table(args, kept)
    except (FileProblem, ValueError) as error:
        return refuse(str(error))
    finally:
        kept.save()


def _tell_columns() -> int:
    from dstui.runs.columns import COLUMNS

    for column in COLUMNS.values():
        tell(f"{column.name:<9} {column.help}")
    tell("and every metric (eval_loss, grad_norm), and every key of the Plan by the end of its path (stage, lr, offload_optimizer.device)")
    return 0


def _table(args: argparse.Namespace, kept: Any) -> int:
    from dstui.runs.columns import USUAL, column, columns_named
    from dstui.runs.conditions import chosen, parse, unknown
    from dstui.runs.find import find_runs, parse_since
    from dstui.runs.run import link
    from dstui.runs.table import cells, fitting, ordered

    conditions = [one for text in args.where or () for one in parse(text)]
    runs = find_runs(kept, args.places or (), parse_since(args.since, time.time()) if args.since else 0.0)
    width = None if args.json or args.markdown else output.width()
    shown = columns_named(args.columns) if args.columns else tuple(map(column, USUAL))
    if any(one.name == "changed" for one in shown):
        link(runs)
    names = [*(one.key for one in conditions if one.key), args.sort or "started", *(one.name for one in shown)]
    if runs and (key := unknown(runs, names)):
        say(f"no run has {key}: it is not a column, a metric, or a key of their Plans")
    found = chosen(runs, conditions)
    if args.by:
        return _counts(args, found, width)
    listed = ordered(found, column(args.sort or "started"), reverse=args.reverse)
    if args.json:
        rows = [{"folder": str(one.folder.path), **{each.name: _json_of(each.value(one)) for each in shown}} for one in listed]
        tell(json.dumps({"version": 1, "runs": rows}, indent=1))
        return 0
    if not listed:
        say(f"none of {len(runs)} runs matches" if runs else "there is no run here")
        return 0
    texts: Sequence[Sequence[str]] = cells(listed, shown)
    if width and not args.columns:
        texts, shown = fitting(texts, shown, width)
    _tell_table(texts, shown, args.markdown, width)
    return 0


def _tell_table(texts: Sequence[Sequence[str]], columns: Sequence[Any], markdown: bool, width: int | None) -> None:
    from dstui.runs.table import lines, markdown_lines

    for line in markdown_lines(texts) if markdown else lines(texts, columns, width):
        tell(line)


def _counts(args: argparse.Namespace, runs: Sequence[Any], width: int | None) -> int:
    from dstui.runs.columns import plain_column
    from dstui.runs.failures import count, texts

    counts = count(runs, args.by)
    if args.json:
        tell(json.dumps({"version": 1, "by": args.by, "runs": len(runs), "counts": [one.as_json() for one in counts]}, indent=1))
    elif not any(one.failed for one in counts):
        say(f"none of {len(runs)} runs failed")
    else:
        made = texts([one for one in counts if one.failed], args.by)
        _tell_table(made, [plain_column(name, number=name in ("failures", "runs", "failed")) for name in made[0]], args.markdown, width)
    return 0


def _compare(args: argparse.Namespace, kept: Any) -> int:
    from dstui.jobs.store.index import find
    from dstui.jobs.store.status import current_status
    from dstui.runs.columns import plain_column
    from dstui.runs.compare import MAX_RUNS, SECONDS, compare
    from dstui.runs.run import Run

    folders = list(dict.fromkeys(map(find, args.compare)))
    if not 2 <= len(folders) <= MAX_RUNS:
        raise ValueError(f"--compare takes two to {MAX_RUNS} different runs, not {len(folders)}")
    runs = [Run(folder, status, kept) for folder in folders if (status := current_status(folder))]
    found = compare(runs)
    if args.json:
        tell(json.dumps(_json_of(found.as_json()), indent=1))
    elif args.markdown:
        tell(found.as_markdown())
    else:
        texts = found.as_texts()
        _tell_table(texts, [plain_column(name) for name in texts[0]], markdown=False, width=output.width())
        for name in found.partly:
            say(f"the logs of {name} were not read to the end within {SECONDS:.0f} s")
    return 0


def _json_of(value: Any) -> Any:
    """Return a value with NaN and infinity replaced by null, since JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _json_of(part) for key, part in value.items()}
    return [_json_of(part) for part in value] if isinstance(value, (list, tuple)) else value
