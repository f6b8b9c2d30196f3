"""The command line: arguments and dispatch.

Before it is known what to run, nothing heavier than argparse is imported; for `--version` not even that.
"""

from __future__ import annotations

import sys

from dstui import __version__
from dstui.commands import COMMANDS, session_parser

TYPE_CHECKING = False  # importing typing would cost as much as everything else
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


TAKE_A_COMMAND = ("import", "run")
"""Commands for which the words after `--` are a command of the user's."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run dstui and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        print(f"dstui {__version__}")  # noqa: T201 - nothing else is imported for it
        return 0
    import atexit
    import gc

    gc.set_threshold(100_000)  # with the default of 700, collections take a tenth of a short command, most of them during the imports
    atexit.register(gc.freeze)  # else Python's end searches all that is left for garbage: another tenth
    from dstui.base import output

    output.begin()
    try:
        if words and words[0].startswith("-") and not COMMANDS.keys().isdisjoint(words):
            words = _command_first(words)
        code = _command(words[0], words[1:]) if words and words[0] in COMMANDS else _session(words)
        output.flush()
        return code
    except OSError as error:
        if _folder_is_gone():
            return _refuse("the current folder does not exist any more: change to another one")
        if (number := output.reader_gone(error)) is None and not output.is_full(error):
            raise
        if number is None:
            output.say(f"standard output cannot be written: {error.strerror}")
        output.write_no_more()
        return 2 if number is None else 128 + number
    except MemoryError:
        output.say("not enough memory for this: it may have less than it needs (ulimit -v, a cgroup), or a file has unexpected content")
        return 2
    except KeyboardInterrupt:
        return 130


def _folder_is_gone() -> bool:
    import os

    try:
        os.getcwd()  # noqa: PTH109 - pathlib has not been imported yet
    except OSError:
        return True
    return False


def _command(name: str, words: list[str]) -> int:
    from importlib import import_module

    from dstui.base.arguments import Parser

    module = import_module(f"dstui.commands.{name}")
    parser = Parser(prog=f"dstui {name}", description=COMMANDS[name][0].upper() + COMMANDS[name][1:] + ".")
    module.add_arguments(parser)
    cut = words.index("--") if "--" in words and name in TAKE_A_COMMAND else len(words)
    args = parser.parse_args(words[:cut])
    args.command = words[cut + 1 :]
    from dstui.base.output import say
    from dstui.base.user_error import UserError

    try:
        code: int = module.run(args)
    except UserError as error:
        say(str(error))
        return error.status
    return code


def _command_first(words: list[str]) -> list[str]:
    """Return the words with the command before the options that were typed in front of it; as they are if there is no command."""
    takes_value = {name for action in session_parser()._actions if action.nargs is None for name in action.option_strings}
    number = 0
    while number < len(words) and words[number].startswith("-") and words[number] != "--":
        number += 2 if words[number] in takes_value else 1
    if number >= len(words) or words[number] not in COMMANDS:
        return words
    return [words[number], *words[:number], *words[number + 1 :]]


def _mistyped(word: str) -> str:
    """Return the command that a word which names neither a command nor a Plan may stand for; "" if nothing is similar."""
    if word.startswith("-") or "." in word or "/" in word:
        return ""
    from dstui.base.text import similar_words
    from dstui.documents.plan_files import SHIPPED, find_plan

    near = similar_words(word, COMMANDS, 1, 0.7)
    return near[0] if near and word not in SHIPPED and not find_plan(word).exists() else ""


def _session(words: list[str]) -> int:
    if words and (command := _mistyped(words[0])):
        return _refuse(f"there is no command and no Plan {words[0]}: did you mean dstui {command}?")
    cut = words.index("--") if "--" in words else len(words)
    args = session_parser().parse_args(words[:cut])
    args.script = words[cut + 1 :]
    if args.headless and args.plain:
        return _refuse("--plain and --headless cannot be combined")
    if args.headless:
        from dstui import headless

        return headless.run(args)
    if used := [name for name in ("dry_run", "json", "detach", "strict", "trust_site", "run_dir", "set") if getattr(args, name)]:
        return _refuse(f"--{used[0].replace('_', '-')} needs --headless")
    return _interactive(args)


def _interactive(args: argparse.Namespace) -> int:
    if args.script:
        return _refuse("a script after -- needs --headless")
    from dstui.base.output import no_screen, wants_lines

    plain = args.plain or wants_lines()
    import gc
    from pathlib import Path

    if not plain:
        gc.disable()  # until the first frame is painted: collecting during the imports takes 5 % of that time

    from dstui.base.files import FileProblem
    from dstui.documents.open import is_script, open_document
    from dstui.plan import PlanError

    try:
        script = args.file if args.file and is_script(args.file) else ""
        opened = open_document(args.file) if args.file and not script else None
        machine = None
        if args.machine:
            from dstui.machine.recorded import read_machine

            machine = read_machine(Path(args.machine))
    except (FileProblem, PlanError) as error:
        return _refuse(str(error))
    if plain:
        from dstui.plain import run_plain

        return run_plain(opened, machine, script=script)
    if why := no_screen():
        return _refuse(f"{why}: use dstui --headless PLAN, or dstui --plain, which uses prompts")
    from dstui.tui import run_tui

    return run_tui(opened, machine, reference=not args.no_reference, script=script)


def _refuse(sentence: str) -> int:
    from dstui.base.output import refuse

    return refuse(sentence)


if __name__ == "__main__":
    sys.exit(main())
