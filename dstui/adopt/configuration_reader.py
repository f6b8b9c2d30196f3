"""Find who reads the DeepSpeed configuration of a script, and how it reaches the script. Pure, by the syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from dstui.adopt.no_deepspeed import LIGHTNING, WITHOUT_ACCELERATOR, deepspeed_strategy
from dstui.adopt.pycode import Code, ScriptOption
from dstui.plan.handed_over import CONFIG, CONFIG_OPTIONS
from dstui.plan.model import Integration

VARIABLE = "DSTUI_DS_CONFIG"
"""The variable in which every rank finds the path of the rendered ds_config.json."""
NAMES_CONFIG = re.compile(r"conf|deepspeed|^ds_|json|yaml", re.IGNORECASE)
"""An option that may name a configuration, if a function gets several."""
TRAINER = re.compile(
    r"(?:.*\.)?\w*TrainingArguments$|trl\..*(?:SFT|DPO|GRPO|KTO|ORPO|CPO|PPO|RLOO|Reward|PRM|BCO|XPO|NashMD|OnlineDPO|GKD)Config$"
)
"""The argument classes of transformers' and TRL's Trainers."""
TRAINER_CLASS = re.compile(r"(?:transformers\.(?:.*\.)?(?:Seq2Seq)?|trl\.(?:.*\.)?[A-Z]\w*)Trainer$")
"""The Trainers themselves, whose arguments a script may take from a module that is not read."""
PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
"""Parsers that turn every field of these classes into an option, including --deepspeed; the last is alignment-handbook's."""
Sign = tuple[Integration, tuple[str, ...], int, str, bool]
"""Integration, arguments, line, evidence, and whether the rendered configuration reaches it."""


def first_sign(code: Code) -> Sign | None:
    """Return the first sign of who reads the configuration; None if there is none."""
    return next((found for sign in SIGNS if (found := sign(code))), None)


def _sign_of_config_arguments(code: Code) -> Sign | None:
    call = code.call("add_config_arguments")
    if call is None:
        return None
    return "deepspeed", ("--deepspeed_config", CONFIG), call.node.lineno, "deepspeed.add_config_arguments", True


def _sign_of_trainer(code: Code) -> Sign | None:
    line = min((line for name, line in code.names.items() if TRAINER.match(name)), default=None)
    if line is None:
        return None
    if parses_trainer_arguments(code):
        return "trainer", ("--deepspeed", CONFIG), line, "the Trainer's arguments", True
    handed = [(call.node.lineno, call.value("deepspeed")) for call in code.calls if TRAINER.match(call.name)]
    for at, value in handed:
        if value is not None:
            return _handed_over(code, "trainer", value, at, "TrainingArguments(deepspeed=…)")
    if (named := _variable(code)) is not None:
        return "trainer", (), named, VARIABLE, True
    return "trainer", (), line, "the Trainer's arguments, made in the script without deepspeed=…", False


def _sign_of_trainer_class(code: Code) -> Sign | None:
    """Find a Trainer whose arguments come from elsewhere. Without a parser, accelerate's launcher hands it the configuration."""
    used = ((code.names[name], name) for name in code.used if TRAINER_CLASS.match(name))
    line, name = min(used, default=(0, ""))
    if not name:
        return None
    if parses_trainer_arguments(code):
        return "trainer", ("--deepspeed", CONFIG), line, name, True
    if (option := code.option(*CONFIG_OPTIONS)) is not None:
        return "trainer", _given(code, option), option.line, f"an argument {option.word}", True
    return "trainer", (), line, f"{name}, whose arguments are made in code that is not read", False


def _sign_of_accelerate(code: Code) -> Sign | None:
    names = {name: line for name, line in code.names.items() if name.partition(".")[0] == "accelerate"}
    line = min((line for name, line in names.items() if name.rpartition(".")[2] not in WITHOUT_ACCELERATOR), default=None)
    if line is None or (code.call("Accelerator") is None and code.call("deepspeed.initialize")):
        return None
    plugin = code.call("DeepSpeedPlugin")
    if plugin is not None and (value := plugin.value("hf_ds_config", place=0)) is not None:
        return _handed_over(code, "accelerate", value, plugin.node.lineno, "DeepSpeedPlugin(hf_ds_config=…)")
    return "accelerate", (), line, "accelerate, which finds it in its environment", True


def _sign_of_lightning(code: Code) -> Sign | None:
    line = next((line for name, line in code.names.items() if name.partition(".")[0] in LIGHTNING), None)
    if line is None:
        return None
    if (strategy := code.call("DeepSpeedStrategy")) is not None:
        value = strategy.value("config")
        at = strategy.node.lineno
        if value is not None:
            return _handed_over(code, "deepspeed", value, at, "DeepSpeedStrategy(config=…)")
        return "deepspeed", (), at, "DeepSpeedStrategy, with its own configuration", False
    named = next((call for call in code.calls if deepspeed_strategy(call)), None)
    return named and ("deepspeed", (), named.node.lineno, "Lightning's DeepSpeed strategy, with its own configuration", False)


def _sign_of_initialize(code: Code) -> Sign | None:
    call = code.call("deepspeed.initialize")
    value = call.value("config", "config_params") if call is not None else None
    return _handed_over(code, "deepspeed", value, call.node.lineno, "deepspeed.initialize(config=…)") if call and value else None


def _sign_of_option(code: Code) -> Sign | None:
    option = code.option(*CONFIG_OPTIONS)
    return None if option is None else ("deepspeed", _given(code, option), option.line, f"an argument {option.word}", True)


def _sign_of_variable(code: Code) -> Sign | None:
    line = _variable(code)
    return None if line is None else ("deepspeed", (), line, f"{VARIABLE}, which every rank finds in its environment", True)


def _sign_of_own_configuration(code: Code) -> Sign | None:
    call = code.call("deepspeed.initialize")
    return None if call is None else ("deepspeed", (), call.node.lineno, "deepspeed.initialize, with its own configuration", False)


SIGNS: tuple[Callable[[Code], Sign | None], ...] = (
    _sign_of_config_arguments,
    _sign_of_trainer,
    _sign_of_trainer_class,
    _sign_of_accelerate,
    _sign_of_lightning,
    _sign_of_initialize,
    _sign_of_option,
    _sign_of_variable,
    _sign_of_own_configuration,
)
"""The first match wins."""


def _handed_over(code: Code, integration: Integration, value: ast.expr, line: int, where: str) -> Sign:
    """Classify a configuration that the script passes itself: from an argument, from the environment, or its own."""
    parts = list(code.inside(value))
    named = {node.attr for node in parts if isinstance(node, ast.Attribute)} | {node.id for node in parts if isinstance(node, ast.Name)}
    put_together = any(
        isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and len(node.args) + len(node.keywords) > 1) for node in parts
    )
    options = (option for option in code.options if option.name in named and not option.switch)
    option = next((option for option in options if not put_together or NAMES_CONFIG.search(option.name)), None)
    if option is not None and (option.word or sum(not other.word for other in code.options) == 1):
        return integration, _given(code, option), option.line, f"an argument {option.word or option.name}", True
    if _variable(code) is not None:
        return integration, (), line, f"{VARIABLE}, which every rank finds in its environment", True
    if (known := code.option(*CONFIG_OPTIONS)) is not None:
        return integration, _given(code, known), known.line, f"an argument {known.word}", True
    return integration, (), line, f"{where}, with its own configuration", False


def _variable(code: Code) -> int | None:
    """Return the line that names DSTUI_DS_CONFIG, or DSTUI_DS_CONFIG_NAME for one of several models."""
    return next((line for text, line in code.texts.items() if text.startswith(VARIABLE)), None)


def _given(code: Code, option: ScriptOption) -> tuple[str, ...]:
    """Return the arguments that pass the configuration, including the script's own switch --deepspeed."""
    switch = next((other.word for other in code.options if other.switch and other.word == "--deepspeed"), None)
    return tuple(filter(None, (switch, option.word, CONFIG)))


def parses_trainer_arguments(code: Code) -> bool:
    """Return whether a parser turns every field of the Trainer's arguments into an option."""
    return any(name.rpartition(".")[2] in PARSERS for name in code.names)
