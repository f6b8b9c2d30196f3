"""Checks of a Plan (`check_plan`) or a bare configuration (`check_config`): one rule, one function, one test.

Pure: rules use only their arguments, no file, clock, environment or process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dstui.check.plan_facts import PlanFacts
from dstui.plan.finding import Finding, sort_findings

if TYPE_CHECKING:
    from dstui.check.context import Context
    from dstui.machine.snapshot import Machine
    from dstui.plan import Plan
    from dstui.render.target import Target

__all__ = ["PlanFacts", "check_config", "check_plan"]


NO_FACTS = PlanFacts()


def check_plan(
    target: Target,
    facts: PlanFacts = NO_FACTS,
    *,
    world_size: int | None = None,
    integration: str | None = None,
    deepspeed_version: str | None = None,
) -> list[Finding]:
    """Return the findings on a Plan, most severe first. Unknown facts about the machine or the world size are not judged.

    The keyword arguments override what the Plan and the Machine say. Without any version, the newest known release is judged.
    """
    from dstui.check.context import Context
    from dstui.machine.snapshot import Machine
    from dstui.plan.catalogue import is_version, release
    from dstui.plan.holes import find_holes
    from dstui.render.reaching import env_file_lines

    plan, probed = target.plan, target.machine.software.deepspeed
    installed = deepspeed_version or (probed if isinstance(probed, str) and is_version(probed) else None)
    known = release(installed)
    reader = integration or plan.job.integration
    ranks = world_size if world_size is not None else target.world_size
    machine = target.hosts_machine if target.machine != Machine.unprobed() else None  # no ranks run on one that only starts them
    found: list[Finding] = []
    for number, (name, config) in enumerate(plan.configurations.items()):
        whole = plan if number == 0 else None  # rules about the Plan as a whole run once
        found += _evaluated(
            Context(
                config,
                known,
                reader,
                ranks,
                machine,
                whole,
                root=f"models.{name}.deepspeed." if name else "deepspeed.",
                lines=plan.line_of,
                script=facts.script,
                model=facts.configs.get(name),
                trained=plan.trains(name),
                pool=facts.pool,
                installed=installed,
                env_lines=env_file_lines(target) if whole is not None else (),
                slurm=facts.slurm,
            )
        )
    found += _no_command(target, found)
    if plan.accelerate and reader == "accelerate":
        from dstui.check.accelerate import check_section

        found += check_section(plan)
    if plan.beneath:
        found = [_with_origin(plan, finding) for finding in found]
    open_values = {hole.path for hole in find_holes(plan)} - {""}
    return sort_findings([finding for finding in found if finding.path not in open_values or finding.code == "PL070"])


def _with_origin(plan: Plan, finding: Finding) -> Finding:
    """Return a finding on a Plan with layers, with the origin of the value and a patch for the Plan's own text."""
    from dstui.plan.layer_edits import own_operations
    from dstui.plan.locks import origin_of

    fix, origin = finding.fix, origin_of(plan, finding.path) if finding.path else None
    if fix is not None and fix.patch is not None:
        finding = replace(finding, fix=replace(fix, patch=own_operations(plan.document, plan.data, fix.patch)))
    if origin is None or origin.layer == "Plan":
        return finding
    why = f"{finding.why}; the value comes from {origin}" if finding.why else f"the value comes from {origin}"
    return replace(finding, why=why, line=None)


def check_config(  # noqa: PLR0913 - all but the first are named
    config: Mapping[str, Any],
    machine: Machine | None = None,
    *,
    world_size: int | None = None,
    integration: str = "deepspeed",
    deepspeed_version: str | None = None,
    lines: Callable[[str], int | None] = lambda _path: None,
) -> list[Finding]:
    """Return the findings on a bare DeepSpeed configuration. `lines(path)` returns the line of a key in its text."""
    from dstui.check.context import Context
    from dstui.plan.catalogue import release

    known = release(deepspeed_version)
    context = Context(config, known, integration, world_size, machine, lines=lines, installed=deepspeed_version)
    return sort_findings(list(_evaluated(context)))


def _no_command(target: Target, found: list[Finding]) -> Iterator[Finding]:
    """Yield why the Plan has no valid command, if no rule has reported it: whatever `render` refuses is a finding."""
    from dstui.render.launch import RenderError

    plan = target.plan
    if plan.cluster.hostfile and target.pool is None:
        return  # the problem of the hostfile is reported already, or the file was not read
    if plan.job.command:
        return  # the command runs as it is
    try:
        _ = target.launch
    except RenderError as error:
        sections = ("job.", "cluster.", "accelerate.")
        if not any(finding.severity == "error" and finding.path.startswith(sections) for finding in found):
            yield Finding("PL050", "error", error.path, error.message, "no command can be made of it", "launch", plan.line_of(error.path))


def _evaluated(context: Context) -> Iterator[Finding]:
    if context.machine is None:
        from dstui.check.rules.plan_rules import RULES  # the others would find nothing
    else:
        from dstui.check.rules.all_rules import RULES

    return (finding for rule in RULES.values() if rule.applies(context) for finding in rule.findings(context))
