"""`dstui run --hold` of published launches: each Plan has the arguments, environment and folder that bash gives to the launcher.

DSTUI_LAUNCHES names the folder of launches.jsonl, as in tests/bench/first_forecast.py. The launcher's options are compared as the launcher's
own parser reads them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dstui.plan import Plan, load
from tests.long.published_sandbox import Sandbox, Text, missing

LAUNCHES = os.environ.get("DSTUI_LAUNCHES", "")
NOT_OPTIONS = {"training_script", "training_script_args", "user_script", "user_args", "nondefault"}
MEETING_HERE = {"master_addr", "node_rank", "machine_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone", "same_network"}
"""Rendezvous options of a single machine do not change the job."""
ONE_PLAN_FOR_ALL = {"node_rank", "machine_rank"}
SWITCHES = {"use_deepspeed": ("distributed_type", "DEEPSPEED"), "bind_cores_to_rank": ("cpu_binding", "deepspeed")}
"""Switch of a launcher -> the key of the Plan with the same effect, and its value."""
KEYS = {"nnodes": "num_nodes", "num_machines": "num_nodes", "main_process_ip": "master_addr", "main_process_port": "master_port"}


def parsed(launcher: str, words: list[str]) -> dict[str, Any]:
    """Return the options that differ from the launcher's defaults, read by its own parser; none if it refuses them."""
    if launcher == "deepspeed":
        from deepspeed.launcher.runner import parse_args

        read: Any = parse_args
    elif launcher == "torchrun":
        from torch.distributed.run import get_args_parser

        read = get_args_parser().parse_args
    else:
        from accelerate.commands.launch import launch_command_parser

        read = launch_command_parser().parse_args
    try:
        found, default = vars(read(words)), vars(read(["x.py"]))
    except SystemExit:
        return {}
    return {name: str(value) for name, value in found.items() if value != default[name] and name not in NOT_OPTIONS}


def options_that_differ(launch: dict[str, Any], plan: Plan) -> list[str]:
    """Return the launcher's options that the Plan has differently, or not at all."""
    cluster = plan.data.get("cluster") or {}
    accelerate = plan.data.get("accelerate") or {}
    here = {**accelerate, **(accelerate.get("deepspeed_config") or {}), **cluster}
    here |= parsed(launch["launcher"], [*map(str, cluster.get("launcher_args") or []), "x.py"])
    ranks = {str(here.get("num_gpus")), *(str(count) for count in (cluster.get("hosts") or {}).values())}
    written = parsed(launch["launcher"], launch["argv"])
    least, _, most = written.get("nnodes", "").partition(":")
    written |= {"nnodes": least} if most == least and least else {}
    several = str(here.get("num_nodes") or here.get("num_machines") or "1") != "1"
    skipped = ONE_PLAN_FOR_ALL if several else MEETING_HERE
    found = []
    for name, value in written.items():
        if name in skipped or (name == "config_file" and (accelerate or value in str(here))) or (name == "module" and plan.job.module):
            continue
        if not several and KEYS.get(name) == "num_nodes" and value in ("1", "1:1"):
            continue
        if name in SWITCHES and here.get(SWITCHES[name][0]) == SWITCHES[name][1]:
            continue
        if name == "nproc_per_node" and not value.isdigit() and value not in ("gpu", "auto"):
            continue  # torchrun itself refuses it
        if name == "mixed_precision" and (plan.deepspeed.get(value) or {}).get("enabled") is True:
            continue
        if name in ("nproc_per_node", "num_processes", "num_gpus") and (value in ranks or value in ("gpu", "auto")):
            continue
        if str(here.get(KEYS.get(name, name), here.get(name))) != value:
            found.append(f"{name} {value} -> {here.get(KEYS.get(name, name))}")
    return found


def is_function(name: str) -> bool:
    """Return whether a variable is a function that bash exports, which no rank reads."""
    return name.startswith("BASH_FUNC_")


def differences(launch: dict[str, Any], plan: Plan) -> list[str]:
    """Return what bash gives to the launcher but the Plan lacks."""
    args, words = list(plan.job.args), launch["argv"]
    split = len(words) - len(args)
    if split < 1 or words[split:] != args:
        return [f"arguments {words[-len(args) :]} -> {args}"]
    found = []
    if words[split - 1] != (plan.job.module or plan.job.script):
        found.append(f"script {words[split - 1]} -> {plan.job.module or plan.job.script}")
    if launch["folder"] != plan.job.workdir:
        found.append(f"folder {launch['folder']} -> {plan.job.workdir}")
    planned = {name: str(value).replace("$${", "${") for name, value in plan.cluster.env.items()}
    exported = {name: value for name, value in launch["env"].items() if value.isprintable() and not is_function(name)}
    names = exported.keys() | planned.keys()
    found += [f"{name}={exported.get(name)!r} -> {planned.get(name)!r}" for name in names if exported.get(name) != planned.get(name)]
    return found + options_that_differ(launch, plan)


def compared(text: Text, folder: Path) -> tuple[str, list[str]]:
    """Run a text both ways; return the result in a word, and the differences."""
    folder.mkdir()
    sandbox = Sandbox(text, folder)
    launches = sandbox.recorded()
    if not launches:
        return "no launch", []
    texts, said = sandbox.held()
    unobserved = [launch for launch in launches if "no_python" in parsed(launch["launcher"], launch["argv"])]
    if unobserved and "runs unobserved" in said:  # each rank runs a program that is not Python's
        launches = [launch for launch in launches if launch not in unobserved]
    texts = list(dict.fromkeys(texts))  # as the recorded ones
    plans = [load(held, "held", "/") for held in texts]
    if len(plans) != len(launches):
        return "differs", [f"{len(launches)} launches, {len(plans)} held: {said.strip()[-300:]}"]
    lines = {name for launch in launches for name, value in launch["env"].items() if not value.isprintable() and not is_function(name)}
    found = [f"{name} is left out without a word" for name in lines if f"{name}: not in the Plan" not in said]
    for launch in launches:  # launches in the background come in any order
        plan = min(plans, key=lambda plan: len(differences(launch, plan)))
        plans.remove(plan)
        found += differences(launch, plan)
    return ("differs" if found else "equal"), found


@pytest.mark.skipif(find_spec("accelerate") is None, reason="the options of accelerate launch are read by its own parser")
@pytest.mark.skipif(not LAUNCHES, reason="set DSTUI_LAUNCHES to a folder with launches.jsonl")
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_held_plans_equal_what_bash_runs(tmp_path: Path) -> None:
    records = [json.loads(line) for line in (Path(LAUNCHES) / "launches.jsonl").read_text().splitlines()]
    names = ("id", "repo", "path", "kind", "cwd", "text", "files")
    texts = [Text(*(record[name] for name in names)) for record in records]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda text: compared(text, tmp_path / text.id), texts))
    for text, (verdict, found) in zip(texts, results, strict=True):
        if verdict != "equal":
            print(f"{text.id:40} {verdict}  {'; '.join(found)[:600]}")
    counts = Counter(verdict for verdict, _ in results)
    print(dict(counts))
    assert counts["differs"] == 0
