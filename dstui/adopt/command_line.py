"""Split a launch command into the launcher's options, the script, and the script's arguments. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from dstui.adopt.rank_starters import STARTERS
from dstui.adopt.shell.recognise import FRAMEWORKS, PYTHON
from dstui.adopt.shell.shell_state import GPU_COUNT, Launch, to_display_text, to_plan_text
from dstui.base.dataclass import dataclass
from dstui.plan.holes import HOLE

SWITCHES: Mapping[str, frozenset[str]] = {
    "deepspeed": frozenset(
        (
            *("no_python", "no_local_rank", "module", "no_ssh", "no_ssh_check", "force_multi", "save_pid", "elastic_training"),
            "bind_cores_to_rank",
        )
    ),
    "accelerate": frozenset(
        (
            *("cpu", "multi_gpu", "tpu", "ipex", "module", "m", "no_python", "debug", "quiet", "q", "use_deepspeed", "use_fsdp"),
            *("use_parallelism_config", "use_megatron_lm", "use_xpu", "same_network", "enable_cpu_affinity", "tpu_use_cluster"),
            *("no_tpu_cluster", "tpu_use_sudo", "dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation"),
            *("standalone", "use_mps_device"),
        )
    ),
    "torchrun": frozenset(("standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "pass_local_rank")),
}
"""Launcher -> its options that take no value. Every other option takes one."""
SHORT = {"H": "hostfile", "i": "include", "e": "exclude", "m": "module", "num_accelerators": "num_gpus"}
COMMANDS: Mapping[str, tuple[str, ...]] = {"accelerate": ("accelerate", "launch")}
"""Launcher -> the first words of its command, if not its name."""
GPUS = f"${{{GPU_COUNT}}}"
"""The value of an option that is the number of GPUs of the machine."""

OVERRIDE = re.compile(r"[+~]{0,2}\w[\w.@/-]*=[^\n]*")
"""A setting of Hydra, which is never a script: the script comes with the arguments of the text."""
LONGEST = 100
"""Characters of a wrapper in a note."""
COMMAND = re.compile(r"(?:^|\s)(?:torchrun|accelerate launch|deepspeed|python3?)\s|\s--\w|^pkill\s")
"""A variable with a command or options, from which the text assembles the launch."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The parts of a launch command. Texts are in the form of a Plan: holes are `${NAME}`."""

    launcher: str
    """deepspeed, accelerate, torchrun, or python for a launch without a launcher."""
    options: Mapping[str, str | bool]
    """The launcher's options, without dashes and with `_` instead of `-`."""
    script: str
    module: bool
    args: tuple[str, ...]
    """Everything after the script."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables before the command, or exported earlier."""
    folder: str = ""
    """The working directory, relative to the folder in which the text runs; empty if it is the same."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the text writes first: absolute path -> content."""
    hosts: Mapping[str, int] = field(default_factory=dict)
    """The hosts of a hostfile that the text writes first."""
    notes: tuple[str, ...] = ()
    python: str = ""
    """The path of the ranks' interpreter, if `--no_python` is followed by one."""
    command: tuple[str, ...] = ()
    """The whole command of a framework that starts its ranks itself; launcher and script are then its name."""
    starter: tuple[str, ...] = ()
    """The words of mpirun or srun, if it starts the ranks of a script without a launcher."""


class NoLaunch(Exception):
    """A command that a Plan cannot express. Holds a `message`."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def command_line(launch: Launch, here: str, *, imported: bool = False) -> CommandLine:
    """Split a launch. Raises NoLaunch.

    `here` is the absolute folder in which its text runs. `imported`: instead of NoLaunch, return what is meant: a whole command where the
    ranks run another program than Python, and the module of `deepspeed -m`, which the launcher refuses.
    """
    words = [to_plan_text(word) for word in launch.words]
    whole, program = launch.launcher in FRAMEWORKS, ""
    options, rest, module = ({}, [launch.launcher], False) if whole else _options(launch.launcher, words)
    empty = []
    while not module and len(rest) > 1 and HOLE.fullmatch(rest[0]) and rest[1].endswith(".py"):
        empty.append(rest.pop(0))
    if not rest or (launch.launcher in SWITCHES and not module and OVERRIDE.fullmatch(rest[0])):
        raise NoLaunch(f"line {launch.line}: the command names no script: {launch.launcher} … SCRIPT ARGUMENTS")
    refused = launch.launcher == "deepspeed" and not {"-m", "--m"}.isdisjoint(words[: len(words) - len(rest)])
    if refused and not imported:
        raise NoLaunch("deepspeed does not know -m")
    python = ""
    if options.pop("no_python", False):
        python = rest[0] if "/" in rest[0] else ""
        try:
            rest, module = _named_by_python(rest, launch.line)
        except NoLaunch:
            if not imported:
                raise
            whole, program = True, rest[0]
    texts = [name for name, value in launch.env.items() if "\n" in value or COMMAND.search(value)]
    starter = next((one for one in reversed(launch.wrappers) if one[0] in STARTERS), ()) if launch.launcher == "python" else ()
    left_out = dict.fromkeys(" ".join(wrapper) for wrapper in launch.wrappers if wrapper is not starter)
    notes = [f"{to_display_text(one)[:LONGEST]} precedes the launch, and is left out" for one in left_out]
    notes += [f"{name} precedes the script and is not set here: words that a run has there are left out" for name in empty]
    notes += [
        f"{name} is exported and contains words of the command, which are in the Plan: it is left out of cluster.env" for name in texts
    ]
    counted = [name for name, value in launch.env.items() if to_plan_text(value) == GPUS]
    notes += [
        f"{name} is the number of GPUs (nvidia-smi, device_count): left out of cluster.env; write it there if the script reads it"
        for name in counted
    ]
    notes += [f"each rank runs {program}, not a script or module of Python: the Plan runs the command as it is"] if program else []
    notes += ["deepspeed refuses -m, which it does not know: the Plan has the --module that is meant"] if refused else []
    folder = to_plan_text(_relative(launch.folder, here))
    notes += [f"job.workdir is {folder}: the text changes to it"] if folder else []
    return CommandLine(
        launch.launcher,
        options,
        rest[0],
        module,
        tuple(rest[1:]),
        {name: to_plan_text(value) for name, value in launch.env.items() if name not in ("PATH", *texts, *counted)},
        folder,
        files={to_plan_text(path): content for path, content in launch.written.items()},
        notes=tuple(notes),
        python=python,
        command=(*COMMANDS.get(launch.launcher, (launch.launcher,)), *words) if whole else (),
        starter=tuple(map(to_plan_text, starter)),
    )


def _named_by_python(words: list[str], line: int) -> tuple[list[str], bool]:
    """Return the words after the interpreter in `--no_python python SCRIPT …`, and whether they name a module. Raises NoLaunch."""
    rest = words[1:]
    while rest and rest[0] in ("-u", "-B", "-O"):
        del rest[0]
    if not PYTHON.fullmatch(posixpath.basename(words[0])) or not rest or (rest[0].startswith("-") and rest[0] != "-m"):
        raise NoLaunch(f"line {line}: with --no_python each rank runs `{' '.join(words[:2])} …`, not a script or module of Python")
    return (rest[1:], True) if rest[0] == "-m" else (rest, False)


def _relative(folder: str, here: str) -> str:
    """Return the folder as a Plan names it: relative if it is below the current one or beside it."""
    if folder == here:
        return ""
    found = posixpath.relpath(folder, here) if folder.startswith("/") else folder
    return folder if found.startswith("../../..") else found


def _options(launcher: str, words: Sequence[str]) -> tuple[dict[str, str | bool], list[str], bool]:
    """Return the launcher's options, the words after them, and whether those words name a module."""
    found: dict[str, str | bool] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        name = name.replace("-", "_")
        name = SHORT.get(name, name)
        if launcher == "python" and name == "module":
            return {}, rest, True
        if equals or name in SWITCHES.get(launcher, ()):
            found[name] = value if equals else True
        elif rest:
            found[name] = rest.pop(0)
    return found, rest, bool(found.pop("module", False))
