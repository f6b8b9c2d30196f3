"""Handle a caught launch: make a Plan of it, check it, start the job and wait for it as the launcher would."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import dstui
from dstui.adopt.command_line import NoLaunch, command_line
from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.from_command import plan_of_command
from dstui.adopt.script import ScriptFacts
from dstui.adopt.shell.recognise import PASS_LOCAL_RANK, recognise
from dstui.adopt.shell.shell_state import Launch
from dstui.base.files import FileProblem, write_atomic
from dstui.base.output import begin, flush, no_screen, remark, say
from dstui.documents.open import file_reader
from dstui.documents.training_script import script_facts, script_facts_of
from dstui.plan import Plan, PlanError, load
from dstui.plan.handed_over import CONFIG
from dstui.stand_ins.run_session import FRAMEWORK_MODULES, FRAMEWORKS, INTERPRETER, LET_THROUGH, PYTHONS, SESSION, RunSession

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder

SHELLS_OWN = ("PATH", "PWD", "OLDPWD", "SHLVL", "_", SESSION, INTERPRETER)
"""Variables that every shell changes."""
INSIDE = Path(__file__).with_name("framework_inside.py")
SAY_ONE = ("torchrun", "accelerate")
"""Launchers that exit with 1 whatever the status of the failed rank."""
SIGNALLED = 128
POLL = 0.1
"""Seconds between two looks whether the user left the Run screen."""
STANDARD_ERROR = 2
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from dstui.cli import main; sys.exit(main())"
"""Runs this same dstui, whatever the script has changed in its environment."""
FIRST_TASK = {"SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}
"""The variables that srun gives to its first task."""
LAUNCHED_BY = {"accelerate": ("accelerate", "launch"), "shell": ("bash", "-c"), "script": ("bash",)}
"""Launcher -> the first words of its command, if not its name."""
A_COPY = (
    "the script reads the file of job.args: the deepspeed section is a copy for the checks; edits take effect once {ds_config} is there"
)
"""Stands in a held Plan, whose arguments are those of the launch."""
CONFIGURATION_UNUSED = "PL001"
"""The finding about who reads the Plan's configuration. It is ignored here: the script's own arguments stay as they are."""
WITHOUT_DEEPSPEED = "PL027"
"""The finding that a script trains without DeepSpeed. For a command that the user gave it is not an error."""


def main(folder: str, name: str, words: Sequence[str]) -> int:
    """Stand in for the launcher `name` and return the exit status."""
    session = RunSession(Path(folder))
    environment = session.without(os.environ)
    own = os.environ.get(INTERPRETER)  # the interpreter of the framework that starts this launch
    real = own if own and name in PYTHONS else shutil.which(name, path=environment["PATH"])
    if name in LET_THROUGH and session.options().hold:
        _follow_held(name, words)
    if real is None:
        sys.stderr.write(f"{name}: command not found\n")  # noqa: TID251 - as the shell says it
        return 127
    if name in FRAMEWORKS or (words[:1] == ["-m"] and words[1:2] and words[1] in FRAMEWORK_MODULES):
        return _run_framework(name, real, words, session)
    found = recognise([name, *words]) if name not in LET_THROUGH else None
    if found is None or found.launcher == "shell":
        if name in LET_THROUGH:
            session.note(f"{name}: what it starts is not observed")
        return _run_unobserved(real, [name, *words], environment)
    os.environ.clear()
    os.environ.update(environment)
    begin()
    launch = Launch(found.launcher, found.words, {}, str(Path.cwd()), 0)
    try:
        if PASS_LOCAL_RANK in found.words and not session.options().hold:
            raise NotStarted(
                "torch.distributed.launch without --use_env passes --local-rank to the script, which a job of dstui does not do"
            )
        plan, notes = _plan(launch, session, _existing(own or _interpreter(real)))
        session.note(f"{name} {' '.join(words)}")
        code = _held(plan, notes, session) if session.options().hold else _started(plan, session)
    except (NoLaunch, ConfigError, PlanError, FileProblem, NotStarted) as problem:
        say(f"{name} runs unobserved: {getattr(problem, 'message', problem)}")
        session.note(f"{name}: not observed")
        flush()
        return _run_unobserved(real, [name, *words], environment)
    flush()
    return code if code >= 0 else _die_of(-code)


def _die_of(number: int) -> int:
    """End this process by a signal, as the launcher would: a shell ends its script if a program dies of SIGINT, not if it exits."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return SIGNALLED + number


class NotStarted(Exception):
    """dstui can make no job of this launch. Holds a sentence; the launcher itself may report why."""


def _run_unobserved(program: str, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Replace this process by the real launcher. If that cannot be started, print the message and return the status of a shell."""
    try:
        os.execve(program, [*words], {**environment})
    except OSError as problem:
        sys.stderr.write(f"{program}: {problem.strerror}\n")  # noqa: TID251 - as the shell says it
        return 127 if isinstance(problem, FileNotFoundError) else 126


def _run_framework(name: str, real: str, words: Sequence[str], session: RunSession) -> int:
    """Replace this process by the command of a framework, so that the framework starts the stand-ins."""
    interpreter = real if name in PYTHONS else _interpreter(real)
    program = [] if name in PYTHONS else [real]
    return _run_unobserved(interpreter, [interpreter, str(INSIDE), str(session.programs), *program, *words], os.environ)


def _existing(interpreter: str) -> str:
    """Return the interpreter of a launcher. Raises NotStarted if it does not exist, for example because its environment was deleted."""
    if not Path(interpreter).exists():
        raise NotStarted(f"its interpreter {interpreter} does not exist")
    return interpreter


def _follow_held(name: str, words: Sequence[str]) -> None:
    """Run what srun or mpirun would start, once and on this host, so that the launch in it is held. Nothing is started on other hosts."""
    found = recognise([name, *words])
    if found is not None:
        say(f"{name} is not started: what it would run on each host is followed once, here")
        launched = [*LAUNCHED_BY.get(found.launcher, (found.launcher,)), *found.words]
        os.execvpe(launched[0], launched, {**FIRST_TASK, **os.environ, **found.env})


def _plan(launch: Launch, session: RunSession, python: str) -> tuple[Plan, list[str]]:
    """Return the Plan of a launch with only known options. Raises NoLaunch, ConfigError, PlanError, FileProblem."""
    line = command_line(launch, launch.folder)
    facts = script_facts(launch.folder, None if line.module else line.script, line.script if line.module else None)
    made = plan_of_command(line, line.script, file_reader(Path(launch.folder)), facts if isinstance(facts, ScriptFacts) else None)
    plan = load(made.text, line.script, launch.folder)
    if session.options().hold and any(CONFIG in word for word in plan.job.args):
        plan = load(made.text.replace("\n", f"\n# {A_COPY}\n", 1), line.script, launch.folder)
    # absolute: the Plan is read from the job folder, or from where --hold writes it
    plan = plan.set("job.workdir", launch.folder.replace("${", "$${"))
    plan = plan.set("job.args", list(line.args)) if line.args else plan
    plan = plan.set("job.python", python) if python != sys.executable and not line.python else plan
    if line.launcher == "accelerate":
        plan = plan.set("cluster.launcher", "accelerate")
    exported = _exported(session.before(), os.environ)
    changed = {name: value.replace("${", "$${") for name, value in exported.items() if value.isprintable()}
    if left := sorted(exported.keys() - changed.keys()):
        made.notes.append(
            f"{', '.join(left)}: not in the Plan, where a variable has one line of text; export it before the Plan is started"
        )
    return (plan.set("cluster.env", {**plan.cluster.env, **changed}) if changed else plan), made.notes


def _exported(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the script has exported: a Plan that replays the launch needs them."""
    return {
        name: value
        for name, value in now.items()
        if before.get(name) != value and name not in (*SHELLS_OWN, *FIRST_TASK) and not name.startswith("BASH_FUNC_")
    }


def _interpreter(launcher: str) -> str:
    """Return the interpreter in a launcher's first line, else the Python beside it."""
    with open(launcher, "rb") as file:  # noqa: PTH123
        first = file.readline(512).decode("utf-8", "replace")
    if first.startswith("#!") and "python" in first and " " not in (path := first[2:].strip()):
        return path
    beside = Path(launcher).parent / "python"
    return str(beside) if beside.exists() and Path(launcher).name not in ("python", "python3") else launcher


def _held(plan: Plan, notes: Sequence[str], session: RunSession) -> int:
    """Print the launch as a Plan. The script then continues as after a success."""
    options = session.options()
    for note in notes:
        say(note)
    if options.output is None:
        say(f"held: {plan.job.script or plan.job.module}")
        remark(plan.text)
        return 0
    target = Path(options.output)
    number = session.claim_number()
    path = target if number <= 1 else target.with_name(f"{target.stem}-{number}{target.suffix}")
    try:
        write_atomic(path, plan.text, replace=options.force)
    except FileProblem as problem:
        say(str(problem))
        return 2
    say(f"held: {path}")
    return 0


def _started(plan: Plan, session: RunSession) -> int:
    """Check and start a launch, wait for its end and return its status; -SIGINT if the user has ended it by Ctrl-C. Raises NotStarted.

    What the site does not allow is never started: not with --no-check either, and not by the real launcher in dstui's place.
    """
    from dstui import headless
    from dstui.check import PlanFacts, check_plan
    from dstui.jobs.control.start import LaunchError, start
    from dstui.machine.probe import probe
    from dstui.plan.locks import refusal_of_command
    from dstui.render.target import Target
    from dstui.site.installed import installed_site

    site = installed_site().site
    if site is not None and (refused := refusal_of_command(plan, site.beneath)):
        say(refused)
        return 1
    machine = probe()
    findings = [
        replace(finding, severity="warning", when=None) if finding.code == WITHOUT_DEEPSPEED else finding
        for finding in check_plan(Target(plan, machine), PlanFacts(script=script_facts_of(plan)))
        if finding.code != CONFIGURATION_UNUSED
        and finding.severity != "info"
        and (plan.deepspeed or not finding.path.startswith("deepspeed"))  # an empty section: the script has a configuration of its own
    ]
    for finding in findings:
        remark(f"dstui: {finding.severity} {finding.code} {finding.path}: {finding.message}")
    if any(finding.severity == "error" for finding in findings) and session.options().check:
        say("this launch would fail, and was not started: fix the errors above (dstui run --no-check starts it anyway)")
        return 1
    target = Target(plan if session.options().observe else plan.set("run.observe", "off"), machine)
    with headless.signals() as asked:
        try:
            folder = start(target, owner_pid=os.getpid())
        except LaunchError as error:
            raise NotStarted(str(error)) from None
        from dstui.headless.following import follow  # imported while the job starts

        if session.options().tui and not no_screen():  # a launch in the background has no terminal
            _show(folder, asked)
        code = follow(folder, asked=asked, plain=True)
        if asked() == signal.SIGINT:
            return -signal.SIGINT
        return code if asked() else _status_of_launcher(folder, plan, code)


def _show(folder: JobFolder, asked: Callable[[], int | None]) -> None:
    """Show a job on the Run screen until it ends, the user leaves, or a signal requests its end. Standard output has the ranks' lines."""
    words = [sys.executable, "-I", "-c", PROGRAM, str(Path(dstui.__file__).parent.parent), "attach", "--until-end", str(folder.path)]
    screen = subprocess.Popen(words, stdout=STANDARD_ERROR)
    while screen.poll() is None:
        if asked():
            screen.terminate()
        time.sleep(POLL)


def _status_of_launcher(folder: JobFolder, plan: Plan, code: int) -> int:
    """Return the status that the launcher itself would have had for a job that ended with `code`.

    A failure that the launcher hides stays a failure. For a launcher that dstui had to end, the launchers' table gives the status.
    """
    if (status := folder.read_status()) is not None:
        reported = [status.launcher_exit, *(host.exit_code for host in status.hosts.values() if (host.exit_code or 0) < SIGNALLED)]
        if failure := next(filter(None, reported), None):
            return failure
    return 1 if plan.cluster.launcher in SAY_ONE and 0 < code < SIGNALLED else code
