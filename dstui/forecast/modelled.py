"""The models of a Plan, each with its facts, its setup, and the assumptions behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dstui.adopt.model_options import longest_sample, recomputation
from dstui.adopt.script_options import options_of
from dstui.adopt.sizes_in_options import is_megatron, is_on, parallel_sizes
from dstui.base.dataclass import dataclass
from dstui.check.auto_values import fill_auto
from dstui.forecast.capacity import Capacity
from dstui.forecast.model import WHOLE_EXPERTS, Counts, ModelFacts, counts, has_whole_experts
from dstui.forecast.not_reckoned import beside
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
        if mine is None:
            continue
        model, options = plan.focused_on(name).model, {**mine.options, **options_of((*plan.job.args, *plan.job.command))}
        if options and model and model.activation_checkpointing is None and not name and (given := recomputation(options)):
            model = replace(model, **given)
        kind = plan.job.integration
        filled = fill_auto(config, kind, plan.accelerate, options)
        setup, notes = setup_of(
            add_optimizer(filled, kind, options, known(machine.software.torch, None)),
            model,
            kind,
            ranks=room.ranks,
            nodes=room.nodes,
            hidden=mine.hidden,
            on_cpu=room.on_cpu,
            transformers=known(machine.software.transformers, None),
            parts=sp_size(plan),
            split=parallel_sizes(options) if options and kind == "deepspeed" else (1, 1),
        )
        if _is_swift(plan) and setup.training and not setup.fused_loss:
            setup = setup._replace(loss_bytes=PREFERENCE_LOSS_BYTES if "rlhf" in plan.job.command else SWIFT_LOSS_BYTES)
        if options and kind == "deepspeed" and is_megatron(options):
            fused = setup.fused_loss or not setup.training
            setup = setup._replace(
                megatron=True,
                norms_split=is_on(options, "sequence_parallel"),
                loss_bytes=setup.loss_bytes if fused else MEGATRON_LOSS_BYTES,
            )
        if "trl" in (_libraries(plan, mine) or ()) and setup.training and not setup.fused_loss:
            notes.append(TRL_LOSS)
        whole = setup.weight_bytes * (mine.params or 0)
        if room.gpu is not None and whole > 0.9 * room.gpu and not setup.built_partitioned:
            setup = setup._replace(built_partitioned=True)
            notes += [ZERO_INIT] if setup.stage == 3 else []
        quantized = bool((model and model.quantization) or mine.stored)
        if mine.placed and setup.stage < 3 and setup.training and not quantized:
            setup = setup._replace(placed=placed_bytes(mine.placed, known(machine.software.transformers, None)))
            notes.append(PLACED.format(8 * setup.placed))
        if mine.shape and 0 < mine.shape.positions < setup.sequence:
            notes.append(TOO_LONG.format(mine.shape.positions, setup.sequence))
        limit = longest_sample(options) if options and not name and setup.sequence > SHORT else ""
        notes += [SHORTER.format(limit, SHORT)] if limit and model and model.sequence_length else []
        if has_whole_experts(mine, model, setup.split_experts):
            notes.append(WHOLE_EXPERTS)
        alone = whole / (room.ranks if setup.stage == 3 else 1) * (setup.training and not (model and model.lora))
        words = plan.job.command[:2] or (plan.job.script or plan.job.module or "",)
        held = [*beside(options, words, room.gpu, alone, _is_swift(plan))]
        reported += [*mine.notes, *notes, *(sentence for sentence, _ in held)]
        found.append(
            Modelled(
                beside=sum(size for _, size in held),
                shorter=bool(limit),
                name=name,
                facts=mine,
                model=model,
                setup=setup._replace(
                    training=plan.trains(name), cores_bound=plan.cluster.cpu_binding is not None, libraries=_libraries(plan, mine)
                ),
            )
        )
    return found, reported


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
