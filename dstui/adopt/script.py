"""What a training script says of itself: who reads its DeepSpeed configuration, and by which argument. Pure: text in, facts out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dstui.plan.model import Integration


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """What was found in a script. `integration` is None where nothing in it reads a DeepSpeed configuration."""

    integration: Integration | None
    suggested_args: tuple[str, ...]
    """What to give it so that it finds the configuration; empty where it needs no argument (or none is known)."""
    why: str
    """One line: what in the script says so, with its line number."""


# The first that matches decides; what is given is what such scripts take.
SIGNS: tuple[tuple[str, Integration, tuple[str, ...], str], ...] = (
    (r"\badd_config_arguments\s*\(", "deepspeed", ("--deepspeed_config", "{ds_config}"), "deepspeed.add_config_arguments"),
    (
        r"\b(HfArgumentParser|TrainingArguments|SFTConfig|DPOConfig|GRPOConfig|TrlParser)\b",
        "trainer",
        ("--deepspeed", "{ds_config}"),
        "the Trainer's arguments",
    ),
    (r"^\s*(from\s+accelerate\b|import\s+accelerate\b)", "accelerate", (), "accelerate, which finds it in its environment"),
    (r"[\"']--deepspeed[_-]config[\"']", "deepspeed", ("--deepspeed_config", "{ds_config}"), "an argument --deepspeed_config"),
    (r"[\"']--ds[_-]config[\"']", "deepspeed", ("--ds_config", "{ds_config}"), "an argument --ds_config"),
    (r"[\"']--deepspeed[\"']", "deepspeed", ("--deepspeed", "{ds_config}"), "an argument --deepspeed"),
    (r"\bDSTUI_DS_CONFIG\b", "deepspeed", (), "DSTUI_DS_CONFIG, which every rank finds in its environment"),
    (r"\bdeepspeed\.initialize\s*\(", "deepspeed", (), "deepspeed.initialize, with a configuration of its own"),
)


def inspect_script(text: str) -> ScriptFacts:
    """Look for the signs of an integration in a script's text; comments do not count."""
    code = re.sub(r"(?m)^\s*#.*$", "", text)
    for pattern, integration, args, words in SIGNS:
        if match := re.search(pattern, code, re.MULTILINE):
            line = code.count("\n", 0, match.start() + len(match[0]) - len(match[0].lstrip())) + 1
            return ScriptFacts(integration, _spelled(args, code), f"line {line}: {words}")
    return ScriptFacts(None, (), "nothing in it mentions deepspeed, accelerate or the Trainer")


def _spelled(args: tuple[str, ...], code: str) -> tuple[str, ...]:
    """The option as the script itself spells it (--deepspeed-config)."""
    return tuple(
        dashed if arg.startswith("--") and (dashed := "--" + arg[2:].replace("_", "-")) != arg and f'"{dashed}"' in code else arg
        for arg in args
    )


def reads_config(args: tuple[str, ...]) -> bool:
    """Whether the arguments of a job hand the rendered configuration to the script."""
    return any("{ds_config}" in arg for arg in args)
