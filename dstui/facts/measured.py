"""Store and read what was measured: the speed of machines (`--calibrate`), and what runs of a model took compared to their forecast.

The user's own folders hold a small file per model with the last runs on each machine. Later forecasts are corrected by them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dstui import __version__
from dstui.base import child_python
from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, read_text, write_atomic
from dstui.base.limits import parse_json
from dstui.machine.child import run_command
from dstui.machine.report import format_size
from dstui.machine.snapshot import Machine, known
from dstui.plan import Plan

MAX_MACHINES = 100
"""Machines whose rates are read."""
CHILD = Path(__file__).parents[1] / "reference" / "rates.py"
SECONDS = 240.0
"""Covers a cold import of torch, a compilation of CPU Adam, and a few seconds for each rate."""


def calibrate(machine: Machine, python: str = sys.executable) -> dict[str, float]:
    """Measure the rates of this machine and store them. Raises FileProblem if nothing could be measured."""
    lines = run_command(
        [python, *child_python.options(python), str(CHILD), *[str(gpu.index) for gpu in machine.gpus if gpu.problem is None]], SECONDS
    )
    rates = {name: float(value) for name, value in lines if isinstance(value, (int, float)) and not isinstance(value, bool)}
    reported = dict(lines)
    if not rates:
        raise FileProblem(
            f"--calibrate: nothing could be measured: {str(reported.get('failed') or reported.get('late') or 'no answer')[-300:]}"
        )
    path = _folder() / f"{machine_key(machine)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps({"version": 1, "rates": rates}, indent=1) + "\n", replace=True)
    return rates


def read_rates() -> dict[str, dict[str, Any]]:
    """Return the stored rates by machine key."""
    found = {}
    with suppress(OSError):
        for path in sorted(_folder().glob("*.json"))[:MAX_MACHINES]:
            with suppress(FileProblem, ValueError):
                data = parse_json(read_text(path))
                rates = data.get("rates") if isinstance(data, Mapping) else None
                found[path.stem] = dict(rates) if isinstance(rates, Mapping) else {}
    return found


def _folder() -> Path:
    """Return the folder with a file for each machine."""
    from platformdirs import user_cache_path

    return user_cache_path("dstui") / "rates"


def machine_key(machine: Machine) -> str:
    """Return the key of a machine: its GPUs, CPUs and name."""
    gpus = [(known(gpu.name, "?"), known(gpu.memory_total, 0)) for gpu in machine.gpus]
    reported = [known(machine.host.name, "?"), known(machine.host.cpu, "?"), known(machine.host.cpus_usable, 0), gpus]
    return _digest(reported)


KEPT_RUNS, KEPT_MACHINES, KEPT_MODELS = 8, 16, 64
"""The number of runs kept for each model and machine, of machines per model, and of models; the latest ones."""
MODEL_KEYS = ("source", "params", "trainable", "lora", "quantization", "attention")
"""The keys of a Plan that identify its model."""
FIGURES = f"{__version__}/2"
"""The release of the forecast to which a run was compared; the number rises where figures change within a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The measurements of one run. None means unknown."""

    run: str = ""
    ended: str = ""
    """ISO 8601, UTC."""
    gpu_bytes: int | None = None
    """The highest use of one GPU, from NVML (the whole GPU) or from the logs (torch's allocations)."""
    node_bytes: int | None = None
    """The highest RAM use of the ranks on one node, from the kernel."""
    step_seconds: float | None = None
    memory_scale: float | None = None
    """Used bytes divided by forecast bytes."""
    step_scale: float | None = None
    host_scale: float | None = None
    """Used RAM of a node divided by the forecast, if the ranks have GPUs."""
    settings: str = ""
    """`Setup.settings` of the run."""
    figures: str = FIGURES
    """The forecast that the ratios are of."""

    @property
    def comparable(self) -> bool:
        """Return whether the ratios are of the forecast as it is now."""
        return self.figures == FIGURES

    def __str__(self) -> str:
        of_gpu = self.gpu_bytes is not None
        memory, where = (self.gpu_bytes, "of a GPU") if of_gpu else (self.node_bytes, "of the RAM of a node")
        facts = [f"{format_size(memory)} {where}{self._beside(self.memory_scale)}"] if memory else []
        facts += [f"{self.step_seconds:.3g} s a step{self._beside(self.step_scale)}"] if self.step_seconds else []
        return f"{self.run} ({self.ended[:10]}): {', '.join(facts)}"

    def _beside(self, scale: float | None) -> str:
        return f" ({scale - 1:+.0%} of the forecast)" if scale is not None and self.comparable else ""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of the runs of one model, and the speed of machines, both by machine key."""

    taken: Mapping[str, Sequence[Taken]]
    rates: Mapping[str, Mapping[str, Any]]

    def runs(self, machine: Machine) -> Sequence[Taken]:
        """Return the runs on a machine, oldest first."""
        return self.taken.get(machine_key(machine), ()) if self.taken else ()

    def of(self, machine: Machine) -> dict[str, Any]:
        """Return the argument `measured` of `forecast`."""
        rates = self.rates.get(machine_key(machine), {}) if self.rates else {}
        return {**rates, **self.corrections(machine)}

    def corrections(self, machine: Machine) -> dict[str, Any]:
        """Return, for each part, the median ratio of used to forecast, with its scatter and the number of runs."""
        if not (runs := self.runs(machine)):
            return {}
        from statistics import median  # takes 4 ms, and a new user has measured nothing

        found: dict[str, Any] = {}
        for part in PARTS:
            values = [value for run in runs if run.comparable and (value := getattr(run, part))]
            if values:
                middle = median(values)
                found[part] = middle
                found[part.replace("scale", "scatter")] = median(abs(value / middle - 1) for value in values)
                found["runs"] = max(found.get("runs", 0), len(values))
        seconds: dict[str, list[float]] = {}
        for run in runs:
            if run.settings and run.step_seconds:
                seconds.setdefault(run.settings, []).append(run.step_seconds)
        if found or seconds:
            found["settings"] = sorted({run.settings for run in runs if run.settings})
            found["seconds"] = {settings: median(values) for settings, values in seconds.items()}
        return found


PARTS = ("memory_scale", "host_scale", "step_scale")
"""The parts that are corrected separately: GPU memory (of CPU ranks: of the node), RAM beside GPUs, step time."""


def model_key(plan: Plan) -> str:
    """Return a key for the model of a Plan; "" if it names none."""
    model = plan.data.get("model")
    named = {key: str(model[key]) for key in MODEL_KEYS if model.get(key) is not None} if isinstance(model, Mapping) else {}
    return _digest(named) if {"source", "params"} & set(named) else ""


def _digest(value: Any) -> str:
    """Return a short name of a JSON value for a file."""
    import hashlib  # takes 2 ms, and a Plan that names no model needs none

    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_measured(model: str) -> Measured:
    """Return the stored measurements of a model by its key; empty if there are none."""
    try:
        data = parse_json(read_text(_path(model))) if model else {}
    except (FileProblem, ValueError):
        data = {}
    machines = data.get("machines") if isinstance(data, Mapping) else None
    runs = machines if isinstance(machines, Mapping) else {}
    taken = {name: [taken_of(run) for run in of_machine] for name, of_machine in runs.items() if isinstance(of_machine, list)}
    return Measured(taken, read_rates())


def taken_of(found: Any) -> Taken:
    """Return a run from its stored form. Invalid values are left out."""
    given = found if isinstance(found, Mapping) else {}
    made: dict[str, Any] = {name: given[name][:200] for name in ("run", "ended", "settings", "figures") if isinstance(given.get(name), str)}
    made |= {name: given[name] for name in ("gpu_bytes", "node_bytes") if type(given.get(name)) is int and 0 < given[name] < 1 << 60}
    limits = {"step_seconds": 1e7, "memory_scale": 1e3, "host_scale": 1e3, "step_scale": 1e6}
    made |= {name: float(given[name]) for name in limits if isinstance(given.get(name), float) and 0 < given[name] < limits[name]}
    return Taken(**{"figures": "", **made})


def remember(plan: Plan, machine: Machine, taken: Taken) -> None:
    """Store what a run took. Raises FileProblem or OSError if that cannot be written."""
    model, here = model_key(plan), machine_key(machine)
    if not model:
        return
    before = {name: list(runs) for name, runs in read_measured(model).taken.items()}
    runs = [run for run in before.pop(here, []) if run.run != taken.run]
    machines = dict([*before.items(), (here, [*runs, taken][-KEPT_RUNS:])][-KEPT_MACHINES:])
    path = _path(model)
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    kept = {name: [asdict(run) for run in of_machine] for name, of_machine in machines.items()}
    write_atomic(path, json.dumps({"version": 1, "machines": kept}, indent=1) + "\n", replace=True)
    files = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for old in files[:-KEPT_MODELS]:
        old.unlink(missing_ok=True)


def _path(model: str) -> Path:
    from platformdirs import user_state_path

    return user_state_path("dstui") / "measured" / f"{model}.json"
