"""Names of the rendered configurations, and the placeholders for their paths."""

from __future__ import annotations

import posixpath
import re

DS_CONFIG = "{ds_config}"
"""In the arguments of a job: the placeholder for the path of the rendered ds_config.json."""
PLACEHOLDER = re.compile(r"\{ds_config(?::(\w+))?\}")
"""The placeholder, also for one of several models: {ds_config:teacher}."""
VARIABLE = "DSTUI_DS_CONFIG"


def config_name(model: str) -> str:
    """Return the file name of a configuration: ds_config.json, or ds_config_MODEL.json for one of several models."""
    return f"ds_config_{model}.json" if model else "ds_config.json"


def config_variable(model: str) -> str:
    """Return the variable with the path for every rank: DSTUI_DS_CONFIG, or DSTUI_DS_CONFIG_MODEL for one of several models."""
    return f"{VARIABLE}_{model.upper()}" if model else VARIABLE


def placeholder(model: str) -> str:
    """Return the placeholder for the path, used until the folder of the files is known."""
    return f"{{ds_config:{model}}}" if model else DS_CONFIG


def with_paths(word: str, ds_config: str) -> str:
    """Replace placeholders in a word by the paths of the rendered files, which are in one folder with ds_config.json."""

    def path(match: re.Match[str]) -> str:
        return posixpath.join(posixpath.dirname(ds_config), config_name(match[1])) if match[1] else ds_config

    return PLACEHOLDER.sub(path, word)
