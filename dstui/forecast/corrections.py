"""Correct a forecast by earlier runs of the model on the machine: by part, with the deviation, and described in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple, TypeGuard

from dstui.base.dataclass import dataclass

PARTS: Mapping[str, str] = {"memory": "memory", "host": "RAM", "step": "time of a step"}
FAR = 2.0
"""A larger correction is reported as doubtful: it may be a different case, such as a tiny model in processes a hundred times its size."""
LEAST_SPREAD = 0.05


class Scale(NamedTuple):
    """The ratio of used to forecast for one part, and its deviation between runs, as a share."""

    scale: float = 1.0
    scatter: float = 0.0


AS_FORECAST = Scale()


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The corrections from runs of this model on this machine."""

    memory: Scale = AS_FORECAST
    host: Scale = AS_FORECAST
    step: Scale = AS_FORECAST
    runs: int = 0
    settings: tuple[str, ...] = ()
    """`Setup.settings` of these runs."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By settings, the measured time of a step."""

    def spread(self, part: Scale, settings: str) -> float:
        """Return half of a corrected range as a share: wider for settings that were not run yet."""
        return max(LEAST_SPREAD, 2 * part.scatter) * (1 if settings in self.settings else 2)

    def __str__(self) -> str:
        """Return `corrected by 3 runs here: memory -12% (they differ by 3%)`; empty without corrections."""
        parts = [
            f"{name} {part.scale - 1:+.0%}" + (f" (they differ by {part.scatter:.0%})" if part.scatter >= 0.005 else "")
            for key, name in PARTS.items()
            if (part := getattr(self, key)).scale != 1.0
        ]
        return f"corrected by {self.runs} run{'s' * (self.runs != 1)} here: {', '.join(parts)}" if parts else ""

    @property
    def doubt(self) -> str:
        """A sentence if a correction is so large that it may belong to a different case; else ""."""
        wild = [
            f"{part.scale:.3g} times the {name}" for key, name in PARTS.items() if not 1 / FAR <= (part := getattr(self, key)).scale <= FAR
        ]
        about = "check these runs (dstui runs), or the model that the Plan names, before you rely on it"
        return f"runs of this model took {' and '.join(wild)} of the forecast, by which it is corrected: {about}" if wild else ""


NO_CORRECTION = Correction()


def correction_of(measured: Mapping[str, Any]) -> Correction:
    """Return the correction from measured runs. Invalid numbers are ignored."""
    if not measured.keys() & {"memory_scale", "host_scale", "step_scale", "seconds"}:
        return NO_CORRECTION

    def part(name: str) -> Scale:
        scale, scatter = measured.get(f"{name}_scale"), measured.get(f"{name}_scatter")
        if not is_number(scale) or not 1e-3 < scale < 1e3:
            return AS_FORECAST
        return Scale(float(scale), float(scatter) if is_number(scatter) else 0.0)

    runs, settings, seconds = (measured.get(key) for key in ("runs", "settings", "seconds"))
    return Correction(
        memory=part("memory"),
        host=part("host"),
        step=part("step"),
        runs=runs if isinstance(runs, int) else 1,
        settings=tuple(map(str, settings)) if isinstance(settings, (list, tuple)) else (),
        seconds={str(key): float(value) for key, value in seconds.items() if is_number(value)} if isinstance(seconds, Mapping) else {},
    )


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number; a boolean is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
