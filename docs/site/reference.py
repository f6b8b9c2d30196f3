"""A hook of MkDocs: reference pages made from the program's own tables, so they cannot be out of date; and the pictures of the README."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dstui.base.arguments import Parser
from dstui.check.accelerate import RULES as ACCELERATE_RULES
from dstui.check.rules.all_rules import RULES
from dstui.commands import COMMANDS, session_parser
from dstui.commands.docs import index
from dstui.plan.catalogue import RELEASES, release

ROOT = Path(__file__).parents[2]
PICTURES = "screenshots"


def cli_page() -> Iterator[str]:
    """Yield the help of every command, as a terminal of 100 columns shows it."""
    yield "# Command line\n\nThe same as `dstui COMMAND --help`.\n"
    os.environ["COLUMNS"] = "100"
    for name in ("", *COMMANDS):
        parser: argparse.ArgumentParser = session_parser()
        if name:
            parser = Parser(prog=f"dstui {name}", description=COMMANDS[name])
            import_module(f"dstui.commands.{name}").add_arguments(parser)
        yield f"## dstui {name}".rstrip() + f"\n\n```text\n{parser.format_help().rstrip()}\n```\n"


def plan_page() -> Iterator[str]:
    """Yield every key of a Plan outside of `deepspeed:`, and where its schema is."""
    yield "# Keys of a Plan\n\n`dstui schema -o plan.schema.json` writes the JSON Schema for editors, `dstui docs KEY` prints one key.\n"
    entries = dict(index())["The Plan"]
    yield from table(("Key", "What it says"), ((f"`{name}`", text) for name, text in entries.items()))


def deepspeed_page() -> Iterator[str]:
    """Yield every key of DeepSpeed's configuration."""
    yield f"# Keys of DeepSpeed\n\nUnder `deepspeed:` in a Plan. From DeepSpeed {RELEASES[-1]}; `dstui docs KEY` says more of each.\n"
    rows = ((f"`{key.path}`", key.type, default(key), key.help) for key in release().keys() if key.path)  # noqa: SIM118
    yield from table(("Key", "Type", "Default", "What it does"), rows)


def default(key: Any) -> str:
    """Return a default as the configuration writes it; a section has none."""
    return "" if key.type == "section" else f"`{'null' if key.default is None else key.default}`"


def rules_page() -> Iterator[str]:
    """Yield every rule of `dstui check`."""
    yield "# Rules\n\nThe findings of `dstui check`. `dstui docs CODE` tells when DeepSpeed refuses it, and its message.\n"
    rules = sorted((RULES | ACCELERATE_RULES).values(), key=lambda rule: rule.code)
    yield from table(("Code", "Severity", "What is wrong"), ((rule.code, rule.severity, rule.title) for rule in rules))


def more_page() -> Iterator[str]:
    """Yield the rest of the index: words, variables, functions, programs, accelerate's keys."""
    yield "# Variables, functions and words\n"
    shown = ("The Plan", "DeepSpeed's", "Findings, by", "Why runs end", "Shipped Plans")
    for heading, entries in index():
        if not heading.startswith(shown):
            yield f"\n## {heading}\n"
            yield from table(("Name", "What it is"), ((f"`{name}`", text) for name, text in entries.items()))


def plans_page() -> Iterator[str]:
    """Yield the Plans that come with dstui, whole."""
    yield "# Shipped Plans\n\n`dstui NAME` opens one, `dstui --headless NAME` runs it.\n"
    for name, text in dict(index())["Shipped Plans"].items():
        yield f"## {name}\n\n{text[0].upper()}{text[1:]}.\n\n```yaml\n{(ROOT / 'configs' / f'{name}.yaml').read_text().rstrip()}\n```\n"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "cli": cli_page,
    "plan": plan_page,
    "deepspeed": deepspeed_page,
    "rules": rules_page,
    "plans": plans_page,
    "more": more_page,
}


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield a table in Markdown."""
    heads = list(heads)
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell(value) for value in row)} |"


def cell(value: object) -> str:
    """Return a value as a cell: on one line, without what Markdown or HTML would read."""
    text = " ".join(str(value).split()).replace("|", "\\|")
    return text if text.startswith("`") else text.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages and the pictures to what MkDocs builds."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(page()) + "\n"))
    for picture in sorted((ROOT / PICTURES).glob("*.png")):
        files.append(File.generated(config, f"{PICTURES}/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Find the pictures inside the site; on GitHub they lie beside docs/."""
    return markdown.replace(f"../{PICTURES}/", f"{PICTURES}/")
