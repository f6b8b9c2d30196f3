"""The checks, by topic: importing this package registers all of them, in the order in which they are told."""

from __future__ import annotations

from dstui.doctor.case import CHECKS  # noqa: I001 - the order is that of a first day, not of the alphabet
from dstui.doctor.checks import reach, gpus, software, host, network, job

__all__ = ["CHECKS", "gpus", "host", "job", "network", "reach", "software"]
