"""Find the config.json of a model: in a folder, in the hub's cache on this machine, or among the models listed in dstui.

Most commands need no more of a model. `dstui.facts.model_files` also counts its parameters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem, is_file, is_folder, is_there, read_text, typed_path
from dstui.base.limits import parse_json
from dstui.forecast.presets import preset, stored_name
from dstui.plan import Plan

HUB_ID = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?")


def read_model_configs(plan: Plan) -> dict[str, Mapping[str, Any] | None]:
    """Return the config.json of each configuration's model, by the names of `Plan.configurations`. Never raises."""
    models = {name: plan.focused_on(name).model for name in plan.configurations}
    return {name: model_config(model.source if model else None, plan.base) for name, model in models.items()}


def model_config(source: str | None, base: str) -> Mapping[str, Any] | None:
    """Return the config.json of a model if it is on this machine or known to dstui. Never raises."""
    if not source:
        return None
    if source.startswith("{"):
        with suppress(FileProblem):
            return parse_object(source, "model.source")
        return None
    path = Path(base) / typed_path(source)
    folder = path if is_there(path) else cached_snapshot(source) if HUB_ID.fullmatch(source) else None
    if folder is None:
        return preset(stored_name(source)[0])
    try:
        return read_object(folder / "config.json" if is_folder(folder) else folder)
    except FileProblem:
        return None


def read_object(path: Path) -> Mapping[str, Any]:
    """Read a JSON object, such as a config.json. Raises FileProblem."""
    return parse_object(read_text(path), str(path))


def parse_object(text: str, where: str) -> Mapping[str, Any]:
    """Return the object of a JSON text. Raises FileProblem."""
    try:
        data = parse_json(text)
    except ValueError as error:
        raise FileProblem(f"{where}: not valid JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict):
        raise FileProblem(f"{where}: not an object ({{…}}), which a config.json is")
    return data


def cached_snapshot(name: str) -> Path | None:
    """Return the folder of the newest snapshot of a model in the hub's cache; None if none has a config.json."""
    cache = os.environ.get("HF_HUB_CACHE") or typed_path(os.environ.get("HF_HOME") or "~/.cache/huggingface") / "hub"
    folder = Path(cache) / f"models--{name.replace('/', '--')}"
    try:
        revision = read_text(folder / "refs" / "main")[:80].strip()
        here = folder / "snapshots" / revision
        if re.fullmatch(r"[0-9a-f]{6,64}", revision) and is_file(here / "config.json"):
            return here
        return next((snapshot for snapshot in sorted((folder / "snapshots").iterdir()) if is_file(snapshot / "config.json")), None)
    except (OSError, FileProblem):
        return None
