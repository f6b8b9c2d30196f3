"""`dstui completion SHELL`: a script that completes commands, options, their choices and the Plans that come with dstui.

Its words are those of the parsers themselves. Libraries that do this (shtab, argcomplete) want one parser that holds all commands, or an
interpreter at every keystroke; here each command brings its own parser, and is imported only when it is asked for.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from importlib import import_module

from dstui.base.output import tell
from dstui.commands import COMMANDS, session_parser
from dstui.documents.plan_files import SHIPPED

Options = dict[str, argparse.Action]
"""An option as it is typed -> what the parser knows of it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help='bash: eval "$(dstui completion bash)" in ~/.bashrc; fish: … | source'
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    tell("\n".join(_fish() if args.shell == "fish" else _bash(zsh=args.shell == "zsh")))
    return 0


def _commands() -> dict[str, tuple[str, Options]]:
    """Command -> what it does and its options; "" is dstui without one."""
    found = {"": ("", _options(session_parser()))}
    for name, what in COMMANDS.items():
        parser = argparse.ArgumentParser()
        import_module(f"dstui.commands.{name}").add_arguments(parser)
        found[name] = (what, _options(parser))
    return found


def _options(parser: argparse.ArgumentParser) -> Options:
    """Return an argument without dashes stands under the empty word where it has choices."""
    found = {option: action for action in parser._actions for option in action.option_strings}
    chosen = next((action for action in parser._actions if not action.option_strings and action.choices), None)
    return found | ({"": chosen} if chosen is not None else {})


def _bash(*, zsh: bool) -> Iterator[str]:
    commands = _commands()
    if zsh:
        yield "autoload -U +X compinit bashcompinit && compinit && bashcompinit"
    yield "_dstui() {"
    yield '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words="" options=""'
    yield '  case "${COMP_WORDS[1]} $prev" in'
    for name, (_, options) in commands.items():
        for option, action in options.items():
            if action.choices and option:
                yield f'    {name or "*"}\\ {option}) COMPREPLY=($(compgen -W {shlex.quote(_choices(action))} -- "$cur")); return ;;'
    yield "  esac"
    yield '  case "${COMP_WORDS[1]}" in'
    for name, (_, options) in sorted(commands.items(), reverse=True):  # the empty name, which is any other word, is the last
        words = _choices(options[""]) if "" in options else ""
        yield f"    {name or '*'}) options={shlex.quote(' '.join(filter(None, options)))} words={shlex.quote(words)} ;;"
    yield "  esac"
    first = " ".join([*(name for name in commands if name), *SHIPPED])
    yield f'  [ "$COMP_CWORD" = 1 ] && words={shlex.quote(first)}'
    yield '  case "$cur" in -*) words="$options" ;; esac'
    yield '  COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "}"
    yield "complete -o bashdefault -o default -F _dstui dstui"


def _fish() -> Iterator[str]:
    for name, (what, options) in _commands().items():
        where = f"__fish_seen_subcommand_from {name}" if name else "__fish_use_subcommand"
        if name:
            yield f"complete -c dstui -n __fish_use_subcommand -a {name} -d {shlex.quote(what)}"
        for option, action in options.items():
            if not option:
                yield f"complete -c dstui -n '{where}' -xa {shlex.quote(_choices(action))}"
                continue
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            taken = f" -xa {shlex.quote(_choices(action))}" if action.choices else " -r" if action.nargs != 0 else ""
            yield f"complete -c dstui -n '{where}' {kind}{taken} -d {shlex.quote((action.help or '').replace('%%', '%'))}"
    for name, what in SHIPPED.items():
        yield f"complete -c dstui -n __fish_use_subcommand -a {name} -d {shlex.quote(what)}"


def _choices(action: argparse.Action) -> str:
    return " ".join(map(str, action.choices or ()))
