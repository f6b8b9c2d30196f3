"""How a ds_config.json reaches the script named after `--`, and what is reported if it does not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dstui.base.files import was_read, watch_reads
from tests.command import dstui

READS = """\
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--n")
parser.add_argument("--conf")
args = parser.parse_args()
print("rank", os.environ["RANK"], args.conf, json.load(open(args.conf)) if args.conf else None, flush=True)
if args.n == "never":
    deepspeed.initialize(config=args.conf)  # which says where the configuration goes, and would take a minute
"""
CONFIG = '{"train_micro_batch_size_per_gpu": 1}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a script and its configuration, without torch."""
    (tmp_path / "ds_config.json").write_text(CONFIG)
    (tmp_path / "train.py").write_text(READS)
    (tmp_path / "tried").write_text("x")
    watch_reads(tmp_path / "tried")
    return tmp_path


def run(folder: Path, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    ranks = ("--run-dir", "run", "--set", "cluster.cpu_ranks=2")
    script = ("ds_config.json", "--", "train.py", *words)
    return dstui("--headless", *options, *ranks, *script, cwd=folder, env={"DS_ACCELERATOR": "cpu"})


@pytest.mark.parametrize("word", ["ds_config.json", "./ds_config.json", "{ds_config}", "ABSOLUTE"])
@pytest.mark.parametrize("joined", [False, True])
def test_file_among_the_arguments_becomes_the_rendered_one(folder: Path, word: str, joined: bool) -> None:
    given = word.replace("ABSOLUTE", str(folder / "ds_config.json"))
    done = run(folder, *([f"--conf={given}"] if joined else ["--conf", given]), options=("--dry-run",))
    assert done.returncode == 0, done.stderr
    command = done.stdout.rpartition("# launch.sh")[2]
    assert ("--conf=./ds_config.json" if joined else "--conf ./ds_config.json") in command
    assert "PL001" not in done.stderr


def test_script_gets_the_rendered_configuration_and_no_local_rank(folder: Path) -> None:
    done = run(folder, "--conf", "ds_config.json", options=("--strict",))
    assert done.returncode == 0, done.stderr
    assert f"[0] rank 0 {folder}/run/ds_config.json {{'train_micro_batch_size_per_gpu': 1}}" in done.stdout
    assert "PL001" not in done.stdout + done.stderr and "CONFIG-UNREAD" not in done.stdout


def test_script_that_gets_no_configuration_is_reported_at_start_and_end(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 0
    assert "warning PL001" in done.stderr and "add --conf {ds_config} to the arguments (line 4: an argument --conf)" in done.stderr
    summary = done.stdout.partition("succeeded after")[2]
    assert "warning PL001: no argument passes the DeepSpeed configuration to the script" in summary
    if was_read(folder / "tried") is None:
        pytest.skip("this disk records no access times")
    assert "No rank has read this Plan's ds_config.json" in summary


def test_unread_configuration_is_reported_as_events(folder: Path) -> None:
    done = run(folder, options=("--json",))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert (kinds[0], kinds[-1], done.returncode) == ("start", "exit", 0)
    said = [number for number, event in enumerate(events) if event["event"] == "finding" and event["code"] == "PL001"]
    assert len(said) == 2 and said[0] < kinds.index("line") and said[1] > len(kinds) - 1 - kinds[::-1].index("line")
    if was_read(folder / "tried") is not None:
        assert [event["cause"] for event in events if event["event"] == "diagnosis"] == ["CONFIG-UNREAD"]


def test_unconfigured_job_is_no_success_for_later_readers(folder: Path) -> None:
    if was_read(folder / "tried") is None:
        pytest.skip("this disk records no access times")
    run(folder)
    found = dstui("diagnose", "run", "--json", cwd=folder)
    told = json.loads(found.stdout)
    assert (told["cause"], told["kind"]) == ("CONFIG-UNREAD", "failure")
    assert told["fixes"][0]["patch"] == [{"op": "add", "path": "/job/args", "value": ["--conf", "{ds_config}"]}]


def test_strict_ends_a_job_whose_ranks_read_no_configuration(folder: Path) -> None:
    if was_read(folder / "tried") is None:
        pytest.skip("this disk records no access times")
    strict = ("--strict", "--json")
    done = run(folder, options=strict)
    assert done.returncode == 1 and json.loads(done.stdout.splitlines()[-1])["exit_code"] == 1
    assert "but no rank had read" in done.stderr
    (folder / "run").rename(folder / "ended")
    loop = "for n in range(6000):\n    print(f'step {n} loss 1.5', flush=True)\n    time.sleep(0.1)\n"
    (folder / "train.py").write_text(f"{READS}\nimport time\n{loop}")
    done = run(folder, options=strict)
    assert done.returncode == 1 and "none has read the configuration: stopping the job" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"event": "exit", "exit_code": 1, "state": "stopped"}


def test_strict_is_refused_for_a_detached_job(folder: Path) -> None:
    assert "--strict cannot be used with --detach" in run(folder, options=("--strict", "--detach")).stderr
