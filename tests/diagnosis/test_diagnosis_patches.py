"""Fixes that `x` applies: the patched Plan differs in that key, and no check reports an error that the Plan did not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstui.check import check_plan
from dstui.diagnosis.signatures import ALL, BY_ID
from dstui.plan import load
from dstui.render.target import Target

BASE = "version: 1\njob: {script: t.py}\n"
PLAIN = BASE + "deepspeed: {train_micro_batch_size_per_gpu: 2, zero_optimization: {stage: 2}}\n"
STAGE_3 = (
    BASE + "deepspeed: {train_micro_batch_size_per_gpu: 2, bf16: {enabled: true},"
    " zero_optimization: {stage: 3, offload_param: {device: cpu, pin_memory: true}}}\n"
)
HALF = BASE + "deepspeed: {train_micro_batch_size_per_gpu: 2, fp16: {enabled: true}, zero_optimization: {stage: 2}}\n"
SLURM = PLAIN + "cluster: {slurm: {time: '1-12:00:00', mem: 64G}}\n"
PINNED = PLAIN.replace("stage: 2", "stage: 2, offload_optimizer: {device: cpu, pin_memory: true}")
CONFIGURED = PLAIN.replace("script: t.py", "script: t.py, args: [--deepspeed, conf/ds.json, --lr, '1']")
EQUALS = PLAIN.replace("script: t.py", "script: t.py, args: [--deepspeed_config=conf/ds.json]")
WITH_CLUSTER = PLAIN + "cluster: {master_addr: n1, num_gpus: 8, cpu_binding: numactl, env: {CUDA_VISIBLE_DEVICES: '9'}}\n"
GIVEN = "{ds_config}"

CHANGES: tuple[tuple[str, str, str, Any], ...] = (
    ("MEMORY-LIMIT", PINNED, "deepspeed.zero_optimization.offload_optimizer.pin_memory", False),
    ("TOO-MANY-PROCESSES", PLAIN, "cluster.env.OMP_NUM_THREADS", "1"),
    ("TOO-MANY-PROCESSES", SLURM, "cluster.slurm.setup", ["ulimit -u unlimited"]),
    ("TOO-MANY-FILES", SLURM, "cluster.slurm.setup", ["ulimit -n 65536"]),
    ("OOM-HOST", SLURM, "cluster.slurm.mem", "0"),
    ("KILLED-UNKNOWN", SLURM, "cluster.slurm.mem", "0"),
    ("SLURM-TIME", SLURM, "cluster.slurm.time", "3-00:00:00"),
    ("SLURM-PREEMPT", SLURM, "cluster.slurm.extra", ["--requeue"]),
    ("NPU-LINK", PLAIN, "cluster.env.HCCL_CONNECT_TIMEOUT", "1800"),
    ("NPU-ERROR", PLAIN, "cluster.env.ASCEND_LAUNCH_BLOCKING", "1"),
    ("HYDRA-CONFIG", PLAIN, "cluster.env.HYDRA_FULL_ERROR", "1"),
    ("NO-NUMACTL", WITH_CLUSTER, "cluster.cpu_binding", None),
    ("MASTER-ADDR", WITH_CLUSTER, "cluster.master_addr", None),
    ("RDZV-TIMEOUT", WITH_CLUSTER, "cluster.master_addr", None),
    ("INVALID-ORDINAL", WITH_CLUSTER, "cluster.num_gpus", None),
    ("NO-GPU", WITH_CLUSTER, "cluster.env.CUDA_VISIBLE_DEVICES", None),
    ("HANG-DESYNC", PLAIN, "cluster.env.TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
    ("DDP-UNUSED", PLAIN, "cluster.env.TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
    ("HANG", PLAIN, "cluster.env.TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"),
    ("NCCL-WATCHDOG", PLAIN, "cluster.env.TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"),
    ("NCCL-WATCHDOG", PLAIN, "cluster.env.DEEPSPEED_TIMEOUT", "60"),
    ("TOKENISE-TIMEOUT", PLAIN, "cluster.env.DEEPSPEED_TIMEOUT", "60"),
    ("NCCL-SHM", PLAIN, "cluster.env.NCCL_SHM_DISABLE", "1"),
    ("HUB-RATE", PLAIN, "cluster.env.HF_HUB_OFFLINE", "1"),
    ("TRACKER-LOGIN", PLAIN, "cluster.env.WANDB_MODE", "offline"),
    ("CUDA-ASSERT", PLAIN, "cluster.env.CUDA_LAUNCH_BLOCKING", "1"),
    ("CUDA-ILLEGAL", PLAIN, "cluster.env.CUDA_LAUNCH_BLOCKING", "1"),
    ("SIGSEGV", PLAIN, "cluster.env.PYTHONFAULTHANDLER", "1"),
    ("SIGABRT", PLAIN, "cluster.env.PYTHONFAULTHANDLER", "1"),
    ("CKPT-WEIGHTS-ONLY", PLAIN, "cluster.env.TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1"),
    ("CKPT-WORLD", PLAIN, "deepspeed.checkpoint.load_universal", True),
    ("NAN", HALF, "deepspeed.bf16.enabled", True),
    ("NAN", PLAIN.replace("{train", "{gradient_clipping: 0, train"), "deepspeed.gradient_clipping", 1.0),
    ("DEVICE-MAP-Z3", STAGE_3, "deepspeed.zero_optimization.stage", 2),
    ("Z3-SIZE0", STAGE_3, "deepspeed.zero_optimization.offload_param", None),
    ("Z3-PARTITIONED", STAGE_3, "deepspeed.zero_optimization.stage", 2),
    ("Z3-GATHER-NESTED", STAGE_3, "deepspeed.zero_optimization.stage", 2),
    ("Z3-INFLIGHT", STAGE_3, "deepspeed.zero_optimization.stage3_prefetch_bucket_size", 0),
    ("HOST-LOST", PLAIN, "run.host_lost", 0),
    ("CONFIG-PATH", CONFIGURED, "job.args", ["--deepspeed", GIVEN, "--lr", "1"]),
    ("CONFIG-PATH", EQUALS, "job.args", [f"--deepspeed_config={GIVEN}"]),
    ("CONFIG-UNREAD", CONFIGURED, "job.args", ["--deepspeed", GIVEN, "--lr", "1"]),
    ("ACCELERATE-BATCH", PLAIN.replace("gpu: 2", "gpu: auto"), "deepspeed.train_micro_batch_size_per_gpu", 1),
    ("ACCELERATE-AUTO", PLAIN.replace("gpu: 2", "gpu: auto"), "deepspeed.train_micro_batch_size_per_gpu", 1),
    ("ACCELERATE-DUMMY", PLAIN.replace("{train", "{optimizer: {type: AdamW}, train"), "deepspeed.optimizer", None),
    *(
        (one, PLAIN.replace("{train", "{optimizer: {type: AdamW}, train"), "deepspeed.optimizer.params.torch_adam", True)
        for one in ("PYTHON-H", "GCC-VERSION", "LD-CURAND", "NINJA-MISSING")
    ),
)


@pytest.mark.parametrize(("cause", "text", "path", "value"), CHANGES, ids=lambda part: part if str(part).isupper() else "")
def test_fix_changes_that_key_and_the_checks_pass(tmp_path: Path, cause: str, text: str, path: str, value: Any) -> None:
    plan = load(text, "p.yaml", str(tmp_path))
    patches = [patch for way in BY_ID[cause].all_remedies() if way.patch and (patch := way.patch(plan))]
    changed = [plan.patch(patch) for patch in patches]
    fitting = [one for one in changed if one.get(path) == value != plan.get(path)]
    assert fitting, [one.get(path) for one in changed]
    before = {finding.code for finding in check_plan(Target(plan)) if finding.severity == "error"}
    assert {finding.code for finding in check_plan(Target(fitting[0])) if finding.severity == "error"} <= before


def test_fix_that_is_in_the_plan_already_is_not_offered_again(tmp_path: Path) -> None:
    for cause, text, path, value in CHANGES:
        plan = load(text, "p.yaml", str(tmp_path))
        for way in BY_ID[cause].all_remedies():
            patch = way.patch(plan) if way.patch else None
            once = plan.patch(patch) if patch else plan
            if way.patch and once.get(path) == value and cause != "SLURM-TIME":  # it doubles
                assert way.patch(once) is None, (cause, way.text)


@pytest.mark.parametrize("cause", ["SLURM-PREEMPT", "SLURM-TIME"])
def test_plan_without_a_slurm_script_gets_none_by_a_fix(cause: str) -> None:
    assert [way.patch(load(PLAIN)) for way in BY_ID[cause].all_remedies() if way.patch] == [None]


def test_every_cause_says_how_to_confirm_it() -> None:
    reported = [one for one in ALL if one.role in ("root", "symptom", "stop", "quiet") and not one.answer]
    assert [one.id for one in reported if not one.confirm] == []
    assert sum(any(way.patch for way in one.all_remedies()) for one in reported) * 2 > len(reported)
