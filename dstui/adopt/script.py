"""Analyse a training script: who reads its DeepSpeed configuration, by which argument, and who builds its optimizer.

Pure: the text is parsed, never run.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from dstui.adopt.configuration_reader import TRAINER, first_sign, parses_trainer_arguments
from dstui.adopt.literal_configuration import LiteralConfiguration, literal_configuration
from dstui.adopt.named_model import named_model, placed_on_gpu
from dstui.adopt.no_deepspeed import LIGHTNING, WithoutDeepSpeed, is_optimizer, without_deepspeed
from dstui.adopt.program import ScriptProgram, TextOf, read_program
from dstui.adopt.pycode import Call, Code, NotPython, read_code
from dstui.adopt.script_arguments import ScriptArgument, arguments_of
from dstui.base.dataclass import dataclass
from dstui.plan.model import Builder, Integration

RESUMING = (
    "--resume-from-checkpoint",
    "--resume",
    "--resume-from",
    "--resume-path",
    "--load-checkpoint",
    "--load-dir",
    "--load",
    "--from-checkpoint",
)
"""Options to resume from a checkpoint, the clearest name first; an underscore equals a dash."""
MAX_OPTIONS = 60
"""Options of a script that are listed."""
OTHER_FRAMEWORKS = ("jax", "tensorflow", "keras", "paddle", "mindspore", "mxnet")
"""Packages that train models which DeepSpeed cannot train."""
JOINED = re.compile(rf"(?:^|\.)(?:InitProcessGroupKwargs|PartialState)$|{TRAINER.pattern}")
"""Calls that set the backend of torch.distributed, or that there is no GPU."""
SCHEDULER = re.compile(r"(?:torch\.optim\.lr_scheduler\.[A-Z]|transformers\.(?:optimization\.)?get_\w*schedule)\w*$")
STARTS_RANKS = re.compile(
    r"^(?:deepspeed\.launcher\.runner\.main|ray\.init|torch\.distributed\.run\.(?:main|run)|accelerate\.commands\.launch\.\w+)$"
    r"|^torch\.multiprocessing\.(?:\w+\.)?(?:spawn|start_processes)$|^torch\.distributed\.launcher\..*elastic_launch$"
)
"""Calls that start a process for each GPU, also on other hosts."""
GivenScheduler = Literal["script", "function", "config"]
"""A scheduler from the script, from a function given to accelerate's DummyScheduler, or from the configuration."""


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """The facts about a script. `integration` is None if nothing in it reads a DeepSpeed configuration."""

    integration: Integration | None
    suggested_args: tuple[str, ...]
    """Arguments by which it finds the configuration; empty if it needs none or none is known."""
    why: str
    """One line: what in the script shows it, with its line number."""
    finds: bool = True
    """True if the rendered configuration reaches it this way. False if it has one of its own."""
    configuration: LiteralConfiguration = LiteralConfiguration("")
    """The configuration of its own, if finds is False and it is a literal."""
    optimizer: Builder | None = None
    """The builder of the optimizer; None if that is unknown, or the configuration decides."""
    optimizer_why: str = ""
    scheduler: GivenScheduler | None = None
    """The scheduler passed to accelerate's prepare(); None if that is unknown or there is none."""
    scheduler_why: str = ""
    refuses_local_rank: bool = False
    """True if its parser refuses unknown arguments and lacks --local_rank."""
    accumulation: int | None = None
    """The number in Accelerator(gradient_accumulation_steps=…), if it is a literal."""
    says_precision: bool = False
    """True if it passes mixed_precision to Accelerator itself."""
    joins_itself: bool = False
    """True if it sets how the ranks connect (gloo, use_cpu, a process group of its own), which CPU ranks need."""

    under_accelerate: bool = False
    """True if it finds the configuration in the environment of accelerate's launcher, as Accelerator() and the Trainer do."""
    accumulates: bool = True
    """True if it calls Accelerator.accumulate() or counts steps in another way. False if it calls backward() and does neither."""
    makes_no_engine: bool = False
    """True if it makes an Accelerator but neither prepares a model nor passes it on: nothing calls deepspeed.initialize."""
    options: tuple[str, ...] = ()
    """The options of its parser that are visible."""
    arguments: tuple[ScriptArgument, ...] = ()
    """Those of its own parser, if it is sure to be called and all of it is plain."""
    resume: tuple[str, ...] = ()
    """Arguments to resume from a checkpoint, with {checkpoint} for its folder; empty if none are known."""
    needs_argument: bool = False
    """True if deepspeed.initialize gets its configuration only from the script's arguments."""
    uses_lightning: bool = False
    """True if the script imports Lightning."""
    model: str = ""
    """The only model that it names itself, for a launch that names none."""
    model_why: str = ""
    placed: str = ""
    """The type of the weights that from_pretrained puts on the GPU itself, as `placed_on_gpu` returns it."""
    without: WithoutDeepSpeed | None = None
    """The part that trains without DeepSpeed; None if DeepSpeed takes part, or no training is visible."""
    starts_ranks: str = ""
    """The line with which it starts the ranks itself; "" if it leaves that to a launcher."""
    packages: frozenset[str] | None = None
    """First names of all packages that it imports; None if some of its imports could not be followed."""

    @property
    def own_configuration(self) -> bool:
        """Return whether the script uses DeepSpeed only with a configuration of its own."""
        return self.integration is not None and not self.finds

    @property
    def reader(self) -> Integration | None:
        """Return the integration by which a configuration reaches the script.

        `TrainingArguments` that are made in the script without `deepspeed=` read the environment of accelerate's launcher
        (transformers/training_args.py: ACCELERATE_USE_DEEPSPEED).
        """
        return "accelerate" if self.integration == "trainer" and self.own_configuration and self.under_accelerate else self.integration


@dataclass(frozen=True, slots=True)
class NoScript:
    """The Plan's script cannot be read."""

    path: Path


def inspect_script(text: str, text_of: TextOf = lambda _path: None, package: str = "") -> ScriptFacts:
    """Return the facts of a script's text and of the modules that it imports.

    `text_of` returns the text of a file in the folder where imports start; `package` is the script's own folder within it.
    """
    return replace(_inspected(text, text_of, package), arguments=arguments_of(text), starts_ranks=_starts_ranks(text))


def _inspected(text: str, text_of: TextOf, package: str) -> ScriptFacts:
    try:
        alone, program = read_code(text), read_program(text, text_of, package)
    except NotPython as problem:
        where = f"line {problem.line}: " if problem.line else ""
        return ScriptFacts(None, (), f"{where}it is not Python code that can be parsed here: {problem.message}")
    without = without_deepspeed(program)
    own, all_of_it = first_sign(alone), first_sign(program.code)
    code, found = (program.code, all_of_it) if own is None or (all_of_it and all_of_it[-1] and not own[-1]) else (alone, own)
    model, model_why = named_model(program.code)
    packages = None if program.unread or program.foreign else frozenset(program.code.packages)
    if found is None:
        loop = _loop_facts(program.code, alone, without) if without else ScriptFacts(None, (), _unknown(program))
        placed = placed_on_gpu(program.code)
        return replace(loop, resume=_resume(program.code, text), model=model, model_why=model_why, packages=packages, placed=placed)
    integration, args, line, words, finds = found
    builder, builder_why = _optimizer(code, integration)
    scheduler, scheduler_why = _scheduler(code)
    return ScriptFacts(
        integration,
        args,
        f"{code.place(line)}: {words}",
        finds,
        LiteralConfiguration("") if finds else literal_configuration(code),
        builder,
        builder_why,
        scheduler,
        scheduler_why,
        refuses_local_rank=_refuses_local_rank(code),
        accumulation=_accumulation(code),
        says_precision=any(call.name.endswith("Accelerator") and call.value("mixed_precision") for call in code.calls),
        joins_itself=_joins_itself(code),
        under_accelerate=_finds_under_accelerate(code, integration, finds),
        accumulates=_accumulates(code),
        makes_no_engine=integration == "accelerate" and _makes_no_engine(code),
        options=_options(program.code),
        resume=_resume(program.code, text),
        needs_argument=_needs_argument(program.code),
        uses_lightning=bool(program.code.packages & set(LIGHTNING)),
        model=model,
        model_why=model_why,
        without=without,
        packages=packages,
        placed=placed_on_gpu(program.code),
    )


def _starts_ranks(text: str) -> str:
    """Return the line of a script that starts its ranks, with the call; "" if it has none."""
    with suppress(NotPython):
        calls = (call for call in read_code(text).calls if STARTS_RANKS.search(call.name))
        return next((f"line {call.node.lineno}: {call.name}" for call in calls), "")
    return ""


def _unknown(program: ScriptProgram) -> str:
    """Return what is known of a script without a sign of DeepSpeed."""
    code = program.code
    other = next((name for name in OTHER_FRAMEWORKS if name in code.packages), None)
    if other is not None and "torch" not in code.packages:
        return f"it uses {other}, and DeepSpeed trains PyTorch models"
    unread = next((f"; {code.place(line)} {what}" for line, what in sorted((*program.unread, *program.foreign))), "")
    return f"no use of deepspeed, of an Accelerator or of a Trainer is seen in it{unread}"


def _loop_facts(program: Code, alone: Code, without: WithoutDeepSpeed) -> ScriptFacts:
    """Return the facts of a script that trains without DeepSpeed."""
    own = min(((program.names[name], name) for name in _optimizers(program)), default=None)
    return ScriptFacts(
        None,
        (),
        f"{without.why}, and nothing of deepspeed, accelerate or the Trainer",
        optimizer="script" if own else None,
        optimizer_why=f"{program.place(own[0])}: {own[1]}" if own else "",
        refuses_local_rank=_refuses_local_rank(alone),
        joins_itself=_joins_itself(program),
        options=_options(program),
        uses_lightning=without.what == "lightning",
        without=without,
    )


def _finds_under_accelerate(code: Code, integration: Integration, finds: bool) -> bool:
    if integration == "trainer":
        return not any(TRAINER.match(call.name) and call.value("deepspeed") is not None for call in code.calls)
    return integration == "accelerate" and finds


def _accumulates(code: Code) -> bool:
    """Return whether accelerate knows where an accumulation is complete. True for a script whose loop is elsewhere."""
    trains = any(call.name.rpartition(".")[2] == "backward" and "accelerator" in call.name.lower() for call in code.calls)
    counted = code.call("accumulate", "no_sync") is not None or any("sync_gradients" in name for name in code.names)
    return not trains or counted


def _makes_no_engine(code: Code) -> bool:
    """Return whether every import is known and nothing prepares a model."""
    prepares = any("prepare" in name or "initialize" in name for name in (*code.names, *(call.name for call in code.calls)))
    return not prepares and code.packages <= {"accelerate", "torch", *sys.stdlib_module_names} - {"importlib", "runpy", "subprocess"}


def _needs_argument(code: Code) -> bool:
    """Return whether no deepspeed.initialize gets a configuration: DeepSpeed then asks for --deepspeed_config."""
    calls = [call for call in code.calls if call.name.endswith("deepspeed.initialize")]
    spread = any(keyword.arg is None for call in calls for keyword in call.node.keywords)
    return bool(calls) and not spread and not any(call.value("config", "config_params") for call in calls)


def _options(code: Code) -> tuple[str, ...]:
    return tuple(dict.fromkeys(option.word or option.name for option in code.options))[:MAX_OPTIONS]


def _resume(code: Code, text: str) -> tuple[str, ...]:
    known = {option.word.replace("_", "-"): option for option in code.options}
    option = next((known[word] for word in RESUMING if word in known), None)
    if option is not None:
        return (option.word,) if option.switch else (option.word, "{checkpoint}")
    trainers = parses_trainer_arguments(code) and "resume_from_checkpoint" in text  # of TrainingArguments; the script hands it to train()
    return ("--resume_from_checkpoint", "{checkpoint}") if trainers else ()


def _accumulation(code: Code) -> int | None:
    given = [call.value("gradient_accumulation_steps") for call in code.calls if call.name.endswith("Accelerator")]
    numbers = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, int)]
    return numbers[0] if numbers else None


def _joins_itself(code: Code) -> bool:
    given = (call.value("backend", "cpu", "use_cpu", "no_cuda") for call in code.calls if JOINED.search(call.name))
    return any(given) or code.call("init_distributed", "init_process_group") is not None


def _refuses_local_rank(code: Code) -> bool:
    if code.call("ArgumentParser") is None or code.call("parse_args") is None or code.call("parse_known_args"):
        return False
    return not parses_trainer_arguments(code) and all(option.name != "local_rank" for option in code.options)


def _optimizer(code: Code, integration: Integration) -> tuple[Builder | None, str]:
    """Return who builds the optimizer, and the line that shows it."""
    if integration == "trainer":
        return None, ""  # the Trainer builds it, unless the configuration has one
    if integration == "deepspeed":
        calls = [call for call in code.calls if call.name.endswith("deepspeed.initialize")]
        handed = {call.value("optimizer", place=2) is not None: call.node.lineno for call in calls}
        if len(handed) != 1:
            return None, ""
        return ("script", f"{code.place(handed[True])}: deepspeed.initialize(optimizer=…)") if True in handed else ("config", "")
    own = next(iter(sorted((code.names[name], name) for name in _optimizers(code))), None)
    dummy = any(name.endswith("DummyOptim") for name in code.used)
    if dummy or own is None:
        given = _given_to_prepare(code, lambda call: call.name.endswith("DummyOptim") or None)
        return ("config" if dummy and own is None else None), given.get(True, "")
    return "script", f"{code.place(own[0])}: {own[1]}"


def _scheduler(code: Code) -> tuple[GivenScheduler | None, str]:
    """Return the scheduler that accelerate's prepare() gets, and the line that creates it."""
    found: dict[GivenScheduler, str] = _given_to_prepare(code, _kind_of_scheduler)
    return next(iter(found.items())) if len(found) == 1 else (None, "")


Kind = TypeVar("Kind")


def _given_to_prepare(code: Code, kind_of: Callable[[Call], Kind | None]) -> dict[Kind, str]:
    """Return each kind of object passed to prepare() and its line; empty where an object may be of several kinds."""
    calls = {id(call.node): call for call in code.calls}
    found: dict[Kind, str] = {}
    for prepare in (call for call in code.calls if _is_prepare(call)):
        for given in prepare.node.args:
            values = code.assigned.get(given.id, []) if isinstance(given, ast.Name) else [given]
            made = [call for value in values if not ((call := calls.get(id(value))) and _is_prepare(call))]
            kinds = {kind_of(call) if call else None for call in made}
            if len(kinds) > 1:
                return {}
            found |= {kind: f"line {call.node.lineno}: {call.name}" for call in made if call and (kind := kind_of(call))}
    return found


def _is_prepare(call: Call) -> bool:
    return call.name.rpartition(".")[2] == "prepare"


def _kind_of_scheduler(call: Call) -> GivenScheduler | None:
    if call.name.endswith("DummyScheduler"):
        return "function" if call.value("lr_scheduler_callable", place=3) is not None else "config"
    return "script" if SCHEDULER.match(call.name) else None


def _optimizers(code: Code) -> Iterator[str]:
    return (name for name in code.used if is_optimizer(name))
