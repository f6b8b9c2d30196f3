"""The hosts of a job that has ended where nobody has confirmed that nothing is left: tried once more."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from dstui.hosts.srun import release
from dstui.run.hosts.mirror import Mirror
from dstui.run.jobs.folder import JobFolder
from dstui.run.jobs.records import JobStatus
from dstui.run.jobs.status import ranks_of
from dstui.run.supervise.host_orders import cluster_of


def sweep(folder: JobFolder, status: JobStatus, tag: str) -> list[str]:
    """End what is left of a job of one's own on hosts that were unreachable, and bring home what it wrote there.

    What is left, or may be, as sentences; status.json then says the same.
    """
    record = folder.read_launch()
    if record is None or record.cluster is None or all(host.state == "ended" for host in status.hosts.values()):
        return []
    lock = folder.lock()
    if lock is None:
        return [f"{folder.name} is looked after by another dstui just now"]
    cluster = cluster_of(record, Mirror(folder, tag, status), status)
    try:
        cluster.stop()
        while cluster.stopping:
            cluster.pump(0.1)
            cluster.take_news()
        left = cluster.unconfirmed
        cluster.clean()
        while cluster.cleaning:
            cluster.pump(0.1)
            cluster.take_news()
        with suppress(OSError):
            folder.write_status(replace(status, hosts=cluster.statuses, ranks=ranks_of(folder, status).statuses()))
        return left
    finally:
        cluster.close()
        if record.cluster.makes_allocations:
            release(tag)
        os.close(lock)
