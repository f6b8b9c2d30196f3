"""Step 4: what is kept in host memory or on NVMe instead of on the GPU."""

from __future__ import annotations

from typing import Any

from dstui.tui.forms.fields import Disabled, Field, Option
from dstui.tui.forms.steps.figures import own_offload, with_figures
from dstui.tui.forms.steps.step import AUTO, Step, model_choice
from dstui.tui.forms.steps.zero import ZERO_PATH, stage_at_least, stage_of
from dstui.tui.session.state import UNSET, State

OPTIMIZER, PARAM, AIO = f"{ZERO_PATH}.offload_optimizer", f"{ZERO_PATH}.offload_param", "deepspeed.aio"


def _device(state: State, path: str) -> str:
    return str(state.plan.get(f"{path}.device", "none"))


def _optimizer_disabled(state: State) -> str:
    return "" if stage_at_least(state, 1) else "needs stage 1 or higher"


def _param_disabled(state: State) -> str:
    return "" if stage_at_least(state, 3) else "needs stage 3"


def _nvme_disabled(state: State) -> str:
    return "" if stage_at_least(state, 3) else "needs stage 3"


def _unless(path: str, *devices: str) -> Disabled:
    why = "only with NVMe" if devices == ("nvme",) else "only with host RAM" if devices == ("cpu",) else "only if offloaded"
    return lambda state: "" if _device(state, path) in (*devices, AUTO) else why


def _without_nvme(state: State) -> str:
    return "" if {"nvme", AUTO} & {_device(state, OPTIMIZER), _device(state, PARAM)} else "only with NVMe"


def _choice(path: str, label: str, disabled: Disabled, says: tuple[str, str, str]) -> Field:
    return Field(
        path=f"{path}.device",
        owns=(path,),
        label=label,
        title=label,
        kind="choice",
        spread=True,
        default="none",
        disabled=disabled,
        options=(
            Option(value="none", label="none", says=says[0], edits=((path, UNSET),)),
            Option(value="cpu", label="host RAM", says=says[1]),
            Option(value="nvme", label="NVMe", says=says[2], disabled=_nvme_disabled),
        ),
    )


def _field(path: str, label: str, kind: Any, disabled: Disabled, **more: Any) -> Field:
    return Field(path=path, label=label, kind=kind, disabled=disabled, **more)


def _summary(state: State) -> str:
    parts = [f"{name} {_device(state, path)}" for name, path in (("opt", OPTIMIZER), ("param", PARAM)) if _device(state, path) != "none"]
    return ", ".join(parts) or "none"


OPTIMIZER_STATES = _choice(
    OPTIMIZER, "Optimizer states", _optimizer_disabled, ("fastest", "12 bytes per parameter", "slow, nearly unlimited")
)
PARAMETERS = _choice(PARAM, "Parameters", _param_disabled, ("fastest", "2 bytes per parameter", "slow, nearly unlimited"))

OFFLOAD = Step(
    id="offload",
    title="Offload",
    question="What is kept in host memory or on a disk instead of the GPU?",
    owns=(OPTIMIZER, PARAM, AIO),
    value=_summary,
    fields=lambda state: (
        *model_choice(state),
        with_figures(OPTIMIZER_STATES, state, lambda state, device: (stage_of(state) or 0, device, own_offload(state)[1])),
        _field(f"{OPTIMIZER}.pin_memory", "Pinned memory", "toggle", _unless(OPTIMIZER, "cpu", "nvme")),
        _field(f"{OPTIMIZER}.ratio", "Share to offload", "number", _unless(OPTIMIZER, "cpu"), unit="0 to 1"),
        _field(f"{OPTIMIZER}.nvme_path", "Folder on the NVMe", "text", _unless(OPTIMIZER, "nvme")),
        with_figures(PARAMETERS, state, lambda state, device: (stage_of(state) or 0, own_offload(state)[0], device)),
        _field(f"{PARAM}.pin_memory", "Pinned memory", "toggle", _unless(PARAM, "cpu", "nvme")),
        _field(f"{PARAM}.nvme_path", "Folder on the NVMe", "text", _unless(PARAM, "nvme")),
        _field(f"{PARAM}.buffer_count", "Buffers", "number", _unless(PARAM, "nvme")),
        _field(f"{PARAM}.buffer_size", "Buffer size", "number", _unless(PARAM, "nvme"), unit="elements"),
        _field(f"{AIO}.block_size", "Block size", "number", _without_nvme, unit="bytes", title="Asynchronous I/O"),
        _field(f"{AIO}.queue_depth", "Queue depth", "number", _without_nvme),
        _field(f"{AIO}.single_submit", "Single submit", "toggle", _without_nvme),
        _field(f"{AIO}.overlap_events", "Overlap events", "toggle", _without_nvme),
    ),
)
