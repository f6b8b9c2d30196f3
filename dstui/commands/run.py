"""`dstui run -- COMMAND…`: run a command unchanged, except that stand-ins catch its launches and run them as jobs."""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from dstui.base.output import no_screen, refuse, say
from dstui.stand_ins.run_session import CAUGHT, Options, new_session

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are forwarded to the command. The terminal sends SIGINT and SIGQUIT to both processes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "dstui run [--hold [-o PLAN] [--force]] [--tui] [--no-check] [--no-observe] -- COMMAND …"
    parser.add_argument("--hold", action="store_true", help="print each launch as a Plan instead of starting it; everything else runs")
    parser.add_argument("-o", "--output", metavar="PLAN", help="with --hold: write the Plan there (further launches: PLAN-2 and so on)")
    parser.add_argument("--force", action="store_true", help="let -o replace a file with other content")
    parser.add_argument(
        "--tui", action="store_true", help="show each launch on the Run screen; the command continues when the job has ended"
    )
    parser.add_argument("--no-check", action="store_true", help="start a launch even if an error says that it will fail")
    parser.add_argument("--no-observe", action="store_true", help="no hook in the ranks that reports what DeepSpeed does")

    parser.add_argument("before", nargs="*", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.before:
        return refuse(f"the command goes after --: dstui run -- {shlex.join([*args.before, *args.command])}")
    if not args.command:
        return refuse("run takes a command after --: dstui run -- bash finetune.sh")
    if args.output and not args.hold:
        return refuse("-o needs --hold: a launch that is started keeps its Plan in its job folder")
    if args.tui and args.hold:
        return refuse("--tui cannot be combined with --hold, which starts no job")
    if args.tui and (why := no_screen()):
        return refuse(f"--tui: {why}")
    if args.hold:
        say(f"everything in the command runs but its launches ({', '.join(CAUGHT)}), which are printed as Plans")
    output = str(Path(args.output).absolute()) if args.output else None
    session = new_session()
    try:
        environment = session.begin(Options(args.hold, not args.no_check, output, args.force, args.tui, not args.no_observe))
        code, caught = _run(args.command, environment), session.caught
    finally:
        goes_on = session.end()
    if goes_on:
        say("processes of the command go on in the background: their launches are still caught")
    elif not caught and code < 126:  # not of one that was not found, or that a signal has ended
        say("no launch was caught: an absolute path to a launcher, a container and another host are not seen")
    for line in caught:
        if line.endswith("observed"):
            say(line)
    return code


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command on dstui's own streams and return its status as a shell does."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    for number in FORWARDED:  # before the start: an early signal would end dstui and leave the command running
        signal.signal(number, forward)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda _number, _frame: None)
    try:
        process = subprocess.Popen(command, env=environment)
    except FileNotFoundError:
        return _not_run(f"{command[0]}: command not found", 127)
    except OSError as error:
        return _not_run(f"{command[0]}: {error.strerror}", 126)
    for missed in early:
        process.send_signal(missed)
    status = process.wait()
    return 128 - status if status < 0 else status


def _not_run(sentence: str, status: int) -> int:
    say(sentence)
    return status
