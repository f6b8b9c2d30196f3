"""The checks, by topic. Importing this package registers all of them. `ORDER` is the order of the report, that of a first day."""

from __future__ import annotations

from dstui.doctor.case import CHECKS, Check
from dstui.doctor.checks import gpus, host, job, network, reach, services, software

__all__ = ["ORDER", "gpus", "host", "job", "network", "reach", "services", "software"]

TOPICS = (reach, gpus, software, host, network, job, services)
ORDER: tuple[Check, ...] = tuple(sorted(CHECKS.values(), key=lambda check: [t.__name__ for t in TOPICS].index(check.evaluate.__module__)))
