"""The models of a Plan, each with its facts, its setup, and the assumptions behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from dstui.adopt.model_options import LIGER, longest_sample, recomputation
from dstui.adopt.script_options import options_of
from dstui.adopt.sizes_in_options import is_megatron, is_on, parallel_sizes
from dstui.base.dataclass import dataclass
from dstui.check.auto_values import fill_auto
from dstui.forecast.capacity import Capacity
from dstui.forecast.model import WHOLE_EXPERTS, Counts, ModelFacts, counts, has_whole_experts
from dstui.forecast.not_reckoned import REFERENCE, beside
from dstui.forecast.read_setup import (
    MEGATRON_LOSS_BYTES,
    PREFERENCE_LOSS_BYTES,
    SHORT,
    SWIFT_LOSS_BYTES,
    add_optimizer,
    configurations,
    placed_bytes,
    setup_of,
)
from dstui.forecast.setup import Setup
from dstui.machine.snapshot import Machine, known
from dstui.plan import Plan
from dstui.plan.accelerate_keys import sp_size
from dstui.plan.model import Model

Facts = ModelFacts | Mapping[str, ModelFacts]
TOO_LONG = "the model was made for {} positions, and {} tokens are planned: learned positions fail there, others lose quality"
TRL_LOSS = (
    "from 1.8 on, TRL's SFTTrainer computes the loss in chunks, so that the logits are never whole: set model.fused_loss: true for it"
)
SHORTER = "--{} is the longest that a sample may be: without packing, samples may be shorter, so the ranges begin at {} tokens"
PLACED = (
    "the script loads the model onto the GPU with device_map, in {} bits, before DeepSpeed converts it: without device_map it stays in RAM "
    "until then"
)
ZERO_INIT = "the model is too large for one GPU: it is assumed that the script builds it under deepspeed.zero.Init, as the Trainer does"


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """One model of a run with its setup and facts. `name` is empty if there is only one."""

    name: str = ""
    facts: ModelFacts
    model: Model | None
    setup: Setup
    shorter: bool = False
    """True if samples may be much shorter than the setup's length, which the script only has as a limit."""
    beside: float = 0.0
    """The bytes that RLHF may hold on each GPU beside the model: only the upper end of the range includes them."""
    compared: bool = False
    """The script may compare the model with a reference."""

    @property
    def counted(self) -> Counts | None:
        """The parameters as they are trained and stored; small ones are counted apart at stage 3."""
        least = self.setup.persistence if self.setup.stage == 3 else 0
        return counts(self.facts, self.model, persistence=least, split_experts=self.setup.split_experts)


def models_of(
    plan: Plan, facts: Facts, room: Capacity, machine: Machine, built: Mapping[str, Any] | None = None
) -> tuple[list[Modelled], list[str]]:
    """Return every model of a Plan with its setup, and the assumptions. `built` stands for an empty deepspeed section."""
    found, reported = list[Modelled](), list[str]()
    for name, config in ({"": built} if built else configurations(plan)).items():
        mine = facts if isinstance(facts, ModelFacts) else facts.get(name) or next(iter(facts.values()), None)
        if mine is not None:
            modelled, notes = _Reading(plan, name, config, mine, room, machine).modelled()
            found.append(modelled)
            reported += [*mine.notes, *notes]
    return found, reported


@dataclass(frozen=True)
class _Reading:
    """One model of a Plan, its configuration and facts, and the room on the Machine."""

    plan: Plan
    name: str
    config: Mapping[str, Any]
    facts: ModelFacts
    room: Capacity
    machine: Machine

    @cached_property
    def options(self) -> Mapping[str, str]:
        """The options of the script, as far as they are known."""
        job = self.plan.job
        return {**self.facts.options, **options_of((*job.args, *job.command))}

    @cached_property
    def model(self) -> Model | None:
        """The model's section of the Plan, with the recomputation that the script's options request."""
        model = self.plan.focused_on(self.name).model
        if self.options and model and model.activation_checkpointing is None and not self.name and (given := recomputation(self.options)):
            return replace(model, **given)
        return model

    def modelled(self) -> tuple[Modelled, list[str]]:
        """Return the model with its setup, and the assumptions."""
        plan, facts = self.plan, self.facts
        setup, notes = self._planned()
        setup = self._with_framework(setup)
        if "trl" in (_libraries(plan, facts) or ()) and setup.training and not setup.fused_loss:
            notes.append(TRL_LOSS)
        setup, assumed = self._as_built(setup)
        limit = longest_sample(self.options) if self.options and not self.name and setup.sequence > SHORT else ""
        held = [*self._held(setup)]
        final = setup._replace(
            training=plan.trains(self.name), cores_bound=plan.cluster.cpu_binding is not None, libraries=_libraries(plan, facts)
        )
        found = Modelled(
            name=self.name,
            facts=facts,
            model=self.model,
            setup=final,
            shorter=bool(limit),
            beside=sum(map(itemgetter(1), held)),
            compared=REFERENCE in map(itemgetter(0), held),
        )
        return found, [*notes, *assumed, *self._length_notes(setup, limit), *map(itemgetter(0), held)]

    def _planned(self) -> tuple[Setup, list[str]]:
        """Return the setup of the configuration with the script's options."""
        plan, room, options, software = self.plan, self.room, self.options, self.machine.software
        kind = plan.job.integration
        filled = fill_auto(self.config, kind, plan.accelerate, options)
        return setup_of(
            add_optimizer(filled, kind, options, known(software.torch, None)),
            self.model,
            kind,
            ranks=room.ranks,
            nodes=room.nodes,
            hidden=self.facts.hidden,
            on_cpu=room.on_cpu,
            transformers=known(software.transformers, None),
            parts=sp_size(plan),
            split=parallel_sizes(options) if options and kind == "deepspeed" else (1, 1),
        )

    def _with_framework(self, setup: Setup) -> Setup:
        """Return the setup with what Liger, swift and Megatron do in another way."""
        fused = setup.fused_loss or not setup.training
        setup = setup._replace(liger=setup.fused_loss and any(is_on(self.options, name) for name in LIGER))
        if _is_swift(self.plan) and not fused:
            setup = setup._replace(loss_bytes=PREFERENCE_LOSS_BYTES if "rlhf" in self.plan.job.command else SWIFT_LOSS_BYTES)
        if self.options and self.plan.job.integration == "deepspeed" and is_megatron(self.options):
            setup = setup._replace(
                megatron=True,
                norms_split=is_on(self.options, "sequence_parallel"),
                loss_bytes=setup.loss_bytes if fused else MEGATRON_LOSS_BYTES,
            )
        return setup

    def _as_built(self, setup: Setup) -> tuple[Setup, list[str]]:
        """Return the setup with how the script builds or loads the model, and what is assumed about that."""
        notes, facts, gpu = list[str](), self.facts, self.room.gpu
        if gpu is not None and self._whole(setup) > 0.9 * gpu and not setup.built_partitioned:
            setup = setup._replace(built_partitioned=True)
            notes += [ZERO_INIT] if setup.stage == 3 else []
        quantized = bool((self.model and self.model.quantization) or facts.stored)
        if facts.placed and setup.stage < 3 and setup.training and not quantized:
            setup = setup._replace(placed=placed_bytes(facts.placed, known(self.machine.software.transformers, None)))
            notes.append(PLACED.format(8 * setup.placed))
        return setup, notes

    def _whole(self, setup: Setup) -> float:
        """Return the bytes of all weights."""
        return setup.weight_bytes * (self.facts.params or 0)

    def _length_notes(self, setup: Setup, limit: str) -> Iterator[str]:
        """Yield remarks on the length of samples (`limit`: the option that only limits it), and on whole experts."""
        shape = self.facts.shape
        if shape and 0 < shape.positions < setup.sequence:
            yield TOO_LONG.format(shape.positions, setup.sequence)
        if limit and self.model and self.model.sequence_length:
            yield SHORTER.format(limit, SHORT)
        if has_whole_experts(self.facts, self.model, setup.split_experts):
            yield WHOLE_EXPERTS

    def _held(self, setup: Setup) -> Iterator[tuple[str, float]]:
        """Yield what else is held beside the model: a sentence and its bytes."""
        job = self.plan.job
        trained = setup.training and not (self.model and self.model.lora)
        alone = self._whole(setup) / (self.room.ranks if setup.stage == 3 else 1) * trained
        words = job.command[:2] or (job.script or job.module or "",)
        yield from beside(self.options, words, self.room.gpu, alone, _is_swift(self.plan))


def _libraries(plan: Plan, facts: ModelFacts) -> frozenset[str] | None:
    """Return the libraries of a rank: those that the script imports, and the one by which it reads its configuration."""
    found, integration = facts.libraries, plan.job.integration
    if found is None and (plan.job.module or "").startswith("dstui.examples."):
        found = frozenset()  # they import nothing but torch, DeepSpeed and what the integration names
    return {"trainer": frozenset({"Trainer"})}.get(integration) if found is None else found | _BY[integration]


_BY: Mapping[str, frozenset[str]] = {
    "deepspeed": frozenset(),
    "trainer": frozenset({"Trainer"}),
    "accelerate": frozenset({"accelerate"}),
}


def _is_swift(plan: Plan) -> bool:
    """Return whether ms-swift trains, by its own command or module."""
    program = (*plan.job.command, "")[0].rpartition("/")[2]
    return program == "swift" or (plan.job.module or "").partition(".")[0] == "swift"
