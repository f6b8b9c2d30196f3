"""Collect findings while lines are read. Every other stage gets them as a value that cannot change."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from dstui.diagnosis.findings import Ended, Findings, Hit, Place, Stop


@dataclass
class Collected:
    """The fields of `Findings`, which explains them, while they are collected."""

    files: list[str] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    named: list[Hit] = field(default_factory=list)
    waits: dict[str, tuple[str, Hit]] = field(default_factory=dict)
    ends: list[Ended] = field(default_factory=list)
    started: dict[int, int] = field(default_factory=dict)
    world: int | None = None
    pids: dict[int, int] = field(default_factory=dict)
    well: set[int] = field(default_factory=set)
    well_at: Place | None = None
    all_well: bool = False
    killed: list[tuple[int, float | None, Place]] = field(default_factory=list)
    times: list[tuple[Place, float]] = field(default_factory=list)
    introduced: set[int] = field(default_factory=set)
    labelled: set[int] = field(default_factory=set)
    spoke: set[int] = field(default_factory=set)
    enqueued: dict[int, int] = field(default_factory=dict)
    agents: set[str] = field(default_factory=set)
    passed: list[Hit] = field(default_factory=list)
    several_runs: bool = False
    end_untold: bool = False
    launcher_broke: bool = False
    closing: int = 0
    several_nodes: bool = False
    offsets: set[int] = field(default_factory=set)
    orphaned: Place | None = None
    tails: dict[str, list[str]] = field(default_factory=dict)
    loops: set[str] = field(default_factory=set)
    ending: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    local: int | None = None
    last: dict[int, int] = field(default_factory=dict)
    final: dict[int, int] = field(default_factory=dict)
    width: dict[int, float] = field(default_factory=dict)
    begun: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    traced: dict[int, array[int]] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    lines: int = 0
    tracebacks: int = 0
    loaded: Place = (-1, 0)
    preparing: bool = False
    ended: dict[int, float] = field(default_factory=dict)
    stop: Stop | None = None
    lost_hosts: list[Hit] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)
    ruled_out: set[str] = field(default_factory=set)

    def finished(self) -> Findings:
        """Return the findings, which later changes of this collection do not reach."""
        return Findings(**{each.name: _frozen(getattr(self, each.name)) for each in fields(self)})


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, set):
        return frozenset(value)
    return MappingProxyType(dict(value)) if isinstance(value, dict) else value
