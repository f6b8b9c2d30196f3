"""Rules about the keys of an accelerate YAML: what accelerate refuses, ignores or silently changes."""

from __future__ import annotations

from collections.abc import Mapping

from dstui.check.accelerate.book import DS, device, machines, plugin_value, stage, uses_deepspeed
from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.plan.accelerate_keys import ALONE, LAUNCHERS, PARALLELISM, PLUGIN, TOP, TYPES
from dstui.plan.finding import Fix


@rule("AC004", "error", when="parse", says="had unknown keys", source="commands/config/config_args.py")
def unknown_key(c: Context) -> Problems:
    """A key at the top level that accelerate does not know: it refuses the whole file."""
    for name in c.config:
        if name in TOP:
            continue
        if name in PLUGIN and isinstance(c.written(DS), Mapping) and name not in c.section(DS):
            fix = c.move(name, f"{DS}.{name}", f"move it into {DS}")
        else:
            fix = c.drop(name, f"remove {name}")
        why = f"accelerate: The config file had unknown keys (['{name}'])"
        yield c.problem(name, f"accelerate has no key {name} at the top level", why=why, fix=fix)


@rule(
    "AC006",
    "error",
    when="parse",
    says="A `distributed_type` must be specified in the config file.",
    source="commands/config/config_args.py",
)
def distributed_type(c: Context) -> Problems:
    """distributed_type is missing, or unknown to accelerate."""
    path, value = "distributed_type", c.flat.get("distributed_type")
    if value is None:
        why = "accelerate: A `distributed_type` must be specified in the config file."
        yield c.problem(path, "distributed_type is missing", why=why, fix=c.put(path, "DEEPSPEED", "write DEEPSPEED"))
    elif value not in TYPES and value is not False:
        new = value.upper() if isinstance(value, str) and value.upper() in TYPES else "DEEPSPEED"
        why = f"accelerate: '{value}' is not a valid DistributedType"
        yield c.problem(path, f"distributed_type is {value!r}", why=why, fix=c.put(path, new, f"write {new}"))


@rule("AC007", "warning", source="commands/launch.py")
def deepspeed_is_not_used(c: Context) -> Problems:
    """A deepspeed_config that is not used, because distributed_type is another one."""
    kind = c.written("distributed_type")
    if isinstance(c.written(DS), Mapping) and c.section(DS) and kind in TYPES and kind != "DEEPSPEED":
        why = "accelerate launches plain data parallelism and does not use these values"
        fix = c.put("distributed_type", "DEEPSPEED", "write DEEPSPEED")
        yield c.problem("distributed_type", f"distributed_type is {kind}: deepspeed_config has no effect", why=why, fix=fix)


@rule("AC001", "error", when="parse", says="the following accelerate config variables will be ignored", source="utils/dataclasses.py")
def beside_a_file(c: Context) -> Problems:
    """Values beside deepspeed_config_file that belong in that file."""
    if not uses_deepspeed(c) or not plugin_value(c, "deepspeed_config_file"):
        return
    for name in ALONE:
        if name in c.section(DS):
            why = "accelerate raises a ValueError that lists all nine names, not the one at fault"
            message = f"{name} cannot be combined with deepspeed_config_file: write it into that file"
            yield c.problem(f"{DS}.{name}", message, why=why, fix=c.drop(f"{DS}.{name}", f"remove {name}"))
    if c.flat.get("mixed_precision") is not None:
        why = "accelerate refuses it even as 'no'; --mixed_precision on the command line is accepted"
        message = "mixed_precision cannot be combined with deepspeed_config_file: write bf16 or fp16 into that file"
        yield c.problem("mixed_precision", message, why=why, fix=c.drop("mixed_precision", "remove mixed_precision"))


@rule("AC005", "error", when="launch", says="'bool' object has no attribute 'lower'", source="commands/launch.py")
def precision_is_a_boolean(c: Context) -> Problems:
    """mixed_precision: an unquoted no is false in YAML, and accelerate fails on it."""
    if c.written("mixed_precision") is False:
        why = "accelerate: AttributeError: 'bool' object has no attribute 'lower'"
        yield c.problem(
            "mixed_precision", "mixed_precision: no must be in quotes", why=why, fix=c.put("mixed_precision", "no", "write 'no'")
        )


@rule("AC009", "warning", source="commands/config/config_args.py")
def unknown_inside(c: Context) -> Problems:
    """A key in deepspeed_config that accelerate does not know: no message, no effect."""
    for name in c.section(DS):
        if name not in PLUGIN:
            why = "accelerate stores it and never reads it"
            yield c.problem(f"{DS}.{name}", f"accelerate ignores {name} in {DS}", why=why, fix=c.drop(f"{DS}.{name}", f"remove {name}"))


@rule("AC060", "warning", source="commands/launch.py")
def unknown_parallelism(c: Context) -> Problems:
    """A key in parallelism_config without the prefix that accelerate requires: no message, no effect."""
    for name in c.section(PARALLELISM):
        if not name.startswith(f"{PARALLELISM}_"):
            path, right = f"{PARALLELISM}.{name}", f"{PARALLELISM}.{PARALLELISM}_{name}"
            yield c.problem(
                path,
                f"accelerate ignores {name} in {PARALLELISM}: its keys begin with {PARALLELISM}_",
                why="accelerate stores it and never reads it",
                fix=c.move(path, right, f"write {PARALLELISM}_{name}"),
            )


@rule("AC014", "warning", source="utils/dataclasses.py")
def init_flag(c: Context) -> Problems:
    """zero3_init_flag does not do what its name says."""
    path, value, zero = f"{DS}.zero3_init_flag", plugin_value(c, "zero3_init_flag"), stage(c)
    if value is True and zero is not None and zero < 3:
        yield c.problem(path, "zero3_init_flag is for stage 3", severity="info", fix=c.put(path, False, "write false"))
    elif value is False and zero == 3:
        why = "zero.Init depends on the stage alone; build the model before Accelerator() to avoid it"
        yield c.problem(path, "zero3_init_flag false does not prevent the model from being partitioned when it is created", why=why)


@rule("AC016", "info", source="accelerator.py (get_state_dict)")
def whole_weights_on_save(c: Context) -> Problems:
    """16-bit weights are gathered on save unnecessarily, or are not gathered although nothing else saves them."""
    path, value, zero = f"{DS}.zero3_save_16bit_model", plugin_value(c, "zero3_save_16bit_model"), stage(c)
    if value is True and zero is not None and zero < 3:
        yield c.problem(
            path, f"zero3_save_16bit_model is for stage 3, and has no effect at stage {zero}", fix=c.put(path, False, "write false")
        )
    elif value is False and zero == 3:
        why = "accelerator.get_state_dict() then raises: take `dstui checkpoint DIR --fp32 OUT`; gathering is slow and fills one rank's RAM"
        yield c.problem(path, "full weights are not gathered when the model is saved", why=why, fix=c.put(path, True, "gather them"))


@rule("AC028", "error", when="initialize", says="Could not find a transformer layer class", source="utils/dataclasses.py")
def blank_in_the_classes(c: Context) -> Problems:
    """A blank after a comma becomes part of the next class name."""
    path, value = f"{DS}.deepspeed_moe_layer_cls_names", plugin_value(c, "deepspeed_moe_layer_cls_names")
    if isinstance(value, str) and any(name != name.strip() for name in value.split(",")):
        right = ",".join(name.strip() for name in value.split(","))
        why = "accelerate splits only at commas, so it looks for a class whose name begins with a space"
        yield c.problem(path, "there is a space before or after a comma", why=why, fix=c.put(path, right, "remove the blanks"))


@rule("AC019", "warning", source="utils/dataclasses.py")
def parameters_stay(c: Context) -> Problems:
    """offload_param_device below stage 3 does nothing."""
    path = f"{DS}.offload_param_device"
    zero = stage(c)
    if device(c, "param") != "none" and zero is not None and zero < 3:
        yield c.problem(path, f"offload_param_device has no effect at stage {zero}", fix=c.put(path, "none", "write none (or use stage 3)"))


@rule("AC020", "warning", source="utils/launch.py")
def nvme_path_is_lost(c: Context) -> Problems:
    """A path on NVMe in the YAML never reaches the ranks."""
    for name in ("offload_optimizer_nvme_path", "offload_param_nvme_path"):
        if plugin_value(c, name) not in (None, "none"):
            why = "accelerate launch does not export it: files go to ./none"
            message = f"{name} does not reach the ranks: write it into a ds_config.json"
            yield c.problem(f"{DS}.{name}", message, why=why, fix=c.drop(f"{DS}.{name}", f"remove {name}, and use deepspeed_config_file"))


@rule("AC021", "error", when="launch", says="backend does not support limiting num nodes/gpus", source="utils/launch.py")
def mpi_launcher(c: Context) -> Problems:
    """A launcher of DeepSpeed that accelerate's own options break."""
    path, value = f"{DS}.deepspeed_multinode_launcher", plugin_value(c, "deepspeed_multinode_launcher")
    if machines(c) < 2 or value is None:
        return
    if value in ("openmpi", "mpich", "mvapich", "impi"):
        filters = plugin_value(c, "deepspeed_exclusion_filter") or plugin_value(c, "deepspeed_inclusion_filter")
        limit, added = ("worker include/exclusion", "the filter") if filters else ("limiting num nodes/gpus", "--num_gpus")
        why = f"DeepSpeed: {value} backend does not support {limit} (accelerate adds {added})"
        yield c.problem(path, f"{value} does not work through accelerate", why=why, fix=c.put(path, "pdsh", "use pdsh"))
    elif value not in LAUNCHERS:
        message = f"deepspeed_multinode_launcher is {value!r}: {', '.join(LAUNCHERS)}"
        why = f"DeepSpeed: Unknown launcher {value}"
        read = plugin_value(c, "deepspeed_hostfile")  # without a hostfile, DeepSpeed starts no launcher and trains only on this machine
        yield c.problem(path, message, why=why, severity=None if read else "warning", fix=c.put(path, "standard", "use standard"))


@rule("AC022", "warning", source="utils/launch.py")
def uneven_processes(c: Context) -> Problems:
    """The processes cannot be spread evenly over the machines."""
    processes, hosts = c.written("num_processes"), machines(c)
    if isinstance(processes, int) and hosts > 1 and processes % hosts:
        even = max(1, processes // hosts) * hosts
        message = f"{processes} processes cannot be spread over {hosts} machines: {even} are started"
        yield c.problem("num_processes", message, fix=c.put("num_processes", even, f"write {even}"))


@rule("AC023", "warning", source="utils/launch.py")
def no_hostfile(c: Context) -> Problems:
    """Several machines with a launcher that needs a hostfile, and none."""
    launcher = plugin_value(c, "deepspeed_multinode_launcher")
    if machines(c) > 1 and launcher not in (None, "standard") and not plugin_value(c, "deepspeed_hostfile"):
        why = "DeepSpeed warns, trains on this machine alone, and ends with 0"
        path = f"{DS}.deepspeed_hostfile"
        yield c.problem(path, f"{launcher} needs deepspeed_hostfile", why=why, fix=c.put(path, "hostfile", "name a hostfile"))


@rule("AC025", "warning", source="utils/launch.py")
def both_filters(c: Context) -> Problems:
    """Inclusion and exclusion filter: only the exclusion is used."""
    path = f"{DS}.deepspeed_inclusion_filter"
    if plugin_value(c, "deepspeed_inclusion_filter") and plugin_value(c, "deepspeed_exclusion_filter"):
        yield c.problem(path, "only deepspeed_exclusion_filter is passed on", fix=c.drop(path, "remove the inclusion filter"))


@rule("AC024", "info", source="commands/launch.py")
def ignored_by_launch(c: Context) -> Problems:
    """Keys that accelerate launch never takes from the file."""
    defaults = {"same_network": True, "rdzv_backend": "static", "enable_cpu_affinity": False, "downcast_bf16": "no"}
    for name, usual in defaults.items():
        if c.has(name) and c.written(name) not in (usual, None, False):
            message = f"accelerate launch ignores {name} in the file: give --{name}"
            yield c.problem(name, message, fix=c.drop(name, f"remove {name}"))


@rule("AC029", "warning", source="utils/dataclasses.py")
def clipping_cannot_be_off(c: Context) -> Problems:
    """gradient_clipping 0 in the YAML is ignored, and DeepSpeed clips at 1.0."""
    path = f"{DS}.gradient_clipping"
    if uses_deepspeed(c) and plugin_value(c, "gradient_clipping") in (0, 0.0) and "gradient_clipping" in c.section(DS):
        why = "accelerate omits a 0, and DeepSpeed's default is 1.0"
        yield c.problem(
            path, "gradient_clipping 0 becomes 1.0: only a ds_config.json can switch it off", why=why, fix=c.drop(path, "remove it")
        )


@rule("AC041", "warning", source="utils/launch.py")
def dynamo(c: Context) -> Problems:
    """Compilation is not passed on to DeepSpeed's ranks."""
    for path in ("dynamo_backend", "dynamo_config.dynamo_backend"):
        value = c.flat.get(path)
        if uses_deepspeed(c) and isinstance(value, str) and value.upper() != "NO":
            why = "set ACCELERATE_DYNAMO_BACKEND, or call engine.compile() in the script"
            section = path.partition(".")[0]
            yield c.problem(path, f"{path} has no effect with DeepSpeed", why=why, fix=c.drop(section, f"remove {section}"))


@rule("AC042", "warning", source="commands/launch.py")
def cpu(c: Context) -> Problems:
    """use_cpu is ignored with DeepSpeed."""
    if uses_deepspeed(c) and c.written("use_cpu") is True:
        yield c.problem("use_cpu", "use_cpu has no effect with DeepSpeed", fix=c.put("use_cpu", False, "write false"))


@rule("AC056", "error", when="launch", says="You need to manually pass in `--num_processes`", source="commands/launch.py")
def no_processes(c: Context) -> Problems:
    """num_processes is missing."""
    if uses_deepspeed(c) and not c.flat.get("num_processes"):
        why = "accelerate: You need to manually pass in `--num_processes` using this config yaml."
        yield c.problem(
            "num_processes", "num_processes is missing", why=why, fix=c.put("num_processes", 1, "write 1, or the number of GPUs")
        )


@rule("AC057", "error", when="launch", source="utils/launch.py")
def no_meeting_point(c: Context) -> Problems:
    """Several machines without the address of the first one."""
    launcher = plugin_value(c, "deepspeed_multinode_launcher")
    if machines(c) > 1 and launcher in (None, "standard", "nossh") and not c.flat.get("main_process_ip"):
        why = "the ranks try to connect to None until they time out"
        yield c.problem("main_process_ip", f"{machines(c)} machines need main_process_ip, the address of the first", why=why)


@rule("AC059", "error", when="launch", source="utils/launch.py, prepare_deepspeed_cmd_env")
def rank_of_the_machine(c: Context) -> Problems:
    """machine_rank is not below num_machines: an error if it is read, without effect for one machine or with pdsh and similar launchers."""
    rank, read = c.written("machine_rank"), machines(c) > 1 and _each_machine_is_launched(c)
    if not isinstance(rank, int) or rank < machines(c):
        return
    if read:
        why = "the ranks wait for a machine that does not exist"
        yield c.problem("machine_rank", f"machine_rank {rank} with {machines(c)} machines: they count from 0", why=why, fix=_first(c))
    else:
        how = "one machine" if machines(c) == 1 else "this launcher, which starts all machines from one"
        yield c.problem("machine_rank", f"machine_rank {rank} has no effect with {how}", severity="info", fix=_first(c))


def _each_machine_is_launched(c: Context) -> bool:
    """Return whether the command is run on every machine, so that each needs its own rank."""
    return not uses_deepspeed(c) or plugin_value(c, "deepspeed_multinode_launcher") in ("standard", "nossh")


def _first(c: Context) -> Fix:
    return c.put("machine_rank", 0, "write 0 on the first machine")
