"""Checks of services outside of the hosts: the model hub, experiment trackers, the scheduler's time limit."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dstui.doctor.case import Case, Outcome, doctor_check
from dstui.plan import Plan

Outcomes = Iterator[Outcome]
SHORT = 30 * 60
"""Seconds that are hardly enough to start, train and save."""
TRACKERS = {"wandb": ("Weights & Biases", "WANDB_API_KEY", "wandb login"), "comet": ("Comet", "COMET_API_KEY", "comet login")}
"""Name in DeepSpeed and the Trainer -> its own name, the variable with its key, the command that asks for the key."""
SILENT = ("offline", "disabled", "dryrun")


@doctor_check("hub")
def hub(case: Case) -> Outcomes:
    """The model is in the host's cache, or the hub has it."""
    name, found = case.get("model.source"), case.ready.get("hub")
    if not found:
        yield Outcome("skipped", "the Plan names no model of the hub")
    elif found.get("cached"):
        yield Outcome("ok", f"{name} is in the cache")
    elif found.get("offline"):
        yield Outcome("warn", f"{name} is not in the cache, and HF_HUB_OFFLINE forbids fetching it", f"hf download {name}, on this host")
    elif found.get("problem"):
        fix = f"hf download {name} where there is a connection, to an HF_HOME that this host sees; or https_proxy in cluster.env"
        yield Outcome("warn", f"{found['endpoint']} does not answer ({found['problem']}), and {name} is not in the cache", fix)
    elif found["status"] in (401, 403) and found["token"]:
        yield Outcome("ok", f"{name} is gated or private; there is a token (it was not tried)")
    elif found["status"] in (401, 403):
        fix = "ask for access on its page, then hf auth login, or HF_TOKEN in cluster.env"
        yield Outcome("warn", f"{name} is gated, private or not there, and no token is here", fix)
    elif found["status"] >= 400:
        yield Outcome("warn", f"{found['endpoint']} has no {name} (status {found['status']})", "correct model.source")
    else:
        yield Outcome("ok", f"{found['endpoint']} has {name}; every host will fetch it")


@doctor_check("trackers", once=True)
def trackers(case: Case) -> Outcomes:
    """Trackers of the job have a key where rank 0 runs, since nobody can type it there."""
    wanted = _reported_to(case.plan) if case.plan else []
    if not wanted:
        yield Outcome("skipped", "the Plan uses no tracker that needs a key")
    given = {**(case.environment if case.here else {}), **case.get("cluster.env", {})}
    for tracker in wanted:
        name, variable, login = TRACKERS[tracker]
        if tracker == "wandb" and (mode := given.get("WANDB_MODE", "")) in SILENT:
            yield Outcome("ok", f"{name}: WANDB_MODE is {mode}")
        elif given.get(variable) or tracker in case.ready.get("keys", ()):
            yield Outcome("ok", f"{name}: there is a key")
        else:
            offline = ", or WANDB_MODE: offline in cluster.env" if tracker == "wandb" else ""
            yield Outcome("warn", f"no key of {name} on {case.host}: rank 0 would fail, or wait for one", f"{login} there{offline}")


def _reported_to(plan: Plan) -> list[str]:
    """Return the trackers that the configuration enables (DeepSpeed's monitor) or the arguments name (the Trainer's --report_to)."""
    words = " ".join(plan.job.args).replace("=", " ").split()
    named = set[str]()
    for place, word in enumerate(words):
        if word in ("--report_to", "--report-to"):
            values = words[place + 1 :]
            named |= set(values[: next((n for n, value in enumerate(values) if value.startswith("-")), len(values))])
    return [tracker for tracker in TRACKERS if tracker in named or plan.get(f"deepspeed.{tracker}.enabled") is True]


@doctor_check("time-left", once=True)
def time_left(case: Case) -> Outcomes:
    """The scheduler leaves the job some time."""
    ends = case.environment.get("SLURM_JOB_END_TIME", "")
    if not ends.isdigit():
        yield Outcome("skipped", "no SLURM job, or its end is unknown")
        return
    left = max(int(ends) - time.time(), 0.0)
    observed = f"{left // 3600:.0f} h {left % 3600 // 60:.0f} min until SLURM ends the job"
    if left < SHORT:
        yield Outcome(
            "warn", observed, "request more time (--time), or save often and have SLURM warn the job (#SBATCH --signal=B:USR1@600)"
        )
    else:
        yield Outcome("ok", observed)
