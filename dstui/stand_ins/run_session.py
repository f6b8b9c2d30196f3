"""The folder of one `dstui run`: its stand-ins, their options, and a record of the caught launches.

A stand-in is found by PATH. In bash it is found even if the script puts something before the PATH (`source venv/bin/activate`), because an
exported function of the same name calls it. Both are removed from the environment of whatever the stand-in starts.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import dstui
from dstui.base.dataclass import dataclass
from dstui.jobs.store.processes import carries, pids

CAUGHT = ("deepspeed", "accelerate", "torchrun")
PYTHONS = ("python", "python3")
"""Caught only with `-m` and the module of a launcher."""
LET_THROUGH = ("srun", "mpirun", "mpiexec")
"""Programs that start processes on other hosts, where there is no stand-in. A message says that those are not observed."""
FRAMEWORKS = ("swift", "trl")
"""Frameworks that do not use the PATH to start their ranks. They are started in another way, so that their launch is seen too."""
FRAMEWORK_MODULES = ("swift.cli.main", "trl.cli", "trl.cli.main")
INTERPRETER = "DSTUI_INTERPRETER"
"""The variable with the interpreter of the framework that calls the stand-in of python."""
MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner", "deepspeed")
PREFIX = "dstui-run-"
LEFT_BEHIND = 86400
"""Seconds after which the folder of a session is removed that was killed, or whose processes went on."""
SESSION = "DSTUI_SESSION"
"""The variable by which the exported functions find the stand-ins."""

STAND_IN = """\
#!/bin/sh
# dstui's stand-in for a launcher: tells dstui of a launch, and runs everything else as it is
name=${{0##*/}}
case $name in
  python*)
    case " $1 $2 $3 " in
{modules}
      *)
        if [ -n "$DSTUI_INTERPRETER" ]; then real=$DSTUI_INTERPRETER; unset DSTUI_INTERPRETER; exec "$real" "$@"; fi
        IFS=:
        for folder in $PATH; do
          if [ "$folder" != {folder} ] && [ -x "$folder/$name" ]; then unset IFS; exec "$folder/$name" "$@"; fi
        done
        echo "$name: command not found" >&2
        exit 127;;
    esac;;
esac
exec {python} -I {program} "$name" "$@"
"""
DIRECT = """\
#!{python} -I
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the job starts, Ctrl-C ends this process without a traceback
sys.path.insert(0, {package!r})
from dstui.stand_ins.caught_launch import main

sys.exit(main({folder!r}, sys.argv[0].rpartition("/")[2], sys.argv[1:]))
"""
"""The stand-in without a shell between: /bin/sh may drop functions that bash exports, which what srun starts may call."""
LONGEST_FIRST_LINE = 120
"""Characters of the first line that every kernel reads."""
PROGRAM = """\
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the job starts, Ctrl-C ends this process without a traceback
sys.path.insert(0, {package!r})
from dstui.stand_ins.caught_launch import main

sys.exit(main({folder!r}, sys.argv[1], sys.argv[2:]))
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `dstui run`."""

    hold: bool = False
    """Print the launches as Plans instead of starting them."""
    check: bool = True
    """Refuse a launch that would fail anyway."""
    output: str | None = None
    """The file for the Plan of a held launch."""
    force: bool = False
    tui: bool = False
    """Show each launch on the Run screen while it runs."""
    observe: bool = True
    """Let the ranks report what DeepSpeed does."""


@dataclass(frozen=True, slots=True)
class RunSession:
    """The folder of one `dstui run`, readable only by its user."""

    folder: Path

    @property
    def programs(self) -> Path:
        """The folder of the stand-ins."""
        return self.folder / "bin"

    @property
    def caught(self) -> list[str]:
        """A line for each launch that a stand-in caught."""
        log = self.folder / "caught"
        return log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []

    def note(self, line: str) -> None:
        """Record a line about a launch."""
        with (self.folder / "caught").open("a", encoding="utf-8") as log:
            log.write(line.replace("\n", " ") + "\n")

    def claim_number(self) -> int:
        """Return the next number of a held launch. Launches in the background claim theirs at the same time."""
        for number in itertools.count(1):
            with suppress(FileExistsError):
                (self.folder / f"held-{number}").touch(exist_ok=False)
                return number
        raise AssertionError

    def begin(self, options: Options) -> dict[str, str]:
        """Write the stand-ins; return the environment of the command."""
        self.programs.mkdir()
        program = self.folder / "stand_in.py"
        places = {"package": str(Path(dstui.__file__).parent.parent), "folder": str(self.folder)}
        program.write_text(PROGRAM.format(**places))
        direct = len(sys.executable) < LONGEST_FIRST_LINE and not any(map(str.isspace, sys.executable))
        modules = "\n".join(f'      *" -m {module} "*) ;;' for module in (*MODULES, *FRAMEWORK_MODULES))
        text = STAND_IN.format(
            modules=modules, folder=shlex.quote(str(self.programs)), python=shlex.quote(sys.executable), program=shlex.quote(str(program))
        )
        for name in (*CAUGHT, *PYTHONS, *LET_THROUGH, *FRAMEWORKS):
            stand_in = self.programs / name
            stand_in.write_text(DIRECT.format(python=sys.executable, **places) if direct and name not in PYTHONS else text)
            stand_in.chmod(0o700)
        (self.folder / "options.json").write_text(json.dumps(asdict(options)))
        (self.folder / "environment.json").write_text(json.dumps(dict(os.environ)))
        functions = {_function(name): f'() {{  "${SESSION}/bin/{name}" "$@"\n}}' for name in (*CAUGHT, *PYTHONS)}
        path = os.pathsep.join([str(self.programs), os.environ.get("PATH", os.defpath)])
        return {**os.environ, **functions, SESSION: str(self.folder), "PATH": path}

    def end(self) -> bool:
        """Remove the folder, unless processes of the command go on and may start launches. Return whether they do."""
        goes_on = any(carries(pid, SESSION, str(self.folder)) for pid in pids())
        if not goes_on:
            shutil.rmtree(self.folder, ignore_errors=True)
        return goes_on

    def options(self) -> Options:
        """Return the options of `dstui run`."""
        return Options(**json.loads((self.folder / "options.json").read_text()))

    def before(self) -> dict[str, str]:
        """Return the environment in which `dstui run` was started."""
        found: dict[str, str] = json.loads((self.folder / "environment.json").read_text())
        return found

    def without(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment without this session: that of a launch without dstui."""
        ours = {SESSION, INTERPRETER, *map(_function, (*CAUGHT, *PYTHONS))}
        kept = {name: value for name, value in environment.items() if name not in ours}
        folders = [folder for folder in kept.get("PATH", "").split(os.pathsep) if folder != str(self.programs)]
        return {**kept, "PATH": os.pathsep.join(folders)}


def new_session() -> RunSession:
    """Create the folder of a session. Those that were left behind a day ago or earlier are removed, if nothing uses them."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    for other in folder.parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            facts = other.lstat()
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and time.time() - facts.st_mtime > LEFT_BEHIND:
                RunSession(other).end()
    return RunSession(folder)


def _function(name: str) -> str:
    """Return the variable in which bash exports a function."""
    return f"BASH_FUNC_{name}%%"
