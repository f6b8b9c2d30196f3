"""Import any supported file as the text of a Plan, with one function for each kind. Pure: callbacks read the files that it names."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace

from dstui.adopt.command_line import CommandLine, NoLaunch, command_line
from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.from_accelerate import Given, plan_of_accelerate
from dstui.adopt.from_command import plan_of_command
from dstui.adopt.new_plan import Imported, plan_of_dsconfig, plan_text
from dstui.adopt.script import ScriptFacts
from dstui.adopt.shell.notebook import notebook_as_shell, python_of_notebook
from dstui.adopt.shell.read import Parse, ShellText, Unparsed, read_shell, undecided_in
from dstui.adopt.shell.recognise import UNLIKELY, rank
from dstui.adopt.shell.shell_state import GPU_COUNT, Launch, ShellContext, ShellLimit, holes_in, to_display_text, to_plan_text
from dstui.adopt.shell.windows import is_batch
from dstui.adopt.signs import Kind, is_launch
from dstui.adopt.started_launch import started_launch
from dstui.base.dataclass import dataclass
from dstui.base.toml import parsed_toml
from dstui.plan.catalogue import lookup
from dstui.plan.holes import unescape_holes
from dstui.plan.hostfile import HostfileError, parse_hostfile

LISTED = 9
"""Launches of a text that are listed."""
ARGUMENT = re.compile(r"\$\{?[1-9@*#]")
LONGEST = 80
"""Characters of a launch in a list."""


@dataclass(frozen=True, slots=True)
class FilesBeside:
    """Callbacks about the files that a file names."""

    text_of: Callable[[str], str | None]
    """Returns the text of a configuration; None if it cannot be read."""
    facts_of: Callable[[str], ScriptFacts | None]
    """Returns the facts of a training script."""
    context: ShellContext = field(default_factory=lambda: ShellContext("/"))
    """The context in which shell text would run."""
    parse: Parse | None = None
    """The parser of shell text."""
    launch: int = 0
    """The number of the launch in a text, from 1; 0 is the likeliest."""


def imported(kind: Kind, text: str, source: str, script: Sequence[str], beside: FilesBeside) -> Imported:
    """Return the Plan of a text. `script`: the training script and its arguments. Raises ConfigError."""
    about = beside.facts_of(script[0]) if script else None
    if kind == "ds_config" and source.endswith(".toml"):
        made = plan_of_dsconfig(_of_toml(text), source, script, about)
        return replace(made, notes=["DeepSpeed itself reads no TOML: the Plan has its values", *made.notes])
    if kind == "ds_config":
        return plan_of_dsconfig(text, source, script, about)
    if kind == "accelerate":
        return plan_of_accelerate(text, source, Given({"script": script[0], "args": list(script[1:])} if script else {}), beside.text_of)
    if kind == "command":
        return _launched(text, source, beside)
    cluster = {"hosts": _hosts(text)} if kind == "hostfile" else {"env": _variables(text)}
    return Imported(plan_text(source, {"job": {}, "cluster": cluster, "deepspeed": {}}, []))


def _of_toml(text: str) -> str:
    """Return a configuration in TOML as JSON: its table `deepspeed`, or all of it. Raises ConfigError."""
    tables = parsed_toml(text)
    config = tables["deepspeed"] if isinstance(tables.get("deepspeed"), dict) else tables
    if not any(map(lookup, config)):
        raise ConfigError(
            "neither a task with a command that starts training, nor a key of DeepSpeed's: TOML is read by Python 3.11 or later"
        )
    return json.dumps(config, default=str)


def _launched(text: str, source: str, beside: FilesBeside) -> Imported:
    """Return the Plan of the selected launch of a shell text. Raises ConfigError."""
    if beside.parse is None:
        raise ConfigError("shell text is not read here")
    text = _started_in_cells(text)
    try:
        shell = read_shell(text, beside.context, beside.parse)
        launch = _chosen(shell, beside.launch, _ways_to_read(text, beside.context))
        line = command_line(launch, beside.context.folder, imported=True)
    except (Unparsed, ShellLimit) as problem:
        raise ConfigError(problem.message, problem.line or None) from None
    except NoLaunch as problem:
        hint = f", or only its arguments do: {_ways_to_read(text, beside.context)}" if ARGUMENT.search(text) else ""
        raise ConfigError(problem.message + hint) from None
    notes = (*_about(shell, launch), *shell.notes, *line.notes)
    folder = unescape_holes(line.folder)
    place = line.folder if line.folder.startswith("${") else posixpath.join(to_plan_text(beside.context.folder), line.folder)

    def text_of(name: str) -> str | None:
        path = posixpath.normpath(posixpath.join(place, name))
        if path in line.files:
            return line.files[path]
        there = beside.text_of(posixpath.join(folder, unescape_holes(name))) if folder else None
        return beside.text_of(unescape_holes(name)) if there is None else there

    hostfile = line.options.get("hostfile")
    if isinstance(hostfile, str) and (written := line.files.get(posixpath.normpath(posixpath.join(place, hostfile)))) is not None:
        line = replace(line, hosts=_hosts_written(written))
    facts = next((found for name in _files_of(line) if (found := beside.facts_of(posixpath.join(folder, name)))), None)
    made = plan_of_command(replace(line, notes=notes), source, text_of, facts)
    return replace(made, launches=tuple(_listed(shell.launches)))


def _started_in_cells(text: str) -> str:
    """Return the launch that the Python of a notebook starts, if no shell line does; other texts as they are. Raises ConfigError."""
    code = python_of_notebook(text)
    if not code or is_launch(notebook_as_shell(text)):
        return text
    started = started_launch(code)
    if started.text or not started.unclear:
        return started.text or text
    line = code.split("\n")[started.unclear - 1].strip()
    raise ConfigError(
        f"the cell with `{line[:80]}` starts a launch with words that only a run shows: give the command after `dstui import --`"
    )


def _files_of(line: CommandLine) -> tuple[str, ...]:
    """Return the files that the script of a launch may be, relative to its folder."""
    script = unescape_holes(line.script)
    stem = script.replace(".", "/")
    return (f"{stem}.py", f"{stem}/__main__.py") if line.module else (script,)


def _ways_to_read(text: str, context: ShellContext) -> str:
    """Return the commands that read a launch which the text alone leaves open: a run, and the script with its arguments if it has any."""
    if is_batch("", context.script):
        return "give it after `dstui import --`"
    run = f"`dstui run --hold -- bash {context.script or 'SCRIPT'}` reads it"
    return f"{run}; so may `dstui import -- bash {context.script} ITS ARGUMENTS`" if context.script and ARGUMENT.search(text) else run


def _chosen(shell: ShellText, number: int, ways: str) -> Launch:
    """Return the launch with this number. `ways`: the commands that read one that only a run decides. Raises ConfigError."""
    if shell.unreached and not number:
        unset = [note for note in shell.notes if note.endswith("read as unset")]
        seen = f" ({'; '.join([*shell.unseen[:2], *unset[:2]])})" if shell.unseen or unset else ""
        raise ConfigError(f"{shell.unreached} is not reached as the text is read here{seen}: if a run reaches it, {ways}")
    if not shell.launches:
        raise ConfigError(
            "no command that starts training: deepspeed …, accelerate launch …, torchrun … or python train.py"
            + (f" ({'; '.join(about)})" if (about := (*shell.unseen[:2], *shell.notes[:1])) else "")
        )
    if number > len(shell.launches):
        raise ConfigError(f"--launch {number}: the text has {len(shell.launches)}")
    launch = shell.launches[max(number - 1, 0)]
    if undecided := undecided_in(launch, shell):
        name, line = undecided[0]
        open_to = f"${name} of the launch in line {launch.line} depends on the branch in line {line}"
        raise ConfigError(f"{open_to}, which the script decides while it runs: {ways}", line)
    return launch


def _about(shell: ShellText, launch: Launch) -> Iterator[str]:
    """Yield notes about the other launches of the text, and about the holes of this one."""
    if len(shell.launches) > 1:
        yield f"{len(shell.launches)} launches in the text; this is the one in line {launch.line} (--launch N takes another):"
        yield from (f"  {number}. {one}" for number, one in enumerate(_listed(shell.launches), 1))
    if rank(launch.launcher, launch.words) == UNLIKELY:
        yield f"line {launch.line} is the likeliest launch of the text, though its name suggests that it trains nothing"
    for name in dict.fromkeys(name for text in launch.texts for _, name in holes_in(text)):
        if name == "HOME":
            yield "${HOME} is the home folder (~) of the user who launches"
        elif name != GPU_COUNT:
            stands_for = shell.sources.get(name, f"${name}")
            yield f"${{{name}}} is open: {stands_for}; set it in the environment of the launch, or write its value"


def _listed(launches: Sequence[Launch]) -> Iterator[str]:
    """Yield a line for each launch: what tells it from the others where it is long."""
    for one in launches[:LISTED]:
        others = [other for other in launches if other is not one]
        env = [f"{name}={value}" for name, value in one.env.items() if any(other.env.get(name) != value for other in others)]
        words = _telling(one.words, others) if others and len(" ".join(one.words)) > LONGEST else one.words
        text = " ".join(map(to_display_text, (*env, one.launcher, *words)))
        yield f"line {one.line}: {text[:LONGEST]}" + (f", depends on the branch in line {one.condition}" if one.condition else "")


def _telling(words: Sequence[str], others: Sequence[Launch]) -> list[str]:
    """Return the script of a launch, and the words that another launch lacks, each with its option."""
    shared = set(words).intersection(*(other.words for other in others))
    found = ["…"]
    for option, word in zip(("", *words), words, strict=False):
        if word not in shared or word.endswith(".py"):
            found += [option, word] if option.startswith("-") and option in shared else [word]
    return found


def _hosts(text: str) -> dict[str, int]:
    try:
        return parse_hostfile(text)
    except HostfileError as error:
        raise ConfigError(error.message, error.line) from None


def _hosts_written(text: str) -> dict[str, int]:
    """Return the hosts of a hostfile that a text writes; none if only a run knows them."""
    with suppress(HostfileError):
        return parse_hostfile(text)
    return {}


def _variables(text: str) -> dict[str, str]:
    """Parse a .deepspeed_env; comments and empty lines, on which DeepSpeed fails, are skipped."""
    variables: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            if not equals or not name:
                raise ConfigError(f"{line!r} is not a variable: a .deepspeed_env has NAME=value lines only", number)
            variables[name] = value
    return variables
