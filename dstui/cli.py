"""The command line: arguments and dispatch.

Nothing heavier than argparse is imported before it is known what is asked for, and not even that for `--version`.
"""

from __future__ import annotations

import os
import sys

from dstui import __version__

TYPE_CHECKING = False  # typing's own would cost as much as all the rest
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COMMANDS = {
    "check": "diagnostics for Plans, ds_config.json and accelerate YAML",
    "render": "the files and the command that a Plan stands for",
    "import": "any file that people have, as a Plan: ds_config.json, accelerate YAML, a pasted launch, a hostfile",
    "forecast": "whether a Plan fits, how fast it would be, and which plan is best",
    "machine": "what this machine has: GPUs, links, host, software",
    "doctor": "whether this machine, and every host of a Plan, is ready",
    "runs": "the jobs that were started, also after the terminal is gone",
    "attach": "look at a job again, in the TUI",
    "logs": "what the ranks of a job printed",
    "diagnose": "why a run failed, from its logs, whoever started it",
    "stacks": "where the ranks of a job are right now: their Python stacks",
    "bundle": "a zip of a job for a bug report, without secrets",
    "stop": "stop a job, on every host, to the last process",
}
"""Name -> what it does, in one line. Each lives in the module of that name in dstui/commands/."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run dstui; the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        print(f"dstui {__version__}")  # noqa: T201 - nothing else is to be imported for it
        return 0
    from dstui import output

    output.begin()
    try:
        code = _command(words[0], words[1:]) if words and words[0] in COMMANDS else _session(words)
        output.flush()
        return code
    except OSError as error:
        if (number := output.reader_gone(error)) is None and not output.is_full(error):
            raise
        if number is None:
            output.say(f"standard output cannot be written: {error.strerror}")
        output.write_no_more()
        return 2 if number is None else 128 + number
    except KeyboardInterrupt:
        return 130


def _command(name: str, words: list[str]) -> int:
    from importlib import import_module

    from dstui.arguments import Parser

    module = import_module(f"dstui.commands.{name}")
    parser = Parser(prog=f"dstui {name}", description=COMMANDS[name].capitalize() + ".")
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(words))
    return code


def _session(words: list[str]) -> int:
    cut = words.index("--") if "--" in words else len(words)
    args = _parser().parse_args(words[:cut])
    args.script = words[cut + 1 :]
    if args.headless:
        from dstui import headless

        return headless.run(args)
    if used := [name for name in ("dry_run", "json", "detach", "run_dir", "set") if getattr(args, name)]:
        return _refuse(f"--{used[0].replace('_', '-')} goes with --headless")
    return _interactive(args)


def _parser() -> argparse.ArgumentParser:
    from argparse import RawDescriptionHelpFormatter

    from dstui.arguments import Parser

    parser = Parser(
        prog="dstui",
        description='From "I have GPUs and a training script" to "DeepSpeed is training, and I can see every rank".',
        epilog="commands (dstui COMMAND --help):\n" + "\n".join(f"  {name:<10} {what}" for name, what in COMMANDS.items()),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", nargs="?", metavar="PLAN", help="a Plan (YAML) or a ds_config.json; `quickstart` is a Plan that comes with dstui"
    )
    parser.add_argument("--version", action="version", version=f"dstui {__version__}")
    parser.add_argument("--machine", metavar="FILE", help="plan for the machine recorded in FILE instead of this one")
    headless = parser.add_argument_group("without the screen")
    headless.add_argument("--headless", action="store_true", help="check, launch, stream every rank's lines, end with the job's status")
    headless.add_argument("--dry-run", action="store_true", help="print what would be written and run, and start nothing")
    headless.add_argument("--json", action="store_true", help="one JSON event per line instead of text")
    headless.add_argument("--detach", action="store_true", help="print the job folder and leave the job running")
    headless.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="override a key: deepspeed.zero_optimization.stage=2"
    )
    headless.add_argument("--run-dir", metavar="DIR", help="the job folder itself (default: dstui_runs/NAME-DATE-TIME)")
    return parser


def _interactive(args: argparse.Namespace) -> int:
    if args.script:
        return _refuse("a script after -- goes with --headless")
    if not (os.isatty(0) and os.isatty(2)):
        return _refuse("no terminal here: use dstui --headless PLAN, or run dstui in a terminal")
    if os.environ.get("TERM", "dumb") == "dumb":
        return _refuse("this terminal (TERM=dumb) cannot draw screens: use dstui --headless PLAN")
    from pathlib import Path

    from dstui.documents import open_document
    from dstui.files import FileProblem
    from dstui.plan import PlanError

    try:
        opened = open_document(args.file) if args.file else None
        machine = None
        if args.machine:
            from dstui.machine.recorded import read_machine

            machine = read_machine(Path(args.machine))
    except (FileProblem, PlanError) as error:
        return _refuse(str(error))
    from dstui.tui import run_tui

    return run_tui(opened.plan, opened.path, machine) if opened else run_tui(None, None, machine)


def _refuse(sentence: str) -> int:
    from dstui.output import refuse

    return refuse(sentence)


if __name__ == "__main__":
    sys.exit(main())
