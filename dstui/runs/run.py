"""One run of a table. Each part is read when it is first needed. Reading starts nothing and writes nothing to the run."""

from __future__ import annotations

import json
import pwd
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from dstui.base.files import FileProblem
from dstui.base.text import sanitise
from dstui.facts.measured import Taken
from dstui.jobs.metrics.latest import LatestMetrics, latest_metrics
from dstui.jobs.metrics.series import logs_of
from dstui.jobs.store.folder import JobFolder, read_json
from dstui.jobs.store.ownership import owner_of
from dstui.jobs.store.plan_diff import Change, data_changes, plan_of, project_of, same
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import no_sign_of_life, orphan_hint
from dstui.jobs.watch.taken import kept as measured
from dstui.jobs.watch.usage import USAGE
from dstui.plan import Plan, PlanError
from dstui.runs.kept import Kept

FAILED = ("failed", "lost")
DIAGNOSED = 64 << 20
"""The largest size of logs in bytes for which a table diagnoses a failure; `dstui diagnose` handles larger ones."""
SPEEDS = ("tokens/s", "samples/s", "steps/s")


class Run:
    """A run of a table."""

    def __init__(self, folder: JobFolder, status: JobStatus, kept: Kept) -> None:
        self.folder, self.status = folder, status
        self.before: Run | None = None
        """The previous run of the same project, set by `link`."""
        self._kept = kept

    @property
    def name(self) -> str:
        """The name of its folder, safe to show."""
        return sanitise(self.folder.name)

    @property
    def active(self) -> bool:
        """Return whether it is running, as far as that is visible."""
        return not self.status.final

    def _part(self, name: str, read: Any, empty: Any) -> Any:
        found = self._kept.part(self.folder, name, read, ended=self.status.final and not self.status.orphaned)
        return found if isinstance(found, type(empty)) else empty

    # Plan

    @cached_property
    def _written(self) -> Mapping[str, Any]:
        return self._part("plan", self._read_plan, {})  # type: ignore[no-any-return]

    def _read_plan(self) -> dict[str, Any]:
        with suppress(FileProblem, PlanError, OSError):
            plan = plan_of(self.folder)
            found: dict[str, Any] = json.loads(json.dumps({"data": plan.data, "project": project_of(plan, self.folder.begun_in)}))
            return found  # from the cache, without the spelling of numbers
        return {}

    @property
    def plan(self) -> Mapping[str, Any] | None:
        """The Plan as written; None if it cannot be read."""
        data = self._written.get("data")
        return data if isinstance(data, Mapping) else None

    @property
    def project(self) -> tuple[Any, ...] | None:
        """A key that is equal for runs of the same work."""
        found = self._written.get("project")
        return tuple(found) if found else None

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The values of the Plan by their dotted paths."""
        found: dict[str, Any] = {}
        level = [("", self.plan or {})]
        for parent, section in level:
            for key, value in section.items():
                if isinstance(value, Mapping) and value:
                    level.append((f"{parent}{key}.", value))
                else:
                    found[f"{parent}{key}"] = value
        return found

    def spelled(self, path: str) -> Any:
        """Return the value at a path that `settings` has, numbers with the spelling of the Plan's file."""
        found = self._own_plan.get(path, None) if self._own_plan is not None else None
        return found if same(found, self.settings[path]) else self.settings[path]

    @cached_property
    def _own_plan(self) -> Plan | None:
        with suppress(FileProblem, PlanError, OSError):
            return plan_of(self.folder)
        return None

    @property
    def changed(self) -> tuple[Change, ...] | None:
        """Return the differences of its Plan from the previous run's; None if there is no previous run."""
        if self.before is None or self.before.plan is None or self.plan is None:
            return None
        return data_changes(self.before.plan, self.plan)

    # Metrics

    @cached_property
    def latest(self) -> LatestMetrics:
        """Step and last metrics, from the end of its first rank's log."""
        ranks = sorted(self.status.ranks)
        return LatestMetrics.from_json(self._part("told", lambda: latest_metrics(self.folder, self.status.attempt, ranks).as_json(), {}))

    @property
    def speed(self) -> tuple[str, float] | None:
        """Return its speed, and the metric that it is measured by."""
        return next(((name, self.latest.metrics[name]) for name in SPEEDS if name in self.latest.metrics), None)

    @property
    def took(self) -> float | None:
        """Seconds from its start to its end, or to now."""
        started = self.status.started
        return None if started is None else max((self.status.ended or time.time()) - started, 0.0)

    @property
    def eta(self) -> float | None:
        """Seconds for the remaining steps of a running job."""
        told, took = self.latest, self.took
        if not self.active or not told.steps or told.step is None or told.step > told.steps:
            return None
        step = told.metrics.get("step_time") or (took / told.step if took and told.step else None)
        return None if step is None else (told.steps - told.step) * step

    @cached_property
    def taken(self) -> Taken | None:
        """Return the resources that it took compared to the forecast, if they were measured."""
        return measured(self.folder)

    @cached_property
    def gpu_memory(self) -> int | None:
        """The peak of the fullest GPU in bytes, from NVML, else from the log lines."""
        if self.taken is not None and self.taken.gpu_bytes:
            return self.taken.gpu_bytes
        shown = [most for most in read_json(self.folder.path / USAGE).values() if type(most) is int and 0 < most < 1 << 60]
        return max(shown, default=None) or int(self.latest.metrics.get("memory_peak", 0)) or None

    # End

    @cached_property
    def _diagnosed(self) -> Mapping[str, Any]:
        return self._part("why", self._diagnose, {}) if self.status.state in FAILED else {}

    def _diagnose(self) -> dict[str, Any]:
        from dstui.diagnosis import diagnose_job

        with suppress(OSError, FileProblem):
            if sum(path.stat().st_size for path in logs_of(self.folder).values()) > DIAGNOSED:
                return {"title": "its logs are long: dstui diagnose reads them"}
            found = diagnose_job(self.folder)
            return {"cause": found.cause, "title": found.title, "host": found.host, "rank": found.first_failing_rank}
        return {}

    @property
    def cause(self) -> str:
        """The code of the cause of its failure; "" if it did not fail or the cause is unknown."""
        return str(self._diagnosed.get("cause") or "")

    @property
    def failed_host(self) -> str:
        """The host that failed first; "" if it did not fail."""
        if self.status.state not in FAILED:
            return ""
        named, rank = self._diagnosed.get("host"), self._diagnosed.get("rank")
        reported = self.status.ranks.get(rank) if isinstance(rank, int) else next(iter(self.status.ranks.values()), None)
        return sanitise(str(named or (reported.host if reported else "")))

    @property
    def why(self) -> str:
        """Return why it ended, and other remarks on it, as a sentence."""
        title = sanitise(str(self._diagnosed.get("title") or ""))
        notes = (self.status.foreign, no_sign_of_life(self.folder, self.status), orphan_hint(self.folder, self.status))
        return "; ".join(filter(None, (title, *(sanitise(note) for note in notes))))

    @cached_property
    def user(self) -> str:
        """Return the owner of its folder."""
        uid = owner_of(self.folder)
        with suppress(KeyError):
            return pwd.getpwuid(uid).pw_name
        return f"uid {uid}"

    @property
    def hosts(self) -> list[str]:
        """The hosts of its ranks, safe to show."""
        return list(dict.fromkeys(sanitise(rank.host) for rank in self.status.ranks.values()))


def link(runs: Iterable[Run]) -> None:
    """Set the previous run of the same project for each run. `runs`: oldest first."""
    latest: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        if run.project is not None:
            run.before = latest.get(run.project)
            latest[run.project] = run
