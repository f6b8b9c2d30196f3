"""Rules about mixture-of-experts models at stage 3, where ranks that use different experts wait for each other's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.check.context import Context, pointer
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan
from dstui.plan.accelerate_keys import SECTION
from dstui.plan.finding import Fix

PATH = "zero_optimization.leaf_module"
CLASSES = "deepspeed_moe_layer_cls_names"
BLOCKS: Mapping[str, str] = {
    "mixtral": "MixtralSparseMoeBlock",
    "qwen2_moe": "Qwen2MoeSparseMoeBlock",
    "qwen3_moe": "Qwen3MoeSparseMoeBlock",
    "qwen3_next": "Qwen3NextSparseMoeBlock",
    "deepseek_v2": "DeepseekV2Moe",
    "deepseek_v3": "DeepseekV3MoE",
    "olmoe": "OlmoeSparseMoeBlock",
    "flex_olmo": "FlexOlmoSparseMoeBlock",
    "granitemoe": "GraniteMoeMoE",
    "jetmoe": "JetMoeMoE",
    "phimoe": "PhimoeSparseMoeBlock",
    "dbrx": "DbrxFFN",
    "gpt_oss": "GptOssMLP",
    "llama4_text": "Llama4TextMoe",
    "glm4_moe": "Glm4MoeMoE",
    "minimax": "MiniMaxSparseMoeBlock",
    "ernie4_5_moe": "Ernie4_5_MoeSparseMoeBlock",
    "dots1": "Dots1MoE",
}
"""model_type -> the class of its MoE layer in transformers 5.23 (modeling_MODEL_TYPE.py)."""
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def experts(config: Mapping[str, Any]) -> int:
    """Return the number of experts in a layer; 0 for a dense model."""
    inner = config.get("text_config")
    parts = (config, inner if isinstance(inner, Mapping) else {})
    return max((value for part in parts for name in EXPERTS if isinstance(value := part.get(name), int)), default=0)


@rule("DS334", "warning", source="runtime/zero/leaf_module_config.py", readers=("deepspeed", "trainer", "accelerate"))
def no_leaf_modules(c: Context) -> Problems:
    """A mixture of experts at stage 3 whose MoE layers are not gathered as a whole."""
    if c.model is None or c.stage != 3 or experts(c.model) < 2 or _given_to_accelerate(c):
        return
    kind = str(c.model.get("model_type", ""))
    block = BLOCKS.get(kind, "")
    if c.has(PATH):
        yield from _another_class(c, block)
        return
    key = c.key(f"{PATH}.classes")
    if key is not None and any(str(one).endswith(f".{block}") for one in key.default or () if block):
        message = f"DeepSpeed {c.release.version} gathers {block} whole by itself"
        yield c.problem("zero_optimization", message, why="ranks route tokens to different experts", severity="info")
        return
    why = "ranks route tokens to different experts, and each waits for weights that the others never gather: the job hangs"
    message = f"a mixture of {experts(c.model)} experts at stage 3 needs its MoE layer named as a leaf module"
    if not block:
        yield c.problem("zero_optimization", message, why=why)
        return
    folder = kind.removesuffix("_text")
    path = f"transformers.models.{folder}.modeling_{folder}.{block}"
    if key is None:
        why += f"; DeepSpeed {c.release.version} takes it in the script only: deepspeed.utils.set_z3_leaf_modules(model, [{block}])"
    yield c.problem("zero_optimization", message, why=why, fix=c.put(f"{PATH}.classes", [path], f"name {block}") if key else None)


def _another_class(c: Context, block: str) -> Problems:
    """Yield a problem if classes are named but none is the model's own MoE layer."""
    given, named = c.section(PATH), c.written(f"{PATH}.classes")
    if not block or not isinstance(named, list) or any(given.get(other) for other in ("names", "name_suffixes")):
        return
    if not any(str(one).rpartition(".")[2] == block for one in named):
        why = "each rank then waits for weights that the others never gather, and the job hangs"
        yield c.problem(f"{PATH}.classes", f"none of the classes is {block}, the model's MoE layer", why=why)


@rule("DS336", "warning", source="accelerate/utils/dataclasses.py (set_moe_leaf_modules)", readers=("accelerate",))
def another_class(c: Context) -> Problems:
    """accelerate gets the names of MoE classes, without that of the model."""
    block = BLOCKS.get(str(c.model.get("model_type", "")), "") if c.model is not None else ""
    names = [name.strip() for name in _given_to_accelerate(c).split(",") if name.strip()]
    if names and block and block not in names and c.stage == 3:
        path = f"accelerate.{SECTION}.{CLASSES}"
        why = f"accelerate: Could not find a transformer layer class called {names[0]} to wrap in the model. (where the model has none)"
        message = f"the MoE layer of this model is called {block} (case matters): {CLASSES} does not name it"
        fix = Fix(f"write {block}", ({"op": "replace", "path": pointer(path), "value": block},))
        yield about_the_plan(path, message, why, fix)


def _given_to_accelerate(c: Context) -> str:
    inner = c.plan.accelerate.get(SECTION) if c.plan is not None and c.integration == "accelerate" else None
    given = inner.get(CLASSES) if isinstance(inner, Mapping) else None
    return given if isinstance(given, str) else ""
