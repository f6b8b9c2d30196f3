"""Detect the kind of a text at first sight. This is cheap, because it is done for every opened file."""

from __future__ import annotations

import re
from typing import Literal

from dstui.plan.load import TOP

Kind = Literal["plan", "ds_config", "accelerate", "command", "hostfile", "env", "script"]
PYTHON = ".py"
NOTEBOOK = ".ipynb"
SHELL = (".sh", ".bash", ".zsh", ".slurm", ".sbatch")
PAGES = (".md", ".markdown", ".mdx", ".rst")
TASKS = (".toml", "tox.ini")
SIGNS = ("compute_environment", "distributed_type", "deepspeed_config", "mixed_precision", "num_processes")
"""Keys that no Plan has at its top level. The first three alone are enough if a text may be a DeepSpeed configuration."""
PLAN_KEYS = {"job", "deepspeed", "cluster"}
"""Top-level keys that neither a DeepSpeed configuration nor an accelerate YAML has."""
JOB_KEYS = {"apiVersion", "entrypoint", "commands", "command", "configurations"}
"""Top-level keys that only descriptions of jobs have, or VS Code's launch.json."""
# Most opened files are Plans: `re` compiles these for the first other text, and caches them.
LAUNCH = (
    r"(?m)^[^#\n]*\b(?:deepspeed|accelerate[ \t]+launch|torchrun|python[\d.]*|llamafactory-cli|dlrover-run)[ \t]+\S"
    r"|^(?:[^#\n]*[ \t;&])?(?:axolotl|swift|xtuner|trl|colossalai)[ \t]+(?:train|sft|pt|rlhf|megatron|dpo|grpo|kto|orpo|reward|rloo|run)\b"
    r"|^[ \t]*(?:\$[ \t]+)?(?:bash|sh|zsh|srun|sbatch|mpirun|docker|podman|ssh|composer|ray|\./\S+\.sh)(?:[ \t]+[^\s:]|$)|\A#!"
    r"|^[ \t]*(?:CMD|ENTRYPOINT)[ \t]+\["
)
SLOTS = r"\S+\s+slots=\d+\b.*"
JSON = (".json", ".hjson")
VARIABLE = r"[A-Za-z_]\w*=.*"

ROOT_KEY = r"(?m)^[\"']?(\w+)[\"']?[ \t]*:(?!\S)"
SHELL_TEST = re.compile(r"(?:\s|#[^\n]*\n)*(?:\[\[?\s[^\n]*\s\]\]?\s*(?:&&|\|\||;)|\{\s[a-z][^:\n{}]*;\s*\})")
"""A text that begins with a test or a group of commands, which looks like the start of JSON."""
BRACES = r"(?:[\s\ufeff]|---|(?:#|//)[^\n]*(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*\*/)*[{\[]"
"""An opening brace after comments, written so that each comment matches in only one way."""
TOKENS = r"""(?sx)
    /\*.*?(?:\*/|\Z) | (?:\#|//)[^\n]*                                                # a comment of YAML or hjson
  | (?P<open>[{\[]) | (?P<close>[}\]])
  | (?P<key> "(?:\\.|[^"\\\n])*" | '[^'\n]*' | [^\s{}\[\]:,"']+ ) (?=\s*:)
  | "(?:\\.|[^"\\\n])*"? | '[^'\n]*'? | [^\s{}\[\]:,"']+                            # a value
"""


def kind_of(text: str, name: str = "") -> Kind:
    """Return the kind of a text. The root decides, then its name and its lines; otherwise it is a Plan."""
    if name.endswith(PYTHON):
        return "script"
    if text.startswith("#!") or name.endswith((NOTEBOOK, *PAGES)):
        return "command"
    if name.endswith(TASKS):
        return "command" if is_launch(text) else "ds_config"
    braces, keys = in_braces(text), root_keys(text)
    of_a_job = "cluster" in keys and "command" in keys and not keys & {"job", "version"}  # of MosaicML: no Plan has a command at its root
    if (keys & PLAN_KEYS and not of_a_job) or ("version" in keys and keys <= set(TOP)):
        return "plan"
    if keys & set(SIGNS[:3]) if braces else is_accelerate(text):
        return "accelerate"
    if keys & JOB_KEYS:
        return "command"
    if name.endswith(JSON) or (braces and not name.endswith(SHELL) and not SHELL_TEST.match(text)):
        return "ds_config"
    if is_hostfile(text):
        return "hostfile"
    if name == ".deepspeed_env" or (is_env_file(text) and not is_launch(text)):
        return "env"
    return "command" if is_launch(text) else "plan"


def in_braces(text: str) -> bool:
    """Return whether a text is JSON, hjson with outer braces or a flow mapping of YAML, well-formed or not."""
    return re.match(BRACES, text) is not None


def root_keys(text: str) -> set[str]:
    """Return the top-level keys of a text, as far as they are visible without a parser."""
    if not in_braces(text):
        return set(re.findall(ROOT_KEY, text))
    depth, keys = 0, set()
    for token in re.finditer(TOKENS, text):
        if token["key"] and depth == 1:
            keys.add(token["key"].strip("\"'"))
        depth += (token["open"] is not None) - (token["close"] is not None)
    return keys


def is_accelerate(text: str) -> bool:
    """Return whether a YAML text is an accelerate configuration, not a Plan; also with `\\_` for `_`, as on web pages."""
    plain = text.replace("\\_", "_")
    return any(plain.startswith(f"{sign}:") or f"\n{sign}:" in plain for sign in SIGNS)


def is_launch(text: str) -> bool:
    """Return whether a text contains a command that starts training."""
    return re.search(LAUNCH, text) is not None


def is_hostfile(text: str) -> bool:
    """Return whether every non-blank, non-comment line is `HOST slots=N`."""
    return _every_line(text, SLOTS)


def is_env_file(text: str) -> bool:
    """Return whether every non-blank, non-comment line is `NAME=value`."""
    return _every_line(text, VARIABLE)


def _every_line(text: str, pattern: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return bool(lines) and all(re.fullmatch(pattern, line) for line in lines)
