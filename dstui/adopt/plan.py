"""Other people's files as the text of a Plan. Pure: text in, text out; nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dstui.adopt.dsconfig import read_dsconfig
from dstui.plan import load
from dstui.plan.scalars import resolve
from dstui.text import sanitise

EMPTY = """\
# made by dstui from {source}
version: 1
name: {name}
job: {{}}
deepspeed: {{}}
"""


def plan_of_dsconfig(text: str, source: str, script: Sequence[str] = ()) -> str:
    """The Plan of a bare ds_config.json; `script` is the training script and its arguments, as typed. Raises ConfigError.

    Numbers keep their spelling, so that rendering gives the same file again.
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
        plan = plan.set("job.args", [_placeholder(word, source) for word in script[1:]])
    if read.integration != "deepspeed":
        plan = plan.set("job.integration", read.integration)
    return plan.set("deepspeed", config).text if config else plan.text


def _placeholder(word: str, source: str) -> Any:
    """The file's own path among the arguments becomes the rendered one."""
    return "{ds_config}" if word == source else word
