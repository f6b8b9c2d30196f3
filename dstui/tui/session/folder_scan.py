"""Find files of the current folder to start from: training scripts, Plans, configurations, drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from dstui.adopt.recipes import Script
from dstui.adopt.signs import JSON, SIGNS, kind_of, root_keys
from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, read_text
from dstui.documents.layers import Template, site_templates
from dstui.documents.training_script import script_named
from dstui.plan.model import Integration
from dstui.tui.session.drafts import Draft, left_behind, recent_plans, unnamed_here

FILES, SHOWN, RECENT = 300, 8, 4
"""The number of files that are looked into, of a kind that are offered, and of Plans that lie elsewhere."""
NAMED = ("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu")
"""Keys of which a ds_config.json has at least one: a folder may have many other JSON files."""
QUOTED = re.compile(r"""["']([A-Za-z][\w.-]{1,60}(?:/[\w.-]{1,60})?)["']""")
"""A possible hub id of a model."""


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The files to start from, the most likely first."""

    scripts: tuple[Script, ...]
    documents: tuple[str, ...]
    configurations: tuple[str, ...]
    """Those that are not Plans and need a script: accelerate YAMLs, and ds_config.json files that none of them names."""
    drafts: tuple[Draft, ...]
    templates: tuple[Template, ...] = ()
    """The site's Plans to begin with."""
    recent: tuple[str, ...] = ()
    """Plans elsewhere that were open last."""


def scan_folder(script: str) -> FolderContents:
    """Scan the current folder; `script`: one that the user has named. May block on a slow disk; never raises."""
    import dstui.forecast.largest  # noqa: F401 - which takes a while: here it delays nothing

    scripts = _chosen(script) or sorted(
        _scripts(), key=lambda script: (script.facts.integration is None, "train" not in script.name, script.name)
    )
    documents = [path.name for path in _files("*.y*ml", "*.json", "*.hjson") if is_like_a_plan(path)]
    configurations = _configurations(documents, scripts[0].facts.integration if scripts else None)
    drafts = [draft for draft in left_behind() if unnamed_here(draft.document) and draft.text != draft.began]
    return FolderContents(
        tuple(scripts[:SHOWN]),
        tuple(documents[:SHOWN]),
        tuple(configurations),
        tuple(drafts[:1]),
        tuple(site_templates())[:SHOWN],
        tuple(_recent()),
    )


def _recent() -> list[str]:
    here = Path.cwd()
    return [str(path) for path in recent_plans() if path.parent != here][:RECENT]


def _configurations(documents: list[str], reader: Integration | None) -> list[str]:
    """Return the configurations, those for the script's reader first. A ds_config.json that a YAML names is listed with it."""
    texts, kinds = dict[str, str](), dict[str, str]()
    for name in documents[:SHOWN]:
        with suppress(FileProblem):
            texts[name] = read_text(Path(name))
            kinds[name] = kind_of(texts[name], name)
    of_accelerate = [name for name, kind in kinds.items() if kind == "accelerate"]
    others = [name for name, kind in kinds.items() if kind == "ds_config" and not any(name in texts[one] for one in of_accelerate)]
    if reader == "deepspeed":  # which reads no accelerate YAML and fills no "auto"
        return [*sorted(others, key=lambda name: '"auto"' in texts[name]), *of_accelerate]
    return [*of_accelerate, *others]


def _files(*patterns: str) -> Iterator[Path]:
    with suppress(OSError):
        yield from islice(sorted(path for pattern in patterns for path in Path().glob(pattern)), FILES)


def _scripts() -> Iterator[Script]:
    for path in _files("*.py"):
        with suppress(FileProblem):
            text = read_text(path)
            found = script_named(path.name, text)
            if found.facts.integration or found.facts.without or "import torch" in text:
                yield replace(found, model=found.model or _model_in(text))


def _chosen(name: str) -> list[Script]:
    """Return the script that the user named, whatever it contains."""
    with suppress(FileProblem):
        text = read_text(Path(name)) if name else ""
        found = script_named(name, text)
        return [replace(found, model=found.model or _model_in(text))] if name else []
    return []


def _model_in(text: str) -> str:
    """Return the first model that a script names and dstui knows."""
    from dstui.forecast.presets import preset

    return next((name for name in QUOTED.findall(text) if preset(name)), "")


def is_like_a_plan(path: Path) -> bool:
    """Return whether a file looks like a Plan, a ds_config.json or an accelerate YAML."""
    try:
        text = read_text(path)
    except FileProblem:
        return False
    if path.suffix in JSON and not any(key in text for key in (*NAMED, "deepspeed", SIGNS[0])):
        return False  # most JSON files are not, and need no closer look
    match kind_of(text, path.name):
        case "plan":
            return "deepspeed" in root_keys(text)
        case "ds_config":
            return any(key in text for key in NAMED)
        case kind:
            return kind == "accelerate"
