"""The forecast of a Plan: `forecast(plan, facts, machine)`, fast enough for every keystroke."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

from dstui.adopt.script_options import options_of
from dstui.base.dataclass import dataclass
from dstui.forecast.activations import Activations, activations
from dstui.forecast.capacity import Capacity, capacity_of
from dstui.forecast.memory import ADAPTED, COMPARED, SPLIT, WASTED, Needs, combine_needs, needs
from dstui.forecast.model import Counts, adapted_elements
from dstui.forecast.modelled import Facts, Modelled, models_of
from dstui.forecast.need import Need, Verdict, gpu_need, host_need, lower_end, scaled
from dstui.forecast.own_arguments import built_configuration
from dstui.forecast.pipeline import ends
from dstui.forecast.rates import Rates, rates_of, with_measured
from dstui.forecast.read_setup import SHORT, configurations
from dstui.forecast.setup import Setup
from dstui.forecast.speed import Speed, host_seconds, speed, traffic, work
from dstui.forecast.speed_range import SLOWER, Timed, ranged, slowest
from dstui.forecast.states import States, states
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.handed_over import named_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The needs and the speed of a Plan. Bytes are per GPU, per node (host and nvme) and in total (checkpoint)."""

    gpu: Need = Need()
    host: Need = Need()
    nvme: Need = Need()
    params: int | None = None
    trainable: int | None = None
    checkpoint: int | None = None
    allocated: int | None = None
    """The peak of torch's allocations on a GPU (max_memory_allocated)."""
    shown: int | None = None
    """The memory of a GPU that nvidia-smi shows: torch keeps what it once took, as long as there is room."""
    speed: Speed | None = None
    setup: Setup | None = None
    """The setup read from the Plan; of several models the first one's."""
    setups: Mapping[str, Setup] = field(default_factory=dict)
    """The setups of several models by name; empty if there is one."""
    unknown: tuple[str, ...] = ()
    """Assumptions, as sentences."""
    corrected: str = ""
    """The correction by earlier runs of this model on this machine; empty if there are none."""
    problem: str = ""
    """The reason why there is no forecast; empty if there is one."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the known resources; unknown if nothing can be compared."""
        found = [need.verdict for need in (self.gpu, self.host, self.nvme) if need.bytes]
        order: tuple[Verdict, ...] = ("too big", "tight", "fits")
        reported = [verdict for verdict in order if verdict in found]
        if found and (self.gpu if self.gpu.bytes else self.host).verdict == "unknown" and "too big" not in reported:
            return "unknown"
        return reported[0] if reported else "unknown"

    @property
    def fits(self) -> bool | None:
        """Return whether the estimate is within the capacity."""
        verdict = self.verdict
        return None if verdict == "unknown" else verdict != "too big"

    @property
    def bound(self) -> str:
        """The scarcest resource: gpu, host or nvme; "" if nothing is known."""
        places = {"gpu": self.gpu, "host": self.host, "nvme": self.nvme}
        known = {name: need.headroom for name, need in places.items() if need.bytes and need.headroom is not None}
        return min(known, key=lambda name: known[name] or 0.0, default="")

    @property
    def shown_range(self) -> tuple[int, int]:
        """The range of what nvidia-smi shows."""
        return self.gpu.range[0], max(self.gpu.range[1], int((self.shown or 0) * LIKELY_SHOWN))

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui forecast --json` documents, without the recommendation."""
        s = self.speed
        return {
            "fits": self.fits,
            "verdict": self.verdict,
            "params": self.params,
            "trainable": self.trainable,
            "gpu_bytes": self.gpu.bytes,
            "gpu_bytes_range": list(self.gpu.range),
            "gpu_allocated_bytes": self.allocated,
            "gpu_shown_bytes": self.shown,
            "cpu_bytes": self.host.bytes,
            "nvme_bytes": self.nvme.bytes,
            "checkpoint_bytes": self.checkpoint,
            "parts": {"gpu": dict(self.gpu.parts), "cpu": dict(self.host.parts), "nvme": dict(self.nvme.parts)},
            "moments": {"gpu": dict(self.gpu.moments), "cpu": dict(self.host.moments)},
            "gpu_capacity_bytes": self.gpu.capacity,
            "cpu_capacity_bytes": self.host.capacity,
            "nvme_capacity_bytes": self.nvme.capacity,
            "step_seconds": s and s.step,
            "tokens_per_second": s and s.tokens,
            "tokens_per_second_range": s and list(s.range),
            "bound_by": s and s.bound_by,
            "corrected": self.corrected or None,
            "unknown": list(self.unknown),
            "problem": self.problem or None,
        }


def forecast(  # noqa: PLR0913 - all but the first four are named
    plan: Plan,
    facts: Facts,
    machine: Machine,
    pool: Mapping[str, int] | None = None,
    *,
    gpu_memory: int | None = None,
    measured: Mapping[str, Any] | None = None,
) -> Forecast:
    """Return the Plan's needs on the Machine, in well under a millisecond.

    `facts`: those of the model, or of each of several by its name under `models:`. `pool`: the hostfile's slots, if the Plan names one.
    `gpu_memory`: bytes of a GPU, without a machine. `measured`: results of `--calibrate` on this machine.
    """
    built, about = dict[str, Any](), ""
    if not any(configurations(plan).values()):
        if (named := next((file.name for file in named_files(plan)), None)) is not None:
            return Forecast(problem=NOT_READ.format(named))
        built, about = built_configuration(options_of((*plan.job.args, *plan.job.command)))
        if not built:
            return Forecast(problem=about or EMPTY)
    room = capacity_of(plan, machine, pool, gpu_memory)
    models, reported = models_of(plan, facts, room, machine, built)
    reported += [about] if about else []
    rates = rates_for(models, room, machine, measured)
    broken = next((m.facts.problem for m in models if m.facts.problem), "")
    if broken or not models:
        return Forecast(problem=broken or "the Plan names no model: give model.source or model.params", unknown=tuple(reported))
    shared: Shared = {}
    found = assembled(models, room, rates, [*room.unknown, *reported, *rates.unknown], shared)
    return with_ranges(found, models, room, rates, shared)


def _speed_in_range(found: Forecast, models: Sequence[Modelled], rates: Rates, shared: Shared) -> Speed | None:
    """Return the speed with a range: from runs on this machine, else from what neither the Plan nor the Machine says."""
    if found.speed is None:
        return None
    done, settings = rates.correction, models[0].setup.settings
    spread = done.spread(done.step, settings) if done.step.scale != 1.0 or settings in done.seconds else None
    known = shared.get(models[0].name) if len(models) == 1 else None
    return ranged(found.speed, spread, known and known.timed, rates, full=found.gpu.verdict in ("tight", "too big"))


def with_ranges(found: Forecast, models: Sequence[Modelled], room: Capacity, rates: Rates, shared: Shared) -> Forecast:
    """Return the forecast with ranges that begin at the least of what the Plan does not say: recomputation, and shorter samples."""
    speed = _speed_in_range(found, models, rates, shared)
    unsaid = [least_of(one) for one in models]
    if found.corrected or not any(unsaid):
        return replace(found, speed=speed)
    smaller = [replace(one, setup=one.setup._replace(**less)) for one, less in zip(models, unsaid, strict=True)]
    least, setup = _summed(smaller, rates, shared), smaller[0].setup
    if speed and (slow := _slowest(least.speeds, rates.correction.step.scale)):
        low = slowest(least.timed, slow.step, rates) if least.timed else slow.tokens * SLOWER
        speed = speed._replace(range=(min(speed.range[0], low), speed.range[1]))
    gpu, host = found.gpu, found.host
    if not room.on_cpu:
        gpu = gpu.begun_at(lower_end(least.whole.gpu.peak, setup, least.unsure))
    if room.on_cpu or any(one.setup.activation_offload for one in smaller):
        host = host.begun_at(host_need(least.whole, setup, room).range[0])
    return replace(found, speed=speed, gpu=gpu, host=host)


def least_of(one: Modelled) -> dict[str, Any]:
    """Return the settings of the least need of memory for those that a Plan does not say."""
    model = one.model
    unsaid = {"checkpointing": True} if model is None or model.activation_checkpointing is None else {}
    return {**unsaid, **({"sequence": SHORT} if one.shorter or model is None or model.sequence_length is None else {})}


def rates_for(models: Sequence[Modelled], room: Capacity, machine: Machine, measured: Mapping[str, Any] | None) -> Rates:
    """Return the machine's rates in the models' precision, with measured values."""
    half = bool(models) and models[0].setup.precision == "fp16"
    attention = models[0].setup.attention if models else ""
    return with_doubt(with_measured(rates_of(machine, room.gpus, room.nodes, half=half, attention=attention), measured or {}), models)


def with_doubt(rates: Rates, models: Sequence[Modelled]) -> Rates:
    """Return the rates without those of newer kernels for attention, unless these would be much faster for long sequences."""
    long = any(one.setup.sequence >= LONG for one in models)
    if long and rates.newest_attention > MUCH_FASTER * rates.attention > 0:
        return replace(rates, unknown=(*rates.unknown, NEWER_KERNELS.format(rates.newest_attention / rates.attention)))
    return replace(rates, newest_attention=0.0) if rates.newest_attention else rates


LONG, MUCH_FASTER = 16_384, 1.5
NEWER_KERNELS = (
    "attention is assumed to be as fast as FlashAttention-2; FlashAttention-3 is {:.1f} times as fast here: set model.attention: flash3 "
    "if the script uses it, or measure it (--calibrate)"
)
EMPTY = (
    "the Plan's deepspeed section is empty, so ZeRO, precision and batch are unknown: "
    "fill it with the configuration that the script reads or builds (dstui import ds_config.json); without one it trains without DeepSpeed"
)
NOT_READ = "{} could not be read here, so ZeRO, precision and batch are unknown: import the launch where the file is"


class Fixed(NamedTuple):
    """The parts of one model that neither recomputation nor the length of samples changes, and its times."""

    counted: Counts
    states: list[States]
    timed: Timed | None


Shared = dict[str, Fixed]
"""By the model's name, what the estimate and the ends of its range have in common."""


class _Sum(NamedTuple):
    """The needs and speeds of all models of a run."""

    whole: Needs
    params: int
    trained: int
    speeds: list[Speed]
    unsure: float
    """The factor by which the range is wider."""
    wider: float
    """Bytes of its upper end, for k-bit weights."""
    timed: Timed | None
    """The times of a single model, if they are known."""


def _summed(models: Sequence[Modelled], rates: Rates, shared: Shared) -> _Sum:
    rows, trained, unsure, wider, params = list[Needs](), 0, 1.0, 0.0, 0
    speeds = list[Speed]()
    timed: Timed | None = None
    for one in models:
        setup, shape = one.setup, one.facts.shape
        assert shape is not None
        known = shared.get(one.name)
        n = known.counted if known else one.counted
        assert n is not None
        a = batch_of(one, n)
        stages = ends(setup, shape, n, a)
        held = known.states if known else [states(setup, mine) for mine, _ in stages]
        found = [needs(setup, mine, s, kept, one.shorter) for (mine, kept), s in zip(stages, held, strict=True)]
        rows.append(found[0] if len(found) == 1 else max(found, key=lambda stage: stage.gpu.peak))
        params, trained = params + n.params, trained + n.trained * setup.training
        unsure = max(unsure, one.facts.widening, ADAPTED if one.model and one.model.lora else 1.0, SPLIT if setup.split > 1 else 1.0)
        quantized = bool((one.model and one.model.quantization) or one.facts.stored)
        wider += a.kept * (quantized and setup.training and setup.weight_bytes == 2)
        if rates.flops:
            timed = _timed(one, n, rates, known.timed if known else None)
            speeds.append(speed(setup.different, setup.accumulation, timed.work, timed.traffic))
        shared.setdefault(one.name, Fixed(n, held, timed))
    return _Sum(combine_needs(rows), params, trained, speeds, unsure, wider, timed if len(models) == 1 else None)


def _timed(one: Modelled, n: Counts, rates: Rates, similar: Timed | None) -> Timed:
    """Return a model with its times. `similar`: the same model with other recomputation or samples, which moves as much."""
    setup, shape, idle = one.setup, one.facts.shape, idle_of(one)
    assert shape is not None
    if similar is None or setup.split_experts:
        moved = traffic(setup, shape, n, rates)
    else:
        moved = similar.traffic._replace(host=host_seconds(setup, shape, n))
    return Timed(setup, shape, n, idle, work(setup, shape, n, idle, rates), moved, bool(one.model and one.model.lora))


def assembled(models: Sequence[Modelled], room: Capacity, rates: Rates, reported: Sequence[str], shared: Shared | None = None) -> Forecast:
    """Return the forecast of models whose setups are known. `shared` is filled for the ends of its range."""
    first = models[0]
    whole, params, trained, speeds, unsure, wider, _ = _summed(models, rates, {} if shared is None else shared)
    gpu, host = gpu_need(whole.gpu, first.setup, room, unsure, wider), host_need(whole, first.setup, room)
    done, settings = rates.correction, first.setup.settings
    gpu = scaled(gpu, done.memory, done.spread(done.memory, settings))
    if (more := int(max(one.beside for one in models))) and not room.on_cpu:
        gpu = replace(gpu, range=(gpu.range[0], gpu.range[1] + more))
    if not room.on_cpu and (any(one.compared for one in models) or len({one.setup.training for one in models}) > 1):
        gpu = replace(gpu, range=(gpu.range[0], int(gpu.range[1] * COMPARED)))
    of_node = done.memory if room.on_cpu else done.host
    host = scaled(host, of_node, done.spread(of_node, settings))
    cached = max(int((whole.cached - whole.gpu.peak * WASTED[first.setup.stage]) * done.memory.scale), 0)
    if gpu.bytes and any(one.shorter for one in models) and first.setup.stage == 3:
        gpu = replace(gpu, range=(gpu.range[0], max(gpu.range[1], gpu.bytes + cached)))
    shown = min(gpu.bytes + cached, max(room.gpu or sys.maxsize, gpu.bytes)) if gpu.bytes else None
    of_disk = {part: int(size * room.ranks_per_node) for part, size in whole.nvme.items()}
    disk = sum(of_disk.values())
    nvme = Need(parts=of_disk, bytes=disk or None, range=(disk, int(disk * 1.05)), capacity=room.nvme)
    return Forecast(
        gpu=gpu,
        host=host,
        nvme=nvme,
        params=params,
        trainable=trained,
        checkpoint=int(whole.checkpoint),
        allocated=int(whole.gpu.peak) if not room.on_cpu else None,
        shown=shown,
        speed=_slowest(speeds, done.step.scale) or _measured_speed(first.setup, rates),
        corrected=str(done),
        setup=first.setup,
        setups={one.name: one.setup for one in models} if len(models) > 1 else {},
        unknown=tuple(dict.fromkeys((*reported, K_BIT) if wider else reported)),
    )


K_BIT = (
    "if the script calls prepare_model_for_kbit_training, what passes between the layers may have 32 bits instead of 16: only the upper "
    "end of the GPU's range includes that"
)


def batch_of(one: Modelled, n: Counts) -> Activations:
    """Return the activations of a model's micro-batch."""
    shape = one.facts.shape
    assert shape is not None
    lora = one.model.lora if one.model else None
    adapted = float(adapted_elements(one.facts, one.model)) if lora else 0.0
    return activations(one.setup, shape, frozen=n.trained < n.params / 20, adapted=adapted)


def idle_of(one: Modelled) -> int:
    """Return the parameters of experts that a token does not use."""
    active = one.model.active_params if one.model else None
    if one.facts.architecture:
        return one.facts.architecture.idle
    return max((one.facts.params or 0) - int(active), 0) if active else 0


LIKELY_SHOWN = 1.15
"""nvidia-smi may show more than expected by this factor."""


def _measured_speed(setup: Setup, rates: Rates) -> Speed | None:
    """Return the measured speed of the same settings on this machine, for CPU ranks, whose speed cannot be computed."""
    seconds = rates.correction.seconds.get(setup.settings)
    return Speed(seconds, setup.samples * setup.sequence / seconds, "what runs took here") if seconds else None


def _slowest(speeds: Sequence[Speed], scale: float) -> Speed | None:
    if len(speeds) < 2 and scale == 1.0:
        return next(iter(speeds), None)
    if not speeds:
        return None
    longest = max(speeds, key=lambda s: s.step)
    step = sum(s.step for s in speeds) * scale
    return longest._replace(step=step, tokens=longest.tokens * longest.step / step)
