"""Hostfiles and filters follow DeepSpeed's grammar; DeepSpeed's own parser is the reference."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dstui.plan.hostfile import HostfileError, hostfile_text, parse_hostfile, select

POOL = {"a": 4, "b": 2}
FILTERS = ["a", "b", "a@b", "a:0,2", "b:1", "a:0@a:1", "a: 0", "c", "a:9", "a:0-2", "a:", "a,b", "a@", "a:x", "a:0:1"]
FILES = [
    "a slots=4\n", "a slots=4 # x\n\n# c\nb\tslots=2\n", "a slots=4\na slots=2\n", "a\n", "a slots = 4\n", "", "# only\n",
    "user@a slots=2 max_slots=8\n", "a slots=-1\n", "a max_slots=8 slots=4\n", "fe80::1 slots=1\n", "a Slots=2\n",
]  # fmt: skip

REFERENCE = """# asks the launcher
import json, sys
from deepspeed.launcher.runner import _parse_hostfile, parse_resource_filter
files, filters, pool = json.loads(sys.stdin.read())
def ask(call, *args, **kwargs):
    try:
        return {host: slots if isinstance(slots, int) else list(slots) for host, slots in call(*args, **kwargs).items()}
    except Exception as error:
        return None
print("ANSWER" + json.dumps([
    [ask(_parse_hostfile, text.splitlines(keepends=True)) for text in files],
    [ask(parse_resource_filter, {h: list(range(n)) for h, n in pool.items()}, include_str=f) for f in filters],
    [ask(parse_resource_filter, {h: list(range(n)) for h, n in pool.items()}, exclude_str=f) for f in filters],
]))
"""


def ours(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except HostfileError:
        return None


def test_hosts_and_slots_equal_deepspeeds() -> None:
    import json

    child = subprocess.run(
        [sys.executable, "-c", REFERENCE],
        input=json.dumps([FILES, FILTERS, POOL]),
        text=True,
        capture_output=True,
        check=True,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
    )
    files, included, excluded = json.loads(child.stdout.partition("ANSWER")[2])
    assert [ours(parse_hostfile, text) for text in FILES] == files
    assert [ours(select, POOL, include=f) for f in FILTERS] == included
    assert [ours(select, POOL, exclude=f) or {} for f in FILTERS] == [left or {} for left in excluded]  # an error if nothing is left


def test_exclude_that_leaves_nothing_is_reported_before_launch() -> None:
    with pytest.raises(HostfileError, match="leaves no slot"):
        select(POOL, exclude="a@b")


def test_invalid_line_is_reported_with_its_number() -> None:
    with pytest.raises(HostfileError, match=r"line 3: the host 'a' is given a second time"):
        parse_hostfile("# hosts\na slots=1\na slots=2\n")


def test_node_and_gpu_counts_limit_the_pool_and_exclude_filters() -> None:
    assert select(POOL, num_nodes=1) == {"a": [0, 1, 2, 3]}
    assert select(POOL, num_gpus=1) == {"a": [0], "b": [0]}
    with pytest.raises(HostfileError, match="cannot be combined with"):
        select(POOL, include="a", num_gpus=1)
    with pytest.raises(HostfileError, match="only 2 hosts"):
        select(POOL, num_nodes=3)


def test_written_hostfile_reads_back_the_same() -> None:
    assert parse_hostfile(hostfile_text(POOL)) == POOL
