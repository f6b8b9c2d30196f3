"""Read what a forecast needs of a model: its config.json, or the headers of its weights. Nothing in them is trusted."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dstui.adopt.script_options import options_of_yamls
from dstui.base.files import FileProblem, is_file, is_folder, is_there, read_text, reason, typed_path
from dstui.base.limits import parse_json
from dstui.base.regular_files import open_regular
from dstui.documents.training_script import script_facts_of
from dstui.facts.model_configs import HUB_ID, cached_snapshot, parse_object, read_object
from dstui.forecast.model import ModelFacts, facts_of_config, facts_of_params, stored_as, unknown_model
from dstui.forecast.presets import preset, presets, stored_name, tuned_from
from dstui.forecast.read_setup import configurations
from dstui.plan import Plan
from dstui.plan.holes import HOLE
from dstui.plan.model import Model

HEADER_LIMIT = 8 << 20
"""Bytes of a safetensors header, enough for 60,000 tensors. The parsed form takes twenty times as much."""
MAX_SHARDS = 2000
PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
"""Data types in which an element is one parameter; other types pack several."""
NO_PARAMETERS = re.compile(r"(inv_freq|masked_bias|\.attn\.bias|\.attention\.bias|position_ids)$")
"""Buffers that older files store beside the parameters."""


def read_models(plan: Plan) -> ModelFacts | dict[str, ModelFacts]:
    """Return the facts of a Plan's model, or of each of several by name. Never raises: `problem` says why one is unknown."""
    names = [name for name in configurations(plan) if name]
    if not names:
        model = plan.model
        found = read_model(model.source if model else None, model.params if model else None, plan.base)
        options = options_of_yamls((*plan.job.args, *plan.job.command), _reader(plan))
        return replace(found, options=options).for_script(script_facts_of(plan))
    models = {name: plan.focused_on(name).model or Model() for name in names}
    script = script_facts_of(plan)
    return {name: read_model(one.source, one.params, plan.base).for_script(script) for name, one in models.items()}


def _reader(plan: Plan) -> Callable[[str], str | None]:
    """Return a function that reads a file that the script's arguments name, as its ranks would find it."""

    def read(name: str) -> str | None:
        path = Path(plan.base) / typed_path(plan.job.workdir) / typed_path(name)
        try:
            return read_text(path) if is_file(path) else None
        except FileProblem:
            return None

    return read


def read_model(source: str | None, params: float | None, base: str) -> ModelFacts:
    """Return the facts of one model from its source, else from its number of parameters."""
    if source is None:
        if params is None:
            return unknown_model(
                "", "the Plan names no model: give model.source (a folder, a config.json or a hub id) or model.params: 7.0e9"
            )
        return facts_of_params(params) if 1 <= params <= 1e14 else unknown_model("", f"model.params is {params:g}: more than any model has")
    found = _facts_of_source(source, base)
    return facts_of_params(params) if found.problem and params is not None and 1 <= params <= 1e14 else found


def _facts_of_source(source: str, base: str) -> ModelFacts:
    if source.startswith("{"):
        try:
            return facts_of_config(parse_object(source, "model.source"), "model.source")
        except FileProblem as problem:
            return unknown_model("model.source", str(problem))
    path = Path(base) / typed_path(source)
    if is_there(path):
        return _facts_of_path(path)
    cached = cached_snapshot(source) if HUB_ID.fullmatch(source) else None
    if cached is not None:
        return _facts_of_path(cached)
    name, stored = stored_name(source)
    known = preset(name)
    if known is not None:
        return stored_as(facts_of_config(known, f"{name}, as listed in dstui"), stored)
    if HOLE.search(source):
        return unknown_model(source, f"model.source is {source[:200]}: the model is known once the hole is filled")
    if not HUB_ID.fullmatch(source):
        return unknown_model(
            source, f"model.source: there is no {source[:200]}, and it is not a hub id: correct it, or give model.params: 7.0e9"
        )
    if (tuned := tuned_from(name)) is not None:
        note = f"{source} is taken for a fine-tune of {tuned}, by its name: hf download {source} config.json would tell"
        return stored_as(replace(facts_of_config(presets()[tuned], f"{tuned}, by the name"), notes=(note,), by_name=True), stored)
    return unknown_model(
        source,
        f"model.source: {source} is not a folder here, not in the hub's cache and not among the models listed in dstui: "
        f"hf download {source} config.json, or give model.params: 7.0e9",
    )


def _facts_of_path(path: Path) -> ModelFacts:
    """Return the facts of a folder, a config.json or a file of weights."""
    try:
        if is_folder(path):
            if is_file(path / "config.json"):
                found = facts_of_config(read_object(path / "config.json"), str(path / "config.json"))
                if not found.problem and not found.guess:
                    return found
                counted = _count_weights(_shards(path), path, found.problem)
                return found if counted.problem and found.guess else counted
            return _count_weights(_shards(path), path, f"{path} has no config.json")
        if path.suffix == ".safetensors":
            return _count_weights([path], path, "")
        return facts_of_config(read_object(path), str(path))
    except FileProblem as problem:
        return unknown_model(str(path), str(problem))


def _count_weights(files: list[Path], path: Path, why: str) -> ModelFacts:
    """Return the number of parameters from the headers of weight files."""
    if not files:
        return unknown_model(str(path), why or f"{path} has neither a config.json nor safetensors")
    total = 0
    for file in files:
        for name, dtype, count in _header(file):
            if NO_PARAMETERS.search(name):
                continue
            if dtype not in PLAIN:
                return unknown_model(str(path), f"{file} holds packed numbers ({dtype}), which are not counted: give model.params: 7.0e9")
            total += count
    return facts_of_params(total, f"the weights in {path}")


def _shards(folder: Path) -> list[Path]:
    """Return the weight files of a folder, from their index if there is one."""
    index = folder / "model.safetensors.index.json"
    if is_file(index):
        named = read_object(index).get("weight_map")
        names = {str(name) for name in named.values()} if isinstance(named, dict) else set()
        if len(names) > MAX_SHARDS or any("/" in name or name.startswith(".") for name in names):
            raise FileProblem(f"{index} names files that do not exist beside it, or too many")
        return [folder / name for name in sorted(names)]
    single = folder / "model.safetensors"
    return [single] if is_file(single) else []


def _header(path: Path) -> list[tuple[str, str, int]]:
    """Return name, type and number of elements of each tensor in a safetensors file. Reads only the header."""
    try:
        if not is_file(path):
            raise FileProblem(f"{path} is missing, or not a regular file")
        with os.fdopen(open_regular(path.resolve()), "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= HEADER_LIMIT:
                raise FileProblem(f"{path} is not a safetensors file: its header would have {length} bytes")
            head = parse_json(file.read(length).decode())
    except OSError as error:
        raise FileProblem(f"{path}: {reason(error)}") from None
    except ValueError:
        raise FileProblem(f"{path} is not a safetensors file: its header is not JSON") from None
    if not isinstance(head, dict):
        raise FileProblem(f"{path} is not a safetensors file: its header is not an object")
    return [_tensor(path, name, entry) for name, entry in head.items() if name != "__metadata__"]


def _tensor(path: Path, name: str, entry: Any) -> tuple[str, str, int]:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if (
        not isinstance(shape, list)
        or not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 48 for n in shape)
        or len(shape) > 16
    ):
        raise FileProblem(f"{path}: the tensor {name[:80]!r} has no shape")
    count = 1
    for length in shape:
        count *= length
    return name, str(entry.get("dtype")), count
