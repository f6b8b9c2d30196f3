"""Render launch.sh: the commands of a Plan as a script that finds its own folder, so that it works from anywhere and on other machines.

For launchers with one command on each host it contains all of them: `sh launch.sh` starts every host (over ssh, or by srun in an
allocation), `sh launch.sh HOST` only the ranks of that host, on that host.
"""

from __future__ import annotations

from dstui.render.quoting import FILES, OPEN, quote_word
from dstui.render.spec import WITH_PATHS, LaunchSpec

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


def render_launch_script(spec: LaunchSpec, ds_config: str = f"{FILES}/ds_config.json") -> str:
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
