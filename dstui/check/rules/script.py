"""Rules about the training script: whether it exists, who reads its configuration, what its parser accepts. Most analyse the script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from dstui.adopt.script import NoScript, ScriptFacts
from dstui.adopt.script_arguments import MISSING, ScriptArgument, missing
from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan, write
from dstui.check.rules.optimizer import script_builds_unasked
from dstui.plan import Plan
from dstui.plan.finding import Fix, Severity
from dstui.plan.handed_over import CONFIG, hands_over, named_files
from dstui.plan.holes import HOLE

ARGUMENTS = {"deepspeed": ("--deepspeed_config", "{ds_config}"), "trainer": ("--deepspeed", "{ds_config}")}
"""Arguments that pass the configuration to a script that was not analysed."""
IN_THE_SCRIPT = {
    "deepspeed": 'deepspeed.initialize(…, config=os.environ["DSTUI_DS_CONFIG"])',
    "trainer": 'TrainingArguments(…, deepspeed=os.environ["DSTUI_DS_CONFIG"])',
    "accelerate": "Accelerator() without its own DeepSpeedPlugin: it finds the configuration in its environment",
}


@rule("PL001", "warning")
def nobody_reads_the_configuration(c: Context) -> Problems:
    """Nothing passes the configuration to the script."""
    if c.plan is None or c.plan.job.command or not any(c.plan.configurations.values()):
        return
    job, facts = c.plan.job, c.facts
    if hands_over(c.plan) or any(named_files(c.plan)):
        return  # the launch names a configuration file itself: PL029
    if c.integration == "accelerate" and facts is not None and facts.under_accelerate:
        return  # Accelerator() and TrainingArguments read the environment of accelerate's launcher
    if facts is not None and facts.without is not None:
        return  # no argument would help: PL027
    if facts is not None and facts.integration is not None and facts.own_configuration:
        message = f"the script does not take the configuration from outside ({facts.why})"
        why = "it trains with its own configuration or without DeepSpeed, so this Plan has no effect"
        yield about_the_plan("job.args", message, why, _let_it_read(c, facts))
        return
    known = facts is not None and facts.integration is not None
    words = facts.suggested_args if facts is not None and known else ARGUMENTS.get(c.integration, ())
    if not words or (known and facts is not None and not facts.suggested_args):
        return  # it finds the configuration by itself
    why = "a script finds the file only through its arguments or DSTUI_DS_CONFIG in its environment"
    if not c.plan.deepspeed:
        each = ", ".join(f"{{ds_config:{name}}}" for name in c.plan.configurations)
        fix = Fix(f"give the script {each}, or let it read {', '.join(f'DSTUI_DS_CONFIG_{n.upper()}' for n in c.plan.configurations)}")
        yield about_the_plan("job.args", "no argument passes the DeepSpeed configurations to the script", why, fix)
        return
    if facts is not None and not known:
        message = f"the script does not seem to read the DeepSpeed configuration: {facts.why}"
        fix = Fix(f"in the script: {IN_THE_SCRIPT['deepspeed']}; if it takes an argument for the file: {' '.join(words)}")
        yield about_the_plan("job.script", message, why, fix)
        return
    reported = f" ({facts.why})" if facts is not None and known else ""
    fix = Fix(f"add {' '.join(words)} to the arguments{reported}", (write(c, "job.args", [*job.args, *words]),))
    yield about_the_plan("job.args", "no argument passes the DeepSpeed configuration to the script", why, fix)


def _let_it_read(c: Context, facts: ScriptFacts) -> Fix:
    """Return how a script that gets no configuration from outside comes to one."""
    assert facts.integration is not None
    if facts.reader == facts.integration:
        return Fix(f"in the script: {IN_THE_SCRIPT[facts.integration]}")
    edits = [write(c, "job.integration", facts.reader)]
    if not c.has("optimizer"):
        edits.append(write(c, "job.optimizer", "script"))
    return Fix("set job.integration to accelerate: TrainingArguments then find the configuration in the environment", tuple(edits))


@rule("PL022", "warning")
def script_is_not_there(c: Context) -> Problems:
    """The script that the Plan names cannot be read."""
    if c.plan is None or not isinstance(c.script, NoScript):
        return
    if not any(hole[1] for hole in HOLE.finditer(f"{c.plan.job.workdir} {c.plan.job.script}")):  # an open one: PL070
        path = c.script.path
        yield about_the_plan("job.script", f"{path.name} is not in {path.parent}", "the ranks cannot start it")


@rule("PL023", "warning")
def another_integration(c: Context) -> Problems:
    """The script reads its configuration differently than the Plan says."""
    facts = c.facts
    if c.plan is None or facts is None or facts.integration in (None, c.plan.job.integration):
        return
    if c.plan.job.integration == "accelerate" and facts.under_accelerate:
        return  # the Trainer under accelerate
    message = f"the script is read as {facts.reader} ({facts.why}), the Plan says {c.plan.job.integration}"
    fix = Fix(f"set integration to {facts.reader}", (write(c, "job.integration", facts.reader),))
    yield about_the_plan("job.integration", message, fix=fix)


@rule("PL024", "warning", source="launcher/launch.py:230-240")
def parser_without_local_rank(c: Context) -> Problems:
    """DeepSpeed's launcher passes --local_rank to every rank, but the script's parser does not know it."""
    if c.plan is None or c.facts is None or not c.facts.refuses_local_rank or not _passes_local_rank(c.plan):
        return
    cluster = c.plan.cluster
    why = "it exits at once: error: unrecognized arguments: --local_rank=0"
    fix = Fix(
        "start without it: cluster.launcher_args gets --no_local_rank (LOCAL_RANK is in the environment)",
        (write(c, "cluster.launcher_args", [*cluster.launcher_args, "--no_local_rank"]),),
    )
    yield about_the_plan("job.script", "the script's parser does not know --local_rank, which the launcher gives every rank", why, fix)


def _passes_local_rank(plan: Plan) -> bool:
    """Return whether the launcher adds --local_rank=N to the arguments of each rank."""
    cluster = plan.cluster
    without = "--no_local_rank" in cluster.launcher_args or cluster.launcher in ("torchrun", "accelerate")
    return plan.job.integration != "accelerate" and not without


@rule("PL035", "error", when="run", source="dstui/adopt/script_arguments.py")
def required_arguments(c: Context) -> Problems:
    """The script's parser requires arguments that the Plan does not give."""
    if c.plan is None or c.facts is None:
        return
    added = ["--local_rank=0"] if _passes_local_rank(c.plan) else []
    if not (lacking := missing(c.facts.arguments, [*added, *c.plan.job.args])):
        return
    name = (c.plan.job.script or c.plan.job.module or "the script").rpartition("/")[2]
    asked = ", ".join(f"{one} (line {one.line})" for one in lacking)
    why = f"each rank exits with argparse's usage: {MISSING}: {', '.join(map(str, lacking))}"
    fix = Fix("add them to job.args")
    for words in _with_holes(lacking, c.plan.job.args):
        if not missing(c.facts.arguments, [*added, *words]):
            fix = Fix("add them to job.args as ${…}, whose values are asked for", (write(c, "job.args", words),))
            break
    yield about_the_plan("job.args", f"the parser of {name} requires {asked}", why, fix)


def _with_holes(lacking: Sequence[ScriptArgument], given: Sequence[str]) -> Iterator[list[str]]:
    """Yield ways to add missing arguments as holes: an option with several values takes the words that follow."""
    positional, options = list[str](), list[str]()
    for one in lacking:
        name = re.sub(r"[^A-Z0-9_]", "_", one.name.upper())
        count = one.count if isinstance(one.count, int) else 1
        holes = [f"${{{name}_{n}}}" if n > 1 else f"${{{name}}}" for n in range(1, count + 1)]
        positional += holes if one.positional else []
        options += [] if one.positional else [str(one), *holes]
    yield [*options, *positional, *given]
    yield [*positional, *options, *given]
    yield [*positional, *given, *options]
    yield [*given, *options, *positional]


@rule("PL025", "warning", readers=("deepspeed", "accelerate"))
def script_builds_the_optimizer(c: Context) -> Problems:
    """The script builds the optimizer, but the Plan leaves it to the configuration."""
    if c.plan is None or c.facts is None or not script_builds_unasked(c):
        return
    message = f"the script builds the optimizer ({c.facts.optimizer_why}), the Plan says job.optimizer: {c.plan.job.optimizer}"
    say_so = write(c, "job.optimizer", "script")
    if not c.optimizer:
        yield about_the_plan("job.optimizer", message, fix=Fix("set job.optimizer to script", (say_so,)))
        return
    refuses = "accelerate refuses two: You cannot specify an optimizer in the config file and in the code at the same time"
    why = refuses if c.integration == "accelerate" else "DeepSpeed takes the script's; the one in the configuration has no effect"
    both = (say_so, {"op": "remove", "path": c.pointer("optimizer")})
    yield about_the_plan("job.optimizer", message, why, Fix("set job.optimizer to script, and remove the configuration's", both))


@rule("PL027", "error", when="run", source="dstui/adopt/no_deepspeed.py")
def script_without_deepspeed(c: Context) -> Problems:
    """The script trains without DeepSpeed: with several ranks, each would train its own model."""
    if c.plan is None or c.facts is None or (found := c.facts.without) is None:
        return
    wanted = any(c.plan.configurations.values())
    if found.what == "joined" and not wanted:
        return  # the Plan uses nothing of DeepSpeed, and the ranks train together
    name = (c.plan.job.script or c.plan.job.module or "the script").rpartition("/")[2]
    missing, comes_of_it = WITHOUT[found.what]
    if found.what == "torch" and c.world_size == 1:
        comes_of_it = "it would train without DeepSpeed"
    reason = f" ({found.why})" + (f". Not certain: {found.doubt}" if found.doubt else "")
    why = "what is under deepspeed: would have no effect" if wanted else "it is launched as it is: this Plan asks for no DeepSpeed"
    severity: Severity = "error" if wanted and not found.doubt and found.what != "joined" else "warning"
    command = f"dstui render {shlex.quote(c.plan.source)} --only code"
    copy = " (-o FOLDER writes them to a file)" if found.what != "lightning" else ""
    fix = Fix(f"add the lines that `{command}` prints{copy}; step 8 of the session shows them too")
    yield about_the_plan("job.script", f"{name} never calls {missing}: {comes_of_it}{reason}", why, fix, severity=severity)


WITHOUT = {
    "torch": ("deepspeed.initialize", "each rank would train alone"),
    "joined": ("deepspeed.initialize", "torch synchronises its ranks, and it would train without DeepSpeed"),
    "lightning": ("DeepSpeedStrategy", "Lightning would train without DeepSpeed"),
}
"""The line that such a script lacks, and the consequence."""


@rule("PL028", "info")
def configuration_of_the_scripts_own(c: Context) -> Problems:
    """The section deepspeed is empty and the script has its own configuration, which is not checked."""
    if c.plan is not None and c.unread and c.facts is not None and c.facts.own_configuration:
        message = f"the script trains with its own configuration ({c.facts.why}): nothing of it is checked here"
        yield about_the_plan("job.script", message, "the Plan's section deepspeed is empty, and no rank reads it")


@rule("PL029", "warning", source="dstui/plan/handed_over.py")
def configuration_in_a_file_that_was_not_read(c: Context) -> Problems:
    """The launch names a configuration file that the script or accelerate reads directly."""
    if c.plan is None:
        return
    for file in named_files(c.plan):
        reader = "accelerate" if file.path.startswith("cluster.") else "the script"
        message = f"{file.option} {file.name}: {reader} reads this file, which could not be read here: nothing of it is checked or forecast"
        why = "what is under deepspeed: has no effect" if c.raw else "the section deepspeed is empty"
        words = "import the launch again where the file is"
        if reader != "accelerate":
            words += f", or fill the section and write {CONFIG} for {file.name}"
        yield about_the_plan(file.path, message, why, Fix(words))
