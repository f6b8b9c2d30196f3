"""Other people's files as the text of a Plan. Pure: text in, text out; nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dstui.adopt.dsconfig import read_dsconfig
from dstui.plan import load
from dstui.plan.scalars import resolve
from dstui.text import sanitise

if TYPE_CHECKING:
    from dstui.adopt.script import ScriptFacts

EMPTY = """\
# made by dstui from {source}
version: 1
name: {name}
job: {{}}
deepspeed: {{}}
"""


def plan_of_dsconfig(text: str, source: str, script: Sequence[str] = (), facts: ScriptFacts | None = None) -> str:
    """The Plan of a bare ds_config.json. Raises ConfigError.

    `script`: the training script and its arguments, in which `{ds_config}` stands for the rendered file; `facts`: what a look into it
    has found. Numbers keep their spelling, so that rendering gives the same file again.
    """
    read = read_dsconfig(text)
    try:
        config = json.loads(text, parse_int=resolve, parse_float=resolve)
    except ValueError:  # hjson: comments, trailing commas
        config = read.config
    name = source.rpartition("/")[2].rpartition(".")[0]
    plan = load(EMPTY.format(source=sanitise(source), name="imported")).set("name", sanitise(name) or "imported")
    if script:
        plan = plan.set("job.script", script[0])
    if script[1:]:
        plan = plan.set("job.args", ["{ds_config}" if word == source else word for word in script[1:]])
    for path, value in suited(read.integration, facts, builds="optimizer" in config).items():
        plan = plan.set(path, value)
    return plan.set("deepspeed", config).text if config else plan.text


def suited(integration: str, facts: ScriptFacts | None, *, builds: bool) -> dict[str, Any]:
    """What a Plan must say to suit a script: dotted path -> value, only what is not the default.

    `integration`: what is assumed where nothing in the script tells; `builds`: the configuration has an optimizer.
    """
    reader = (facts.integration if facts is not None else None) or integration
    found: dict[str, Any] = {"job.integration": reader} if reader != "deepspeed" else {}
    if facts is not None and facts.optimizer == "script" and not builds:
        found["job.optimizer"] = "script"
    if facts is not None and facts.refuses_local_rank and reader != "accelerate":
        found["cluster.launcher_args"] = ["--no_local_rank"]
    return found
