"""Gather the facts around a Plan that commands need to assess it. Files are read; nothing in them is run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dstui.assess import Facts
from dstui.base.files import FileProblem, read_text
from dstui.documents.layers import Template, load_layered
from dstui.documents.open import allocation_of
from dstui.documents.plan_files import env_files_of, hostfile_of
from dstui.documents.training_script import script_facts_of
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, PlanError
from dstui.plan.locks import broken_locks
from dstui.render.target import Target


def gather(plan: Plan, machine: Machine, *, launches: bool = False) -> tuple[Target, Facts]:
    """Return the Target of a Plan and the facts around it.

    `launches`: the Plan is to start from here, so that the SLURM allocation, the locks of killed builds and what
    SLURM offers a queued job count.
    """
    pool = hostfile_of(plan) or (allocation_of(plan) if launches else None)
    target = Target(plan, machine, pool if isinstance(pool, dict) else None, env_files_of(plan))
    stale: tuple[Path, ...] = ()
    if launches and not machine.recorded:
        from dstui.jobs.store.op_locks import folder_of, stale_locks

        stale = stale_locks(folder_of(plan))
    offers = None
    if launches and plan.cluster.submits:
        from dstui.jobs.queue.scheduler import slurm_offers  # few launches are queued

        offers = slurm_offers()
    if plan.model is None and not plan.models:
        return target, Facts(script=script_facts_of(plan), pool=pool, locks=stale, slurm=offers)
    from dstui.facts.model_configs import read_model_configs  # not needed for a Plan that names no model

    facts = Facts(script=script_facts_of(plan), configs=read_model_configs(plan), pool=pool, locks=stale, slurm=offers)
    named = any((one := plan.focused_on(name).model) is not None and (one.source or one.params) for name in plan.models or ("",))
    if not named or machine == Machine.unprobed():
        return target, facts  # without a model or a machine there is nothing to forecast, and its modules stay unloaded
    from dstui.facts.measured import model_key, read_measured
    from dstui.facts.model_files import read_models

    return target, replace(facts, models=read_models(plan), measured=read_measured(model_key(plan)))


def judge_template(template: Template, machine: Machine) -> str:
    """Return whether a template fits on a machine, in a word; a refusal of the site comes first."""
    from dstui.assess import assess

    with suppress(FileProblem, PlanError):
        plan = load_layered(read_text(template.path), str(template.path), str(template.path.absolute().parent))
        if broken_locks(plan):
            return "not allowed"
        forecast = assess(*gather(plan, machine)).forecast
        return str(forecast.verdict) if forecast is not None else "fits"
    return "broken"
