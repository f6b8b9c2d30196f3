"""Render the accelerate YAML of a Plan: what `accelerate config` would have written for the same answers; and the variables of its ranks.

It is in plugin mode if accelerate's own keys can express the configuration, else in config-file mode, with only the keys that accelerate
accepts there. The Plan's `accelerate:` section overrides the derived values. If it has a `distributed_type`, it was a complete file, and
nothing is added that only the questionnaire would add.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from dstui.plan import Plan
from dstui.plan.accelerate_keys import ALONE, FILE, PLUGIN, QUESTIONNAIRE, SECTION, parallelism_variables
from dstui.plan.catalogue import ZERO_SECTION
from dstui.plan.hostfile import is_named
from dstui.render.config_files import config_name

AUTO = "auto"
PORT = 29500
"""The rendezvous port of several machines, unless the Plan sets one."""
PRECISIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "bf16": ({"enabled": True},),
    "fp16": ({"enabled": True}, {"enabled": True, "auto_cast": True}),
}
"""The section that mixed_precision implies if the configuration has none. The first form is the usual one."""
LAUNCHERS = {None: "standard", "ssh": "standard", "torchrun": "standard", "accelerate": "standard"}
"""The names of dstui's launchers in accelerate, where these differ."""
SEVERAL = "several models: the script gives each its plugin, and any key of DeepSpeed here would be an error for all of them"


def accelerate_yaml(plan: Plan, slots: Mapping[str, list[int]] | None) -> str:
    """Return the text of an accelerate YAML, with comments on what it cannot express.

    `slots`: the slots used on each host, if known.
    """
    data, remarks = accelerate_data(plan, slots)
    return "".join(f"# {remark}\n" for remark in remarks) + yaml.safe_dump(data, allow_unicode=True)


def accelerate_data(plan: Plan, slots: Mapping[str, list[int]] | None) -> tuple[dict[str, Any], list[str]]:
    """Return the values of the accelerate YAML, and remarks on them."""
    whole = "distributed_type" in plan.accelerate
    data = {} if whole else dict(QUESTIONNAIRE)
    data |= _machines(plan, slots, whole)
    if not whole or plan.accelerate["distributed_type"] == "DEEPSPEED":
        remarks = _deepspeed(plan, data, whole)
    else:
        remarks = [f"accelerate uses DeepSpeed only with distributed_type: DEEPSPEED, not with {plan.accelerate['distributed_type']}"]
    data |= {name: value for name, value in plan.accelerate.items() if name not in (SECTION, "mixed_precision") or name not in data}
    return without_spelling({name: value for name, value in data.items() if value is not None}), remarks


def _deepspeed(plan: Plan, data: dict[str, Any], whole: bool) -> list[str]:
    """Write deepspeed_config and mixed_precision in plugin mode or config-file mode."""
    inner = plan.accelerate.get(SECTION)
    kept = dict(inner) if isinstance(inner, Mapping) else {}
    fields, beyond = plugin_fields(plan)
    hosts = _hosts(plan, data, whole)
    stage = fields.get("zero_stage", AUTO)
    init = {} if whole else {"zero3_init_flag": stage == 3}
    if any(plan.configurations.keys()):
        data[SECTION] = hosts | {name: value for name, value in kept.items() if name not in ALONE}
        data["mixed_precision"] = None
        return [SEVERAL]
    if FILE not in kept and not beyond:
        data["mixed_precision"] = _precision(plan, whole)
        data[SECTION] = {**_asked(stage, whole), **fields, **init, **hosts, **kept}
        return []
    lost = {name: value for name, value in kept.items() if name in ALONE}
    data[SECTION] = {FILE: config_name(""), **init, **hosts, **{name: value for name, value in kept.items() if name not in lost}}
    data["mixed_precision"] = None
    if (wanted := plan.accelerate.get("mixed_precision")) is not None:
        lost["mixed_precision"] = wanted
    remarks = [f"config-file mode, as accelerate's plugin has no key for {_listed(beyond)}"] if beyond else []
    if lost:
        words = " ".join(f"--{name} {str(value).lower()}" for name, value in lost.items())
        remarks.append(f"with a {FILE} accelerate accepts these on the command line only: {words}")
    return remarks


def plugin_fields(plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration as keys of accelerate's plugin, and the paths for which the plugin has no key."""
    rest = dict(_leaves({name: value for name, value in plan.deepspeed.items() if not _is_precision(name, value)}))
    written = {key.name: rest.pop(key.path) for key in PLUGIN.values() if key.path in rest}
    fields = {name: without_spelling(value) for name, value in written.items() if value != AUTO}
    if ZERO_SECTION not in plan.deepspeed:
        fields["zero_stage"] = 0
    if "gradient_accumulation_steps" not in written:
        fields["gradient_accumulation_steps"] = 1
    beyond = [path for path, value in rest.items() if value != AUTO or path not in ("train_batch_size", "train_micro_batch_size_per_gpu")]
    beyond += [PLUGIN[name].path for name in fields if name.endswith("nvme_path") and fields[name] not in (None, "none")]
    if not fields.get("gradient_clipping", 1):
        beyond.append("gradient_clipping")  # accelerate ignores a 0
    return fields, beyond


def _asked(stage: Any, whole: bool) -> dict[str, Any]:
    """Return the answers that accelerate's questionnaire writes at a stage even if they are "no"."""
    offload = dict.fromkeys(("offload_optimizer_device", "offload_param_device"), "none") if stage in (2, 3) else {}
    gather = {"zero3_save_16bit_model": False} if stage == 3 else {}
    return {} if whole else offload | gather


def _precision(plan: Plan, whole: bool) -> Any:
    if "mixed_precision" in plan.accelerate:
        return plan.accelerate["mixed_precision"]
    sections = {name: plan.deepspeed.get(name) for name in PRECISIONS}
    chosen = next((name for name, value in sections.items() if isinstance(value, Mapping) and value.get("enabled") is True), None)
    return chosen or (None if whole else "no")


def _is_precision(name: str, value: Any) -> bool:
    """Return whether a section says no more than mixed_precision does."""
    return name in PRECISIONS and (value in PRECISIONS[name] or value in ({"enabled": False}, {"enabled": AUTO}))


def _machines(plan: Plan, slots: Mapping[str, list[int]] | None, whole: bool) -> dict[str, Any]:
    """Return the number of processes and machines, and the rendezvous address."""
    cluster = plan.cluster
    found: dict[str, Any] = {"num_machines": len(slots) if slots else 1}
    if slots and "num_processes" not in plan.accelerate:
        found["num_processes"] = sum(map(len, slots.values()))
    several = plan.accelerate.get("num_machines", found["num_machines"]) != 1
    found["main_process_ip"] = cluster.master_addr or (_first_named(slots) if several and slots and not whole else None)
    found["main_process_port"] = cluster.master_port or (PORT if several and not whole else None)
    host, _, chosen = (cluster.include or "").partition(":")
    if not several and host == "localhost" and chosen:
        found["gpu_ids"] = chosen
    return found


def _first_named(slots: Mapping[str, list[int]]) -> str | None:
    """Return the first host if it has a name."""
    first = next(iter(slots))
    return first if is_named(first) else None


def _hosts(plan: Plan, data: Mapping[str, Any], whole: bool) -> dict[str, Any]:
    """Return the launcher for several machines, its hostfile and its filters."""
    cluster = plan.cluster
    if plan.accelerate.get("num_machines", data["num_machines"]) == 1:
        return {}
    launcher = None if whole and cluster.launcher is None else LAUNCHERS.get(cluster.launcher, cluster.launcher)
    found = {
        "deepspeed_multinode_launcher": launcher,
        "deepspeed_hostfile": cluster.hostfile or ("hostfile" if cluster.hosts and launcher != "standard" else None),
        "deepspeed_exclusion_filter": cluster.exclude,
        "deepspeed_inclusion_filter": cluster.include,
    }
    return {name: value for name, value in found.items() if value is not None}


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted path and value of everything but non-empty sections."""
    for name, value in config.items():
        if isinstance(value, Mapping) and (value or (not prefix and name == ZERO_SECTION)):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _listed(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def without_spelling(value: Any) -> Any:
    """Convert numbers to plain ones: YAML 1.1, which accelerate reads, does not know 1e-4."""
    if isinstance(value, Mapping):
        return {str(name): without_spelling(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_spelling(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return int(value) if isinstance(value, int) else float(value)


DS_CONFIG = "{ds_config}"


def accelerate_environment(plan: Plan) -> dict[str, str]:
    """Return the variables that `accelerate launch` would set for the ranks: the configuration's path, or the plugin's keys."""
    env = {"ACCELERATE_USE_DEEPSPEED": "true"}
    if precision := mixed_precision(plan):
        env["ACCELERATE_MIXED_PRECISION"] = precision
    if plan.deepspeed:  # several models, or a script, bring their own plugins, and each knows its stage
        env["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = DS_CONFIG
        zero = plan.deepspeed.get("zero_optimization")
        stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
        if stage != AUTO:
            env["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = "true" if stage == 3 else "false"
    env |= _plugin_variables(_section(plan, SECTION))
    if plan.accelerate.get("debug") is True:
        env["ACCELERATE_DEBUG_MODE"] = "true"
    return env | parallelism_variables(plan)


def _section(plan: Plan, name: str) -> Mapping[str, Any]:
    found = plan.accelerate.get(name)
    return found if isinstance(found, Mapping) else {}


def _plugin_variables(section: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables for the keys of the plugin in accelerate's spelling: class names unchanged, everything else in lower case."""
    given = [key for key in PLUGIN.values() if key.variable and key.name != FILE and section.get(key.name) is not None]
    return {key.variable: str(section[key.name]) if key.kind == "str" else str(section[key.name]).lower() for key in given}


def mixed_precision(plan: Plan) -> str | None:
    """Return the number format for accelerate: from the Plan's accelerate section, else from the configuration.

    None for "auto": then accelerate (or the script: Accelerator(mixed_precision=…)) decides.
    """
    reported = plan.accelerate.get("mixed_precision")
    if reported is not None:
        return "no" if reported is False else str(reported)  # `no` is false in YAML 1.1
    configs = [config for config in plan.configurations.values() if config]
    sections = [(name, config.get(name)) for config in configs for name in ("bf16", "fp16")]
    enabled = [(name, section.get("enabled")) for name, section in sections if isinstance(section, Mapping)]
    chosen = next((name for name, value in enabled if value is True), None)
    return chosen or (None if not configs or any(value == AUTO for _, value in enabled) else "no")
