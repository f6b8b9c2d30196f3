"""The outputs of short jobs: folders that the script's arguments name are redirected, and other writes are found in its text."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import dstui
from dstui.adopt.program import read_program
from dstui.adopt.pycode import Call, Code, NotPython
from dstui.base.files import FileProblem, is_file, read_text
from dstui.plan import Plan

OPTIONS = frozenset({
    "checkpoint_dir", "checkpoint_path", "checkpoints_dir", "ckpt_dir", "ckpt_path", "default_root_dir", "log_dir", "logdir", "logging_dir",
    "out", "out_dir", "output", "output_dir", "output_folder", "output_path", "project_dir", "results_dir", "run_dir", "save", "save_dir",
    "save_folder", "save_path", "save_to", "tensorboard_dir",
})  # fmt: skip
"""Options with an output path, with `_` instead of `-`."""
APPENDED = ("output_dir", "save_dir", "out_dir")
"""Options that are added if the script's parser has them and the Plan does not set them."""
WRITERS = frozenset({
    "save_checkpoint", "save_16bit_model", "save_fp16_model", "save_pretrained", "save_model", "save_state", "save_file", "save_weights",
    "SummaryWriter",
})  # fmt: skip
"""The last words of calls that write a folder or a file."""
TRAINERS = (
    "TrainingArguments",
    "SFTConfig",
    "DPOConfig",
    "Seq2SeqTrainingArguments",
    "GRPOConfig",
    "KTOConfig",
    "ORPOConfig",
    "RewardConfig",
)
FOLDERS = ("output_dir", "save_dir", "save_directory", "log_dir", "logging_dir", "f", "path")
UNREADABLE = "the script cannot be read here, so it is unknown where it writes"


def redirected(plan: Plan, place: Path, options: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the arguments with each output folder moved under `place`, and the options that were changed.

    `options`: those of the script's parser, for folders that the Plan leaves at their defaults.
    """
    words, done = list(plan.job.args), list[str]()
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        name = option.lstrip("-").replace("-", "_")
        if not option.startswith("--") or name not in OPTIONS:
            continue
        if equals:
            words[at] = f"{option}={_moved(place, name, value)}"
            done.append(option)
        elif at + 1 < len(words) and not words[at + 1].startswith("-"):
            words[at + 1] = _moved(place, name, words[at + 1])
            done.append(option)
    known = {option.lstrip("-").replace("-", "_"): option for option in options if option.startswith("--")}
    for name in APPENDED:
        if name in known and known[name] not in done and not any(word.partition("=")[0] == known[name] for word in words):
            words += [known[name], _moved(place, name, "output")]
            done.append(known[name])
    return words, done


def _moved(place: Path, name: str, value: str) -> str:
    return str(place / name / (PurePosixPath(value).name or "output"))


def prepare(place: Path, words: Sequence[str]) -> None:
    """Create the folders for redirected arguments, which a script may expect to exist."""
    for word in words:
        value = word.partition("=")[2] if word.startswith("--") else word
        if value.startswith(f"{place}/"):
            Path(value).parent.mkdir(0o700, parents=True, exist_ok=True)


def discard(place: Path) -> None:
    """Delete the output of a short job: checkpoints of a few steps have no use."""
    shutil.rmtree(place, ignore_errors=True)


def fixed_writes(plan: Plan, redirected_options: Sequence[str]) -> list[str]:
    """Return sentences about where the script writes, or may write, outside of the redirected folders."""
    program = _program(plan)
    if program is None:
        return [] if redirected_options else [UNREADABLE]
    found = []
    for call in program.calls:
        if (where := _written(program, call)) is None or (redirected_options and not where):
            continue  # a computed path is assumed to come from the arguments
        named = f"to {where!r}" if where else "to a place that the Plan's arguments do not name"
        found.append(f"{program.place(call.node.lineno)}: {call.name.rpartition('.')[2]} writes {named}")
    return list(dict.fromkeys(found))


def _written(code: Code, call: Call) -> str | None:
    """Return the fixed path that a call writes to, "" if it is computed, None for a call that writes nothing."""
    last = call.name.rpartition(".")[2]
    if last in TRAINERS:
        strategy = call.value("save_strategy")
        keeps = isinstance(strategy, ast.Constant) and strategy.value == "no"
        return None if keeps else _fixed(code, call.value("output_dir", place=0), "trainer_output")
    if last in WRITERS or call.name.endswith("torch.save"):
        return _fixed(code, call.value(*FOLDERS, place=1 if call.name.endswith("torch.save") else 0))
    return None


def _fixed(code: Code, value: ast.expr | None, default: str = "") -> str:
    """Return the text of a value that is a literal or a name assigned once; "" if it is computed."""
    if value is None:
        return default
    given = code.assigned.get(value.id, []) if isinstance(value, ast.Name) else [value]
    texts = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return texts[0] if texts and len(texts) == len(given) else ""


def _program(plan: Plan) -> Code | None:
    """Return the script with the modules beside it; None if it cannot be read."""
    folder, module = Path(plan.place(plan.job.workdir)), plan.job.module or ""
    if module.startswith("dstui."):  # a module that comes with dstui
        folder = Path(dstui.__file__).parent.parent
    script = folder / (plan.job.script or module.replace(".", "/") + ".py")
    root = script.parent if plan.job.script else folder

    def text_of(path: str) -> str | None:
        with suppress(FileProblem, OSError, ValueError):
            return read_text(root / path) if is_file(root / path) else None
        return None

    with suppress(FileProblem, OSError, ValueError, NotPython):
        return read_program(read_text(script), text_of).code
    return None
