"""End what is left of a job on its hosts without its supervisor: of a job that has ended, or whose supervisor's host is gone."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from dstui.hosts.connection import release
from dstui.jobs.hosts.job_hosts import JobHosts
from dstui.jobs.hosts.mirror import Mirror
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import finish, ranks_of
from dstui.jobs.supervisor.host_orders import cluster_from_here, cluster_of


def sweep(folder: JobFolder, status: JobStatus, tag: str) -> list[str]:
    """End what is left of the user's own job on hosts that were unreachable, and fetch what it wrote there.

    Return what is left, or may be, as sentences; status.json is updated accordingly.
    """
    record = folder.read_launch()
    if record is None or all(host.state == "ended" for host in status.hosts.values()):
        return []
    lock = folder.lock()
    if lock is None:
        return [f"{folder.name} is supervised by another dstui at the moment"]
    mirror = Mirror(folder, tag, status)
    own = record.cluster is not None and status.hosts.keys() <= record.cluster.hosts.keys()
    cluster = cluster_of(record, mirror, status) if own else cluster_from_here(record, mirror, status)
    try:
        left = _end(cluster)
        with suppress(OSError):
            folder.write_status(replace(status, hosts=cluster.statuses, ranks=ranks_of(folder, status).statuses()))
        return left
    finally:
        cluster.close()
        os.close(lock)
        if record.cluster and record.cluster.makes_allocations:
            release(tag)


def end_from_here(folder: JobFolder, status: JobStatus, tag: str, exit_code: int) -> tuple[JobStatus, list[str]]:
    """Stop the user's own job whose supervisor's host is gone: by its tag, on every reachable host.

    Return the written status, and what is left, or may be, as sentences.
    """
    record = folder.read_launch()
    if record is None:
        return status, [f"{folder.launch_file} cannot be read: the job's hosts are unknown"]
    lock = folder.lock()  # on a network file system a lost host may hold it for a while: its silence is the criterion
    cluster = cluster_from_here(record, Mirror(folder, tag, status), status)
    try:
        left = _end(cluster)
        return finish(folder, replace(status, hosts=cluster.statuses), ranks_of(folder, status), exit_code), left
    finally:
        cluster.close()
        if lock is not None:
            os.close(lock)
        if record.cluster and record.cluster.makes_allocations:
            release(tag)


def _end(cluster: JobHosts) -> list[str]:
    """Stop and clean every host. Return what is left, or may be."""
    cluster.stop()
    while cluster.stopping:
        cluster.pump(0.1)
        cluster.take_news()
    left = cluster.unconfirmed
    cluster.clean()
    while cluster.cleaning:
        cluster.pump(0.1)
        cluster.take_news()
    return left
