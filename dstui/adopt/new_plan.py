"""Write other programs' files as the text of a Plan, with their comments. Pure; no value is lost."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dstui.adopt.dsconfig import DsConfig, read_dsconfig
from dstui.adopt.positions import Comment, Position, Positions
from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.plan import Plan, PlanError, load
from dstui.plan.catalogue import lookup
from dstui.plan.finding import Finding

if TYPE_CHECKING:
    from dstui.adopt.script import ScriptFacts


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported Plan, and what was changed or not understood."""

    text: str
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Findings about the file that the Plan no longer shows."""
    launches: tuple[str, ...] = ()
    """The launches of a shell text, each in a line; the Plan is of one of them."""


def plan_of_dsconfig(text: str, source: str, script: Sequence[str] = (), facts: ScriptFacts | None = None) -> Imported:
    """Return the Plan of a bare ds_config.json. Raises ConfigError.

    `script`: the training script and its arguments, in which `{ds_config}` is the rendered file; `facts`: the analysis of the script.
    Numbers keep their spelling, so that rendering gives the same file again. Comments stay at their keys.
    """
    read = read_dsconfig(text)
    config = read.config
    job: dict[str, Any] = {"script": script[0]} if script else {}
    if script[1:]:
        job["args"] = ["{ds_config}" if word == source else word for word in script[1:]]
    cluster = dict[str, Any]()
    for path, value in suited(read.integration, facts, builds="optimizer" in config).items():
        section, _, name = path.partition(".")
        (job if section == "job" else cluster)[name] = value
    made, dropped = with_comments(plan_text(source, {"job": job, "cluster": cluster, "deepspeed": config}, []), read.places)
    notes = [f"left out: the comments on lines {', '.join(map(str, dropped))}, which a Plan cannot keep"] if dropped else []
    if config and not any(lookup(name) for name in config):
        notes.append(f"no key at its top level is one of DeepSpeed's ({', '.join(list(config)[:3])}): is it a DeepSpeed configuration?")
    return Imported(made, notes, read.doubtful)


def doubts(read: DsConfig, source: str) -> list[str]:
    """Return what is doubtful in the form of a configuration that another file names, as sentences."""
    return [f"{source}:{finding.line}: {finding.code}: {finding.message}" for finding in read.doubtful]


def suited(integration: str, facts: ScriptFacts | None, *, builds: bool) -> dict[str, Any]:
    """Return the settings that a Plan needs for a script: dotted path -> value, without defaults.

    `integration`: the assumption if the script does not show one; `builds`: the configuration has an optimizer.
    """
    reader = (facts.reader if facts is not None else None) or integration
    found: dict[str, Any] = {"job.integration": reader} if reader != "deepspeed" else {}
    if facts is not None and (facts.optimizer == "script" or reader != facts.integration == "trainer") and not builds:
        found["job.optimizer"] = "script"
    if facts is not None and facts.refuses_local_rank and reader != "accelerate":
        found["cluster.launcher_args"] = ["--no_local_rank"]
    return found


def plan_text(source: str, sections: Mapping[str, Mapping[str, Any]], notes: list[str]) -> str:
    """Format a Plan with these sections in this order, and with notes at its top.

    A value that no Plan accepts (`$PORT` for a port) is left out, with a note.
    """
    kept = {name: dict(section) for name, section in sections.items()}
    try:
        return _text(source, kept, notes)
    except PlanError as error:
        if not _left_out(kept, error, notes):
            raise
        return plan_text(source, kept, notes)


def _left_out(sections: dict[str, dict[str, Any]], error: PlanError, notes: list[str]) -> bool:
    """Remove the keys that an error names."""
    found = False
    for finding in error.findings:
        section, _, rest = finding.path.partition(".")
        name = next((name for name in sections.get(section, ()) if rest == name or rest.startswith(f"{name}.")), None)
        if name is not None:
            notes.append(f"{section}.{name} is left out: {finding.message}")
            del sections[section][name]
            found = True
    return found


def _text(source: str, sections: Mapping[str, Mapping[str, Any]], notes: Sequence[str]) -> str:
    filled = [name for name in sections if sections[name] or name in ("job", "deepspeed")]
    empty = "version: 1\nname: imported\n" + "".join(f"{name}: {{}}\n" for name in filled)
    plan = load(noted(f"# made by dstui from {sanitise(source)}\n{empty}", notes))
    plan = plan.set("name", sanitise(source.rpartition("/")[2].rpartition(".")[0]) or "imported")
    for name in filled:
        plan = plan.set(name, sections[name]) if sections[name] else plan
    return plan.text.rstrip("\n") + "\n"


def noted(text: str, notes: Sequence[str]) -> str:
    """Add notes as comments below the first line of a Plan."""
    first, _, rest = text.partition("\n")
    return "\n".join([first, *(f"# {sanitise(note)}" for note in notes), rest])


MISSING = object()


def with_comments(text: str, places: Positions) -> tuple[str, list[int]]:
    """Return a Plan's text with the comments of its configuration, and the lines (of that file) of comments without a place.

    A comment beside a key stays beside it. One on its own lines goes above the next key, or to the end.
    """
    plan = load(text)
    keys = sorted((place, path) for path, place in places.keys.items())
    above, beside, dropped = defaultdict[int, list[str]](list), dict[int, str](), list[int]()
    lines = text.split("\n")
    for comment in places.comments:
        words = _words(comment.text)
        path, own_line = _key_of(comment, keys)
        line = _line_in(plan, path, lines) if path else len(lines)
        if line is None:
            dropped.append(comment.place.line)
        elif own_line:
            above[line] += words
        elif words:
            beside[line] = "; ".join(filter(None, [beside.get(line), *words]))
    found: list[str] = []
    for number, line_text in enumerate(lines, 1):
        indent = line_text[: len(line_text) - len(line_text.lstrip())] if line_text else "  "
        found += [f"{indent}# {word}" for word in above[number]]
        found.append(f"{line_text}  # {beside[number]}" if number in beside else line_text)
    made = "\n".join(found)
    return (made, dropped) if _is_same(made, plan) else (text, [comment.place.line for comment in places.comments])


def _key_of(comment: Comment, keys: Sequence[tuple[Position, str]]) -> tuple[str, bool]:
    """Return the key that a comment belongs to, and whether it goes above that key; no key at the end of the file."""
    at = bisect_left(keys, (comment.place, ""))
    if not comment.alone and at and keys[at - 1][0].line == comment.place.line:
        return keys[at - 1][1], False
    return (keys[at][1] if at < len(keys) else ""), True


def _line_in(plan: Plan, path: str, lines: Sequence[str]) -> int | None:
    """Return the line of the Plan that holds only this key of the configuration."""
    path = f"deepspeed.{path}"
    line = plan.line_of(path) if plan.get(path, MISSING) is not MISSING else None
    name = path.rpartition(".")[2]
    return line if line and lines[line - 1].lstrip().startswith((f"{name}:", f'"{name}":')) else None


def _words(text: str) -> list[str]:
    """Return the lines of a comment without its marks."""
    if text.startswith("/*"):
        inside = text[2:].removesuffix("*/")
        lines = [line.strip().removeprefix("*").strip() for line in inside.split("\n")]
    else:
        lines = [text.lstrip("/#").strip()]
    return [sanitise(line) for line in lines if line]


def _is_same(text: str, plan: Plan) -> bool:
    """Return whether the text still has the values of the Plan."""
    try:
        return load(text).data == plan.data
    except PlanError:
        return False
