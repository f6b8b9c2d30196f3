"""`dstui docs KEY`: explain a key, a finding, a failure's cause, a variable, a function, a program or a shipped Plan.

Keys are those of DeepSpeed, of accelerate and of a Plan. Without a key, print the index. Other topics (variables, functions, programs,
words, and findings that no rule makes) are data (`data/topics.json`), and a test compares them with the programs that they describe.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.output import say, tell
from dstui.base.text import similar_words
from dstui.check.accelerate import RULES as ACCELERATE_RULES
from dstui.check.auto_values import FILLED
from dstui.check.context import flatten
from dstui.check.pages import rule_page
from dstui.check.rules.all_rules import RULES
from dstui.diagnosis.reporting.pages import cause_pages, cause_titles, causes_document
from dstui.documents.plan_files import SHIPPED, find_plan, read_plan
from dstui.plan.accelerate_keys import GUIDE, PLUGIN, SECTION, TOP, AccelerateKey
from dstui.plan.catalogue import RELEASES, Key, lookup, release
from dstui.plan.json_schema import plan_schema
from dstui.plan.load import FIELDS
from dstui.plan.model import NamedModel, reason_for_default
from dstui.plan.patterns import METRICS
from dstui.plan.scalars import yaml_scalar

ACCELERATE = {**{f"{SECTION}.{name}": key for name, key in PLUGIN.items()}, **TOP}
PAPERS = "arxiv.org"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "key",
        nargs="?",
        metavar="KEY",
        help="zero_optimization.stage, cluster.hosts, NCCL_DEBUG, DummyOptim, DS125, OOM-GPU, zero-infinity; none lists all",
    )
    parser.add_argument("--causes", action="store_true", help="all causes of failures as one document, in Markdown")


def run(args: argparse.Namespace) -> int:
    """Print the pages. Return 0; 1 if there is none of that name."""
    if args.causes:
        tell(causes_document(), end="")
        return 0
    if args.key is None:
        for line in _index_lines():
            tell(line)
        return 0
    pages = list(_pages(args.key)) if args.key.strip() else []
    for number, page in enumerate(pages):
        tell(("\n" if number else "") + page)
    if pages:
        return 0
    names = [name for _, entries in index() for name in entries]
    names += [other for topic in topics() for other in topic.also]
    close = similar_words(args.key, list(dict.fromkeys([*names, *(name.rpartition(".")[2] for name in names)])), 5, 0.7)
    say(
        f"there is no entry {args.key or repr(args.key)}" + (f"; there is {', '.join(close)}" if close else "; dstui docs lists everything")
    )
    return 1


def index() -> list[tuple[str, dict[str, str]]]:
    """Return each group of the index: its heading, and name -> sentence."""
    found = [
        ("Shipped Plans", dict(SHIPPED)),
        ("The Plan", {**_sections(), **{path: str(field["help"]) for path, field in _fields()}}),
        ("DeepSpeed's configuration (under deepspeed: in a Plan)", {key.path: key.help for key in release().keys()}),  # noqa: SIM118
        ("accelerate's YAML (under accelerate: in a Plan)", {name: key.help for name, key in ACCELERATE.items()}),
    ]
    found += [(heading, {topic.name: topic.help for topic in topics() if topic.group == group}) for group, heading in GROUPS.items()]
    found.append(("Metrics that are read from logs (others: run.metrics in a Plan)", dict(METRICS)))
    found.append(("Findings, by their codes", {rule.code: rule.title for rule in (RULES | ACCELERATE_RULES).values()}))
    found.append(("Why runs end (causes, by their ids)", cause_titles()))
    return [(heading, dict(sorted(entries.items()))) for heading, entries in found]


def _index_lines() -> Iterator[str]:
    """Yield the index, one line per name. Columns are as wide as most names of the group need."""
    for number, (heading, entries) in enumerate(index()):
        yield ("\n" if number else "") + heading
        width = min(max(map(len, entries)), 36)
        yield from (f"  {name:<{width}}  {_sentence(text)}".rstrip() for name, text in entries.items())


def _sentence(text: str) -> str:
    """Return the first sentence of a help text."""
    first, stop, _ = text.partition(". ")
    return first.rstrip(".") if stop or text.endswith(".") else text


def _sections() -> dict[str, str]:
    """Return the top-level sections of a Plan with their descriptions in the schema."""
    return {name: str(part["description"]) for name, part in plan_schema()["properties"].items() if "description" in part}


def _pages(name: str) -> Iterator[str]:
    """Yield all pages of a name: those with this full path, else those with this last part."""
    asked = name.removeprefix("deepspeed.").removeprefix("accelerate.").removeprefix(f"{SECTION}.")
    if rule := rule_page(name.upper()):
        yield rule
    yield from cause_pages(name)
    if name in SHIPPED:
        yield _recipe_page(name)
    yield from (topic.page_text() for topic in topics_called(name))
    if name in METRICS:
        yield f"{name}  (a metric)\n  {METRICS[name]}\n  shown    on the run screen, in dstui logs --metrics csv and dstui plot"
    if name in (sections := _sections()):
        yield _section_page(name, sections[name])
    yield from (_own(path, field) for path, field in _fields() if name in (path, path.rpartition(".")[2]))
    exact = lookup(asked)
    if exact is not None:
        yield _key_page(exact)
    elif "." not in asked:
        yield from (_key_page(key) for key in release().keys() if key.name == asked)  # noqa: SIM118 - our own method
    for path, key in ACCELERATE.items():
        if asked == path.rpartition(".")[2] or (key.variable and key.variable == name.upper()):
            yield _accelerate_page(key, f"accelerate: {path}")


def _section_page(name: str, words: str) -> str:
    """Return the page of a section of a Plan: its description and its keys."""
    keys = [(path, str(field["help"])) for path, field in _fields() if path.startswith(f"{name}.")]
    width = max((len(path) for path, _ in keys), default=0)
    return "\n".join([f"{name}  (Plan)", f"  {words}", *(f"    {path:<{width}}  {_sentence(text)}" for path, text in keys)])


def _recipe_page(name: str) -> str:
    """Return the page of a shipped Plan: its comments, the next steps, and the meaning of each key."""
    plan = read_plan(find_plan(name), ())
    heading = takewhile(lambda line: line.startswith("#"), plan.text.splitlines())
    lines = [f"{name}  (a Plan that comes with dstui: {SHIPPED[name]})", *(f"  {line.removeprefix('# ')}" for line in heading)]
    lines += [
        f"  open     dstui {name}",
        f"  memory   dstui forecast {name} --gpu-memory 24GB",
        f"  script   dstui render {name} --only code",
    ]
    for model, config in plan.configurations.items():
        lines += ["", f"  what its ds_config{f' of {model}' if model else ''} says"]
        written = [(path, value) for path, value in flatten(config) if not isinstance(value, Mapping)]
        for path, value in written:
            key = lookup(path)
            lines += [
                f"    {path}: {yaml_scalar(value) if not isinstance(value, (list, tuple)) else value}",
                f"        {key.help if key else ''}",
            ]
    return "\n".join(lines)


def _fields() -> Iterator[tuple[str, dict[str, object]]]:
    for path, specs in FIELDS.items():
        for name, spec in specs.items():
            yield ".".join((*map(str, path), name)), {**spec.metadata, "default": spec.default}
    for spec in fields(NamedModel):
        yield f"models.NAME.{spec.name}", {**spec.metadata, "default": spec.default}


def _own(path: str, about: dict[str, object]) -> str:
    if about["kind"] == "section":
        return _section_page(path, str(about["help"]))
    lines = [f"{path}  (Plan)", f"  {about['help']}", f"  holds    {about['kind']}"]
    choices = about["choices"]
    if isinstance(choices, tuple) and choices:
        lines.append(f"  one of   {', '.join(map(str, choices))}")
    if about["default"] is None or isinstance(about["default"], (str, int, float)):
        lines.append(f"  default  {'null' if about['default'] is None else about['default']}")
    if reason := reason_for_default(path):
        lines.append(f"  because  {reason}")
    return "\n".join(lines)


def _key_page(key: Key) -> str:
    lines = [f"deepspeed.{key.path}", f"  {key.help or 'No help text is known.'}", f"  holds    {key.type}"]
    if key.choices:
        lines.append(f"  one of   {', '.join(map(str, key.choices))}")
    if key.type != "section":
        lines.append(f"  default  {'null' if key.default is None else key.default}")
    if key.why:
        lines.append(f"  because  {key.why}")
    bounds = (("at least", key.minimum), ("at most", key.maximum), ("greater than", key.above), ("less than", key.below))
    lines += [f"  bounds   {words} {bound:g}" for words, bound in bounds if bound is not None]
    if key.stages:
        lines.append(f"  matters  at ZeRO stage {', '.join(map(str, key.stages))}")
    for reader, words in (("trainer", "the Trainer"), ("accelerate", "accelerate")):
        if key.path in FILLED[reader]:
            lines.append(f'  "auto"   {words} fills it from: {FILLED[reader][key.path]}')
    if key.deprecated:
        lines.append("  old      deprecated" + (f": use {key.replacement}" if key.replacement else ""))
    if key.since or key.until:
        lines.append(f"  known    from DeepSpeed {key.since or f'{RELEASES[0]} or before'} to {key.until or 'today'}")
    lines += [f"  {'paper   ' if PAPERS in page else 'page    '} {page}" for page in key.pages]
    if key.source:
        lines.append(f"  source   {key.source}")
    return "\n".join(lines)


def _accelerate_page(key: AccelerateKey, title: str) -> str:
    lines = [title, f"  {key.help}", f"  holds    {key.kind}"]
    if key.choices:
        lines.append(f"  one of   {', '.join(map(str, key.choices))}")
    if key.path:
        lines.append(f"  same as  deepspeed.{key.path}")
    if key.variable:
        lines.append(f"  ranks    read {key.variable}")
    if not key.beside_file:
        lines.append("  not      beside deepspeed_config_file: accelerate refuses the file for it")
    lines.append(f"  page     {GUIDE}")
    return "\n".join(lines)


DATA = Path(__file__).parent / "data" / "topics.json"
GROUPS: Mapping[str, str] = {
    "words": "Words",
    "code": "Functions and classes of scripts",
    "programs": "Programs and options",
    "deepspeed-env": "Variables of DeepSpeed and of dstui",
    "nccl": "Variables of NCCL",
    "torch": "Variables of torch and CUDA",
    "accelerate-yaml": "Keys of an accelerate YAML for sequence parallelism",
    "findings": "Findings from outside the rules",
}
"""The groups of the index in order, with their headings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One entry of the index, with its page."""

    name: str
    group: str
    help: str
    """One sentence: the title in the index and the first line of the page."""
    more: str = ""
    also: tuple[str, ...] = ()
    """Other names of the topic."""
    values: str = ""
    default: str = ""
    source: str = ""
    """A file of the package, and after a colon a text in that file; `nccl` for names in NCCL's own library."""
    page: str = ""
    see: tuple[str, ...] = ()
    """Names of other pages."""

    def page_text(self) -> str:
        """Return the page."""
        rows = (
            ("values", self.values),
            ("default", self.default),
            ("also", ", ".join(self.also)),
            ("see", ", ".join(f"dstui docs {name}" for name in self.see)),
            ("page", self.page),
            ("source", self.source.partition(":")[0] if "/" in self.source else ""),
        )
        lines = [f"{self.name}  ({GROUPS[self.group]})", f"  {self.help}", *([f"  {self.more}"] if self.more else [])]
        return "\n".join([*lines, *(f"  {what:<8} {text}" for what, text in rows if text)])


@cache
def topics() -> tuple[Topic, ...]:
    """Return all topics, in the order of the file."""
    found: list[dict[str, Any]] = json.loads(DATA.read_bytes())
    lists = ("also", "see")
    return tuple(Topic(**entry | {name: tuple(entry.get(name, ())) for name in lists}) for entry in found)


def topics_called(name: str) -> list[Topic]:
    """Return the topics of this name, ignoring case."""
    asked = name.lower()
    return [topic for topic in topics() if asked in (topic.name.lower(), *(other.lower() for other in topic.also))]
