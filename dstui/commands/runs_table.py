"""The options of `dstui runs` that make a table: sorted, filtered, compared, or counted by failure."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from typing import Any

from dstui.base import output
from dstui.base.files import FileProblem
from dstui.base.output import refuse, say, tell

OPTIONS = ("sort", "reverse", "where", "columns", "places", "since", "by", "compare", "markdown")
"""Any of these options shows the runs as a table."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
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


def is_asked_for(args: argparse.Namespace) -> bool:
    """Return whether any of the options was given."""
    return any(getattr(args, name) for name in OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Print the table. Return 0; 1 if there is no such run; 2 if the options are invalid."""
    from dstui.runs.kept import Kept

    if args.columns == "help":
        return _tell_columns()
    kept = Kept()
    try:
        return _compare(args, kept) if args.compare else _table(args, kept)
    except LookupError as error:
        say(str(error))
        return 1
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
    if runs and (key := unknown(runs, conditions)):
        say(f"no run has {key}: it is not a column, a metric, or a key of their Plans")
    found = chosen(runs, conditions)
    if args.by:
        return _counts(args, found, width)
    listed = ordered(found, column(args.sort or "started"), reverse=args.reverse)
    if args.json:
        rows = [{"folder": str(one.folder.path), **{each.name: _json_of(each.value(one)) for each in shown}} for one in listed]
        tell(json.dumps({"version": 1, "runs": rows}, indent=1))
    elif not listed:
        say(f"none of {len(runs)} runs matches" if runs else "there is no run here")
    else:
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
    from dstui.runs.compare import MOST, SECONDS, compare
    from dstui.runs.run import Run

    folders = list(dict.fromkeys(map(find, args.compare)))
    if not 2 <= len(folders) <= MOST:
        raise ValueError(f"--compare takes two to {MOST} different runs, not {len(folders)}")
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
