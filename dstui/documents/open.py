"""Open any supported file as a Plan: a Plan, a shipped Plan, a ds_config.json, an accelerate YAML, a launch script or a training script."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.adopt.signs import PYTHON, Kind, kind_of
from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_file, is_folder, read_text, typed_path
from dstui.base.line_numbers import without_line_numbers
from dstui.documents.layers import load_layered
from dstui.documents.plan_files import apply_overrides, find_plan, read_plan
from dstui.documents.training_script import facts_of_file, script_named
from dstui.plan import Plan
from dstui.plan.accelerate_keys import DEFAULT_CONFIG
from dstui.plan.finding import Finding
from dstui.plan.hostfile import HostfileError

MAX_SCRIPTS = 300
"""Scripts of a folder that are analysed."""

if TYPE_CHECKING:
    from dstui.adopt.every_kind import FilesBeside


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened Plan with the file that it is saved to; None if that still needs a name."""

    plan: Plan
    path: Path | None
    notes: tuple[str, ...] = ()
    """Notes of what was changed or not understood during an import."""
    findings: tuple[Finding, ...] = ()
    """Findings of the imported file, with its own lines and paths."""
    made: bool = False
    """True if the Plan was imported, so that its lines are not those of the file."""
    launches: tuple[str, ...] = ()
    """The launches of a shell text, of which the Plan is one."""


def open_document(name: str, sets: Sequence[str] = (), script: Sequence[str] = (), launch: int = 0, *, site: bool = True) -> Opened:
    """Open a file by its path, or a shipped Plan by its name. Raises FileProblem or PlanError.

    `script`: the training script for a bare configuration. `launch`: the number of the launch in a shell text, from 1. `site`: apply the
    site file.
    """
    path = find_plan(name)
    text = read_text(path)
    if path == Path(name) and (kind := kind_of(text, path.name)) == "script":
        return _plan_of_script(name, text, sets, site)
    if path == Path(name) and kind != "plan":
        return _made(path, text, kind, ImportOptions(sets, script, launch, site))
    if script:
        raise FileProblem(
            f"{path} is a Plan, which names its script itself (--set job.script=… changes it); a script after -- goes with a ds_config.json"
            " or an accelerate YAML"
        )
    if path == Path(name):
        return Opened(read_plan(path, sets, site=site), path)
    plan = read_plan(path, site=site)
    chosen = for_script_here(plan)
    notes = (f"{name} is for {chosen.job.script}, the script of this folder",) if chosen is not plan else ()
    return Opened(apply_overrides(chosen, sets), None, notes)


def for_script_here(plan: Plan) -> Plan:
    """Return a shipped Plan for the only training script in the current folder, if the Plan's own script is not there."""
    if plan.base != str(Path.cwd()) or not plan.job.script or is_file(plan.job.script):
        return plan
    trains = []
    for path in islice(sorted(Path().glob("*.py")), MAX_SCRIPTS):
        facts = facts_of_file(path)
        if facts is not None and (facts.integration or facts.without):
            trains.append(path.name)
    return plan.set("job.script", trains[0]) if len(trains) == 1 else plan


def is_script(name: str) -> bool:
    """Return whether a name is that of an existing Python script."""
    return name.endswith(PYTHON) and is_file(name)


def _plan_of_script(name: str, text: str, sets: Sequence[str], site: bool) -> Opened:
    """Return the Plan of the first recipe for a script on this machine."""
    from dstui.adopt.literal_configuration import about_literal
    from dstui.adopt.recipes import recipes
    from dstui.machine.probe import probe

    script = script_named(name, text)
    if script.facts.integration is None and script.facts.without is None and (started := _started(name, text, sets, site)):
        return started
    offered = recipes(script, probe())
    notes = [f"{name}: {script.facts.why}", f"for this machine: {offered[0].name} ({offered[0].says})"]
    notes += about_literal(script.facts.configuration)
    if len(offered) > 1:
        notes.append(f"others that dstui {name} offers: {', '.join(one.name for one in offered[1:])}")
    if script.facts.options:
        notes.append(f"its arguments, for job.args: {' '.join(script.facts.options)}")
    plan = load_layered(offered[0].text, name, str(Path.cwd()), site=site)
    return Opened(apply_overrides(plan, sets), None, tuple(notes), made=True)


def _started(name: str, text: str, sets: Sequence[str], site: bool) -> Opened | None:
    """Return the Plan of the launch that a program starts; None if it starts none. Raises FileProblem."""
    from dstui.adopt.started_launch import started_launch

    found = started_launch(text)
    if found.text:
        opened = _made(Path(name), found.text, "command", ImportOptions(sets, site=site))
        return replace(
            opened, notes=(f"{name} starts a launch, of which this is the Plan: what else it does is left out", *found.notes, *opened.notes)
        )
    if found.unclear:
        raise FileProblem(
            f"{name}: line {found.unclear} starts a launch with words that only a run shows: `dstui run --hold -- python {name}` reads it"
        )
    return None


def open_text(text: str, launch: int, kind: Kind | None = None) -> Opened:
    """Open a text that has no file, such as a pasted command, as its kind or the given one. Raises FileProblem or PlanError."""
    path, text = Path("pasted"), without_line_numbers(text)
    kind = kind or kind_of(text)
    if kind == "plan":
        return Opened(load_layered(text, "pasted", str(Path.cwd())), None)
    return _made(path, text, kind, ImportOptions(launch=launch))


def plan_of_both(config: str, script: str) -> Opened:
    """Return one Plan for a ds_config.json or an accelerate YAML and its script. Raises FileProblem or PlanError."""
    path, facts = Path(config), facts_of_file(Path(script))
    text = read_text(path)
    kind = kind_of(text, path.name)
    args = (
        facts.suggested_args if facts is not None and kind == "ds_config" else ()
    )  # an accelerate YAML reaches the script through its environment
    return _made(path, text, kind, ImportOptions(script=(script, *args)))


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of an import."""

    sets: Sequence[str] = ()
    """PATH=VALUE settings for the imported Plan."""
    script: Sequence[str] = ()
    """The training script, with arguments, for a bare configuration."""
    launch: int = 0
    """The number of the launch in a shell text, from 1; 0 is the likeliest."""
    site: bool = True
    """True to apply the site file."""


def _made(path: Path, text: str, kind: Kind, choice: ImportOptions) -> Opened:
    """Import a file of another format as a Plan. Relative paths in it start from the current folder."""
    from dstui.adopt.dsconfig import ConfigError  # most sessions open a Plan, and their first frame does not wait for these imports
    from dstui.adopt.every_kind import imported

    here = path.resolve()
    words = [word if not number else _handed_over(word, here) for number, word in enumerate(choice.script)]
    try:
        found = imported(kind, text, str(path), words, _beside(path, kind, choice.launch))
        plan = load_layered(found.text, str(path), str(Path.cwd()), site=choice.site)
    except ConfigError as error:
        where = ":".join(str(part) for part in (path, error.line, error.column) if part)
        raise FileProblem(f"{where}: {error.message}") from None
    return Opened(apply_overrides(plan, choice.sets), None, tuple(found.notes), tuple(found.findings), made=True, launches=found.launches)


def _beside(path: Path, kind: Kind, launch: int) -> FilesBeside:
    """Return the readers for files that this one names."""
    from dstui.adopt.every_kind import FilesBeside

    reader = file_reader(path.parent)
    if kind != "command":
        return FilesBeside(reader, lambda name: facts_of_file(Path(name)))
    from dstui.adopt.shell.read import Unparsed
    from dstui.adopt.shell.shell_state import Node, ShellContext
    from dstui.base.shell_parser import ShellSyntax, parse_shell

    def parse(text: str) -> Node:
        try:
            return parse_shell(text)
        except ShellSyntax as problem:
            raise Unparsed(problem.message, problem.line) from None

    def parse_inner(text: str) -> Node | None:
        with suppress(Unparsed):
            return parse(text)
        return None

    context = ShellContext(
        folder=str(Path.cwd()),
        script=str(path) if path.name != "pasted" or is_file(path) else "",
        environment=os.environ,
        parse=parse_inner,
        is_folder=is_folder,
        text_of=reader,
        moment=time.strftime,
    )
    return FilesBeside(reader, lambda name: facts_of_file(Path(name)), context, parse, launch)


def file_reader(folder: Path) -> Callable[[str], str | None]:
    """Return a function that reads files named by this one: relative to the current folder, as ranks do, else to the file's folder."""

    def read(name: str) -> str | None:
        for place in (default_config(),) if name == DEFAULT_CONFIG else (typed_path(name), folder / typed_path(name)):
            if is_file(place):
                return read_text(place)
        return None

    return read


def default_config() -> Path:
    """Return the path of accelerate's default_config.yaml (accelerate/commands/config/config_args.py)."""
    cache = typed_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return typed_path(os.environ.get("HF_HOME") or str(cache / "huggingface")) / "accelerate" / DEFAULT_CONFIG


def _handed_over(word: str, config: Path) -> str:
    """Return an argument. The path of the configuration, in any spelling, becomes the placeholder of the rendered file."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    with suppress(OSError, ValueError):
        if value and Path(value).resolve() == config:
            return f"{option}{equals}{{ds_config}}"
    return word


def allocation_of(plan: Plan) -> dict[str, int] | None:
    """Return the hosts of the SLURM allocation of this process, for a Plan that gives only the number of hosts."""
    from dstui.adopt.slurm import hosts_of_allocation  # most Plans name their hosts or need none

    cluster = plan.cluster
    if cluster.hosts is not None or cluster.hostfile is not None or (cluster.num_nodes or 1) < 2:
        return None
    with suppress(HostfileError):
        return hosts_of_allocation(os.environ)
    return None
