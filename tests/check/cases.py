"""One case per rule: a configuration that triggers it, and one that just does not.

Keys are dotted paths, written into a base of one sample per rank. `ranks`, `machine`, `reader`, `version`, `plan` (more lines of a Plan's
YAML), `script` (the text of the training script; "-" for a missing one) and `model` (a config.json) are further inputs of the rule.
`proof` says how the real DeepSpeed shows the error on CPU ranks: by `parse` (the default if the rule says so), by `init` (its
`deepspeed.initialize`, with `steps` steps if it fails later), or not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from configs import put
from dstui.adopt.script import NoScript, ScriptFacts, inspect_script
from dstui.machine.slurm_offers import SlurmOffers, read_offers
from dstui.machine.snapshot import GIB, Host, Machine, NumaNode, Software
from dstui.plan.env_file import EnvFiles
from dstui.plan.hostfile import HostfileProblem
from dstui.plan.layers import NOTHING, Beneath, Lock
from tests import machines
from tests.machines import NO_GPU


def gpus(count: int, name: str = "NVIDIA H100 80GB HBM3", capability: str = "9.0", memory: int = 80 * GIB, **more: Any) -> Machine:
    """Return a machine with some GPUs of one kind."""
    return machines.machine(*machines.gpus(count, name=name, compute_capability=capability, memory_total=memory), **more)


SCRIPT = "job: {script: t.py, args: ['{ds_config}']}"
BOTH = """
models:
  student: {{role: train, deepspeed: {{train_micro_batch_size_per_gpu: auto, zero_optimization: {{stage: 2}}}}}}
  teacher: {{role: inference, deepspeed: {{train_micro_batch_size_per_gpu: {}, zero_optimization: {{stage: {}}}}}}}
"""
ACCELERATED = "job: {script: t.py, integration: accelerate}"
ULYSSES = ACCELERATED.replace("{", "{{").replace("}", "}}") + "\naccelerate: {{parallelism_config: {{parallelism_config_sp_size: {}}}}}"
OWN_BUILDER = "job: {script: t.py, integration: accelerate, optimizer: script}"
PREPARED = """\
from accelerate import Accelerator
from accelerate.utils import DummyOptim, DummyScheduler
from torch.optim.lr_scheduler import LambdaLR
accelerator = Accelerator()
o = {}
s = {}
m, o, s = accelerator.prepare(m, o, s)
"""
OFFERS = read_offers(
    "PartitionName=gpu Default=YES AllowAccounts=physics AllowQos=ALL MaxNodes=UNLIMITED MaxTime=2-00:00:00 State=UP TotalNodes=16\n"
    "PartitionName=long Default=NO AllowAccounts=ALL AllowQos=ALL MaxNodes=4 MaxTime=UNLIMITED State=UP TotalNodes=16\n"
    "PartitionName=old Default=NO AllowAccounts=ALL AllowQos=ALL MaxNodes=4 MaxTime=UNLIMITED State=DOWN TotalNodes=2\n",
    "gpu|16|96+|1000000|gpu:h100:8(S:0-1)|h100,ib\nlong|16|96|1000000|gpu:h100:8|h100\nold|2|8|64000|(null)|(null)\n",
    "physics||normal,high\nguests|long|normal\n",
)
CLASSES = ACCELERATED + "\naccelerate: {deepspeed_config: {deepspeed_moe_layer_cls_names: '%s'}}"


@dataclass(frozen=True)
class Case:
    """A rule's code, what triggers it and what just does not."""

    code: str
    fires: dict[str, Any] = field(default_factory=dict)
    passes: dict[str, Any] = field(default_factory=dict)
    ranks: int | None = 2
    machine: Machine | None = None
    machine_passes: Machine | None = None
    reader: str = "deepspeed"
    version: str | None = None
    plan: str = ""
    plan_passes: str | None = None
    script: str = ""
    script_passes: str | None = None
    model: dict[str, Any] | None = None
    pool: Mapping[str, int] | HostfileProblem | None = None
    pool_passes: Mapping[str, int] | HostfileProblem | None = None
    env_files: EnvFiles | None = None
    env_files_passes: EnvFiles | None = None
    slurm: SlurmOffers | None = None
    proof: str = ""
    steps: int = 0
    bare: bool = False
    beneath: Beneath = NOTHING
    beneath_passes: Beneath = NOTHING

    def config(self, which: str) -> dict[str, Any]:
        """Return the configuration that triggers the rule or passes."""
        config: dict[str, Any] = {} if self.bare else {"train_micro_batch_size_per_gpu": 1}
        for path, value in getattr(self, which).items():
            put(config, path, value)
        return config

    def facts(self, which: str) -> ScriptFacts | NoScript | None:
        """Return the facts about the script that triggers the rule or passes."""
        text = self.script_passes if which == "passes" and self.script_passes is not None else self.script
        return NoScript(Path("/t.py")) if text == "-" else inspect_script(text) if text else None

    def __str__(self) -> str:
        return self.code


ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}}
ZERO = "zero_optimization"
STAGE = f"{ZERO}.stage"
OPTIMIZER, PARAM = f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param"
BF16 = Beneath(locks=(Lock("deepspeed.bf16.enabled", "site.yaml", 3, exact=(True,)),))
STAGE_1 = Beneath(locks=(Lock("deepspeed.zero_optimization.stage", "site.yaml", 3, maximum=1, reason="no more"),))
TYPE, PARAMS = "optimizer.type", "optimizer.params"
NOTED = "# made by dstui from run.sh\n# --nnodes ${N} is left open: write the number under cluster.num_nodes\n# ${N} is open: $N\n"
SCHEDULER = "scheduler"


def with_adam(**values: Any) -> dict[str, Any]:
    """Return an optimizer that needs no compiler, and more keys (`__` stands for a dot)."""
    return {**ADAM, **{path.replace("__", "."): value for path, value in values.items()}}


def at_stage(stage: int, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an optimizer that needs no compiler, at a ZeRO stage."""
    return {**ADAM, STAGE: stage, **(more or {})}


BATCH = [
    Case("DS001", {"gradient_accumulation_steps": 2}, {"train_batch_size": 2}, bare=True),
    Case("DS002", {"train_batch_size": 3}, {"train_batch_size": 4}),
    Case(
        "DS003",
        {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3},
        {"train_batch_size": 9, "train_micro_batch_size_per_gpu": 3},
        ranks=None,
        proof="no",
    ),
    Case("DS004", {"train_batch_size": 3}, {"train_batch_size": 4}, ranks=4, bare=True),
    Case(
        "DS005", {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4}, {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4}
    ),
    Case("DS006", {"gradient_accumulation_steps": 0}, {"gradient_accumulation_steps": 1}),
    Case("DS007", {"train_micro_batch_size_per_gpu": "8"}, {"train_micro_batch_size_per_gpu": 8}),
    Case("DS008", {"train_micro_batch_size_per_gpu": 1.5}, {"train_micro_batch_size_per_gpu": 1.0}),
    Case("DS010", {"sequence_parallel_size": 0}, {"sequence_parallel_size": 2}),
]
FORM = [
    Case("DS011", {"zero_optimizatoin": {"stage": 2}}, {ZERO: {"stage": 2}}),
    Case("DS012", {f"{ZERO}.overlap_com": True}, {f"{ZERO}.overlap_comm": True}),
    Case("DS013", {"aio.thread_count": 2}, {"aio.intra_op_parallelism": 2}),
    Case("DS019", {STAGE: 4}, {STAGE: "3"}),
    Case("DS020", {"fp16": None}, {"fp16": {}}),
    Case("DS044", {f"{ZERO}.cpu_offload": True}, {f"{OPTIMIZER}.device": "cpu"}),
    Case("DS045", {f"{ZERO}.cpu_offload": True, f"{OPTIMIZER}.device": "cpu"}, {f"{ZERO}.cpu_offload": True}),
    Case("DS046", {f"{ZERO}.cpu_offload_use_pin_memory": True}, {f"{OPTIMIZER}.pin_memory": True}),
    Case("DS047", {f"{ZERO}.stage3_prefetch_bucket_size": 5, f"{ZERO}.prefetch_bucket_size": 5}, {f"{ZERO}.prefetch_bucket_size": 5}),
    Case("DS330", {"autotuning.metric": "speed"}, {"autotuning.metric": "latency"}),
    Case("DS028", {"elasticity": {}}, {}),
]
AUTO = [
    Case("DS014", {STAGE: "auto"}, {STAGE: 2}),
    Case("DS015", {**ADAM, f"{PARAMS}.betas": "auto"}, {**ADAM, f"{PARAMS}.betas": [0.9, 0.999]}, proof="init"),
    Case(
        "DS016",
        {**ADAM, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}},
        {**ADAM, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}},
        proof="init",
    ),
    Case("DS017", {**ADAM, "gradient_clipping": "1.0"}, {**ADAM, "gradient_clipping": 1.0}, proof="init", steps=1),
    Case("DS301", {f"{ZERO}.allgather_bucket_size": "auto"}, {f"{ZERO}.reduce_bucket_size": "auto"}, reader="trainer"),
    Case(
        "DS302",
        {"train_batch_size": "auto", ZERO: {}},
        {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", ZERO: {}},
        reader="accelerate",
        bare=True,
    ),
    Case("DS306", {f"{ZERO}.reduce_bucket_size": "auto"}, {f"{ZERO}.reduce_bucket_size": 5}, reader="trainer"),
]
PRECISION = [
    Case("DS026", {**ADAM, "data_types.grad_accum_dtype": "fp64"}, {**ADAM, "data_types.grad_accum_dtype": "fp32"}, proof="init"),
    Case("DS050", {"bf16": {"enabled": True}, "bfloat16": {"enabled": True}}, {"bfloat16": {"enabled": True}}),
    Case("DS051", {"fp16.enabled": True, "bf16.enabled": True}, {"fp16.enabled": False, "bf16.enabled": True}),
    Case("DS052", {"bf16.enabled": True}, {"bf16.enabled": True}, machine=gpus(2, "Tesla V100", "7.0"), machine_passes=gpus(2)),
    Case("DS053", {"fp16.loss_scale": -1}, {"fp16.loss_scale": 0}),
    Case(
        "DS054",
        {"fp16.enabled": True, "fp16.loss_scale_window": 0},
        {"fp16.enabled": True, "fp16.loss_scale": 8, "fp16.loss_scale_window": 0},
    ),
    Case("DS055", {"fp16": {"enabled": True, "initial_scale_power": -1}}, {"fp16": {"enabled": True, "initial_scale_power": 0}}),
    Case("DS055", {"fp16": {"enabled": True, "hysteresis": 0}}, {"fp16": {"enabled": True, "hysteresis": 1}}),
    Case("DS058", {"fp16.fp16_master_weights_and_grads": True}, {"fp16.fp16_master_weights_and_grads": True, STAGE: 1}),
    Case(
        "DS059",
        {"bf16.bf16_optimizer_states": True, STAGE: 1},
        {"bf16.bf16_optimizer_states": True, "bf16.bf16_master_weights_and_grads": True, STAGE: 1},
    ),
    Case(
        "DS060",
        at_stage(2, {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}),
        at_stage(2, {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}}),
        proof="init",
    ),
    Case(
        "DS061",
        at_stage(1, {"fp16.fp16_master_weights_and_grads": True, "bf16.bf16_master_weights_and_grads": True}),
        at_stage(1, {"bf16.bf16_master_weights_and_grads": True}),
        proof="init",
    ),
    Case(
        "DS062",
        at_stage(
            1,
            {
                "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
                f"{OPTIMIZER}.device": "cpu",
                f"{PARAMS}.fp32_optimizer_states": True,
            },
        ),
        {},
    ),
    Case(
        "DS063", {**ADAM, "data_types.param_dtype": "bf16"}, {**ADAM, "data_types.param_dtype": "bf16", "bf16.enabled": True}, proof="init"
    ),
    Case(
        "DS064",
        {**ADAM, "bf16.enabled": True, "data_types.grad_accum_dtype": "fp32"},
        at_stage(1, {"bf16.enabled": True, "data_types.grad_accum_dtype": "fp32"}),
        proof="init",
    ),
    Case(
        "DS065",
        at_stage(1, {"bf16.enabled": True, "data_types.grad_accum_dtype": "fp32"}),
        at_stage(2, {"bf16.enabled": True, "data_types.grad_accum_dtype": "fp32"}),
    ),
    Case("DS066", {"data_types.keep_in_fp32_modules": "norm"}, {"data_types.keep_in_fp32_modules": ["norm"]}),
    Case("DS067", {"torch_autocast.dtype": "fp8"}, {"torch_autocast.dtype": "bfloat16"}),
    Case("DS068", {"torch_autocast": {"enabled": True, "dtype": "int8"}}, {"torch_autocast": {"enabled": False, "dtype": "int8"}}),
    Case(
        "DS069", {"torch_autocast.lower_precision_safe_modules": [1]}, {"torch_autocast.lower_precision_safe_modules": ["torch.nn.Linear"]}
    ),
    Case(
        "DS070",
        at_stage(3, {"torch_autocast.enabled": True, f"{ZERO}.zero_quantized_weights": True}),
        at_stage(3, {f"{ZERO}.zero_quantized_weights": True}),
    ),
    Case("DS071", {"torch_autocast.enabled": True, "bf16.enabled": True}, {"torch_autocast.enabled": True}),
    Case("DS073", {"communication_data_type": "fp8"}, {"communication_data_type": "BF16"}),
]
OPTIMIZERS = [
    Case("DS018", {**ADAM, f"{PARAMS}.lr": "1e-3"}, ADAM, proof="init"),
    Case("DS022", {PARAMS: {"lr": 1}}, ADAM),
    Case("DS042", {TYPE: "OneBitAdam"}, {TYPE: "AdamW"}),
    Case("DS075", {}, ADAM, plan="job: {script: t.py}"),
    Case("DS078", ADAM, ADAM, plan="job: {script: t.py, optimizer: script}", plan_passes="job: {script: t.py}"),
    Case("DS079", {TYPE: "sgd"}, {TYPE: "SGD"}, proof="init"),
    Case(
        "DS080",
        {TYPE: "SGD", PARAMS: {"lr": 0.1}, STAGE: 1},
        {TYPE: "SGD", PARAMS: {"lr": 0.1}, STAGE: 1, "zero_allow_untested_optimizer": True},
        proof="init",
    ),
    Case(
        "DS081",
        {STAGE: 2, f"{OPTIMIZER}.device": "cpu"},
        {STAGE: 2, f"{OPTIMIZER}.device": "cpu", "zero_force_ds_cpu_optimizer": False},
        plan="job: {script: t.py, optimizer: script}",
    ),
    Case("DS082", {**ADAM, f"{PARAMS}.max_grad_norm": 1.0}, {**ADAM, "gradient_clipping": 1.0}, proof="init"),
    Case("DS083", {**ADAM, f"{PARAMS}.foo": 1}, {**ADAM, f"{PARAMS}.weight_decay": 0.1}, proof="init"),
    Case("DS084", {TYPE: "AdamW", f"{PARAMS}.amsgrad": True}, {**ADAM, f"{PARAMS}.amsgrad": True}, proof="init"),
    Case("DS085", {TYPE: "Adam", PARAMS: {"weight_decay": 0.1}}, {TYPE: "Adam", PARAMS: {"weight_decay": 0.1, "adam_w_mode": False}}),
    Case("DS086", at_stage(2, {f"{OPTIMIZER}.device": "cpu"}), at_stage(2)),
    Case("DS087", {TYPE: "Lamb", "fp16": {"enabled": True, "loss_scale": 8}}, {TYPE: "Lamb", "fp16": {"enabled": True}}),
    Case("DS088", {TYPE: "Lamb"}, {TYPE: "AdamW"}, machine=NO_GPU, proof="init"),
    Case("DS089", {TYPE: "MuAdam"}, {TYPE: "Adam"}),
    Case("DS090", {TYPE: "Muon", STAGE: 3}, {TYPE: "Muon", STAGE: 3, f"{ZERO}.reduce_scatter": False}),
    Case("DS307", {TYPE: 5}, {TYPE: None}),
    Case("DS308", {TYPE: "AdamW", PARAMS: [1]}, {TYPE: "AdamW", PARAMS: {}}),
    Case("DS309", {**ADAM, f"{PARAMS}.max_grad_norm": "1"}, {**ADAM, f"{PARAMS}.max_grad_norm": 1}),
    Case("DS310", {**ADAM, f"{PARAMS}.lr": 0}, ADAM),
    Case(
        "DS326",
        ADAM,
        ADAM,
        plan="job: {script: t.py, optimizer: script, integration: accelerate}",
        plan_passes="job: {script: t.py, integration: accelerate}",
        reader="accelerate",
    ),
    Case("DS327", {}, ADAM, plan="job: {script: t.py, integration: accelerate}", reader="accelerate"),
    Case("DS327", {STAGE: 2}, {**ADAM, STAGE: 2}, plan=OWN_BUILDER, script=PREPARED.format("DummyOptim(p)", "LambdaLR(o, f)")),
    Case(
        "DS339",
        {**ADAM, STAGE: 2},
        {**ADAM, STAGE: 2},
        plan=ACCELERATED,
        script=PREPARED.format("DummyOptim(p)", "LambdaLR(o, f)"),
        script_passes=PREPARED.format("DummyOptim(p)", "DummyScheduler(o, lr_scheduler_callable=lambda o: LambdaLR(o, f))"),
    ),
    Case(
        "DS340",
        {**ADAM, STAGE: 2},
        {**ADAM, STAGE: 2},
        plan=ACCELERATED,
        script=PREPARED.format("DummyOptim(p)", "DummyScheduler(o)"),
        script_passes=PREPARED.format("DummyOptim(p)", "DummyScheduler(o) if mine else LambdaLR(o, f)"),
    ),
    Case(
        "DS327",
        {STAGE: 3},
        {STAGE: 3},
        plan="job: {script: t.py, integration: accelerate}",
        plan_passes="job: {script: t.py, integration: accelerate, optimizer: none}",
    ),
]
WARMUP = {**ADAM, SCHEDULER: {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}}
DECAY = {**ADAM, SCHEDULER: {"type": "WarmupDecayLR", "params": {"total_num_steps": 100, "warmup_num_steps": 5, "warmup_max_lr": 1e-3}}}
CYCLE = {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_momentum": False}}
SCHEDULERS = [
    Case("DS163", {**ADAM, SCHEDULER: {"type": "warmuplr", "params": {}}}, WARMUP, proof="init"),
    Case("DS164", {**ADAM, SCHEDULER: {"type": "WarmupLR"}}, WARMUP, proof="init"),
    Case("DS165", {**ADAM, SCHEDULER: {"type": "WarmupDecayLR", "params": {}}}, DECAY, proof="init"),
    Case("DS167", {**WARMUP, "scheduler.params": {"warmup_num_steps": 10.0}}, WARMUP, proof="init"),
    Case("DS168", {**DECAY, "scheduler.params": {"total_num_steps": 100, "warmup_max_lr": 1e-3}}, DECAY),
    Case(
        "DS169",
        {**DECAY, f"{PARAMS}.lr": 1e-4, "scheduler.params": {"total_num_steps": 100, "warmup_num_steps": 5}},
        {**DECAY, f"{PARAMS}.lr": 1e-4},
    ),
    Case("DS170", {**WARMUP, "scheduler.params.warmup_type": "cosine"}, {**WARMUP, "scheduler.params.warmup_type": "linear"}),
    Case("DS171", {**ADAM, SCHEDULER: CYCLE, "scheduler.params.cycle_first_step_size": 0}, {**ADAM, SCHEDULER: CYCLE}, proof="init"),
    Case(
        "DS173",
        {TYPE: "SGD", PARAMS: {"lr": 0.1}, SCHEDULER: CYCLE, "scheduler.params.cycle_momentum": True},
        {TYPE: "SGD", PARAMS: {"lr": 0.1}, SCHEDULER: CYCLE},
    ),
    Case(
        "DS174",
        at_stage(1, {SCHEDULER: {"type": "StepLR", "params": {"step_size": 5}}}),
        {**ADAM, SCHEDULER: {"type": "StepLR", "params": {"step_size": 5}}},
        proof="init",
    ),
    Case("DS175", {**WARMUP, "scheduler.params.foo": 1}, WARMUP, proof="init"),
    Case("DS176", {SCHEDULER: {"type": "WarmupLR", "params": {}}}, WARMUP),
    Case("DS311", {**WARMUP, "scheduler.params.warmup_max_lr": "1e-3"}, {**WARMUP, "scheduler.params.warmup_max_lr": 1e-3}, proof="init"),
    Case("DS312", WARMUP, WARMUP, plan="job: {script: t.py, scheduler: script}", plan_passes="job: {script: t.py}"),
    Case(
        "DS312",
        {**WARMUP, STAGE: 2},
        {**WARMUP, STAGE: 2},
        plan=ACCELERATED,
        script=PREPARED.format("AdamW(p)", "LambdaLR(o, f)"),
        script_passes=PREPARED.format("AdamW(p)", "DummyScheduler(o)"),
    ),
    Case(
        "DS328",
        ADAM,
        ADAM,
        plan="job: {script: t.py, integration: accelerate, scheduler: script}",
        plan_passes="job: {script: t.py, integration: accelerate}",
        reader="accelerate",
    ),
]
ZEROS = [
    Case("DS043", {ZERO: True}, {ZERO: {"stage": 1}}),
    Case("DS048", at_stage(1, {f"{ZERO}.legacy_stage1": True}), at_stage(1), proof="init"),
    Case("DS049", {STAGE: 3, f"{ZERO}.elastic_checkpoint": True}, {STAGE: 2, f"{ZERO}.elastic_checkpoint": True}),
    Case(
        "DS100",
        at_stage(2, {"gradient_predivide_factor": 2.0}),
        at_stage(2, {"gradient_predivide_factor": 2.0, f"{ZERO}.reduce_scatter": False}),
        proof="init",
    ),
    Case("DS104", at_stage(1, {f"{ZERO}.allgather_bucket_size": 5}), at_stage(1, {f"{ZERO}.allgather_bucket_size": 6}), proof="init"),
    Case("DS106", {f"{ZERO}.compute_grad_norm": False}, {f"{ZERO}.compute_grad_norm": False, STAGE: 1, "gradient_clipping": 0}),
    Case(
        "DS107",
        at_stage(1, {f"{ZERO}.compute_grad_norm": False}),
        at_stage(1, {f"{ZERO}.compute_grad_norm": False, "gradient_clipping": 0}),
        proof="init",
    ),
    Case("DS111", {}, {"gradient_clipping": 1.0}),
    Case("DS112", {"gradient_allreduce_op": "max"}, {"gradient_allreduce_op": "SUM"}),
    Case("DS113", {"gradient_allreduce_op": "sum", STAGE: 3}, {"gradient_allreduce_op": "sum", STAGE: 2}),
    Case("DS123", {STAGE: 3, f"{ZERO}.round_robin_gradients": True}, {STAGE: 2, f"{ZERO}.round_robin_gradients": True}),
    Case("DS125", at_stage(3, {f"{ZERO}.zero_hpz_partition_size": 3}), at_stage(3, {f"{ZERO}.zero_hpz_partition_size": 2}), ranks=4),
    Case(
        "DS127",
        at_stage(3, {f"{ZERO}.zero_quantized_weights": True}),
        at_stage(3, {f"{ZERO}.zero_quantized_weights": True}),
        machine=NO_GPU,
        machine_passes=gpus(2),
    ),
    Case(
        "DS130",
        at_stage(3, {f"{ZERO}.zero_quantized_gradients": True, f"{ZERO}.reduce_scatter": False}),
        at_stage(3, {f"{ZERO}.reduce_scatter": False}),
    ),
    Case(
        "DS131",
        {STAGE: 3, f"{ZERO}.zero_quantized_gradients": True},
        {STAGE: 3, f"{ZERO}.zero_quantized_gradients": True},
        plan="job: {script: t.py}\ncluster: {hosts: {a: 4}}",
        plan_passes="job: {script: t.py}\ncluster: {hosts: {a: 4, b: 4}}",
    ),
    Case(
        "DS134",
        {STAGE: 3, f"{ZERO}.stage3_module_granularity_threshold": 10**6},
        {STAGE: 3, f"{ZERO}.stage3_module_granularity_threshold": 0},
    ),
    Case(
        "DS136",
        at_stage(1, {"managed_gradient_accumulation": False, f"{ZERO}.overlap_comm": True}),
        at_stage(1, {"managed_gradient_accumulation": False}),
        proof="init",
    ),
    Case("DS139", {"disable_allgather": True}, {"disable_allgather": False}),
    Case("DS140", {STAGE: 2}, {STAGE: 2}, machine=gpus(2, "RTX 3080", "8.6", 10 * GIB), machine_passes=gpus(2)),
]
NVME = {STAGE: 3, f"{OPTIMIZER}.device": "nvme", f"{OPTIMIZER}.nvme_path": "/nvme"}
PARAM_NVME = {STAGE: 3, f"{PARAM}.device": "nvme", f"{PARAM}.nvme_path": "/nvme"}
OFFLOADS = [
    Case("DS096", {**ADAM, f"{OPTIMIZER}.device": "cpu"}, at_stage(1, {f"{OPTIMIZER}.device": "cpu"})),
    Case("DS114", {STAGE: 2, f"{PARAM}.device": "cpu"}, {STAGE: 3, f"{PARAM}.device": "cpu"}),
    Case("DS115", {**NVME, STAGE: 2}, NVME),
    Case("DS116", {STAGE: 2, f"{OPTIMIZER}.ratio": 0.5}, {STAGE: 3, f"{OPTIMIZER}.ratio": 0.5}),
    Case(
        "DS117",
        {TYPE: "SGD", "zero_allow_untested_optimizer": True, STAGE: 3, OPTIMIZER: {"device": "cpu", "ratio": 0.5}},
        {TYPE: "AdamW", STAGE: 3, OPTIMIZER: {"device": "cpu", "ratio": 0.5}},
    ),
    Case("DS119", {STAGE: 2, f"{OPTIMIZER}.pin_memory": True}, {STAGE: 2, OPTIMIZER: {"pin_memory": True, "device": "cpu"}}),
    Case(
        "DS120",
        {STAGE: 2, OPTIMIZER: {"device": "cpu", "super_offload": True}},
        {STAGE: 3, OPTIMIZER: {"device": "cpu", "super_offload": True}},
    ),
    Case(
        "DS121",
        {**ADAM, STAGE: 3, OPTIMIZER: {"device": "cpu", "super_offload": True}},
        {**ADAM, STAGE: 3, OPTIMIZER: {"device": "cpu", "super_offload": True}},
        machine=NO_GPU,
        machine_passes=gpus(1),
    ),
    Case(
        "DS122",
        {STAGE: 2, f"{OPTIMIZER}.device": "cpu", f"{ZERO}.contiguous_gradients": False},
        {STAGE: 2, f"{ZERO}.contiguous_gradients": False},
    ),
    Case("DS141", {**ADAM, STAGE: 3, f"{PARAM}.device": "nvme"}, PARAM_NVME),
    Case(
        "DS144",
        NVME,
        NVME,
        machine=gpus(1, software=Software(libaio_headers=False)),
        machine_passes=gpus(1, software=Software(libaio_headers=True)),
    ),
    Case("DS145", PARAM_NVME, NVME),
    Case("DS146", PARAM_NVME, {**PARAM_NVME, f"{PARAM}.buffer_size": 10**6}, machine=gpus(2, host=Host(memory_total=3 * GIB))),
    Case("DS149", {"aio.use_gds": True}, {"aio.use_gds": True}, machine=NO_GPU, machine_passes=gpus(1)),
    Case("DS150", {**NVME, "aio.intra_op_parallelism": 0}, {**NVME, "aio.intra_op_parallelism": 1}),
    Case("DS151", {**NVME, "aio.single_submit": "false"}, {**NVME, "aio.single_submit": False}),
    Case("DS152", {"aio.queue_depth": 0}, {"aio.queue_depth": 1}),
    Case(
        "DS153",
        {STAGE: 2, f"{OPTIMIZER}.device": "cpu"},
        {STAGE: 2, OPTIMIZER: {"device": "cpu", "pin_memory": False}},
        machine=gpus(1, host=Host(memlock=64 * 1024)),
    ),
]
ZENFLOW = f"{ZERO}.zenflow"
FLOW = {**ADAM, STAGE: 2, f"{OPTIMIZER}.device": "cpu", f"{ZERO}.overlap_comm": True}
ZENFLOWS = [
    Case("DS154", {**ADAM, STAGE: 2, ZENFLOW: {}}, {**FLOW, ZENFLOW: {}}),
    Case("DS155", {**ADAM, ZENFLOW: {}, f"{OPTIMIZER}.device": "cpu"}, {**FLOW, ZENFLOW: {}}),
    Case("DS156", {**FLOW, STAGE: 3, ZENFLOW: {}}, {**FLOW, STAGE: 3, ZENFLOW: {}}, machine=NO_GPU, machine_passes=gpus(1)),
    Case("DS157", {**FLOW, ZENFLOW: {"select_strategy": "step"}}, {**FLOW, ZENFLOW: {"select_strategy": "step", "select_interval": 4}}),
    Case(
        "DS159",
        {**FLOW, ZENFLOW: {"select_strategy": "step", "select_interval": 2, "update_interval": 4}},
        {**FLOW, ZENFLOW: {"select_strategy": "step", "select_interval": 4, "update_interval": 4}},
    ),
    Case("DS160", {**FLOW, f"{ZERO}.overlap_comm": False, ZENFLOW: {"offload": True}}, {**FLOW, ZENFLOW: {"offload": True}}),
    Case("DS161", {**FLOW, ZENFLOW: {"update_interval": 4}, "gradient_accumulation_steps": 2}, {**FLOW, ZENFLOW: {"update_interval": 4}}),
    Case("DS317", {**FLOW, ZENFLOW: {}}, {**FLOW, ZENFLOW: {}, f"{PARAMS}.torch_adam": False}),
    Case("DS162", {STAGE: 2, ZENFLOW: {"select_strategy": "often"}}, {STAGE: 2, ZENFLOW: {"select_strategy": "epoch"}}),
]
EXPERTS = {"expert_parallel": {"enabled": True, "autoep_size": 2}}
PARALLEL = [
    Case("DS182", {"pipeline.pipe_partitioned": "yes"}, {"pipeline.pipe_partitioned": True}),
    Case("DS190", {"tensor_parallel.autotp_size": 3}, {"tensor_parallel.autotp_size": 2}, ranks=4),
    Case(
        "DS192",
        {"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}},
        {"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 2}}},
    ),
    Case(
        "PL060",
        plan="job: {script: t.py, integration: accelerate}\n"
        "cluster: {launcher: accelerate, launcher_args: [--use_parallelism_config, --parallelism_config_sp_size, '2']}",
        plan_passes="job: {script: t.py, integration: accelerate}\ncluster: {launcher: accelerate}\n"
        "accelerate: {parallelism_config: {parallelism_config_sp_size: 2}}",
    ),
    Case("PL061", plan=ULYSSES.format(3), plan_passes=ULYSSES.format(2), ranks=4),
    Case("KR001", {STAGE: 2}, {STAGE: 3}, version="0.18.2"),
    Case("DS194", {"tensor_parallel.preset_model": "gpt"}, {"tensor_parallel.preset_model": "llama"}),
    Case(
        "DS198",
        {"tensor_parallel": {"autotp_size": 2, "partition_config": {"layer_specs": [{"partition_type": "diag"}]}}},
        {"tensor_parallel": {"autotp_size": 2, "partition_config": {"layer_specs": [{"partition_type": "row"}]}}},
    ),
    Case("DS199", {"expert_parallel": {"enabled": True, "autoep_size": 3}}, EXPERTS, ranks=4),
    Case("DS202", {**EXPERTS, "expert_parallel.preset_model": "zzz"}, {**EXPERTS, "expert_parallel.preset_model": "mixtral"}),
    Case("DS203", {"expert_parallel.load_balance_coeff": 0.1}, {"expert_parallel.load_balance_coeff": None}),
    Case(
        "DS204",
        {**EXPERTS, "expert_parallel.comm_backend": "deepep"},
        {**EXPERTS, "expert_parallel.comm_backend": "deepep", "expert_parallel.comm_max_tokens_per_rank": 4096},
    ),
    Case("DS205", {"expert_parallel.enabled": True}, EXPERTS),
    Case(
        "DS206",
        {**EXPERTS, "expert_parallel.autoep_size": 1, "tensor_parallel.autotp_size": 2},
        {**EXPERTS, "tensor_parallel.autotp_size": 2},
    ),
    Case("DS208", {**EXPERTS, "expert_parallel.expert_tensor_parallel_size": 2}, EXPERTS),
    Case("DS209", {**EXPERTS, STAGE: 3, f"{ZERO}.zero_quantized_gradients": True}, {**EXPERTS, STAGE: 3}),
    Case("DS211", {"data_parallel_size": 2, "sequence_parallel_size": 2}, {"data_parallel_size": 1, "sequence_parallel_size": 2}),
    Case("DS313", {"pipeline.stages": 2}, {"pipeline.grad_partitioned": True}),
]
DEEP = {STAGE: 3, "compile.deepcompile": True}
COMPILE = [
    Case("DS216", {"compile.deepcompile": True}, DEEP),
    Case("DS217", DEEP, DEEP, machine=NO_GPU, machine_passes=gpus(1)),
    Case("DS219", {**DEEP, "compile.offload_opt_states": True, f"{OPTIMIZER}.device": "cpu"}, {**DEEP, "compile.offload_opt_states": True}),
    Case(
        "DS220",
        {**DEEP, "compile.offload_activation": True, "compile.offload_parameters": True},
        {**DEEP, "compile.offload_activation": True},
    ),
    Case(
        "DS221",
        {**DEEP, "compile.offload_parameters": True, "compile.offload_opt_states": True},
        {**DEEP, "compile.offload_parameters": True},
    ),
    Case("DS224", {**DEEP, "compile.passes": ["autosp"], STAGE: 3}, {**DEEP, "compile.passes": ["autosp"], STAGE: 1}),
    Case("DS222", {**DEEP, "compile.passes": ["autotp", "z3"]}, {**DEEP, "compile.passes": ["autotp"]}),
    Case("DS223", {STAGE: 3, "compile.autoep_non_moe": True}, {STAGE: 2, "compile.autoep_non_moe": True}),
]
WRITER = {"checkpoint.writer": {"type": "python", "data_parallel": "replica"}}
CHECKPOINTS = [
    Case("DS230", {"checkpoint.tag_validation": "boo"}, {"checkpoint.tag_validation": "ignore"}),
    Case("DS232", {"checkpoint.parallel_write.pipeline_stage": "x"}, {"checkpoint.parallel_write.pipeline_stage": True}),
    Case("DS233", {**WRITER, "checkpoint.writer.type": "zip"}, WRITER),
    Case("DS234", {**ADAM, "checkpoint.writer": {"type": "python"}}, {**ADAM, **WRITER}, proof="init"),
    Case("DS235", WRITER, WRITER, plan="job: {script: t.py}\ncluster: {launcher: torchrun}", plan_passes="job: {script: t.py}"),
    Case("DS236", {**WRITER, "checkpoint.writer.type": "fast"}, WRITER, machine=NO_GPU),
    Case("DS238", {"datastates_ckpt": {}}, {"datastates_ckpt": False}),
]
SAMPLING = "data_efficiency.data_sampling"
ROUTING = "data_efficiency.data_routing"
LTD = {"data_efficiency": {"enabled": True, "data_routing": {"enabled": True, "random_ltd": {"enabled": True, "total_layer_num": 2}}}}
EXTRAS = [
    Case("DS021", {"flops_profiler.enabled": "yes"}, {"flops_profiler.enabled": True}),
    Case("DS027", {**ADAM, "log_level": "loud"}, {**ADAM, "log_level": "info"}, proof="init"),
    Case("DS240", {"wandb.enabled": True}, {"csv_monitor.enabled": True}),
    Case("DS241", {"vocabulary_size": 50257}, {"vocabulary_size": 50264}),
    Case(
        "DS242",
        {"activation_checkpointing.contiguous_memory_optimization": True},
        {"activation_checkpointing": {"contiguous_memory_optimization": True, "partition_activations": True, "number_checkpoints": 4}},
    ),
    Case("DS244", {"activation_checkpointing.partition_activations": True}, {"activation_checkpointing.cpu_checkpointing": True}),
    Case("DS245", {"activation_checkpointing.cpu_checkpointing": True}, {}, reader="trainer"),
    Case(
        "DS246",
        {f"{SAMPLING}.curriculum_learning.enabled": True},
        {f"{SAMPLING}.curriculum_learning": {"enabled": True, "curriculum_metrics": {}}},
    ),
    Case("DS247", {f"{SAMPLING}.dynamic_batching.enabled": True}, {f"{SAMPLING}.dynamic_batching": {"enabled": True, "max_tokens": 512}}),
    Case("DS248", {**ADAM, **LTD}, {**ADAM, **LTD, f"{ROUTING}.random_ltd.enabled": False}),
    Case("DS249", {"autotuning.results_dir": ""}, {"autotuning.results_dir": "x"}),
    Case("DS251", {"steps_per_print": 10}, {"steps_per_print": 10, "log_level": "info"}),
    Case("DS314", {**ADAM, "steps_per_print": 0}, {**ADAM, "steps_per_print": 5}, proof="init", steps=1),
    Case("DS315", {"autotuning.enabled": True}, {"autotuning": {"enabled": True, "overwrite": False}}),
]
READERS = [
    Case("DS320", {}, {ZERO: {"stage": 0}}, reader="trainer"),
    Case("DS321", {ZERO: True}, {ZERO: {"stage": 1}}, reader="accelerate"),
    Case("DS322", {}, {"gradient_accumulation_steps": "auto"}, reader="accelerate"),
    Case("DS323", {"steps_per_print": 5}, {}, reader="trainer"),
    Case("DS324", {STAGE: 3}, {STAGE: 3, f"{ZERO}.stage3_gather_16bit_weights_on_model_save": True}, reader="trainer"),
    Case("DS324", {STAGE: 3}, {STAGE: 3}, plan=ACCELERATED, plan_passes=ACCELERATED.replace("}", ", optimizer: none}")),
    Case(
        "DS325",
        {"bf16.enabled": True},
        {"bf16.enabled": "auto"},
        reader="accelerate",
        plan="job: {script: t.py, integration: accelerate}\naccelerate: {mixed_precision: fp16}",
    ),
    Case(
        "DS329",
        {"bf16.enabled": "auto", STAGE: 0},
        {"bf16.enabled": "auto", STAGE: 0},
        plan="job: {script: t.py, integration: accelerate}",
        script="from accelerate import Accelerator",
        script_passes="from accelerate import Accelerator\nAccelerator(mixed_precision='bf16')",
    ),
    Case("DS331", {STAGE: "auto"}, {STAGE: 2}, plan=ACCELERATED),
    Case(
        "DS141",
        {STAGE: "auto", f"{OPTIMIZER}.device": "auto"},
        {STAGE: "auto", f"{OPTIMIZER}.device": "auto", f"{OPTIMIZER}.nvme_path": "/nvme"},
        plan=ACCELERATED + "\naccelerate: {deepspeed_config: {zero_stage: 3, offload_optimizer_device: nvme}}",
    ),
    Case("DS332", {STAGE: 2}, {STAGE: "auto"}, plan=ACCELERATED + "\naccelerate: {deepspeed_config: {zero_stage: 3}}"),
    Case("DS333", {"tensor_parallel.autotp_size": 2, STAGE: 0}, {STAGE: 0}, plan=ACCELERATED),
    Case("DS333", {"pipeline": {"activation_checkpoint_interval": 1}}, {STAGE: 0}, plan=ACCELERATED),
    Case(
        "DS334",
        at_stage(3, {}),
        at_stage(3, {f"{ZERO}.leaf_module.classes": ["transformers.models.olmoe.modeling_olmoe.OlmoeSparseMoeBlock"]}),
        plan=SCRIPT,
        model={"model_type": "olmoe", "num_experts": 64},
    ),
    Case(
        "DS334",
        at_stage(3, {f"{ZERO}.leaf_module.classes": ["transformers.models.olmoe.modeling_olmoe.OlmoeSparseMoEBlock"]}),
        at_stage(3, {f"{ZERO}.leaf_module.classes": ["OlmoeSparseMoeBlock"]}),
        plan=SCRIPT,
        model={"model_type": "olmoe", "num_experts": 64},
    ),
    Case(
        "DS336",
        at_stage(3, {}),
        at_stage(3, {}),
        reader="accelerate",
        plan=CLASSES % "JetMoEBlock",
        plan_passes=CLASSES % "JetMoeAttention,JetMoeMoE",
        model={"model_type": "jetmoe", "num_local_experts": 8},
    ),
    Case(
        "DS132",
        at_stage(3, {f"{ZERO}.zero_hpz_partition_size": 2}),
        at_stage(3, {f"{ZERO}.zero_hpz_partition_size": 4}),
        ranks=8,
        plan=SCRIPT + "\ncluster: {hosts: {a: 4, b: 4}}",
    ),
    Case(
        "PL026",
        {},
        {},
        plan=ACCELERATED + "\naccelerate: {num_machines: 2}",
        plan_passes=ACCELERATED + "\naccelerate: {num_machines: 2}\ncluster: {hosts: {a: 4, b: 4}}",
    ),
    Case(
        "DS338",
        {"gradient_accumulation_steps": 4},
        reader="accelerate",
        plan=ACCELERATED,
        script="from accelerate import Accelerator\naccelerator = Accelerator()\naccelerator.backward(loss)\n",
        script_passes="from accelerate import Accelerator\na = Accelerator()\nwith a.accumulate(model):\n    a.backward(loss)\n",
    ),
    Case(
        "DS335",
        {"gradient_accumulation_steps": 4, STAGE: 0},
        {"gradient_accumulation_steps": 2, STAGE: 0},
        plan=ACCELERATED,
        script="from accelerate import Accelerator\nAccelerator(gradient_accumulation_steps=2)",
    ),
    Case("PL030", plan=ACCELERATED + BOTH.format("auto", 3), plan_passes=ACCELERATED + BOTH.format(1, 3)),
    Case("PL031", plan=ACCELERATED + BOTH.format(1, 2), plan_passes=ACCELERATED + BOTH.format(1, 3)),
    Case("PL031", {STAGE: 2}, {STAGE: 3}, plan="job: {script: t.py, integration: accelerate, optimizer: none}"),
    Case(
        "PL032",
        plan='job: {script: t.py, args: ["{ds_config:judge}"]}',
        plan_passes=f'job: {{script: t.py, args: ["{{ds_config:teacher}}"]}}{BOTH.format(1, 3)}',
    ),
    Case("PL033", plan=ACCELERATED + BOTH.format(1, 3), plan_passes=ACCELERATED),
    Case("PL034", plan=ACCELERATED + BOTH.format(1, 3), plan_passes=SCRIPT + BOTH.format(1, 3)),
]
OLD = [
    Case("DS290", {"progressive_layer_drop": {}}, {"progressive_layer_drop": {"enabled": False}}, version="0.18.2", proof="no"),
    Case("DS291", {"sparse_attention.mode": "sparse"}, {"sparse_attention.mode": "bigbird"}, version="0.18.2", proof="no"),
    Case(
        "DS292",
        {"compression_training.row_pruning": {}},
        {"compression_training.row_pruning": {"different_groups": {}}},
        version="0.16.9",
        proof="no",
    ),
    Case("DS293", {"elasticity.enabled": True}, {"elasticity.enabled": False}, version="0.14.5", proof="no"),
    Case(
        "DS294",
        {"fp16": {"enabled": True, "initial_scale_power": "16"}},
        {"fp16": {"enabled": False, "initial_scale_power": "16"}},
        version="0.16.9",
        proof="no",
    ),
]


PLAIN = "import torch\nloss.backward()\n"
ASKING = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--out', {})\np.parse_args()\ndeepspeed.initialize(config=a.c)"
STRICT = "p = argparse.ArgumentParser()\np.add_argument('--n')\np.parse_args()\ndeepspeed.initialize()"


def cluster(lines: str) -> str:
    """Return a Plan with a cluster section."""
    return f"{SCRIPT}\ncluster: {{{lines}}}"


def trainer(words: str) -> str:
    """Return a Plan for a Trainer script with some arguments."""
    return f"job: {{script: t.py, integration: trainer, args: [--deepspeed, '{{ds_config}}', --per_device_train_batch_size, '1', {words}]}}"


PLANS = [
    Case("PL001", {}, {}, plan="job: {script: t.py}", plan_passes=SCRIPT),
    Case("PL022", {}, {}, plan=SCRIPT, script="-", script_passes="import torch"),
    Case(
        "PL023",
        {STAGE: 0},
        {STAGE: 0},
        plan=SCRIPT,
        script="from accelerate import Accelerator",
        script_passes="deepspeed.add_config_arguments(p)",
    ),
    Case("PL024", {}, {}, plan=SCRIPT, script=STRICT, script_passes=STRICT.replace("--n", "--local_rank")),
    Case("PL035", {}, {}, plan=SCRIPT, script=ASKING.format("required=True"), script_passes=ASKING.format("default='x'")),
    Case(
        "PL025",
        {},
        {},
        plan=SCRIPT,
        script="deepspeed.initialize(config=a.c, optimizer=torch.optim.SGD(p))",
        script_passes="deepspeed.initialize(config=a.c, optimizer=None)",
    ),
    Case("PL027", {}, {}, plan=SCRIPT, script=PLAIN, script_passes=f"import deepspeed\ndeepspeed.initialize(config=a.c)\n{PLAIN}"),
    Case("PL028", plan="job: {script: t.py}", plan_passes=SCRIPT, script="deepspeed.initialize(config={'train_batch_size': 8})", bare=True),
    Case("PL029", {}, {}, plan="job: {script: t.py, args: [--deepspeed, ds.json]}", plan_passes=SCRIPT, bare=True),
    Case("PL002", {}, {}, plan="job: {args: ['{ds_config}']}", plan_passes=SCRIPT),
    Case(
        "PL004", {}, {}, plan=cluster("hosts: {a: 2, b: 2}, include: a, exclude: b"), plan_passes=cluster("hosts: {a: 2, b: 2}, include: a")
    ),
    Case(
        "PL005",
        {},
        {},
        plan=cluster("hosts: {a: 2, b: 2}, include: a, num_gpus: 1"),
        plan_passes=cluster("hosts: {a: 2, b: 2}, num_gpus: 1"),
    ),
    Case("PL006", {}, {}, plan=cluster("hosts: {a: 2}, include: c"), plan_passes=cluster("hosts: {a: 2}, include: a")),
    Case(
        "PL009",
        {},
        {},
        plan=cluster("hosts: {a: 2, b: 2}, launcher: openmpi, num_gpus: 1"),
        plan_passes=cluster("hosts: {a: 2, b: 2}, launcher: openmpi"),
    ),
    Case(
        "PL010", {}, {}, plan=cluster("hosts: {a: 2, b: 4}, launcher: mpich"), plan_passes=cluster("hosts: {a: 4, b: 4}, launcher: mpich")
    ),
    Case("PL040", plan=cluster("hostfile: h"), pool=HostfileProblem("'h1 slots=two' is not `HOST slots=N`", 2), pool_passes={"h1": 2}),
    *(
        Case(code, plan=cluster(f"launcher: sbatch, {fires}"), plan_passes=cluster(f"launcher: sbatch, {passes}"), slurm=OFFERS)
        for code, fires, passes in (
            ("PL052", "num_gpus: 1, slurm: {partition: nowhere}", "num_gpus: 1"),
            ("PL052", "num_gpus: 1, slurm: {partition: old}", "num_gpus: 1, slurm: {partition: 'gpu,long'}"),
            ("PL053", "num_gpus: 1, slurm: {time: '2-00:00:01'}", "num_gpus: 1, slurm: {time: '2880'}"),
            ("PL053", "num_gpus: 1, slurm: {time: UNLIMITED}", "num_gpus: 1, slurm: {partition: long, time: UNLIMITED}"),
            ("PL053", "num_gpus: 1, slurm: {time: 12h}", "num_gpus: 1, slurm: {time: '2-0'}"),
            ("PL054", "num_nodes: 17, num_gpus: 8", "num_nodes: 16, num_gpus: 8"),
            ("PL054", "num_gpus: 16", "num_gpus: 16, env: {DS_ACCELERATOR: cpu}"),
            ("PL054", "num_gpus: 8, slurm: {cpus_per_task: 97}", "num_gpus: 8, slurm: {cpus_per_task: 96}"),
            ("PL055", "num_gpus: 8, slurm: {account: chem}", "num_gpus: 8, slurm: {account: physics}"),
            ("PL055", "num_gpus: 8, slurm: {account: guests}", "num_gpus: 8, slurm: {partition: long, account: guests}"),
            ("PL055", "num_gpus: 8, slurm: {qos: gold}", "num_gpus: 8, slurm: {qos: normal}"),
        )
    ),
    Case(
        "PL056",
        plan=cluster("num_gpus: 1, kubernetes: {job_folder: /runs, volumes: {/data: claim}}"),
        plan_passes=cluster("num_gpus: 1, kubernetes: {job_folder: /data/runs, volumes: {/data: claim}}"),
    ),
    Case("PL041", plan=cluster("hosts: {h1: 2, root@H1: 2}"), plan_passes=cluster("hosts: {h1: 2, h2: 2}")),
    Case("PL041", plan=cluster("hostfile: h"), pool={"h1": 2, "h2": 0}, pool_passes={"h1": 2, "h2": 1}),
    Case("PL051", plan=cluster("hosts: {a: 1, b: 1}"), env_files=EnvFiles(("/home/u/.deepspeed_env",), {"NCCL_DEBUG": "INFO"})),
    Case("PL006", plan=cluster("hostfile: h, include: h3"), pool={"h1": 2, "h2": 2}, pool_passes={"h1": 2, "h3": 2}),
    Case("PL010", plan=cluster("hostfile: h, launcher: impi"), pool={"h1": 2, "h2": 1}, pool_passes={"h1": 2, "h2": 2}),
    *(
        Case("PL042", plan=cluster(f"hosts: {{h1: 2, h2: 2}}, launcher: {launcher}"), plan_passes=cluster("hosts: {h1: 2}, launcher: impi"))
        for launcher in ("openmpi", "mpich")
    ),
    Case("PL043", plan=cluster("hosts: {h1: 2}, launcher: mvapich"), plan_passes=cluster("hosts: {h1: 2}, launcher: pdsh")),
    Case(
        "PL044",
        plan=cluster("hosts: {h1: 2}, launcher: openmpi"),
        plan_passes=cluster("hosts: {h1: 2}, launcher: openmpi, launcher_args: [--launcher_args, '--mca btl_tcp_if_include ib0']"),
    ),
    Case(
        "PL045",
        plan=cluster("hosts: {h1: 2}, launcher: impi, env: {A: 'x y'}"),
        plan_passes=cluster("hosts: {h1: 2}, launcher: pdsh, env: {A: 'x y'}"),
    ),
    Case(
        "PL046",
        plan="job: {script: t.py, args: ['{ds_config}', 'a;b']}\ncluster: {hosts: {h1: 2}, launcher: pdsh}",
        plan_passes="job: {script: t.py, args: ['{ds_config}', 'a;b']}\ncluster: {hosts: {h1: 2}, launcher: ssh}",
    ),
    Case(
        "PL047",
        plan=cluster("hosts: {h1: 2}, launcher: pdsh, env: {HF_TOKEN: hf_x}"),
        plan_passes=cluster("hosts: {h1: 2}, launcher: pdsh, env: {TOKENIZERS_PARALLELISM: 'true'}"),
    ),
    Case(
        "PL048",
        plan=cluster("hosts: {h1: 2}, env: {CUDA_VISIBLE_DEVICES: '0'}"),
        plan_passes=cluster("env: {CUDA_VISIBLE_DEVICES: '0'}"),
    ),
    Case(
        "PL049",
        plan=cluster("hosts: {h1: 2}, launcher: accelerate") + "\naccelerate: {deepspeed_config: {deepspeed_multinode_launcher: pdsh}}",
        plan_passes=cluster("hosts: {h1: 2}, launcher: accelerate"),
    ),
    Case("PL013", {}, {}, plan=cluster("num_gpus: 4"), plan_passes=cluster("num_gpus: 2"), machine=gpus(2)),
    Case("PL014", {}, {}, ranks=4, plan=cluster("cpu_binding: deepspeed"), plan_passes=cluster("cpu_binding: numactl"), machine=NO_GPU),
    Case(
        "PL015", {}, {}, plan=cluster("cpu_binding: numactl"), plan_passes=SCRIPT, machine=replace(NO_GPU, software=Software(numactl=None))
    ),
    Case(
        "PL016",
        {},
        {},
        plan=cluster("cpu_binding: deepspeed"),
        plan_passes=cluster("cpu_binding: numactl"),
        machine=gpus(1, host=Host(numa=(NumaNode(id=0, cpus="0-71"), NumaNode(id=1)))),
    ),
    Case("PL017", {}, {}, plan=cluster("cpu_binding: deepspeed, env: {KMP_AFFINITY: x}"), plan_passes=cluster("env: {KMP_AFFINITY: x}")),
    Case(
        "PL062",
        plan=SCRIPT,
        plan_passes=cluster("launcher: local"),
        machine=gpus(2, host=Host(name="h1", allocation={"SLURM_JOB_NODELIST": "h[1-2]", "SLURM_GPUS_ON_NODE": "2"})),
    ),
    Case(
        "PL062",
        plan=SCRIPT,
        machine=gpus(2, host=Host(name="login", allocation={"SLURM_JOB_NODELIST": "h1"})),
        machine_passes=gpus(2, host=Host(name="h1.cluster", allocation={"SLURM_JOB_NODELIST": "h1"})),
    ),
    Case("PL020", {}, {}, plan=cluster("num_nodes: 2"), plan_passes=cluster("num_nodes: 2, hosts: {a: 1, b: 1}")),
    Case(
        "PL021", {}, {}, plan=cluster("launcher: pdsh, cpu_binding: deepspeed"), plan_passes=cluster("launcher: pdsh, cpu_binding: numactl")
    ),
    Case(
        "DS318",
        {STAGE: 2, f"{OPTIMIZER}.device": "cpu"},
        {STAGE: 2},
        plan=f"{SCRIPT}\nmodel: {{params: 7.0e9}}",
        machine=gpus(1, host=Host(memory_total=64 * GIB)),
    ),
    Case("TR001", {"gradient_clipping": 1.0}, {"gradient_clipping": 0.5}, plan=trainer("--max_grad_norm, '0.5'"), reader="trainer"),
    Case("TR001", {"bf16.enabled": True}, {"bf16.enabled": "auto"}, plan=trainer("--seed, 1"), reader="trainer"),
    Case("TR001", {"optimizer.params.lr": 1e-4}, {"optimizer.params.lr": 5e-5}, plan=trainer("--seed, 1"), reader="trainer"),
    Case("TR002", {STAGE: 3}, {STAGE: 2}, plan=trainer("--auto_find_batch_size"), reader="trainer"),
    Case(
        "TR003",
        {},
        {},
        plan=trainer("--save_only_model, --load_best_model_at_end"),
        plan_passes=trainer("--save_only_model"),
        reader="trainer",
    ),
    Case("TR005", {}, {}, plan=trainer("--fp16"), plan_passes=trainer("--fp16"), machine=NO_GPU, machine_passes=gpus(2), reader="trainer"),
    Case("TR005", {}, {}, plan=trainer("--bf16"), plan_passes=trainer("--use_cpu, --bf16"), machine=NO_GPU, reader="trainer"),
    Case(
        "DS337",
        at_stage(2),
        at_stage(2),
        plan=ACCELERATED,
        machine=NO_GPU,
        script="from accelerate import Accelerator\nAccelerator()",
        script_passes="from accelerate import Accelerator, utils\nAccelerator(kwargs_handlers=[utils.InitProcessGroupKwargs(backend='gloo')])",
    ),
    Case("TR004", {}, {}, plan=trainer("--fsdp, full_shard"), plan_passes=trainer("--fp16"), reader="trainer"),
    Case("PL080", {"bf16.enabled": False}, {"bf16.enabled": True}, plan=SCRIPT, beneath=BF16, beneath_passes=BF16),
    Case("PL080", {STAGE: 2}, {STAGE: 1}, plan=SCRIPT, beneath=STAGE_1, beneath_passes=STAGE_1),
    Case("PL082", {}, {}, plan=SCRIPT, beneath=Beneath(problems=("the site file is not used: …",))),
    Case("PL070", {}, {}, plan=cluster('env: {A: "${B}"}'), plan_passes=cluster('env: {A: "$${B}"}')),
    Case("PL072", {}, {}, plan=f"{NOTED}\ncluster: {{}}\n{SCRIPT}", plan_passes=f"{NOTED}\ncluster: {{num_nodes: 2}}\n{SCRIPT}"),
    Case("PL071", {}, {}, plan=cluster('env: {A: "$B"}'), plan_passes=cluster('env: {A: "<|im_end|> 5$ $$"}')),
]
CASES = [
    *BATCH,
    *FORM,
    *AUTO,
    *PRECISION,
    *OPTIMIZERS,
    *SCHEDULERS,
    *ZEROS,
    *OFFLOADS,
    *ZENFLOWS,
    *PARALLEL,
    *COMPILE,
    *CHECKPOINTS,
    *EXTRAS,
]
CASES += [*READERS, *OLD, *PLANS]
PROVEN_TOO = ("DS042", "DS070", "DS087", "DS090", "DS125", "DS127", "DS130", "DS155", "DS192", "DS199", "DS202", "DS204", "DS206", "DS208")
PROVEN_TOO += ("DS211", "DS236", "DS248", "DS317")
CASES = [replace(case, proof="init") if case.code in PROVEN_TOO else case for case in CASES]
