"""`dstui completion [SHELL] [--install]`: a script that completes commands, options, their choices and shipped Plans.

Its words come from the parsers. Libraries for this (shtab, argcomplete) need one parser with all commands, or an interpreter at every
keystroke. Here each command has its own parser and is imported only when it is used.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from dstui.base.files import is_there, make_folder, read_text, write_atomic
from dstui.base.output import refuse, say, tell
from dstui.commands import COMMANDS, session_parser
from dstui.documents.plan_files import SHIPPED

Options = dict[str, argparse.Action]
"""Option as typed -> its action in the parser."""


SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="by default the one that $SHELL names")
    parser.add_argument("--install", action="store_true", help="write the script where the shell finds it; again after an update of dstui")


def run(args: argparse.Namespace) -> int:
    """Print or install the script. Return 0; 2 after an error."""
    shell = args.shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        return refuse(f"completion is for {', '.join(SHELLS)}: name one, such as dstui completion bash --install")
    script = "\n".join(_fish() if shell == "fish" else _bash(zsh=shell == "zsh"))
    if not args.install:
        tell(script)
        return 0
    _install(shell, script + "\n")
    return 0


def _install(shell: str, script: str) -> None:
    """Write the script into the user's folder of completions. zsh has none, so its start file gets a line that reads the script."""
    data, config = (_user_folder("XDG_DATA_HOME", ".local/share"), _user_folder("XDG_CONFIG_HOME", ".config"))
    file = {
        "bash": data / "bash-completion/completions/dstui",
        "zsh": data / "dstui/completion.zsh",
        "fish": config / "fish/completions/dstui.fish",
    }[shell]
    make_folder(file.parent)
    tell(f"{'written' if write_atomic(file, script, replace=True) else 'unchanged'}  {file}")
    if shell == "zsh":
        start = Path(os.environ.get("ZDOTDIR") or Path.home(), ".zshrc")
        _add_line(start, f"source {shlex.quote(str(file))}")
    elif shell == "bash" and not is_there("/usr/share/bash-completion/bash_completion"):
        say("bash reads that folder through the package bash-completion, which is not in /usr/share: install it if nothing completes")
    say(f"open a new {shell} to use it")


def _user_folder(variable: str, default: str) -> Path:
    """Return a folder of the XDG base directory specification, which allows only absolute paths."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / default


def _add_line(file: Path, line: str) -> None:
    """Append a line to a file unless it has the line already."""
    text = read_text(file) if is_there(file) else ""
    if line in text.splitlines():
        return
    write_atomic(file, text + ("\n" if text and not text.endswith("\n") else "") + line + "\n", replace=True)
    tell(f"added    {file}: {line}")


def _commands() -> dict[str, tuple[str, Options]]:
    """Return command -> (description, options); "" is dstui without a command."""
    found = {"": ("", _options(session_parser()))}
    for name, what in COMMANDS.items():
        parser = argparse.ArgumentParser()
        import_module(f"dstui.commands.{name}").add_arguments(parser)
        found[name] = (what, _options(parser))
    return found


def _options(parser: argparse.ArgumentParser) -> Options:
    """Return the options of a parser. An argument without dashes that has choices gets the empty name."""
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
    for name, (_, options) in sorted(commands.items(), reverse=True):  # the empty name comes last: it matches any other word
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
