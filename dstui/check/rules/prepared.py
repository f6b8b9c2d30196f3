"""Rules about what an accelerate script passes to prepare(): optimizer and scheduler in accelerate's four combinations."""

from __future__ import annotations

from dstui.adopt.script import ScriptFacts
from dstui.check.auto_values import AUTO
from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.optimizer import script_builds, script_builds_unasked
from dstui.plan.finding import Fix

SOURCE = "accelerate/accelerator.py (_prepare_deepspeed)"
READERS = ("accelerate",)
ONLY_DUMMIES = "You can only specify `accelerate.utils.DummyScheduler` in the code when using `accelerate.utils.DummyOptim`."
NO_FUNCTION = "Either specify a scheduler in the config file or pass in the `lr_scheduler_callable`"


def dummy_optimizer(c: Context) -> str:
    """Return the line where the script creates the DummyOptim for prepare(); "" if it passes something else or that is unknown."""
    facts = _prepared(c)
    return facts.optimizer_why if facts is not None and facts.optimizer == "config" else ""


def scheduler_given(c: Context) -> str | None:
    """Return the kind of scheduler that the script passes to prepare(); None if unknown."""
    facts = _prepared(c)
    return facts.scheduler if facts is not None else None


def _prepared(c: Context) -> ScriptFacts | None:
    """Return the facts about the script if everything that it prepares belongs to this configuration."""
    several = c.plan is None or bool(c.plan.models)
    return c.facts if c.facts is not None and c.facts.under_accelerate and c.integration == "accelerate" and not several else None


@rule(
    "DS326",
    "error",
    when="initialize",
    says="You cannot specify an optimizer in the config file and in the code at the same time",
    source=SOURCE,
    readers=READERS,
)
def two_optimizers_for_accelerate(c: Context) -> Problems:
    """accelerate refuses an optimizer in the configuration when the script builds one."""
    if script_builds(c) and c.optimizer and not dummy_optimizer(c):
        why = "accelerate: You cannot specify an optimizer in the config file and in the code at the same time. (DummyOptim is the way)"
        yield c.problem(
            "optimizer", "the script builds an optimizer, and so does the configuration", why=why, fix=c.drop("optimizer", "remove it here")
        )


@rule(
    "DS327",
    "error",
    when="initialize",
    says="You cannot create a `DummyOptim` without specifying an optimizer in the config file.",
    source=SOURCE,
    readers=READERS,
)
def dummy_without_optimizer(c: Context) -> Problems:
    """The configuration should build the optimizer (the script uses DummyOptim), but has none."""
    if c.plan is None or not c.trained or "optimizer" in c.raw:
        return
    why = "accelerate: You cannot create a `DummyOptim` without specifying an optimizer in the config file."
    adam = {"type": "AdamW", "params": {"lr": AUTO}}
    if line := dummy_optimizer(c):
        message = f"the script gives prepare() a DummyOptim ({line}), and the configuration has no optimizer"
        fix = c.put("optimizer", adam, "add AdamW (or give prepare() a torch.optim.AdamW)")
        if scheduler_given(c) == "script":  # only valid with an optimizer of the script's own
            fix = Fix("in the script: torch.optim.AdamW(…) in the place of DummyOptim")
        yield c.problem("optimizer", message, why=why, fix=fix)
    elif c.raw and c.plan.job.optimizer == "config" and not script_builds_unasked(c):
        fix = c.put("optimizer", adam, "add AdamW (or say job.optimizer: script, or none where nothing is trained)")
        yield c.problem("optimizer", "job.optimizer is config, and the configuration has none", why=why, severity="warning", fix=fix)


@rule(
    "DS339",
    "error",
    when="initialize",
    says=ONLY_DUMMIES,
    source=SOURCE,
    readers=READERS,
)
def dummy_beside_a_scheduler(c: Context) -> Problems:
    """The script gives accelerate a DummyOptim with its own scheduler."""
    facts, line = _prepared(c), dummy_optimizer(c)
    if facts is not None and line and facts.scheduler == "script" and c.optimizer and "scheduler" not in c.raw:
        why = f"accelerate: {ONLY_DUMMIES}"
        message = f"the script gives prepare() a DummyOptim ({line}) and its own scheduler ({facts.scheduler_why})"
        fix = Fix("in the script: DummyScheduler(optimizer, lr_scheduler_callable=…), a function that makes the scheduler of an optimizer")
        yield c.problem("optimizer", message, why=why, fix=fix)


@rule(
    "DS340",
    "error",
    when="initialize",
    says=NO_FUNCTION,
    source=SOURCE,
    readers=READERS,
)
def dummy_without_scheduler(c: Context) -> Problems:
    """The script gives accelerate a DummyScheduler without a function, and the configuration has no scheduler."""
    facts = _prepared(c)
    if facts is not None and facts.scheduler == "config" and c.trained and "scheduler" not in c.raw:
        why = f"accelerate: {NO_FUNCTION} parameter when using `accelerate.utils.DummyScheduler`."
        message = f"the script gives prepare() a DummyScheduler ({facts.scheduler_why}), and the configuration has no scheduler"
        words = "add WarmupLR (or in the script: DummyScheduler(optimizer, lr_scheduler_callable=…))"
        params = {"warmup_min_lr": AUTO, "warmup_max_lr": AUTO, "warmup_num_steps": AUTO}
        yield c.problem("scheduler", message, why=why, fix=c.put("scheduler", {"type": "WarmupLR", "params": params}, words))


@rule("DS328", "info", readers=READERS)
def scheduler_of_the_script(c: Context) -> Problems:
    """The configuration builds the optimizer and the script the scheduler: accelerate wants the scheduler as a callable."""
    if scheduler_given(c) is not None or c.plan is None:
        return  # the script's actual objects are judged instead
    if c.plan.job.scheduler == "script" and c.plan.job.optimizer == "config" and c.optimizer:
        why = f"accelerate: {ONLY_DUMMIES}"
        message = "give accelerate the script's scheduler as DummyScheduler(optimizer, lr_scheduler_callable=…)"
        yield c.problem("optimizer", message, why=why)
