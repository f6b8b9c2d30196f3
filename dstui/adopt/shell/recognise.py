"""Recognise a launch in the words of a command, behind any wrappers: srun, nohup, nsys, `uv run`, a submitter with `--`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dstui.adopt.shell import programs
from dstui.adopt.shell.shell_state import Wrappers, hole
from dstui.base.dataclass import dataclass

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
UNSET = re.compile(hole("unset", r"\w+"))
"""An unset variable among the assignments of a command: empty, as in the shell."""
PYTHON = re.compile(r"python[\d.]*(?:-[\w.]+)?")
SHELLS = ("bash", "sh", "zsh", "dash")
MODULES: Mapping[str, str] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}
"""Module that `python -m` starts -> the launcher that it is."""
LAUNCH = "torch.distributed.launch"
PASS_LOCAL_RANK = "--pass_local_rank"
"""Stands for what torch.distributed.launch does without --use_env: the script gets --local-rank=N. No option of torchrun's."""
FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "llamafactory-cli": ("train",),
    "axolotl": ("train",),
    "swift": ("sft", "pt", "rlhf", "megatron"),
    "xtuner": ("train",),
    "trl": ("sft", "dpo", "grpo", "kto", "orpo", "reward", "rloo"),
    "dlrover-run": (),
    "colossalai": ("run",),
}
"""Commands of frameworks that start their own ranks -> the subcommands that train; empty if the command itself trains."""
TRANSPARENT = (
    "nohup",
    "time",
    "exec",
    "sudo",
    "command",
    "stdbuf",
    "nice",
    "setsid",
    "timeout",
    "env",
    "uv",
    "poetry",
    "pipenv",
    "pixi",
    "pdm",
    "hatch",
    "rye",
    "conda",
    "mamba",
    "micromamba",
    "ionice",
    "sbatch",
)
"""They start the command after them and change nothing of it that a Plan would have to say."""
SLURM_OPTIONS = ("-J", "--job-name", "-p", "--partition", "-A", "--account", "-D", "--chdir", "-w", "--nodelist", "--comment")
CONDA_OPTIONS = ("-n", "--name", "-p", "--prefix", "--cwd")
MANAGING = ("add", "create", "init", "install", "lock", "pip", "remove", "sync", "uninstall", "update", "upgrade")
"""Subcommands of package managers, whose words are names of packages."""
CONTAINERS = ("docker", "podman", "nerdctl")
"""They start the command after the image, or in a container: `docker run IMAGE COMMAND`, `docker exec NAME COMMAND`."""
DOCKER_OPTIONS = (
    *("--name", "-h", "--hostname", "--network", "--net", "-w", "--workdir", "-u", "--user", "--gpus", "--runtime", "-l", "--label"),
    *("--entrypoint", "-v", "--volume", "--mount", "-e", "--env", "--env-file", "-p", "--publish", "--shm-size", "--ipc", "--ulimit"),
    *("--pull", "--platform", "--device", "--cap-add", "--security-opt", "--restart", "-m", "--memory", "--cpus", "--add-host"),
)
NAMES: Mapping[str, tuple[str, ...]] = {
    "srun": SLURM_OPTIONS,
    "sbatch": SLURM_OPTIONS,
    "uv": ("--with", "--with-editable", "--from", "--package", "--project", "--directory", "--extra", "--group", "-p", "--python"),
    "pixi": ("-e", "--environment"),
    "conda": CONDA_OPTIONS,
    "mamba": CONDA_OPTIONS,
    "micromamba": CONDA_OPTIONS,
    "hatch": ("-e", "--env"),
    "poetry": ("-C", "--directory", "-P", "--project"),
    "pdm": ("-p", "--project"),
    "sudo": ("-u", "--user", "-g", "--group"),
    "env": ("-u", "--unset", "-C", "--chdir"),
    "nsys": ("-o", "--output"),
    "ncu": ("-o", "--export"),
    **dict.fromkeys(CONTAINERS, DOCKER_OPTIONS),
}
"""Wrapper -> its options whose value is a name, which may be that of a launcher: `uv run --with deepspeed`, `conda run -n ds`."""
ELSEWHERE = ("docker", "podman", "nerdctl", "kubectl", "ssh", "xargs", "parallel", "pdsh", "composer", "ray", "tmux", "screen")
"""They start what their words name in a container or on another host, or are launchers that no Plan can say."""
SCRIPT = re.compile(r".+\.(?:sh|bash|slurm|sbatch)")
STARTS = re.compile(r"(?:^|[\s/])(?:deepspeed|torchrun|accelerate(?:-|\s+)launch|python[\d.]*|[\w-]+\.(?:py|sh))(?:$|\s)")
WRAPPERS = (
    "srun",
    "mpirun",
    "mpiexec",
    "jsrun",
    "ibrun",
    "aprun",
    "flux",
    "nsys",
    "ncu",
    "numactl",
    "taskset",
    "py-spy",
    "singularity",
    "apptainer",
    "enroot",
)
"""Programs that start the command after them, and that a note mentions."""
NAMING = (
    "pip pip3 git apt apt-get yum dnf brew module conda mamba pkill killall kill pgrep grep egrep sed awk ls cp mv rm ln chmod cat tee"
    " man type whereis alias source . eval test [ [[ make tail head watch find wget curl squeue scancel qsub bsub sbatch ps kubectl"
    " helm python"
)
OF_RANKS = ("torchrun", "deepspeed", "accelerate")
NOT_TRAINING = re.compile(
    r"(?:^|[/_.-])(?:pip|venv|setup|download|prepare|preprocess|tokenize|pretokenize|convert|eval|evaluate|install|json|http|test|merge|server?|serve|api|requirements)"
    r"(?:$|[/_.-])|^(?:pytest|ipykernel|build|black)$"
)
"""Python programs that start no training, or are less likely to than other commands of the text."""

KNOWN = frozenset({*programs.BUILTINS, *programs.PRINTING, *ELSEWHERE, *CONTAINERS, *SHELLS, *FRAMEWORKS, *NAMING.split()})
"""Programs whose words name launchers without starting them, or that start them elsewhere."""
UNLIKELY = 9
"""The rank of a program that starts no training: used only if there is nothing else."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """A launch, or the text of a shell that would run one."""

    launcher: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    wrappers: Wrappers


def recognise(words: Sequence[str]) -> Recognised | None:
    """Return the launch that these words start; None if they start none. `shell` is the launcher of `bash -c TEXT`."""
    rest, env, wrappers = list(words), dict[str, str](), list[tuple[str, ...]]()
    while rest:
        while rest and ((match := ASSIGNMENT.fullmatch(rest[0])) or (env and UNSET.fullmatch(rest[0]))):
            env |= {match[1]: match[2]} if match else {}
            rest.pop(0)
        if not rest:
            return None
        if not _starts_module(rest) and (found := _launcher(rest)):
            if found[0] == "python" and (submitted := _submitted(rest)):
                return replace(submitted, env=env | dict(submitted.env), wrappers=(*wrappers, *submitted.wrappers))
            return Recognised(found[0], tuple(found[1]), env, tuple(wrappers))
        first = _name(rest[0])
        if first in TRANSPARENT or first in WRAPPERS or _in_container(rest) or _starts_module(rest):
            start = _start_after(rest)
            if start is None:
                return None
            env |= dict(_container_variables(rest[:start])) if first in CONTAINERS else {}
            wrappers += [(first, *rest[1:start])] if first not in TRANSPARENT else []
            rest = rest[start:]
        elif "--" in rest[1:] and first not in programs.BUILTINS and first not in programs.PRINTING:
            rest = rest[rest.index("--", 1) + 1 :]
        elif first not in KNOWN and (start := _launcher_after(rest)):
            wrappers.append(tuple(rest[:start]))
            rest = rest[start:]
        else:
            return None
    return None


def rank(launcher: str, words: Sequence[str]) -> int:
    """Return how likely a launch is the intended one; smaller is likelier."""
    if launcher == "python":
        program = words[1] if words[:1] == ("-m",) and len(words) > 1 else words[0]
        return UNLIKELY if NOT_TRAINING.search(program) else 3
    if launcher not in ("deepspeed", "accelerate", "torchrun"):
        return 1
    script = next((word for word in words if word.endswith(".py") and not word.startswith("-")), "")
    return int(NOT_TRAINING.search(script) is not None)  # one that converts or evaluates stands beside the training


def reads_its_input(words: Sequence[str]) -> bool:
    """Return whether a command runs the text of its standard input: `bash -s <<EOF`, `sbatch -N 2 <<EOF`."""
    name, rest = _name(words[0]), list(words[1:])
    if name in SHELLS:
        return all(word.startswith("-") and not re.fullmatch(r"-[a-z]*c", word) for word in rest)
    while rest and rest[0].startswith("-"):
        takes_next = "=" not in rest[0] and len(rest) > 1 and not rest[1].startswith("-")
        rest = rest[2 if takes_next else 1 :]
    return name == "sbatch" and not rest and not any(word.startswith("--wrap") for word in words)


def starts_elsewhere(words: Sequence[str]) -> bool:
    """Return whether a command starts a launch where no Plan reaches it."""
    return _name(words[0]) in ELSEWHERE and STARTS.search(" ".join(words[1:])) is not None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _in_container(words: Sequence[str]) -> bool:
    return _name(words[0]) in CONTAINERS and bool({"run", "exec"} & set(words[1:3]))


def _starts_module(words: Sequence[str]) -> bool:
    """Return whether python starts a module that itself starts the command after it: `python -m determined.launch.deepspeed COMMAND`."""
    return (
        PYTHON.fullmatch(_name(words[0])) is not None
        and "".join(words[1:2]) == "-m"
        and "".join(words[2:3]).startswith("determined.launch.")
    )


def _container_variables(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that `docker run -e NAME=VALUE` sets."""
    for option, word in zip(words, [*words[1:], ""], strict=True):
        value = word if option in ("-e", "--env") else option.partition("=")[2] if option.startswith("--env=") else ""
        if match := ASSIGNMENT.fullmatch(value):
            yield match[1], match[2]


def _start_after(words: Sequence[str]) -> int | None:
    """Return where the command of a wrapper begins: the first word that starts a launch or another wrapper."""
    wrapper = _name(words[0])
    if wrapper in TRANSPARENT and words[1:2] and words[1] in MANAGING:
        return None
    for at in range(1, len(words)):
        if words[at - 1] in NAMES.get(wrapper, ()):
            continue
        name = _name(words[at])
        set_by_env = wrapper == "env" and ASSIGNMENT.fullmatch(words[at])
        if set_by_env or _launcher(words[at:]) or name in TRANSPARENT or name in WRAPPERS:
            return at
    return None


def _submitted(words: Sequence[str]) -> Recognised | None:
    """Return the launch that a submitter gets behind `--`: `python submit.py … -- source env.sh '&&' torchrun …`."""
    rest = list(words[words.index("--") + 1 :]) if "--" in words else []
    while rest:
        end = next((at for at, word in enumerate(rest) if word in ("&&", ";")), len(rest))
        if found := recognise(rest[:end]):
            return found
        rest = rest[end + 1 :]
    return None


def _launcher(words: Sequence[str]) -> tuple[str, list[str]] | None:
    first, rest = _name(words[0]), list(words[1:])
    if first == "accelerate":
        return ("accelerate", rest[1:]) if rest[:1] == ["launch"] else None
    if first == "accelerate-launch":
        return "accelerate", rest
    if first in ("deepspeed", "torchrun", "ds"):
        return ("torchrun" if first == "torchrun" else "deepspeed", rest) if rest else None
    if first in SHELLS and (text := _shell_text(rest)) is not None:
        return "shell", [text]
    if first == "sbatch" and (text := _wrapped_by_sbatch(rest)) is not None:
        return "shell", [text]
    if first in FRAMEWORKS and (not FRAMEWORKS[first] or (rest[:1] and rest[0] in FRAMEWORKS[first])):
        return first, rest
    if "--" not in rest and (script := _script(first, words)):
        return "script", script
    return _python(rest) if PYTHON.fullmatch(first) else None


def _launcher_after(words: Sequence[str]) -> int:
    """Return where an unmistakable launch begins behind a program that is not known here; 0 for none."""
    for at in range(1, len(words)):
        found = _launcher(words[at:])
        if found and found[0] in OF_RANKS and (found[0] != "deepspeed" or any(word.endswith(".py") for word in found[1])):
            while at > 1 and ASSIGNMENT.fullmatch(words[at - 1]):
                at -= 1  # noqa: PLW2901
            return at
    return 0


def _script(first: str, words: Sequence[str]) -> list[str]:
    """Return the file and the arguments of `bash FILE …` or `./FILE.sh …`; empty where it is neither."""
    if first in SHELLS:
        at = next((at for at in range(1, len(words)) if words[at][:1] not in ("-", "+")), len(words))
        return list(words[at:])
    return list(words) if SCRIPT.fullmatch(words[0]) else []


def _shell_text(rest: list[str]) -> str | None:
    """Return the text of `bash -c TEXT`, also as -lc, -xc."""
    for at, word in enumerate(rest):
        if re.fullmatch(r"-[a-z]*c", word):
            return next(iter(rest[at + 1 + (rest[at + 1 : at + 2] == ["--"]) :]), None)
        if not word.startswith("-"):
            return None
    return None


def _wrapped_by_sbatch(rest: list[str]) -> str | None:
    """Return the text of `sbatch --wrap TEXT`."""
    for word, value in zip(rest, [*rest, ""][1:], strict=True):
        option, equals, text = word.partition("=")
        if option == "--wrap":
            return text if equals else value
    return None


def _python(rest: list[str]) -> tuple[str, list[str]] | None:
    """Return the program that python starts; None for -c, a prompt, or standard input."""
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
    if rest[:2] == ["-m", LAUNCH]:
        own = [] if {"--use_env", "--use-env"} & set(rest) else [PASS_LOCAL_RANK]
        return "torchrun", [*own, *rest[2:]]
    if rest[:1] == ["-m"] and len(rest) > 1:
        return (MODULES[rest[1]], rest[2:]) if rest[1] in MODULES else ("python", rest)
    if rest and (rest[0].endswith(".py")):
        return "python", rest
    return None
