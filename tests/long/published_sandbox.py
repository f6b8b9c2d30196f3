"""Run a published shell text in a sandbox without network, with stand-ins for every program that it may call.

`recorded` returns the launches that bash makes of a text; `held` the Plans that `dstui run --hold` writes for the same text, in the same
root with the same environment. Nothing of this machine can be written: /usr, the interpreter and the project are mounted read-only.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VALUE = "2"
"""The value of variables that only the user or the cluster can set: a number, since some texts compute with it."""
MOUNTS = """\
set -e
root=$1/root
mkdir -p $root
mount -t tmpfs tmpfs $root
cd $root
mkdir -p usr dev tmp proc etc sandbox
for name in bin lib lib64; do if [ -L /$name ]; then ln -s usr/$name $name; elif [ -d /$name ]; then mkdir $name; mount --rbind /$name $name; fi; done
for name in null zero urandom; do touch dev/$name; mount --bind /dev/$name dev/$name; done
ln -s /proc/self/fd dev/fd
mount -t proc proc proc
mount --bind $1/sandbox sandbox
shift
for folder; do mkdir -p .$folder; mount --bind $folder .$folder; mount -o remount,ro,bind .$folder; done
exec chroot . /usr/bin/bash /sandbox/go.sh
"""
STAND_IN = """\
#!/bin/bash
me=${0##*/}
record() { /usr/bin/python3 /sandbox/record.py "$@"; }
inner() {  # what a program that starts others would start
  while [ $# -gt 0 ]; do
    case ${1##*/} in deepspeed|torchrun|accelerate|axolotl|llamafactory-cli|xtuner|python|python3|bash|sh|*.sh|srun|nsys|numactl) exec "$@";; esac
    shift
  done
}
case $me in
  deepspeed|torchrun) record $me "$@";;
  accelerate) if [ "$1" = launch ]; then shift; record accelerate "$@"; fi;;
  python*)
    while [[ $1 = -[uBsW] ]]; do shift; done
    case "$1 $2" in
      "-m torch.distributed.run"|"-m torch.distributed.launch") shift 2; record torchrun "$@";;
      "-m accelerate.commands.launch") shift 2; record accelerate "$@";;
      "-m deepspeed"|"-m deepspeed.launcher.runner") shift 2; record deepspeed "$@";;
      "-c "*) exec /usr/bin/python3 "$@";;
      *.py\\ *) while [ $# -gt 0 ]; do if [ "$1" = -- ]; then shift; exec "$@"; fi; shift; done;;
    esac;;
  srun) export SLURM_PROCID="${SLURM_PROCID-0}" SLURM_NODEID="${SLURM_NODEID-0}" SLURM_LOCALID="${SLURM_LOCALID-0}"; inner "$@";;
  mpirun|mpiexec|nsys|ncu|numactl|taskset|uv|conda|poetry) inner "$@";;
  nvidia-smi) for i in 0 1 2 3 4 5 6 7; do echo "GPU $i: NVIDIA A100-SXM4-80GB (UUID: GPU-$i)"; done;;
  scontrol) echo "${@: -1}";;
  hostname) echo node-1;;
  date) echo 2026-01-02;;
  shuf) echo 23456;;
esac
exit 0
"""
RECORD = """\
import json, os, sys
with open("/sandbox/launches", "a") as log:
    log.write(json.dumps({"launcher": sys.argv[1], "argv": sys.argv[2:], "env": dict(os.environ), "folder": os.getcwd()}) + "\\n")
"""
FORGIVING = """\
source() { if [ -e "$1" ]; then builtin source "$@"; fi; }
.() { source "$@"; }
cd() { mkdir -p -- "$1" 2>/dev/null; builtin cd "$@"; return 0; }
mktemp() { mkdir -p made; echo made; }
RANDOM=1
"""
"""Files that a text sources are missing in the sandbox and skipped, folders that it changes to are created. Shared by all runs."""
PROGRAMS = (
    "deepspeed torchrun accelerate python python3 srun mpirun mpiexec nsys ncu numactl taskset uv conda poetry nvidia-smi scontrol hostname date"
    " pip pip3 git wget curl apt apt-get module ml sleep ssh scp docker sudo ray huggingface-cli wandb mamba pkill killall rsync unzip tar ps"
    " llamafactory-cli axolotl xtuner sbatch clear micromamba shuf"
)
OF_EACH_SHELL = ("_", "SHLVL", "PWD", "OLDPWD", "PATH", "SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID")
SET_BY_SHELLS = {
    "HOME",
    "PATH",
    "PWD",
    "OLDPWD",
    "RANDOM",
    "SECONDS",
    "USER",
    "HOSTNAME",
    "IFS",
    "BASH_SOURCE",
    "LINENO",
    "UID",
    "OPTARG",
    "OPTIND",
    "REPLY",
}
PLACEHOLDER = re.compile(r"""(?<![<\w&'"])<([A-Za-z][\w .:/|,-]{0,60}?)>""")


@dataclass(frozen=True, slots=True)
class Text:
    """A published text and its working folder."""

    id: str
    repo: str
    path: str
    kind: str
    """script or block."""
    folder: str
    text: str
    files: dict[str, str | None] = field(default_factory=dict)

    @property
    def runnable(self) -> str:
        """Return the text without prompts and with `<placeholders>` as words, as a user would edit it first."""
        text = PLACEHOLDER.sub(lambda found: f"'<{found[1]}>'", self.text)
        return text if self.kind == "script" else re.sub(r"\\\s*\Z", "", re.sub(r"(?m)^\s*\$\s+(?=\S)", "", text)) + "\n"

    @property
    def unset(self) -> dict[str, str]:
        """Return a value for each variable that the text uses without setting it."""
        code = re.sub(r"(?m)(?:^|\s)#.*$", "", self.text)
        used = set(re.findall(r"(?<!\\)\$\{?#?!?([A-Za-z_]\w*)", code))
        assigned = set(re.findall(r"(?:^|[\s;(&|{])([A-Za-z_]\w*)(?:\[\w*\])?\+?=", code)) | set(re.findall(r"\bfor\s+\(*\s*(\w+)", code))
        assigned |= {name for words in re.findall(r"\b(?:read|mapfile|readarray)\s+([\w -]+)", code) for name in words.split()}
        with_default = set(re.findall(r"\$\{(\w+):?[-=]", code))
        return dict.fromkeys(sorted(used - assigned - with_default - SET_BY_SHELLS), VALUE)


def missing() -> str:
    """Return why no sandbox can be created here; empty if it can."""
    if not (shutil.which("unshare") and shutil.which("bash")):
        return "the sandbox needs unshare (util-linux) and bash"
    probe = subprocess.run(["unshare", "-rnmpf", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "this container may not make namespaces"


class Sandbox:
    """A folder in which a text runs twice: with bash alone and with dstui."""

    def __init__(self, text: Text, work: Path) -> None:
        self.text, self.work, self.sandbox = text, work, work / "sandbox"
        self.name = text.repo.rpartition("/")[2]
        self.filled = True

    def lay_out(self) -> None:
        """Write the files anew, so that no run sees the results of an earlier one."""
        shutil.rmtree(self.sandbox, ignore_errors=True)
        root = self.sandbox / self.name
        for name, content in {**self.text.files, f"{self.text.folder}/.keep": ""}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content or "")
        (self.sandbox / "home").mkdir()
        (self.sandbox / "programs").mkdir()
        for name in PROGRAMS.split():
            (self.sandbox / "programs" / name).write_text(STAND_IN)
            (self.sandbox / "programs" / name).chmod(0o755)
        (self.sandbox / "record.py").write_text(RECORD)
        (self.sandbox / "forgiving.sh").write_text(FORGIVING)
        script = root / self.text.path if self.text.kind == "script" else self.sandbox / "block.sh"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(self.text.runnable)
        self.script = f"/sandbox/{script.relative_to(self.sandbox)}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of both runs."""
        own = {"HOME": "/sandbox/home", "PATH": "/sandbox/programs:/usr/bin:/bin", "BASH_ENV": "/sandbox/forgiving.sh", "USER": "someone"}
        return {**own, "LANG": "C.UTF-8", **(self.text.unset if self.filled else {})}

    @property
    def arguments(self) -> list[str]:
        """Return the script's arguments: a value for each of $1 to $9 that it uses, none for a text that parses options."""
        if not self.filled or re.search(r"\$[#@*]|\$\{@|\bshift\b|\bgetopts\b", self.text.text):
            return []
        return [VALUE] * max([int(number) for number in re.findall(r"\$\{?([1-9])\b", self.text.text)], default=0)

    def run(self, *before: str) -> str:
        """Run the text with these words before `bash`; return what it prints."""
        self.lay_out()
        words = [*before, "bash", self.script, *self.arguments]
        environment = [f"{name}={value}" for name, value in self.environment.items()]
        (self.sandbox / "go.sh").write_text(
            f"cd {shlex.quote(f'/sandbox/{self.name}/{self.text.folder}')} || exit 99\n"
            f"exec env -i {shlex.join(environment)} timeout -s KILL 100 {shlex.join(words)}\n"
        )
        seen = {"/usr", str(ROOT), sys.prefix, sys.base_prefix}
        folders = [folder for folder in sorted(seen) if not any(str(Path(folder)).startswith(other + "/") for other in seen)]
        command = ["unshare", "-rnmpf", "--kill-child", "bash", "-c", MOUNTS, "sandbox", str(self.work), *folders]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=150, stdin=subprocess.DEVNULL, check=False)
        return done.stdout + done.stderr  # a text may redirect one to the other

    def recorded(self) -> list[dict[str, Any]]:
        """Return the different launches that bash makes of the text."""
        found: list[dict[str, Any]] = []
        for self.filled in (True, False):  # with values for unset variables, which a text may also run as commands
            self.run()
            log = self.sandbox / "launches"
            found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
            if found:
                break
        for launch in found:
            launch["env"] = {
                name: value for name, value in launch["env"].items() if self.environment.get(name) != value and name not in OF_EACH_SHELL
            }
        return [launch for number, launch in enumerate(found) if launch not in found[:number]]

    def held(self) -> tuple[list[str], str]:
        """Return the Plans that `dstui run --hold` writes, in order, and its output."""
        said = self.run(sys.executable, "-m", "dstui", "run", "--hold", "-o", "/sandbox/held.yaml", "--")
        plans = sorted(self.sandbox.glob("held*.yaml"), key=lambda path: int(path.stem.partition("-")[2] or 1))
        return [path.read_text() for path in plans], said
