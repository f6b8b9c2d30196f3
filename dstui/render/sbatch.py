"""A SLURM script for a Plan: `sbatch job.sbatch` starts one `deepspeed --no_ssh` on each node, by srun, and requeues before time is up.

It needs nothing beside it: the hostfile is made from the allocation, ds_config.json is in it. SLURM chooses the nodes; of the Plan's
hosts only the number and the slots count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dstui.plan import Plan
from dstui.render.accelerate import PORT
from dstui.render.launch import RenderError
from dstui.render.quoting import FILES, quoted, variable
from dstui.render.spec import LaunchSpec

CHECKPOINT = "{checkpoint}"
WARNED = 120
"""Seconds before its end at which SLURM tells the job, so that ranks can save."""
HEAD = """\
#!/bin/bash
DIRECTIVES
# Add what your cluster asks for: --time, --partition, --account; `module load` and the like before srun.
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
TAIL = """\
# Before its time is up, or where it is preempted, the ranks get a SIGTERM and the job is queued again.
requeue() {
  trap '' USR1 TERM
  echo "job $SLURM_JOB_ID: told to end; it is queued again"
  scancel --signal=TERM "$SLURM_JOB_ID.0" || true
  wait "$step" || true
  scontrol requeue "$SLURM_JOB_ID"
  exit
}
trap requeue USR1 TERM
RESUME
srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --label sh "$here/node.sh" "$@" &
step=$!
wait "$step"
"""


def sbatch(plan: Plan, spec: LaunchSpec, configs: Mapping[str, str]) -> str:
    """The script's text. `configs`: the names and texts of ds_config.json and the like. Raises RenderError."""
    counts = sorted({len(chosen) for chosen in spec.slots.values()} or {0})
    if len(counts) > 1 or not counts[0]:
        raise RenderError(
            "cluster.hosts", "a SLURM script needs the same number of slots on every host, and to know it: give cluster.hosts"
        )
    name = identifier(plan, spec)
    directives = {
        "job-name": name,
        "nodes": str(len(spec.hosts)),
        "ntasks-per-node": "1",
        **({} if spec.cpu else {"gpus-per-node": str(counts[0])}),
        "requeue": "",
        "open-mode": "append",
        "signal": f"B:USR1@{WARNED}",
        "output": "%x-%j.log",
    }
    node = replace(
        spec,
        launcher="slurm",
        filters=(),
        env=_environment(plan, spec),
        launcher_options=tuple(word for word in spec.launcher_options if spec.start != "here" or word in plan.cluster.launcher_args),
        master_addr=variable("master"),
        master_port=variable("port"),
    )
    command = node.command_of(variable("SLURM_NODEID"), f"{FILES}/ds_config.json")
    filled = _filled(
        HEAD,
        {
            "DIRECTIVES": "\n".join(f"#SBATCH --{option}{'=' + value if value else ''}" for option, value in directives.items()),
            "WORKDIR": quoted(spec.workdir),
            "NAME": name,
            "PORT": str(plan.cluster.master_port or f"$(({PORT} + SLURM_JOB_ID % 3000))"),
            "SLOTS": str(counts[0]),
        },
    )
    files = {**{file: text.rstrip("\n") for file, text in configs.items()}, "node.sh": f'{command} "$@"'}
    return (
        filled
        + "".join(_filled(BODY, {"NAME": file, "TEXT": text}) for file, text in files.items())
        + _filled(TAIL, {"RESUME": _resume(plan)})
    )


def identifier(plan: Plan, spec: LaunchSpec) -> str:
    """A name that SLURM and Kubernetes take: letters, digits and '-'."""
    words = re.sub(r"[^a-z0-9]+", "-", (plan.name or spec.script[-1].rpartition("/")[2].removesuffix(".py")).lower()).strip("-")
    return words[:40].strip("-") or "job"


def _environment(plan: Plan, spec: LaunchSpec) -> Mapping[str, str]:
    """The ranks' own; what only one launcher needs is not among them."""
    ours = ("LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return {name: value for name, value in spec.env.items() if name not in ours or name in plan.cluster.env}


def _resume(plan: Plan) -> str:
    """What a further attempt appends to the script's arguments."""
    args = plan.run.restarts.args
    if not args:
        return "# run.restarts.args of the Plan would be appended to the script's arguments here, after a requeue."
    if any(CHECKPOINT in word for word in args):
        return f"# After a requeue the script must find its checkpoint itself: {CHECKPOINT} in run.restarts.args is known to dstui alone."
    return f'[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || set -- {" ".join(map(quoted, args))}'


def _filled(template: str, texts: Mapping[str, str]) -> str:
    """The template with its words in capitals replaced, in one pass: what a text holds is not looked at again."""
    return re.sub(r"\b(?:" + "|".join(texts) + r")\b", lambda match: texts[match[0]], template)
