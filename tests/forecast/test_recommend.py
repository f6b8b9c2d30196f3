"""Recommendations for six machines and four models, each justified, and what every row guarantees."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from targets import EIGHT_H100, EIGHT_H200, FOUR_A100, GB, NO_GPU, ONE_4090, TWO_4090, TWO_NODES, facts, plan

from dstui.check import check_plan
from dstui.forecast.findings import findings_of
from dstui.forecast.forecast import forecast
from dstui.forecast.model import facts_of_params, unknown_model
from dstui.forecast.recommend import RankedPlans, recommend
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.render.target import Target

MODELS = {
    "1B": "meta-llama/Llama-3.2-1B",
    "7B": "meta-llama/Llama-2-7b-hf",
    "13B": "meta-llama/Llama-2-13b-hf",
    "70B": "meta-llama/Llama-2-70b-hf",
}
MACHINES: dict[str, tuple[Machine, int]] = {
    "1 x 24 GB": (ONE_4090, 1),
    "2 x 24 GB, PCIe": (TWO_4090, 1),
    "4 x A100 in pairs": (FOUR_A100, 1),
    "8 x H100": (EIGHT_H100, 1),
    "2 x 8 x A100": (TWO_NODES, 2),
    "8 x H200": (EIGHT_H200, 1),
}
SAMPLES = 128

BEST = [
    # machine, model, the first row: stage, optimizer, weights, activations kept; the reason
    ("1 x 24 GB", "1B", (2, "cpu", "none", True), "16 bytes a parameter are 20 GB before any activation; in RAM it is stage 2 that copies least"),
    ("2 x 24 GB, PCIe", "1B", (1, "none", "none", True), "half of the states each leave room; once a step over PCIe is cheaper than the CPU's optimizer"),
    ("2 x 24 GB, PCIe", "7B", (3, "cpu", "none", False), "13.5 GB of weights on each GPU leave too little: weights spread, optimizer in RAM, and that only just"),
    ("4 x A100 in pairs", "1B", (0, "none", "none", True), "everything fits on each GPU; ZeRO would only add collectives over PCIe"),
    ("4 x A100 in pairs", "7B", (1, "none", "none", True), "between the pairs there is only PCIe: states are spread, gradients reduced once a step"),
    ("4 x A100 in pairs", "13B", (3, "none", "none", False), "26 GB of weights and 26 GB of gradients on each GPU leave no room: stage 3 before offload"),
    ("8 x H100", "1B", (0, "none", "none", True), "everything fits on each GPU"),
    ("8 x H100", "7B", (1, "none", "none", True), "states over 8, and NVSwitch makes the one reduction cheap"),
    ("8 x H100", "13B", (2, "none", "none", True), "with gradients over 8 too the activations of a micro-batch of 1 are kept: nothing is computed twice"),
    ("8 x H100", "70B", (3, "cpu", "none", False), "16 bytes of 69e9 over 8 are 138 GB: the optimizer goes to 2 TB of RAM"),
    ("2 x 8 x A100", "1B", (0, "none", "none", True), "everything fits on each GPU"),
    ("2 x 8 x A100", "7B", (2, "none", "none", True), "states and gradients over 16: the larger micro-batch is worth the traffic between the nodes"),
    ("2 x 8 x A100", "13B", (2, "none", "none", True), "gradients over 16: a micro-batch of 1 keeps all activations; stage 3 is 1 % slower with one of 2"),
    ("2 x 8 x A100", "70B", (3, "cpu", "none", False), "16 bytes of 69e9 over 16 are 69 GB: with activations too near to 80 to be sure"),
    ("8 x H200", "1B", (0, "none", "none", True), "everything fits on each GPU"),
    ("8 x H200", "7B", (1, "none", "none", True), "141 GB hold weights, gradients and activations of the whole model"),
    ("8 x H200", "13B", (2, "none", "none", True), "the gradients' 23 GB are what a larger micro-batch needs"),
    ("8 x H200", "70B", (3, "cpu", "none", False), "138 GB of states on each of 141: the optimizer goes to RAM"),
]  # fmt: skip
NOTHING = [
    ("1 x 24 GB", "7B", ("6 of these GPUs", "GB of RAM", "LoRA (r: 16) with ZeRO-2")),
    (
        "1 x 24 GB",
        "13B",
        (
            "12 of these GPUs",
            "GB of RAM",
            "LoRA (r: 16) over weights in 4 bits (model.quantization: nf4) with ZeRO-2 and activation checkpointing",
        ),
    ),
    ("1 x 24 GB", "70B", ("128 of these GPUs", "GB of RAM")),
    ("2 x 24 GB, PCIe", "13B", ("12 of these GPUs", "GB of RAM", "LoRA (r: 16) with ZeRO-3")),
    ("2 x 24 GB, PCIe", "70B", ("96 of these GPUs", "GB of RAM")),
    ("4 x A100 in pairs", "70B", ("16 of these GPUs", "GB of RAM", "LoRA (r: 16) with ZeRO-3")),
]


def ranked(machine: str, model: str, **sets: object) -> tuple[Plan, RankedPlans]:
    where, nodes = MACHINES[machine]
    ranks = len(where.gpus) * nodes
    given = plan(MODELS[model], stage=2, steps=SAMPLES // ranks, nodes=nodes, job__integration="trainer", **sets)
    return given, recommend(given, facts(MODELS[model]), where)


@pytest.mark.parametrize(("machine", "model", "best", "because"), BEST, ids=[f"{m} on {w}" for w, m, *_ in BEST])
def test_first_row_is_the_plan_of_an_expert(machine: str, model: str, best: tuple[object, ...], because: str) -> None:
    row = ranked(machine, model)[1].rows[0]
    s = row.setup
    assert (s.stage, s.optimizer_offload, s.param_offload, not s.checkpointing) == best, because


@pytest.mark.parametrize(("machine", "model", "ways"), NOTHING, ids=[f"{m} on {w}" for w, m, *_ in NOTHING])
def test_closest_alternatives_are_reported_if_nothing_fits(machine: str, model: str, ways: tuple[str, ...]) -> None:
    found = ranked(machine, model)[1]
    assert not found.rows and found.candidates > 900
    assert len(found.ways) == len(ways)
    assert all(expected in way for expected, way in zip(ways, found.ways, strict=True)), found.ways


def test_every_pair_of_machine_and_model_is_in_a_table() -> None:
    assert {(w, m) for w, m, *_ in BEST} | {(w, m) for w, m, *_ in NOTHING} == {(w, m) for w in MACHINES for m in MODELS}


@pytest.mark.parametrize(
    ("machine", "model"), [("2 x 24 GB, PCIe", "1B"), ("8 x H100", "7B"), ("8 x H100", "70B"), ("2 x 8 x A100", "13B")]
)
def test_applied_row_gives_a_valid_plan_with_the_rows_memory(machine: str, model: str) -> None:
    given, found = ranked(machine, model)
    where = MACHINES[machine][0]
    for row in found.rows:
        applied = given.patch(row.patch)
        again = forecast(applied, facts(MODELS[model]), where)
        assert again.gpu.bytes == pytest.approx(row.gpu_bytes, rel=1e-6), row.why
        assert again.verdict == row.verdict
        assert again.setup and again.setup.samples == SAMPLES
        assert [f.message for f in check_plan(Target(applied, where)) if f.severity == "error"] == [], row.why
        assert "# the wizard's" in applied.text


def test_certain_fits_come_before_tight_ones_and_faster_ones_first() -> None:
    rows = ranked("8 x H100", "7B")[1].rows
    verdicts = [row.verdict for row in rows]
    assert verdicts == sorted(verdicts, key=("fits", "tight").index)
    sure = [row.speed.tokens for row in rows if row.verdict == "fits" and row.speed]
    assert all(later < earlier * 1.06 for earlier, later in pairwise(sure))


def test_torchs_adam_becomes_deepspeeds_with_optimizer_offload() -> None:
    given, found = ranked("8 x H100", "70B", deepspeed__optimizer__params__torch_adam=True)
    applied = given.patch(found.rows[0].patch)
    assert applied.get("deepspeed.optimizer.params") == {"lr": 1e-4}
    assert applied.get("deepspeed.zero_optimization.offload_optimizer.device") == "cpu"


def test_batch_filled_by_the_trainer_stays_the_trainers() -> None:
    auto = plan(stage=2, deepspeed__train_micro_batch_size_per_gpu="auto", deepspeed__gradient_accumulation_steps="auto")
    found = recommend(auto.set("job.integration", "trainer"), facts(), EIGHT_H100)
    assert found.rows
    assert not any("batch" in operation["path"] for row in found.rows for operation in row.patch)


def test_search_of_a_large_batch_has_ten_thousand_candidates() -> None:
    given = plan(stage=3, micro=24, steps=105, nodes=2)
    assert recommend(given, facts(), TWO_NODES).candidates >= 10_000


def test_order_without_a_machine_is_reported_as_not_by_speed() -> None:
    of_size, of_machine = recommend(plan(), facts(), Machine.unprobed(), gpu_memory=80 * GB), recommend(plan(), facts(), EIGHT_H100)
    assert (of_size.ordered_by, of_machine.ordered_by) == ("simplicity", "speed")
    assert "simplest first" in of_size.order and "fastest first" in of_machine.order


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (lambda: recommend(plan(), unknown_model("x", "why not"), EIGHT_H100), "why not"),
        (lambda: recommend(plan(), facts(), Machine.unprobed()), "--gpu-memory"),
    ],
)
def test_plan_that_cannot_be_searched_is_reported(found: object, says: str) -> None:
    answer = found()  # type: ignore[operator]
    assert says in answer.problem and not answer.rows


def test_cpu_ranks_and_parameter_counts_are_searched() -> None:
    assert recommend(plan("openai-community/gpt2"), facts("openai-community/gpt2"), NO_GPU).rows
    assert recommend(plan(), facts_of_params(7e9), EIGHT_H100).rows


def test_misfit_is_a_finding_with_the_closest_fitting_plan() -> None:
    given = plan(stage=0, micro=4)
    (finding,) = findings_of(given, facts(), EIGHT_H100)
    assert (finding.code, finding.severity, finding.path, finding.line) == ("FC001", "warning", "deepspeed.zero_optimization", 10)
    assert "about" in finding.message and "it does not fit" in finding.message
    assert finding.fix and finding.fix.patch
    better = given.patch(finding.fix.patch)
    assert better.get("deepspeed.zero_optimization.stage") == 1
    assert findings_of(better, facts(), EIGHT_H100) == []


def test_finding_says_what_would_be_enough_if_no_change_is() -> None:
    finding = findings_of(plan(MODELS["70B"], stage=3), facts(MODELS["70B"]), FOUR_A100)[0]
    assert finding.fix and finding.fix.patch is None
    said = "16 of these GPUs instead of 4, with ZeRO-3"
    assert finding.fix.text == f"{said} and activation checkpointing"
    for args, more in (("--recompute-granularity full", ""), ("--recompute-activations", " and activation checkpointing of whole layers")):
        (fix,) = {
            f.fix.text for f in findings_of(plan(MODELS["70B"], stage=3, job__args=args.split()), facts(MODELS["70B"]), FOUR_A100) if f.fix
        }
        assert fix == f"{said}{more}"


def test_insufficient_ram_and_disk_are_separate_findings() -> None:
    offload = {"device": "cpu"}
    found = findings_of(plan(stage=2, deepspeed__zero_optimization__offload_optimizer=offload), facts(), ONE_4090)
    assert "FC002" in {finding.code for finding in found}
    nvme = {"device": "nvme", "nvme_path": "/local_nvme"}
    big = plan("meta-llama/Llama-3.1-405B", stage=3, deepspeed__zero_optimization__offload_optimizer=nvme)
    assert "FC003" in {finding.code for finding in findings_of(big, facts("meta-llama/Llama-3.1-405B"), EIGHT_H100)}


def test_loading_less_is_advised_if_only_loading_needs_too_much_ram() -> None:
    small = replace(FOUR_A100, host=replace(FOUR_A100.host, memory_total=48 * GB, memory_available=48 * GB))
    model = "meta-llama/Llama-3.1-8B"
    given = plan(model, stage=2)
    assert "deepspeed.zero.Init" in recommend(given, facts(model), small).ways[0]
    (finding,) = [f for f in findings_of(given, facts(model), small) if f.code == "FC002"]
    assert "every rank loads the whole model" in finding.why
