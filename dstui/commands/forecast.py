"""`dstui forecast PLAN`: whether it fits, how fast it would be, and what is unknown; with --recommend, the best Plans that fit."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem
from dstui.base.output import say, tell
from dstui.commands.plan_argument import add_no_site, plan_of
from dstui.documents.plan_files import hostfile_of, read_pool
from dstui.facts.measured import Taken, calibrate, model_key, read_measured
from dstui.facts.model_files import read_models
from dstui.forecast.forecast import Forecast, forecast
from dstui.forecast.hardware import named_machine, placed
from dstui.forecast.need import Need
from dstui.forecast.part_words import PART_WORDS, measure_words, part_name
from dstui.forecast.recommend import NOT_SEARCHED, RankedPlan, RankedPlans, recommend
from dstui.forecast.setup import Setup
from dstui.machine.probe import probe
from dstui.machine.recorded import read_machine
from dstui.machine.report import format_size
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.holes import fill_holes
from dstui.plan.hostfile import HostfileProblem

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""A GB of memory is 2^30 bytes, as in nvidia-smi and everywhere in dstui: a GPU sold with 80 GB has nearly that."""
RECOMPUTED = {"full": "recomputed", "selective": "recomputed where that is cheap", "attention": "kept except the attention's matrix"}
WORDS: Mapping[str, str] = {"tight": "tight: it fits if little memory is wasted", "unknown": "nothing to compare with"}
"""Verdicts that are explained."""
BAR, SHORT_BAR, COLUMN = 24, 10, 21


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a Plan, ds_config.json or accelerate YAML; `quickstart` is a shipped one")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="for the machine recorded in FILE instead of this one")
    parser.add_argument("--gpu-memory", metavar="SIZE", help="memory of a GPU (80GB, 24GiB), without a machine")
    parser.add_argument("--gpu", metavar="NxNAME", help="for other GPUs, by name: 8xH100-80 (those of a node)")
    parser.add_argument("--nodes", type=int, metavar="N", help="with --gpu: the number of nodes, whatever hosts the Plan names")
    parser.add_argument(
        "--link", metavar="NET", help="with --gpu: the network of the nodes (ib-400: an adapter for each GPU; eth-25: for a node)"
    )
    parser.add_argument("--ram", metavar="SIZE", help="with --gpu: RAM of a node (1TB)")
    parser.add_argument("--recommend", action="store_true", help="search the plans that fit, and rank them")
    parser.add_argument("--calibrate", action="store_true", help="first measure how fast this machine is (a minute), and remember it")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a key")
    add_no_site(parser)


def run(args: argparse.Namespace) -> int:
    """Print the forecast. Return 0 if it fits or there is nothing to compare with, 1 if it does not fit, 2 if a file is unreadable."""
    plan = fill_holes(plan_of(args.plan, args.set, site=not args.no_site), os.environ)
    memory = bytes_of(args.gpu_memory) if args.gpu_memory else None
    plan, machine = _where(args, plan)
    if args.calibrate and (args.machine or memory or args.gpu):
        raise FileProblem("--calibrate measures this machine: it cannot be combined with --machine, --gpu or --gpu-memory")
    if args.calibrate:
        calibrate(machine)
    kept = None if memory else read_measured(model_key(plan))
    measured = kept.of(machine) if kept else None
    plan = _launched_here(plan)
    facts, pool = read_models(plan), read_pool(plan)
    found = forecast(plan, facts, machine, pool, gpu_memory=memory, measured=measured)
    runs = kept.runs(machine) if kept else ()
    recommendation = recommend(plan, facts, machine, pool, gpu_memory=memory, measured=measured) if args.recommend else None
    if args.json:
        tell(json.dumps({"version": 1, **found.as_json(), "runs": [asdict(run) for run in runs], **_as_json(recommendation)}, indent=1))
    else:
        for line in (*_report(plan, found, machine.source if args.gpu else ""), *_runs(runs), *_table(recommendation)):
            tell(line)
        if found.fits is False and not args.recommend:
            tell("\n--recommend searches the plans that fit here, and says what would fit if none does")
    return 1 if found.fits is False else 0


def _launched_here(plan: Plan) -> Plan:
    """Return the Plan without its hostfile if that does not exist: DeepSpeed then trains on this machine alone."""
    found = hostfile_of(plan)
    if not (isinstance(found, HostfileProblem) and found.missing):
        return plan
    say(f"{plan.cluster.hostfile} does not exist: DeepSpeed trains on one machine without it, and this is the forecast for that")
    return plan.unset("cluster.hostfile")


def _where(args: argparse.Namespace, plan: Plan) -> tuple[Plan, Machine]:
    """Return the Plan, and the Machine to plan for: given by size, recorded, none, or this one."""
    if args.gpu:
        if args.machine or args.gpu_memory:
            raise FileProblem("--gpu names the machine: it cannot be combined with --machine or --gpu-memory")
        nodes = args.nodes if args.nodes is not None else 1
        machine = named_machine(args.gpu, nodes, args.link, bytes_of(args.ram, "--ram") if args.ram else None)
        return placed(plan, machine, nodes), machine
    given = next((option for option in ("nodes", "link", "ram") if getattr(args, option) is not None), None)
    if given:
        raise FileProblem(f"--{given} needs --gpu, the GPUs of a node: --gpu 8xH100-80")
    return plan, read_machine(args.machine) if args.machine else Machine.unprobed() if args.gpu_memory else probe()


def bytes_of(text: str, option: str = "--gpu-memory") -> int:
    """Parse a size of memory such as 80GB, 24GiB or 16000MB to bytes. Raises FileProblem."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", text.upper())
    if match is None or float(match[1]) <= 0 or match[2] not in UNITS:
        raise FileProblem(f"{option} {text}: a size is a number with a unit, such as 80GB or 24GiB")
    return int(float(match[1]) * UNITS[match[2]])


def _as_json(recommendation: RankedPlans | None) -> dict[str, Any]:
    if recommendation is None:
        return {"candidates": 0, "recommended": []}
    return {
        "candidates": recommendation.candidates,
        "tried": dict(recommendation.tried),
        "cheapest": recommendation.cheapest or None,
        "ordered_by": recommendation.ordered_by,
        "second": recommendation.second or None,
        "recommended": [row.as_json() for row in recommendation.rows],
        "ways_out": list(recommendation.ways),
    }


def _report(plan: Plan, found: Forecast, where: str = "") -> Iterator[str]:
    if found.problem:
        yield f"No forecast: {found.problem}"
        return
    yield _head(plan, found)
    if where:
        yield f"on another machine: {where}"
    yield ""
    for name, need in (("each GPU", found.gpu), ("RAM of a node", found.host), ("NVMe of a node", found.nvme)):
        if need.bytes:
            yield _line(name, need) + (
                "; the RAM of such a node is not known (--ram SIZE)" if where and need is found.host and not need.capacity else ""
            )
    if found.checkpoint:
        yield f"{'a checkpoint':<15} {format_size(found.checkpoint)} on disk"
    if found.speed:
        s = found.speed
        low, high = (f"{float(f'{end:.2g}'):,.0f}" for end in s.range)
        about = f"about {float(f'{s.tokens:.3g}'):,.0f} tokens/s ({low} to {high}), {_seconds(s.step)} a step; bound by {s.bound_by}"
        yield f"{'speed':<15} {'if it fitted, ' if found.fits is False else ''}{about}"
    if found.corrected:
        yield found.corrected
    for name, need in (("GPU", found.gpu), ("RAM", found.host)):
        if need.bytes:
            yield ""
            yield f"{name}, by part, at the peak ({need.peak})"
            yield from _parts(need)
            yield "  at each moment: " + "; ".join(f"{moment} {format_size(amount)}" for moment, amount in need.moments.items())
            if need is found.gpu and (words := measure_words(found.shown, found.allocated)):
                yield f"  in other programs: {words}"
    if found.unknown:
        yield ""
        yield "Not known, so assumed"
        yield from (f"  - {sentence}" for sentence in found.unknown)


def _runs(runs: Sequence[Taken]) -> Iterator[str]:
    """Yield lines about earlier runs of this model."""
    if runs:
        yield ""
        yield "Measured here before"
        for run in runs:
            yield f"  - {run}"


def _head(plan: Plan, found: Forecast) -> str:
    s = found.setup
    assert s is not None and found.params is not None
    lora = f" (LoRA, r {plan.model.lora.r})" if plan.model and plan.model.lora else ""
    trained = "all trained" if found.trainable == found.params else f"{_count(found.trainable or 0)} trained{lora}"
    ranks = f"{s.ranks} rank{'s' * (s.ranks != 1)}" + (f" on {s.nodes} nodes" if s.nodes > 1 else "")
    if found.setups:
        each = "; ".join(f"{name} {'trained' if one.training else 'for inference'}, {_way(one)}" for name, one in found.setups.items())
        return f"{plan.name or 'this Plan'}: {len(found.setups)} models, {_count(found.params)} parameters, {trained}; {ranks}; {each}"
    active = f" ({_count(int(plan.model.active_params))} for a token)" if plan.model and plan.model.active_params else ""
    return f"{plan.name or 'this Plan'}: {_count(found.params)} parameters{active}, {trained}; {ranks}, {_way(s)}"


def _way(s: Setup) -> str:
    """Return how the model is sharded, its number format, its batches, and whether activations are kept."""
    zero = f"ZeRO-{s.stage}" if s.stage else "no ZeRO"
    places = "".join(
        f", {what} {'in RAM' if place == 'cpu' else 'on NVMe'}"
        for what, place in (("optimizer", s.optimizer_offload), ("weights", s.param_offload))
        if place != "none"
    )
    split = f" over {s.sequence_parallel} ranks" if s.sequence_parallel > 1 else ""
    times = f", accumulated {s.accumulation} times" if s.accumulation > 1 else ""
    again = RECOMPUTED[s.recompute] if s.checkpointing else "kept"
    kept = f", activations {again}" if s.training else ""
    return f"{zero}{places}, {s.precision}, micro-batch {s.micro_batch} of {s.sequence} tokens{split}{times}{kept}"


def _count(number: int) -> str:
    return f"{number / 1e9:.3g}B" if number >= 1e9 else f"{number / 1e6:.3g}M" if number >= 1e6 else f"{number:,}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _line(name: str, need: Need) -> str:
    assert need.bytes is not None
    low, high = need.range
    around = f"(likely {format_size(low)} to {format_size(high)})" if high > low else ""
    if not need.capacity:
        return f"{name:<15} {format_size(need.bytes)} {around}"
    sizes = f"{format_size(need.bytes)} of {format_size(need.capacity)} free"
    return f"{name:<15} {_bar(need.bytes / need.capacity)} {sizes} {around}: {WORDS.get(need.verdict, need.word)}"


def _bar(share: float, cells: int = BAR) -> str:
    full = round(min(max(share, 0.0), 1.0) * cells)
    return "█" * full + "░" * (cells - full)


def _parts(need: Need) -> Iterator[str]:
    total = max(need.bytes or 1, 1)
    for part, amount in sorted(need.parts.items(), key=lambda item: -item[1]):
        if amount >= total / 1000:
            bar = "█" * round(amount / total * SHORT_BAR)
            yield f"  {part_name(part):<{COLUMN}} {format_size(amount):>9}  {bar:<{SHORT_BAR}}  {PART_WORDS.get(part, '')}".rstrip()


def _table(recommendation: RankedPlans | None) -> Iterator[str]:
    if recommendation is None:
        return
    yield ""
    if recommendation.problem:
        yield f"No recommendation: {recommendation.problem}"
    elif not recommendation.rows:
        yield f"Nothing fits, of {recommendation.candidates:,} candidates. What would:"
        yield from (f"  - {way}" for way in recommendation.ways or ("nothing that was tried: use a smaller model, or larger GPUs",))
    else:
        yield f"The best of {recommendation.candidates:,} candidates with the same samples in a step, {recommendation.order}"
        yield f"  {'':<5} {'GPU':>9}  {'left':>5} {'RAM':>9}  {'left':>5} {'tokens/s':>9}"
        yield from map(_ranked_line, recommendation.rows)
        yield "  * the place with the least left; micro-batch 4 x 2: 4 samples at a time, twice in a step"
        if recommendation.second:
            yield f"  the second against the first: {recommendation.second}"
        yield "  tried: " + ", ".join(f"{number} {name}" for name, number in recommendation.tried.items())
        if recommendation.cheapest:
            yield f"  cheaper: {recommendation.cheapest}"
        yield f"  {NOT_SEARCHED}"


def _ranked_line(row: RankedPlan) -> str:
    """Return one row of the table: GPU and RAM, with the scarcer one marked, and what this Plan is best at."""
    tokens = f"{row.speed.tokens:,.0f}" if row.speed else "?"
    places = {"gpu": (row.gpu_bytes, row.headroom), "host": (row.host_bytes, row.host_headroom)}
    figures = [
        f"{format_size(amount) if amount else '-':>9}{'*' if row.tight == name else ' '} {f'{left:.0%}' if left is not None else '':>5}"
        for name, (amount, left) in places.items()
    ]
    disk = f", {format_size(row.nvme_bytes)} of NVMe{'*' if row.tight == 'nvme' else ''}" if row.nvme_bytes else ""
    best = f" [{', '.join(row.best_at)}]" if row.best_at else ""
    return f"  {row.verdict:<5} {' '.join(figures)} {tokens:>9}  {row.why}{disk}{best}"
