"""`dstui new [TEMPLATE]`: list the templates of the site and of dstui, or write a Plan from one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from dstui.base.files import is_there, read_text, write_atomic
from dstui.base.output import refuse, tell
from dstui.base.text import sanitise
from dstui.documents.layers import Template, load_layered, site_templates
from dstui.documents.plan_files import SHIPPED, apply_overrides, find_plan
from dstui.plan import Plan
from dstui.plan.holes import find_holes
from dstui.plan.locks import broken_locks, describe_broken
from dstui.site.installed import installed_site
from dstui.surroundings import judge_template


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("template", nargs="?", metavar="TEMPLATE", help="its name; without one, all are listed")
    parser.add_argument("-o", "--output", type=Path, default=Path("plan.yaml"), metavar="FILE", help="the new Plan (default: plan.yaml)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="write a key into it: job.script=finetune.py")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="list what fits on the machine recorded in FILE instead of this one")


def run(args: argparse.Namespace) -> int:
    """List the templates, or write one. Return 0; 2 after an error."""
    if args.template is None:
        return _list(args.machine)
    return _write(args.template, args.output, args.set)


def all_templates() -> list[Template]:
    """Return the templates of the site, then those of dstui. Of equal names the first wins."""
    shipped = [Template(name, find_plan(name), purpose) for name, purpose in SHIPPED.items()]
    found: dict[str, Template] = {}
    for template in (*site_templates(), *shipped):
        found.setdefault(template.name, template)
    return list(found.values())


def _list(recorded: Path | None) -> int:
    from dstui.headless import find_machine

    installed, templates = installed_site(), all_templates()
    site = installed.site
    if installed.problem:
        tell(f"the site file is not used: {sanitise(installed.problem)}")
    if site is not None and (site.welcome or site.contact):
        tell("\n".join(filter(None, (sanitise(site.welcome), f"ask: {sanitise(site.contact)}" if site.contact else ""))) + "\n")
    machine = find_machine(str(recorded) if recorded else None, load_layered(read_text(find_plan("quickstart")), "quickstart", "/"))
    width = max(len(template.name) for template in templates)
    for template in templates:
        tell(f"{sanitise(template.name):<{width}}  {judge_template(template, machine):<12}  {sanitise(template.purpose)}")
    tell("\ndstui new NAME writes plan.yaml from one; --set job.script=train.py changes a key on the way")
    return 0


def _write(name: str, output: Path, sets: list[str]) -> int:
    template = next((one for one in all_templates() if one.name == name), None)
    if template is None:
        return refuse(f"{name}: no template of this name; `dstui new` lists them")
    plan = apply_overrides(load_layered(read_text(template.path), str(output), str(output.absolute().parent)), sets)
    if is_there(output):
        return refuse(f"{output} exists and is not replaced: choose another place with -o FILE")
    write_atomic(output, plan.text)
    tell(f"written  {output}")
    tell("\n".join(_next_steps(plan, output)))
    return 0


def _next_steps(plan: Plan, output: Path) -> Iterator[str]:
    for hole in find_holes(plan):
        yield f"to fill  {hole.path}: ${{{hole.name}}} (write the value, or set the variable {hole.name} for the launch)"
    for lock, value in broken_locks(plan):
        yield f"to mend  {lock.path}: {sanitise(describe_broken(plan, lock, value))}"
    script = plan.job.script
    if script and not Path(plan.place(plan.job.workdir), script).exists():
        yield f"to name  job.script: {script} does not exist yet"
    yield f"next     dstui check {output}; dstui {output}"
