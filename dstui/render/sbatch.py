"""Render a SLURM script for a Plan: `sbatch job.sbatch` starts one `deepspeed --no_ssh` on each node, by srun.

If the Plan allows restarts, the script queues itself again before its time is up; `scancel` always ends it.

With `cluster.launcher: sbatch` the script starts dstui's supervisor on the first node instead, which leaves a job folder. A launch submits
this script, and users may submit it by hand. All other scripts need no dstui on the nodes.

The script needs no other files: it makes the hostfile from the allocation and contains ds_config.json. SLURM chooses the nodes; only the
number and the slots of the Plan's hosts count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.locks import without_layers
from dstui.render.accelerate import PORT
from dstui.render.launch import RenderError, asks_for_cpus, launch_spec, slots
from dstui.render.quoting import FILES, quote_word, variable
from dstui.render.spec import LaunchSpec

CHECKPOINT = "{checkpoint}"
WARNED = 120
"""Seconds before the time limit at which SLURM signals the job, so that ranks can save."""
FILL_IN = "#" + "#SBATCH --cpus-per-task=N"
"""A line that SLURM ignores until one '#' is removed."""
HEAD = """\
#!/bin/bash
ABOUT
# cluster.slurm in the Plan sets --partition, --account, --time and more, and lines such as `module load`.
DIRECTIVES
SETUP
"""
START = """\
set -eu
cd WORKDIR
export here="$PWD/NAME-slurm-$SLURM_JOB_ID" port=PORT
mkdir -p "$here"
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed 's/$/ slots=SLOTS/' >"$here/hostfile"
master=$(head -n 1 "$here/hostfile" | cut -d ' ' -f 1)
export master
"""
BODY = """\
cat >"$here/NAME" <<'END_OF_FILE'
TEXT
END_OF_FILE
"""
REQUEUE = """\
# Before its time is up the ranks get a SIGTERM and the job is queued again, MAX times at most. scancel ends it for good.
requeue() {
  trap '' USR1
  echo "job $SLURM_JOB_ID: its time is nearly up, the ranks get a SIGTERM"
  scancel --signal=TERM "$SLURM_JOB_ID.0" || true
  wait "$step" || true
  if [ "${SLURM_RESTART_COUNT:-0}" -ge MAX ]; then
    echo "job $SLURM_JOB_ID: it was queued again MAX times, which is all that the Plan allows (run.restarts.max)"
    exit 1
  fi
  echo "job $SLURM_JOB_ID: it is queued again"
  scontrol requeue "$SLURM_JOB_ID"
  exit
}
trap requeue USR1
RESUME
"""
SUPERVISED = """\
set -eu
umask 077
# The job folder, which every node must see: the one that dstui has submitted, else one of its own (sbatch job.sbatch).
run=${1:-BASE/dstui_runs/NAME-slurm-$SLURM_JOB_ID}
if [ $# = 0 ] && [ ! -e "$run" ]; then
mkdir -p "$run"
cat >"$run/plan.yaml" <<'END_OF_PLAN'
TEXT
END_OF_PLAN
fi
# dstui's supervisor starts the ranks on the nodes by srun and supervises them; `dstui attach "$run"` shows them.
cd BASE
exec PYTHON -m dstui.jobs.control.in_allocation "$run" BASE
"""
TAIL = """\
# srun gives a task one CPU unless it gets the option again (Slurm 22.05 and newer).
[ -z "${SLURM_CPUS_PER_TASK-}" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --label sh "$here/node.sh" "$@" &
step=$!
wait "$step"
"""


@dataclass(frozen=True, slots=True)
class ClusterScript:
    """A file for a cluster's scheduler, with its assumptions."""

    text: str
    notes: tuple[str, ...]


def render_sbatch(plan: Plan, machine: Machine, pool: Mapping[str, int] | None, configs: Mapping[str, str]) -> ClusterScript:
    """Render the script. `machine`: a recorded node, if there is one; `configs`: the configuration files. Raises RenderError."""
    spec, slots, notes = for_cluster(plan, machine, pool)
    name = identifier(plan, spec)
    cpus = _cpus_per_task(plan, machine, slots)
    if plan.job.python is None:
        notes.append(f"assumed: every node has the interpreter {spec.python} (job.python names another)")
    if cpus is None:
        notes.append(f"to fill in: the line {FILL_IN} (or cluster.slurm.cpus_per_task): SLURM gives a node's ranks one CPU unless told")
    restarts = plan.run.restarts.max
    followed = plan.cluster.submits
    texts = {
        "ABOUT": header_comment(plan, notes),
        "DIRECTIVES": "\n".join(_directives(plan, spec, name, slots, cpus)),
        "SETUP": "\n".join(plan.cluster.slurm.setup),
    }
    if followed:
        return ClusterScript(_filled(HEAD, texts) + _supervised(plan, name), tuple(notes))
    requeue = _filled(REQUEUE, {"MAX": str(restarts), "RESUME": _resume(plan)}) if restarts else ""
    return ClusterScript(_filled(HEAD, texts) + _start(plan, spec, name, slots, configs) + requeue + TAIL, tuple(notes))


def _supervised(plan: Plan, name: str) -> str:
    """Return the lines that start dstui's supervisor on the first node."""
    texts = {
        "BASE": quote_word(plan.base),
        "NAME": name,
        "TEXT": without_layers(plan).text.rstrip("\n"),
        "PYTHON": quote_word(sys.executable),
    }
    return _filled(SUPERVISED, texts)


def render_in_allocation(plan: Plan, spec: LaunchSpec, configs: Mapping[str, str]) -> str:
    """Render launch.sh for hosts that SLURM chooses. Inside an allocation it uses that one."""
    slots, name = len(next(iter(spec.slots.values()))), identifier(plan, spec)
    gpus = "" if spec.cpu else f" --gpus-per-node={slots}"
    head = f"#!/bin/bash\n# Inside an allocation: salloc --nodes={len(spec.hosts)} --ntasks-per-node=1{gpus} bash launch.sh\n"
    return head + _start(plan, replace(spec, filters=()), name, slots, configs) + TAIL


def _start(plan: Plan, spec: LaunchSpec, name: str, slots: int, configs: Mapping[str, str]) -> str:
    """Return the lines that enter the folder and write the files that every node reads."""
    node = replace(spec, master_addr=variable("master"), master_port=variable("port"))
    command = node.command_of(variable("SLURM_NODEID"), f"{FILES}/ds_config.json")
    texts = {
        "WORKDIR": quote_word(spec.workdir),
        "NAME": name,
        "PORT": str(plan.cluster.master_port or f"$(({PORT} + SLURM_JOB_ID % 3000))"),
        "SLOTS": str(slots),
    }
    files = {**{file: text.rstrip("\n") for file, text in configs.items()}, "node.sh": f'{spec.refusals}{command} "$@"'}
    return _filled(START, texts) + "".join(_filled(BODY, {"NAME": file, "TEXT": text}) for file, text in files.items())


def for_cluster(plan: Plan, machine: Machine, pool: Mapping[str, int] | None) -> tuple[LaunchSpec, int, list[str]]:
    """Return how the nodes of a cluster start the Plan, the ranks on each, and what was assumed. Raises RenderError.

    Rendering runs on a laptop or a login node, which says nothing about the nodes.
    """
    cpu, cluster = asks_for_cpus(plan), plan.cluster
    if not machine.recorded:
        machine = Machine.unprobed()
    used = slots(plan, machine, pool)
    counts = {len(chosen) for chosen in (used or {}).values()}
    if not counts:
        message = "how many ranks a node has is not known: give cluster.num_gpus, and with several nodes cluster.num_nodes"
        raise RenderError("cluster.num_gpus", message)
    if len(counts) > 1:
        raise RenderError("cluster.hosts", "a scheduler's job has the same number of slots on every host: here they differ")
    spec = launch_spec(plan, machine, pool, "slurm", cpu=cpu)
    count, notes = counts.pop(), list[str]()
    if cpu:
        notes.append(f"{format_ranks(count)} on CPUs on each node, as DS_ACCELERATOR: cpu says in cluster.env; no GPU is asked for")
    else:
        notes.append(
            f"assumed: each node has {count} GPU{'s' * (count > 1)} for its {format_ranks(count)} "
            "(cluster.env.DS_ACCELERATOR: cpu says CPUs)"
        )
    if cluster.launcher in ("torchrun", "accelerate") and cluster.launcher_args:
        spec = replace(spec, launcher_options=tuple(word for word in spec.launcher_options if word not in cluster.launcher_args))
        notes.append(f"left out: cluster.launcher_args, which are {cluster.launcher}'s: here DeepSpeed's launcher starts the ranks")
    if cluster.cpu_binding == "numactl":
        notes.append("left out: cluster.cpu_binding: numactl, whose wrapper only dstui's own launches have (deepspeed binds here too)")
    return replace(spec, bindings=(), filters=()), count, notes


def format_ranks(count: int) -> str:
    """Format a number of ranks: `1 rank`, `8 ranks`."""
    return f"{count} rank{'s' * (count > 1)}"


def header_comment(plan: Plan, notes: Sequence[str]) -> str:
    """Return the comment at the head of a generated file."""
    return "\n".join(f"# {sanitise(line)}" for line in (f"Made by dstui from {plan.source}.", *notes))


def _directives(plan: Plan, spec: LaunchSpec, name: str, slots: int, cpus: int | None) -> Iterator[str]:
    """Yield the #SBATCH lines."""
    asked, restarts = plan.cluster.slurm, plan.run.restarts.max
    options: dict[str, str | None] = {
        "job-name": name,
        **{option: getattr(asked, option) for option in ("partition", "account", "qos", "time", "constraint", "mem", "gres")},
        "nodes": str(len(spec.hosts)),
        "ntasks-per-node": "1",
        "cpus-per-task": str(cpus) if cpus else None,
        "gpus-per-node": None if spec.cpu or (asked.gres or "").startswith("gpu") else str(slots),
        "signal": f"B:USR1@{WARNED}" if restarts else None,
        "output": "%x-%j.log",
    }
    for option, value in options.items():
        if value is not None:
            yield f"#SBATCH --{option}={value}"
    yield from ("#SBATCH --requeue" if restarts else "#SBATCH --no-requeue", "#SBATCH --open-mode=append")
    yield from ["#SBATCH --exclusive"] if asked.exclusive else []
    yield from (f"#SBATCH {option}" for option in asked.extra)
    yield from [FILL_IN] if cpus is None else []


def _cpus_per_task(plan: Plan, machine: Machine, slots: int) -> int | None:
    """Return the CPUs for a node's ranks, from the Plan or a recorded node; 0 for all CPUs of a node, None if unknown."""
    asked = plan.cluster.slurm
    if asked.cpus_per_task is not None or asked.exclusive or any(word.startswith("--cpus-per-") for word in asked.extra):
        return asked.cpus_per_task or 0
    cpus = machine.host.cpus if machine.recorded else None
    if not isinstance(cpus, int):
        return None
    return max(cpus * min(slots, len(machine.gpus)) // len(machine.gpus), 1) if machine.gpus else cpus


def identifier(plan: Plan, spec: LaunchSpec) -> str:
    """Return a name that SLURM and Kubernetes accept: letters, digits and '-'."""
    words = re.sub(r"[^a-z0-9]+", "-", (plan.name or spec.script[-1].rpartition("/")[2].removesuffix(".py")).lower()).strip("-")
    return words[:40].strip("-") or "job"


def _resume(plan: Plan) -> str:
    """Return the arguments that a further attempt appends."""
    args = plan.run.restarts.args
    if not args:
        return "# run.restarts.args of the Plan would be appended to the script's arguments here, after a requeue."
    if any(CHECKPOINT in word for word in args):
        return f"# After a requeue the script must find its checkpoint itself: {CHECKPOINT} in run.restarts.args is known to dstui alone."
    return f'[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || set -- {" ".join(map(quote_word, args))}'


def _filled(template: str, texts: Mapping[str, str]) -> str:
    """Replace the words in capitals of a template in one pass, so that inserted text is not replaced again."""
    return re.sub(r"\b(?:" + "|".join(texts) + r")\b", lambda match: texts[match[0]], template)
