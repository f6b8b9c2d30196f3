"""Hosts from a SLURM allocation's variables, an ssh configuration or a selection of slots."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstui.adopt.slurm import expand_nodelist, hosts_of_allocation
from dstui.plan.hostfile import HostfileError, exclude_for, include_for, included, select, ssh_hosts

LISTS = {
    "h1": ["h1"],
    "h1,h2": ["h1", "h2"],
    "node[01-03,7],gpu1": ["node01", "node02", "node03", "node7", "gpu1"],
    "r[1-2]n[0-1]-ib": ["r1n0-ib", "r1n1-ib", "r2n0-ib", "r2n1-ib"],
    "a[9-11].cluster.org": ["a9.cluster.org", "a10.cluster.org", "a11.cluster.org"],
}


@pytest.mark.parametrize("text", LISTS)
def test_node_list_expands_as_by_scontrol(text: str) -> None:
    assert expand_nodelist(text) == LISTS[text]
    if scontrol := shutil.which("scontrol"):
        asked = subprocess.run([scontrol, "show", "hostnames", text], capture_output=True, text=True, check=False)
        assert asked.returncode or asked.stdout.split() == LISTS[text]


@pytest.mark.parametrize(
    "text", ["", "node[1-", "node]", "a b", "n[3-1]", "n[x]", "n[1-999999999]", "-oProxyCommand=x", "n[0-9999][0-9999]"]
)
def test_invalid_node_list_is_refused(text: str) -> None:
    with pytest.raises(HostfileError):
        expand_nodelist(text)


@pytest.mark.parametrize(
    ("variables", "hosts"),
    [
        ({}, None),
        ({"SLURM_JOB_NODELIST": "h[1-2]", "SLURM_GPUS_ON_NODE": "8"}, {"h1": 8, "h2": 8}),
        ({"SLURM_JOB_NODELIST": "h[1-2]", "SLURM_GPUS_PER_NODE": "a100:4", "SLURM_GPUS_ON_NODE": "8"}, {"h1": 4, "h2": 4}),
        ({"SLURM_JOB_NODELIST": "h[1-2]", "SLURM_JOB_GPUS": "0,1,2"}, {"h1": 3, "h2": 3}),
        ({"SLURM_JOB_NODELIST": "h[1-3]", "SLURM_TASKS_PER_NODE": "2(x2),1"}, {"h1": 2, "h2": 2, "h3": 1}),
        ({"SLURM_JOB_NODELIST": "h[1-3]", "SLURM_TASKS_PER_NODE": "nonsense"}, {"h1": 1, "h2": 1, "h3": 1}),
    ],
)
def test_allocation_gives_hosts_and_slots(variables: dict[str, str], hosts: dict[str, int] | None) -> None:
    assert hosts_of_allocation(variables) == hosts


def test_ssh_configuration_gives_host_names_without_patterns() -> None:
    text = "Include ~/.ssh/config.d/*\nHost worker-1 worker-2 # two\n  HostName 10.0.0.1\nhost=login\nHost *.lab !x ?\nMatch host y\nHost worker-1\nHost 'a\n"
    assert ssh_hosts(text) == ["worker-1", "worker-2", "login"]
    assert included(text) == ["~/.ssh/config.d/*"]


POOLS = st.dictionaries(st.sampled_from(["h1", "worker-0", "worker-1", "10.0.0.7"]), st.integers(1, 4), min_size=1)


@given(st.data())
@settings(max_examples=200)
def test_selection_of_slots_and_deepspeeds_filter_are_inverse(data: st.DataObject) -> None:
    pool = data.draw(POOLS)
    chosen = {host: sorted(data.draw(st.sets(st.integers(0, slots - 1)))) for host, slots in pool.items()}
    left = {host: slots for host, slots in chosen.items() if slots}
    if not left:
        with pytest.raises(HostfileError, match="no slot is chosen"):
            include_for(pool, chosen)
        return
    assert select(pool, include=include_for(pool, chosen)) == left == select(pool, exclude=exclude_for(pool, chosen))


def test_filters_are_written_in_short_form() -> None:
    pool = {"worker-0": 2, "worker-1": 4, "worker-2": 4}
    assert include_for(pool, {"worker-1": [2, 0], "worker-0": [0, 1]}) == "worker-0@worker-1:0,2"
    assert exclude_for(pool, {"worker-1": [2, 0], "worker-0": [0, 1]}) == "worker-1:1,3@worker-2"
    assert include_for(pool, {host: range(slots) for host, slots in pool.items()}) is None
    for wrong in ({"worker-9": [0]}, {"worker-0": [2]}):
        with pytest.raises(HostfileError, match="does not have the slots"):
            include_for(pool, wrong)
    with pytest.raises(HostfileError, match="give it a name"):
        include_for({"::1": 2, "me@a": 1}, {"::1": [0]})
    with pytest.raises(HostfileError, match="give it a name"):
        include_for({"a": 2, "me@a": 1}, {"me@a": [0]})
