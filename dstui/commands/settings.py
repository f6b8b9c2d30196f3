"""`dstui settings`: open the user's settings in an editor, print them, check them, or print their JSON Schema."""

from __future__ import annotations

import argparse
import json
import os
import subprocess

from dstui.base.editor import editor_command
from dstui.base.files import FileProblem, is_there, read_text, write_atomic
from dstui.base.output import refuse, say, tell
from dstui.base.text import sanitise
from dstui.site.installed import installed_settings, settings_path
from dstui.site.settings import first_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--print", action="store_true", help="print the path of the file and what is in it, instead of opening an editor")
    what.add_argument(
        "--check", action="store_true", help="print what is wrong in the file, with line numbers; exits with 1 if anything is"
    )
    what.add_argument("--schema", action="store_true", help="print its JSON Schema, for completion and checks in editors")
    parser.epilog = "example: EDITOR=nano dstui settings; then, in the file, `theme: dstui-light` or `keys: {launch: f9}`"


def run(args: argparse.Namespace) -> int:
    """Do what is asked for; 0, 1 where the file has mistakes, 2 with a sentence."""
    try:
        if args.schema:
            return _schema()
        if args.check:
            return _check()
        if args.print or not (os.isatty(0) and os.isatty(1)):
            return _print()
        return _edit()
    except (FileProblem, OSError, ValueError) as error:
        return refuse(str(error))


def _schema() -> int:
    from dstui.site.schema import settings_schema
    from dstui.tui.kit.keymap import remappable

    tell(json.dumps(settings_schema(remappable()), indent=1, ensure_ascii=False))
    return 0


def _print() -> int:
    path = settings_path()
    there = is_there(path)
    tell(sanitise(f"# {path}{'' if there else ' (does not exist yet: dstui settings writes it)'}"))
    for line in (read_text(path) if there else first_settings()).splitlines():
        tell(sanitise(line))
    return 0


def _check() -> int:
    from dstui.commands.checked_defaults import wrong_defaults
    from dstui.tui.flows.preferences import mistakes
    from dstui.tui.terminal_app import themes

    path = settings_path()
    if not is_there(path):
        tell(f"{path}: does not exist, so every setting has its default")
        return 0
    settings = installed_settings()
    found = sorted([*mistakes(settings, themes()), *wrong_defaults(settings.layer)], key=lambda problem: problem.line or 0)
    for problem in found:
        tell(sanitise(settings.sentence(problem)))
    tell(sanitise(f"{path}: {len(found)} wrong; the rest is used" if found else f"{path}: nothing wrong"))
    return int(bool(found))


def _edit() -> int:
    path = settings_path()
    if not is_there(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, first_settings())
    command = editor_command(os.environ, path, 1)
    if not command:
        say("no editor: set VISUAL or EDITOR to one, such as EDITOR=nano")
        return _print()
    try:
        ended = subprocess.run(command, check=False).returncode
    except OSError as error:
        return refuse(f"{command[0]}: {error.strerror}; it comes from VISUAL or EDITOR")
    return _check() if not ended else refuse(f"{command[0]} ended with status {ended}")
