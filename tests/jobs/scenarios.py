"""What happens to real jobs: each scenario starts one, interferes, waits for its end, and returns what is left. They run in parallel.

A stop uses the launcher as users have it (FULL_DEEPSPEED), everything else one that starts without torch, unless pytest runs with
--full-deepspeed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dstui.jobs.control.stop import stop
from dstui.jobs.store.events import Event, Exited, Notice
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.follow import Follower
from dstui.logs.log_folder import FINAL
from tests.job_json import refreshed_json, status_json
from tests.jobs.lab import FULL_DEEPSPEED, Lab, final_status, has_ended, job_processes, kills_by_the_kernel, read, ready, shims
from tests.waiting import wait_for

LAUNCHER, NODE = "deepspeed.launcher.runner", "deepspeed.launcher.launch"


def ending(folder: JobFolder, **more: Any) -> dict[str, Any]:
    """Return the facts about a job that has ended."""
    status = final_status(folder)
    facts = {"folder": folder, "state": status["state"], "code": status["exit_code"], "ranks": status["ranks"], "status": status}
    return {**facts, "left": job_processes(folder), **more}


def pid_in(path: Path) -> int:
    """Return the pid that the helper's parent wrote."""
    return int(wait_for(lambda: path.exists() and path.read_text()))


def prints_everything(lab: Lab) -> dict[str, Any]:
    """Run a job to its good end and follow it from the beginning; its ranks print what logs should never contain."""
    (lab.path / "pkg").mkdir()
    (lab.path / "pkg" / "__init__.py").touch()
    (lab.path / "pkg" / "train.py").write_text((Path(__file__).parent / "behave.py").read_text())
    folder = lab.start("all:facts", "all:noise", "{ds_config}", 'it\'s a \\"test\\" $HOME', job="module: pkg.train")
    follower = Follower(folder)
    return ending(folder, events=all_events(follower), follower=follower, again=all_events(Follower(folder)))


def all_events(follower: Follower) -> list[Event]:
    """Return all events of a job up to its end."""
    events: list[Event] = []
    while not events or not isinstance(events[-1], Exited):
        events += follower.poll()
        time.sleep(0.02)
    return events


def one_rank_exits(lab: Lab) -> dict[str, Any]:
    return ending(lab.start("1:exit 3", "0:hang"))


def one_rank_is_killed(lab: Lab) -> dict[str, Any]:
    with kills_by_the_kernel(wanted=False):
        return ending(lab.start("1:kill", "0:hang"))


def the_shim_is_killed(lab: Lab) -> dict[str, Any]:
    folder = lab.start("all:hang")
    ready(folder)
    pid = status_json(folder)["ranks"]["1"]["pid"] or wait_for(lambda: status_json(folder)["ranks"]["1"]["pid"])
    victim = next(shim for shim in shims(folder) if shim.environ()["RANK"] == "1")
    victim.kill()
    return ending(folder, rank_gone=wait_for(lambda: has_ended(pid)))


def the_nodes_launcher_is_killed(lab: Lab) -> dict[str, Any]:
    """Kill launch.py, the parent of the shims; one rank ignores SIGTERM."""
    folder = lab.start("1:deaf", "all:hang")
    ready(folder)
    job_processes(folder, NODE)[0].kill()
    return ending(folder)


def the_runner_is_killed(lab: Lab) -> dict[str, Any]:
    """Kill runner.py, which only waits for launch.py: the ranks keep training."""
    folder = lab.start(f"all:wait {lab.path / 'go'}")
    ready(folder)
    job_processes(folder, LAUNCHER)[0].kill()
    wait_for(lambda: not job_processes(folder, LAUNCHER))
    (lab.path / "go").touch()
    return ending(folder)


def stopped(lab: Lab) -> dict[str, Any]:
    """Stop ranks that ignore SIGTERM, and a helper in another session without any environment."""
    helper = lab.path / "helper"
    folder = lab.start(f"0:helper {helper}", "all:deaf", "all:say armed", "all:hang", cluster=FULL_DEEPSPEED)
    ready(folder)
    wait_for(lambda: all(b"armed" in folder.log(rank).read_bytes() for rank in (0, 1)))
    report = stop(folder, 130)
    return ending(folder, report=report, helper_gone=has_ended(pid_in(helper)))


def stopped_politely(lab: Lab) -> dict[str, Any]:
    """Stop ranks that handle SIGTERM: each must get it exactly once."""
    folder = lab.start("all:polite", "all:say armed", "all:hang")
    ready(folder)
    wait_for(lambda: all(b"armed" in folder.log(rank).read_bytes() for rank in (0, 1)))
    began = time.monotonic()
    stop(folder)
    return ending(folder, seconds=time.monotonic() - began, logs=[folder.log(rank).read_text() for rank in (0, 1)])


def stopped_at_once(lab: Lab) -> dict[str, Any]:
    """Stop before any rank has started."""
    folder = lab.start("all:hang")
    return ending(folder, report=stop(folder))


def the_owner_is_killed(lab: Lab) -> dict[str, Any]:
    owner = subprocess.Popen(["sleep", "1000"])
    folder = lab.start("all:hang", owner_pid=owner.pid)
    ready(folder)
    owner.kill()
    owner.wait()
    return ending(folder)


def the_supervisor_is_killed(lab: Lab) -> dict[str, Any]:
    """Kill the supervisor: the job lives on, and the next reader that may act starts another supervisor."""
    folder = lab.start(f"all:wait {lab.path / 'go'}", "1:exit 4")
    ready(folder)
    kill_supervisor(folder)
    alive = len(shims(folder))
    first = status_json(folder)["supervisor"]["pid"]
    refreshed_json(folder)
    second = wait_for(lambda: (pid := status_json(folder)["supervisor"]["pid"]) != first and pid)
    (lab.path / "go").touch()
    return ending(folder, alive=alive, supervisors=(first, second))


def ends_unobserved(lab: Lab) -> dict[str, Any]:
    """Kill the supervisor, and let the job end before anybody looks."""
    folder = lab.start(f"all:wait {lab.path / 'go'}", "0:exit 5")
    ready(folder)
    wait_for(lambda: status_json(folder)["state"] == "running")
    kill_supervisor(folder)
    (lab.path / "go").touch()
    wait_for(lambda: not job_processes(folder))
    before = status_json(folder)["state"]
    refreshed_json(folder)
    return ending(folder, before=before)


def stopped_without_supervisor(lab: Lab) -> dict[str, Any]:
    folder = lab.start("all:hang")
    ready(folder)
    kill_supervisor(folder)
    return ending(folder, report=stop(folder))


def everything_is_killed(lab: Lab) -> dict[str, Any]:
    """Kill every process, as a power failure does: nobody can write the end."""
    folder = lab.start("all:hang")
    ready(folder)
    kill_supervisor(folder)
    witnesses = [*job_processes(folder, LAUNCHER), *job_processes(folder, NODE), *shims(folder)]
    for process in witnesses:
        process.suspend()  # otherwise the last process may notice the end of the others and record it
    for process in witnesses:
        process.kill()
    wait_for(lambda: not job_processes(folder))
    refreshed_json(folder)
    return ending(folder)


def no_rank_starts(lab: Lab) -> dict[str, Any]:
    """Pass an option that the launcher does not know."""
    return ending(lab.start("all:exit 0", cluster="launcher_args: [--nonsense]"))


def helpers_outlive_their_rank(lab: Lab) -> dict[str, Any]:
    """Run ranks that end well and leave a process behind."""
    helper = lab.path / "helper"
    folder = lab.start(f"1:helper {helper}", "all:exit 0")
    return ending(folder, helper_gone=wait_for(lambda: has_ended(pid_in(helper))))


def restarted(lab: Lab) -> dict[str, Any]:
    """Save a checkpoint and fail, then resume from it in a second attempt; followed from the beginning."""
    saved = lab.path / "out" / "save"
    folder = lab.start(
        *("all:facts", f"0:checkpoint {saved}", f"0:once {lab.path / 'failed'} 9", "1:say made it"),
        run='restarts: {max: 2, backoff: 0.3, args: [--resume, "{checkpoint}"]}',
    )
    events = all_events(Follower(folder))
    return ending(folder, events=events, saved=saved, again=all_events(Follower(folder)))


def stopped_between_attempts(lab: Lab) -> dict[str, Any]:
    folder = lab.start("1:exit 6", run="restarts: {max: 5, backoff: 500}")
    wait_for(lambda: status_json(folder).get("next_attempt"))
    report = stop(folder)
    return ending(folder, report=report)


def attempts_used_up(lab: Lab) -> dict[str, Any]:
    """Kill the supervisor between attempts: the next one continues with the same attempt."""
    folder = lab.start("1:exit 6", "all:exit 0", run="restarts: {max: 1, backoff: 0}")
    wait_for(lambda: status_json(folder)["attempt"] == 2)
    kill_supervisor(folder)
    wait_for(lambda: refreshed_json(folder)["state"] in FINAL)
    return ending(folder)


def leftovers(lab: Lab) -> dict[str, Any]:
    """Compile one op, and let the build of another die with the job; DeepSpeed's buffers stay in /dev/shm."""
    built, broken, go = lab.path / "ext" / "built" / "lock", lab.path / "ext" / "py" / "broken" / "lock", lab.path / "go"
    folder = lab.start(
        *("all:buffer", f"0:lock {built}", f"0:wait {go}", f"0:release {built}", f"0:lock {broken}", "all:say armed", "all:hang"),
        cluster=f'env: {{TORCH_EXTENSIONS_DIR: "{lab.path / "ext"}"}}',
    )
    wait_for(lambda: b"is compiling built" in read(folder.events_file))
    go.touch()
    wait_for(lambda: b"is compiling broken" in read(folder.events_file))
    other = Path(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_127.0.0.1_{100_000 + os.getpid()}_0")  # no port: not the job's
    other.touch()
    before = len(list(buffers(folder)))
    stop(folder)
    facts = ending(folder, before=before, after=list(buffers(folder)), others=other.exists(), locks=[built.exists(), broken.exists()])
    other.unlink()
    return {**facts, "notices": [event.text for event in all_events(Follower(folder)) if isinstance(event, Notice)]}


def stopped_as_a_build_begins(lab: Lab) -> dict[str, Any]:
    """Stop when the lock of a build is younger than the last look for locks."""
    lock = lab.path / "ext" / "op" / "lock"
    folder = lab.start(f"0:lock {lock}", "all:say armed", "all:hang", cluster=f'env: {{TORCH_EXTENSIONS_DIR: "{lab.path / "ext"}"}}')
    wait_for(lock.exists)
    return ending(folder, report=stop(folder), lock=lock.exists())


def a_build_is_stopped_without_supervisor(lab: Lab) -> dict[str, Any]:
    """Stop a job without supervisor: the stopping command looks for the lock; a lock of another process stays."""
    mine, theirs = lab.path / "ext" / "op" / "lock", lab.path / "ext" / "other" / "lock"
    theirs.parent.mkdir(parents=True)
    folder = lab.start(f"0:lock {mine}", "all:say armed", "all:hang", cluster=f'env: {{TORCH_EXTENSIONS_DIR: "{lab.path / "ext"}"}}')
    wait_for(mine.exists)
    kill_supervisor(folder)
    with theirs.open("w"):
        report = stop(folder)
        return ending(folder, report=report, locks=[mine.exists(), theirs.exists()])


def buffers(folder: JobFolder) -> Iterator[Path]:
    """Yield the job's buffers in /dev/shm."""
    command = status_json(folder)["command"]
    return Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{command[command.index('--master_port') + 1]}_*")


def kill_supervisor(folder: JobFolder) -> None:
    """Send SIGKILL to the supervisor and wait until it is gone."""
    supervisor = wait_for(lambda: status_json(folder)["supervisor"])
    os.kill(supervisor["pid"], signal.SIGKILL)
    wait_for(lambda: has_ended(supervisor["pid"]))


SCENARIOS: dict[str, Callable[[Lab], dict[str, Any]]] = {
    function.__name__: function
    for function in (
        stopped,
        stopped_as_a_build_begins,
        a_build_is_stopped_without_supervisor,
        the_nodes_launcher_is_killed,
        prints_everything,
        one_rank_exits,
        one_rank_is_killed,
        the_shim_is_killed,
        the_runner_is_killed,
        stopped_politely,
        stopped_at_once,
        the_owner_is_killed,
        the_supervisor_is_killed,
        ends_unobserved,
        stopped_without_supervisor,
        everything_is_killed,
        no_rank_starts,
        helpers_outlive_their_rank,
        leftovers,
        restarted,
        stopped_between_attempts,
        attempts_used_up,
    )
}
