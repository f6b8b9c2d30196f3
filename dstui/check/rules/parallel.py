"""Rules about tensor, expert, sequence and pipeline parallelism: sizes that must divide, and combinations that fail."""

from __future__ import annotations

from collections.abc import Mapping

from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan, write
from dstui.plan.accelerate_keys import PARALLELISM, SIZE, sp_size
from dstui.plan.finding import Fix
from dstui.plan.scalars import resolve

TENSOR, EXPERT = "tensor_parallel", "expert_parallel"
FOLDING = "module_inject/auto_ep_folding.py"
AUTOEP = "module_inject/auto_ep_config.py"


def tensor_ranks(c: Context) -> int:
    """Return the number of ranks over which layers are split; 1 if they are not."""
    return int(c.number(f"{TENSOR}.autotp_size") or 1)


def experts_on(c: Context) -> bool:
    """Return whether expert parallelism is enabled."""
    return isinstance(c.written(EXPERT), Mapping) and bool(c.section(EXPERT).get("enabled"))


def expert(c: Context, name: str, default: object = None) -> object:
    """Return a value of the expert_parallel section, unconverted as DeepSpeed reads it."""
    return c.section(EXPERT).get(name, default)


@rule("DS190", "error", when="initialize", source="torch/distributed/_mesh_layout.py:154", since="0.16.9")
def tensor_ranks_and_world(c: Context) -> Problems:
    """autotp_size does not divide the ranks."""
    size, path = tensor_ranks(c), f"{TENSOR}.autotp_size"
    if c.world_size is not None and size > 1 and c.world_size % size:
        best = next(n for n in range(min(size, c.world_size), 0, -1) if c.world_size % n == 0)
        why = "torch's device mesh fails with an assertion without a message"
        yield c.problem(
            path, f"{c.world_size} ranks cannot be split into groups of {size}", why=why, fix=c.put(path, best, f"write {best}")
        )


@rule(
    "DS192", "error", when="initialize", says="does not match tensor_parallel.autotp_size", source="runtime/engine.py:1021", since="0.19.8"
)
def two_tensor_sizes(c: Context) -> Problems:
    """tensor_parallel.tp.tp_size and autotp_size differ."""
    path = f"{TENSOR}.tp.tp_size"
    size = c.number(path)
    if c.has(path) and size not in (None, 1) and tensor_ranks(c) > 1 and size != tensor_ranks(c):
        yield c.problem(
            path, f"tp_size is {size:g}, autotp_size {tensor_ranks(c)}", fix=c.put(path, tensor_ranks(c), f"write {tensor_ranks(c)}")
        )


PRESETS = ("llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3")


@rule("DS194", "warning", source="module_inject/autotp_config.py:569", since="0.19.8")
def unknown_tensor_preset(c: Context) -> Problems:
    """A preset of tensor parallelism that does not exist: DeepSpeed guesses instead."""
    path = f"{TENSOR}.preset_model"
    value = c.text(path)
    if value and value not in PRESETS:
        yield c.problem(path, f"there is no preset {value}: {', '.join(PRESETS)}", fix=c.drop(path, "remove preset_model"))


@rule("DS198", "error", when="initialize", says="is not a valid PartitionType", source="module_inject/autotp_config.py:291", since="0.19.8")
def partition_type(c: Context) -> Problems:
    """A rule of tensor parallelism splits neither by column nor by row."""
    specs = c.section(f"{TENSOR}.partition_config").get("layer_specs")
    for number, spec in enumerate(specs if isinstance(specs, list) else ()):
        kind = spec.get("partition_type", "column") if isinstance(spec, Mapping) else "column"
        if tensor_ranks(c) > 1 and isinstance(kind, str) and kind.lower() not in ("column", "row", "skip"):
            path = f"{TENSOR}.partition_config.layer_specs"
            yield c.problem(path, f"layer_specs[{number}].partition_type is {kind!r}: column, row or skip")


@rule("DS202", "error", when="initialize", says="Unknown preset_model", source=f"{AUTOEP}:177", since="0.19.8")
def unknown_expert_preset(c: Context) -> Problems:
    """A preset of expert parallelism that does not exist."""
    key = c.key(f"{EXPERT}.preset_model")
    value = expert(c, "preset_model")
    if experts_on(c) and key and value is not None and value not in key.choices:
        message = f"there is no preset {value}: {', '.join(key.choices)}"
        yield c.problem(key.path, message, says=f"Unknown preset_model '{value}'", fix=c.drop(key.path, "remove preset_model"))


@rule(
    "DS203",
    "error",
    when="parse",
    says="is not supported in this AutoEP build",
    source="module_inject/auto_ep_presets/base.py:20",
    since="0.19.8",
)
def load_balance(c: Context) -> Problems:
    """load_balance_coeff is not supported."""
    path = f"{EXPERT}.load_balance_coeff"
    if c.written(path) not in (MISSING, None):
        yield c.problem(path, "load_balance_coeff is not supported", fix=c.drop(path, "remove load_balance_coeff"))


@rule(
    "DS204",
    "error",
    when="initialize",
    says="comm_max_tokens_per_rank must be a positive integer when comm_backend='deepep'",
    source=f"{AUTOEP}:233",
    since="0.19.8",
)
def deepep_and_tokens(c: Context) -> Problems:
    """DeepEP without the number of tokens."""
    if experts_on(c) and expert(c, "comm_backend") == "deepep" and not expert(c, "comm_max_tokens_per_rank"):
        path = f"{EXPERT}.comm_max_tokens_per_rank"
        yield c.problem(path, "deepep needs comm_max_tokens_per_rank: micro-batch × longest sequence", fix=c.put(path, 8192, "write 8192"))


@rule("DS205", "info", says="autoep_size=1 means every rank owns all experts", source=f"{AUTOEP}:264", since="0.19.8")
def experts_everywhere(c: Context) -> Problems:
    """Expert parallelism over one rank: every rank has all experts."""
    if experts_on(c) and expert(c, "autoep_size", 1) == 1 and tensor_ranks(c) <= 1:
        yield c.problem(f"{EXPERT}.autoep_size", "autoep_size is 1: every rank keeps all experts")


@rule("DS199", "error", when="initialize", says="must divide the stage size", source=f"{FOLDING}:112", since="0.19.8")
def expert_ranks_and_world(c: Context) -> Problems:
    """autoep_size does not divide the ranks."""
    size, path = expert(c, "autoep_size", 1), f"{EXPERT}.autoep_size"
    if experts_on(c) and isinstance(size, int) and size > 1 and c.world_size is not None and c.world_size % size:
        best = next(n for n in range(min(size, c.world_size), 0, -1) if c.world_size % n == 0)
        yield c.problem(path, f"{c.world_size} ranks cannot be split into groups of {size}", fix=c.put(path, best, f"write {best}"))


@rule(
    "DS206",
    "error",
    when="initialize",
    says="AutoEP+AutoTP folding requires expert_parallel.autoep_size > 1",
    source=f"{FOLDING}:203-250",
    since="0.19.8",
)
def experts_and_tensors(c: Context) -> Problems:
    """Expert and tensor parallelism together, with what cannot be combined with both."""
    if not experts_on(c) or tensor_ranks(c) <= 1:
        return
    if expert(c, "autoep_size", 1) == 1:
        fix = c.drop(EXPERT, "remove expert_parallel")
        yield c.problem(f"{EXPERT}.autoep_size", "autoep_size must be more than 1 beside tensor parallelism", fix=fix)
    elif c.offload("optimizer") != "none" or c.offload("param") != "none":
        says = "ZeRO optimizer/parameter offload with AutoEP+AutoTP folding is not validated yet."
        yield c.problem(EXPERT, "offload cannot be combined with expert and tensor parallelism together", says=says)


@rule("DS208", "error", when="initialize", says="expert_parallel.expert_tensor_parallel_size", source=f"{FOLDING}:215", since="0.19.8")
def split_experts(c: Context) -> Problems:
    """expert_tensor_parallel_size is reserved and must be 1."""
    path = f"{EXPERT}.expert_tensor_parallel_size"
    if experts_on(c) and expert(c, "expert_tensor_parallel_size", 1) != 1:
        yield c.problem(path, "expert_tensor_parallel_size must be 1", fix=c.drop(path, "remove it"))


@rule(
    "DS209",
    "error",
    when="initialize",
    says="AutoEP with ZeRO Stage 3 does not support",
    source="runtime/engine.py:2219-2232",
    since="0.19.8",
)
def experts_at_stage_3(c: Context) -> Problems:
    """Expert parallelism at stage 3 with ZeRO++ or sequence parallelism."""
    if not experts_on(c) or c.stage != 3:
        return
    for name in ("zero_quantized_gradients", "zero_hpz_partition_size"):
        path = f"zero_optimization.{name}"
        if (c.number(path) or 0) > 1 or c.value(path) is True:
            yield c.problem(path, f"{name} cannot be combined with expert parallelism at stage 3", fix=c.drop(path, f"remove {name}"))


@rule(
    "DS211",
    "error",
    when="initialize",
    says="Mesh should not be bigger than default world size",
    source="deepspeed/__init__.py:545",
    since="0.16.9",
)
def mesh_and_world(c: Context) -> Problems:
    """data_parallel_size × sequence_parallel_size is not the number of ranks."""
    data, sequence = c.written("data_parallel_size"), c.written("sequence_parallel_size")
    if isinstance(data, int) and isinstance(sequence, int) and c.world_size is not None and data * sequence != c.world_size:
        right = c.world_size // sequence if sequence > 0 and c.world_size % sequence == 0 else None
        message = f"{data} (data) × {sequence} (sequence) is not {c.world_size} ranks"
        fix = c.put("data_parallel_size", right, f"write {right}") if right else c.drop("data_parallel_size", "remove it")
        yield c.problem("data_parallel_size", message, fix=fix)


@rule("DS182", "error", when="initialize", source="runtime/pipe/engine.py:135")
def pipeline_switches(c: Context) -> Problems:
    """A switch of the pipeline is not a boolean."""
    for name in ("pipe_partitioned", "grad_partitioned"):
        path = f"pipeline.{name}"
        value = c.written(path)
        if value is not MISSING and not isinstance(value, bool):
            why = "an AssertionError without a message, if the script uses a PipelineModule"
            yield c.problem(path, f"{name} must be true or false", why=why, severity="warning", fix=c.drop(path, f"remove {name}"))


@rule("DS313", "info", source="runtime/config.py:272")
def pipeline_of_the_script(c: Context) -> Problems:
    """Keys of the pipeline section that only the script can set."""
    for name in ("stages", "partition", "seed_layers"):
        path = f"pipeline.{name}"
        if c.has(path):
            yield c.problem(
                path, f"{name} is not read from here: PipelineModule takes it in the script", fix=c.drop(path, f"remove {name}")
            )


@rule(
    "PL060",
    "error",
    when="launch",
    says="You cannot use `--use_parallelism_config` without `--use_fsdp` and `--fsdp_version=2`",
    source="accelerate/commands/launch.py (_validate_launch_command)",
    readers=("accelerate", "trainer"),
)
def parallelism_on_the_command_line(c: Context) -> Problems:
    """--use_parallelism_config for accelerate launch, which with DeepSpeed reads it only from its YAML."""
    words = c.plan.cluster.launcher_args if c.plan is not None and c.plan.cluster.launcher == "accelerate" else ()
    if "--use_parallelism_config" not in words:
        return
    why = "accelerate: You cannot use `--use_parallelism_config` without `--use_fsdp` and `--fsdp_version=2`."
    rest, keys, left = list[str](), dict[str, object](), [word for word in words if word != "--use_parallelism_config"]
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name.startswith(f"--{PARALLELISM}_") and (equals or left):
            keys[name.removeprefix("--")] = resolve(value if equals else left.pop(0))
        else:
            rest.append(name + equals + value)
    path = "cluster.launcher_args"
    section = [write(c, f"accelerate.{PARALLELISM}", keys)] if keys else []
    fix = Fix(f"set it in accelerate.{PARALLELISM}, which becomes the YAML's section", (write(c, path, rest), *section))
    yield about_the_plan(path, "accelerate refuses --use_parallelism_config on its command line beside DeepSpeed", why, fix)


@rule("PL061", "error", when="initialize", source="accelerate/accelerator.py (_prepare_deepspeed)", readers=("accelerate", "trainer"))
def sequence_over_ranks(c: Context) -> Problems:
    """accelerate splits sequences over a number of ranks that is not possible, or with a release of DeepSpeed that does not support it."""
    size = sp_size(c.plan)
    if size < 2:
        return
    path = f"accelerate.{PARALLELISM}.{SIZE}"
    if c.before("0.18.2"):
        why = "accelerate: Deepspeed ALST/Ulysses requires deepspeed>=0.18.2"
        yield about_the_plan(path, f"DeepSpeed {c.release.version} cannot split sequences for accelerate", why)
    if c.world_size is not None and c.world_size % size:
        yield about_the_plan(path, f"{c.world_size} ranks cannot be divided by {size}", "groups of ranks share a sequence")
    length = c.plan.model.sequence_length if c.plan is not None and c.plan.model is not None else None
    if length is not None and length % size:
        why = f"DeepSpeed: batch's seqlen={length} isn't divisible by sp-size={size}"
        yield about_the_plan(path, f"sequences of {length} tokens cannot be divided by {size}", why)
