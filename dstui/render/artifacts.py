"""The generated files of a Plan as text: a launch writes them into the job folder, `dstui render -o` into any folder.

launch.sh contains the commands of a Plan as a script that finds its own folder, so that it works from anywhere and on other machines. For
launchers with one command on each host it contains all of them: `sh launch.sh` starts every host (over ssh, or by srun in an allocation),
`sh launch.sh HOST` only the ranks of that host, on that host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dstui.base.dataclass import dataclass
from dstui.machine.binding import numactl_wrapper
from dstui.plan import Plan
from dstui.plan.hostfile import hostfile_text
from dstui.plan.launchers import JOB_SCRIPT
from dstui.render.accelerate import accelerate_yaml
from dstui.render.config_files import config_name, with_paths
from dstui.render.jsontext import json_text
from dstui.render.launch import RenderError, place_workdir
from dstui.render.quoting import FILES, OPEN, quote_word, refuse_unset, shell_variables
from dstui.render.spec import BIND, WITH_PATHS, LaunchSpec
from dstui.render.target import Target

SHELL, ESCAPED = re.compile(r'["$`\\]'), r"\\\g<0>"
"""Characters that a shell would expand in double quotes."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One generated file: its name, its text, and one line about its reader."""

    name: str
    text: str
    why: str
    executable: bool = False
    notes: tuple[str, ...] = ()
    """Assumptions, and what the user has to fill in."""
    private: bool = False
    """True if it contains values of the environment, which may be secrets: only its owner can read the written file."""


def ds_configs(plan: Plan) -> list[Artifact]:
    """Return ds_config.json, the Plan's `deepspeed:` section; with several models, one file for each."""
    return [
        Artifact(config_name(name), json_text(config), f"DeepSpeed's configuration{f' of {name}' if name else ''}: {_where(name)}")
        for name, config in plan.configurations.items()
    ]


def _where(name: str) -> str:
    return f"models.{name}.deepspeed of the Plan" if name else "the deepspeed section of the Plan"


def _texts(plan: Plan) -> dict[str, str]:
    return {artifact.name: artifact.text for artifact in ds_configs(plan)}


def env_text(env: Mapping[str, str], launcher: str = "") -> str:
    """Format .deepspeed_env as NAME=value lines. DeepSpeed's reader allows neither comments nor empty lines.

    With pdsh, a shell on each host reads the value in double quotes, so what it would expand is escaped.
    """
    texts = {name: SHELL.sub(ESCAPED, value) if launcher == "pdsh" else value for name, value in env.items() if OPEN not in value}
    return "".join(f"{name}={text}\n" for name, text in texts.items())


def artifacts(target: Target, ds_config_path: str = "./ds_config.json") -> tuple[Artifact, ...]:
    """Return the files of a Plan, ds_config.json first. Raises RenderError if there is no valid command."""
    if target.plan.job.command:
        return (*ds_configs(target.plan), command_artifact(target.plan))
    plan, spec = target.plan, target.launch
    files = ds_configs(plan)
    if plan.job.integration == "accelerate" or spec.launcher == "accelerate":
        files.append(accelerate_artifact(target))
    hosts = plan.cluster.hosts if plan.cluster.hosts is not None else target.pool
    if hosts is not None:
        files.append(Artifact("hostfile", hostfile_text(hosts), "the hosts and their slots, for the launcher"))
    if spec.by_file:
        text = env_text(spec.environment(ds_config_path), spec.launcher)
        files.append(Artifact(spec.env_file, text, "variables that DeepSpeed's launcher gives to every rank", private=True))
    elif plan.cluster.env:
        why = "the Plan's variables, for DeepSpeed's own launcher"
        files.append(Artifact(spec.env_file, env_text(plan.cluster.env), why, private=True))
    if spec.bindings:
        files.append(Artifact(BIND, numactl_wrapper(spec.bindings), "starts each rank on the CPUs beside its GPU", executable=True))
    if plan.cluster.submits:
        return (*files, slurm_artifact(target))
    nameless = spec.launcher == "slurm" and not spec.named
    if nameless:
        from dstui.render.sbatch import render_in_allocation

        launch = render_in_allocation(plan, spec, _texts(plan))
    else:
        launch = render_launch_script(spec, ds_config_path)
    files.append(Artifact("launch.sh", launch, "the command that starts the ranks", executable=True, private=True))
    return tuple(files)


def command_artifact(plan: Plan) -> Artifact:
    """Return the command of a framework that starts its own ranks."""
    config = f"{FILES}/ds_config.json"
    env = [f"{name}={with_paths(shell_variables(value), config)}" for name, value in plan.cluster.env.items()]
    words = [*(["env", *env] if env else []), *(with_paths(shell_variables(word), config) for word in plan.job.command)]
    workdir = place_workdir(plan)
    folder = FOLDER if any(FILES in word for word in words) else ""
    command = " ".join(map(quote_word, words))
    text = f"#!/bin/sh\n{refuse_unset((workdir, *words))}{folder}cd {quote_word(workdir)} && exec {command}\n"
    return Artifact("launch.sh", text, "the command, which starts its own ranks", executable=True, private=True)


def slurm_artifact(target: Target) -> Artifact:
    """Render job.sbatch. Raises RenderError."""
    from dstui.render.sbatch import render_sbatch  # most launches do not use sbatch

    made = render_sbatch(target.plan, target.machine, target.pool, _texts(target.plan))
    notes = (*made.notes, *_left_out(target))
    return Artifact(JOB_SCRIPT, made.text, "a SLURM script: sbatch job.sbatch", executable=True, private=True, notes=notes)


def kubernetes_artifact(target: Target, *, v1: bool = False) -> Artifact:
    """Render job.yaml: a TrainJob, or with `v1` a PyTorchJob, for older clusters. Raises RenderError."""
    from dstui.render.kubernetes import render_pytorchjob, render_trainjob

    render, kind = (render_pytorchjob, "PyTorchJob") if v1 else (render_trainjob, "TrainJob")
    made = render(target.plan, target.machine, target.pool, _texts(target.plan))
    return Artifact("job.yaml", made.text, f"a {kind}: kubectl apply -f job.yaml", private=True, notes=(*made.notes, *_left_out(target)))


def _left_out(target: Target) -> list[str]:
    """Describe the files of this machine that a scheduler's job does not get."""
    paths = target.env_files.paths
    return [f"left out: the variables of {' and '.join(paths)}; put those that the ranks need into cluster.env"] if paths else []


def accelerate_artifact(target: Target) -> Artifact:
    """Render accelerate.yaml."""
    try:
        used = target.slots
    except RenderError:
        used = None  # a hostfile that is on another machine: the Plan's accelerate section gives the number
    return Artifact("accelerate.yaml", accelerate_yaml(target.plan, used), "the same for `accelerate launch --config_file accelerate.yaml`")


FOLDER = """\
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit
"""
BY_SSH = """\
# Without an argument: starts the ranks of every host over ssh, side by side. With a host's name: those of that host, here.
# The folder of this script, the job's folder and the interpreter are at the same paths on every host.
"""
NAMELESS = """\
# Start it on each host, at about the same time; MASTER_ADDR is the name or the address of one of them.
: "${MASTER_ADDR:?set it to the name or the address of one of the hosts}"
"""
EACH_HOST = """\
case "${1-}" in
"")
START
  ;;
CASES
*)
  echo "$0: there is no host $1: HOSTS" >&2
  exit 2 ;;
esac
"""
SSH = """\
  pids= status=0 quoted=$(printf %s "$here" | sed "s/'/'\\\\\\\\''/g")
  trap 'kill $pids 2>/dev/null; wait; exit 130' INT TERM HUP
  for host in HOSTS; do
    ssh -tt -a -x -o ClearAllForwardings=yes -o BatchMode=yes -o ServerAliveInterval=5 -o LogLevel=ERROR -- "$host" \\
      "sh '$quoted/launch.sh' '$host'" </dev/null &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid" || { code=$?; [ "$status" != 0 ] || status=$code; }; done
  exit "$status"\
"""
SRUN = """\
  exec srun --nodes=COUNT --nodelist=LIST --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 \\
    sh -c 'exec sh "$0" "$SLURMD_NODENAME"' "$here/launch.sh"\
"""
BY_HAND = """\
  echo "start each host by hand, at about the same time:" >&2
  for host in HOSTS; do echo "  on $host: sh $here/launch.sh $host" >&2; done
  exit 2\
"""


def render_launch_script(spec: LaunchSpec, ds_config: str) -> str:
    """Render launch.sh.

    `ds_config`: the path of the configuration, with the other files beside it. Any but the default gives a command to paste.
    """
    if FILES not in ds_config:
        return f"#!/bin/sh\n{spec.refusals}{spec.command(ds_config)}\n"
    if spec.start != "hosts" or spec.only_here:
        return f"#!/bin/sh\n{spec.refusals}{FOLDER}{_env_file(spec, ds_config)}{spec.command_of(0, ds_config)}\n"
    start = {"slurm": SRUN, "nossh": BY_HAND}.get(spec.launcher, SSH)
    if not spec.named:
        return f"#!/bin/sh\n{spec.refusals}{NAMELESS}{FOLDER}{spec.command_of(0, ds_config)}\n"
    hosts = " ".join(map(quote_word, spec.hosts))
    start = start.replace("COUNT", str(len(spec.hosts))).replace("LIST", ",".join(spec.hosts)).replace("HOSTS", hosts)
    cases = "\n".join(f"{quote_word(host)})\n{spec.command_of(node, ds_config)}\n  ;;" for node, host in enumerate(spec.hosts))
    body = EACH_HOST.replace("START", start).replace("HOSTS", " ".join(spec.hosts)).replace("CASES", cases)
    return f"#!/bin/sh\n{BY_SSH if start.startswith(SSH[:7]) else ''}{spec.refusals}{FOLDER}{body}"


def _env_file(spec: LaunchSpec, ds_config: str) -> str:
    """Return the lines that copy .deepspeed_env and add variables with this folder's path or a hole, since nothing expands them there."""
    paths = {name: value for name, value in spec.environment(ds_config).items() if OPEN in value}
    if not spec.by_file or not paths:
        return ""
    words = " ".join(f"{name}={quote_word(value)}" for name, value in paths.items())
    file = quote_word(f"{FILES}/{spec.env_file}")
    return f"{{ cat {file}; printf '%s\\n' {words}; }} >{file}{WITH_PATHS} || exit\n"
