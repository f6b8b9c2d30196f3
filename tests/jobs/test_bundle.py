"""The zip for a bug report: complete, without secrets, and possible for a folder in any state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dstui.base.files import FileProblem
from dstui.base.text import UNSAFE
from dstui.bundle.bundle import bundle
from dstui.jobs.store.folder import JobFolder
from tests.job_json import status_json, write_status_json
from tests.jobs.made import PLAN, dstui, make_job

SWAPS = 12
"""Repetitions of the race; an unprotected reader lost every one."""
SECRET = "Zm9vYmFyLXNlY3JldC0xMjM0"


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    """Return a job folder with the same secret in every file."""
    plan = PLAN.replace("OMP_NUM_THREADS: 1", f"HF_TOKEN: {SECRET}")
    logs = {0: f"step 1 loss 2.0\n\x1b[31mlogged in with {SECRET}\x1b[0m\n", 1: "".join(f"line {n}\n" for n in range(5000))}
    folder = make_job(tmp_path / "job", plan, logs, command=["deepspeed", "train.py", "--api_key", SECRET])
    folder.launch_file.write_text(json.dumps({"env": {"HF_TOKEN": SECRET}, "args": ["--hub-token", SECRET]}))
    folder.launcher_log.write_text(f"cmd = ['python', '--hub-token', '{SECRET}']\n")
    (folder.path / ".deepspeed_env").write_text(f"HF_TOKEN={SECRET}\n")
    folder.append_event(1.0, "notice", text=f"HF_TOKEN is {SECRET}")
    return folder


def unzip(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name.partition("/")[2]: archive.read(name).decode() for name in archive.namelist()}


def test_bundle_has_every_file_of_a_job_and_no_secret(job: JobFolder, tmp_path: Path) -> None:
    found = unzip(bundle(job, tmp_path / "b.zip", more={"machine.json": json.dumps({"host": SECRET})}))
    own = {"plan.yaml", "launch.json", "status.json", "events.jsonl", "launcher.log", ".deepspeed_env", "contents.txt", "diagnosis.json"}
    assert own | {f"{kind}/rank_{n}.{end}" for n in (0, 1) for kind, end in (("logs", "log"), ("ranks", "json"))} <= found.keys()
    assert [name for name, text in found.items() if SECRET in text] == []
    assert found["logs/rank_0.log"] == "step 1 loss 2.0\nlogged in with ***\n"
    assert json.loads(found["launch.json"]) == {"env": {"HF_TOKEN": "***"}, "args": ["--hub-token", "***"]}
    assert "reduce_bucket_size: 5e8" in found["plan.yaml"] and json.loads(found["status.json"])["command"][-1] == "***"


def test_bundle_has_the_last_lines_of_each_log(job: JobFolder, tmp_path: Path) -> None:
    found = unzip(bundle(job, tmp_path / "b.zip", lines=3))
    assert found["logs/rank_1.log"] == "line 4997\nline 4998\nline 4999\n"


def test_secrets_of_the_current_environment_are_masked(job: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef0123")
    job.log(0).write_text("wandb: using 0123456789abcdef0123\n")
    assert unzip(bundle(job, tmp_path / "b.zip"))["logs/rank_0.log"] == "wandb: using ***\n"


def test_secret_named_once_is_masked_everywhere(tmp_path: Path) -> None:
    key, word, said = "0123456789abcdef0123456789abcdef01234567", "correcthorse", "Zm9vYmFy-c2VjcmV0"
    logs = {
        0: f"logged in with {key}\nDB_PASSWORD={said}\n",
        1: f"{said} was refused, and {word} too\npassword: required\nit is required\n",
    }
    folder = make_job(tmp_path / "job", logs=logs, command=["train.py", "--wandb-key", key, "--password", word])
    found = unzip(bundle(folder, tmp_path / "b.zip"))
    assert [name for name, text in found.items() if key in text or word in text or said in text] == []
    assert found["logs/rank_1.log"] == "*** was refused, and *** too\npassword: ***\nit is required\n"


@pytest.mark.parametrize("name", ["notes.txt", "logs/rank_2.log", "ranks/rank_2.json", "plan.yaml", "events.jsonl", "attempts"])
def test_files_outside_the_folder_are_left_out_whatever_link_leads_there(job: JobFolder, tmp_path: Path, name: str) -> None:
    private = tmp_path / "home"
    (private / "2" / "logs").mkdir(parents=True)
    for file in (private / "id_rsa", private / "2" / "logs" / "rank_0.log"):
        file.write_text("my private words\n")
    (job.path / name).unlink(missing_ok=True)
    (job.path / name).symlink_to(private if name == "attempts" else private / "id_rsa")
    write_status_json(job, {**status_json(job), "state": "failed", "exit_code": 1})
    found = unzip(bundle(job, tmp_path / "b.zip"))
    assert "my private words" not in "".join(found.values())
    assert "is left out: it is a" in found["contents.txt"]


def test_files_that_the_site_adds_are_bundled_masked(job: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "nccl.conf").write_text(f"NCCL_DEBUG=INFO\nAPI_KEY={SECRET}\n")
    site = tmp_path / "site.yaml"
    site.write_text(f"version: 1\nbundle: {{include: [{tmp_path}/nccl.conf, {tmp_path}/none.log]}}\n")
    site.chmod(0o644)
    monkeypatch.setenv("DSTUI_SITE", str(site))
    found = {name: text for name, text in unzip(bundle(job, tmp_path / "b.zip")).items() if name.startswith("site/")}
    conf, none = (next(text for name, text in found.items() if name.endswith(end)) for end in ("nccl.conf", "none.log"))
    assert "NCCL_DEBUG=INFO" in conf and SECRET not in conf and "no such file" in none and "\nAPI_KEY=" in conf


def test_files_of_later_attempts_are_bundled(job: JobFolder, tmp_path: Path) -> None:
    job.prepare(2)
    job.log(0, 2).write_text("again\n")
    assert unzip(bundle(job, tmp_path / "b.zip"))["attempts/2/logs/rank_0.log"] == "again\n"


def test_unreadable_file_is_named_and_the_rest_is_bundled(job: JobFolder, tmp_path: Path) -> None:
    job.status_file.write_text('{"state": "succeeded", "ranks": {"x": 1}, "comm')
    job.launch_file.write_text('{"env": ["HF_TOKEN"]}')
    (job.path / "core.123").write_bytes(b"\0" * 1000)
    (job.path / "notes.txt").write_bytes(b"caf\xe9\n")
    job.log(1).unlink()
    os.mkfifo(job.log(1))
    (job.path / "dangling").symlink_to(tmp_path / "nowhere")
    found = unzip(bundle(job, tmp_path / "b.zip"))
    assert "core.123 is left out: " in found["contents.txt"] and "notes.txt is left out: " in found["contents.txt"]
    assert "logs/rank_0.log" in found and "logs/rank_1.log" not in found
    assert SECRET not in "".join(found.values()), "the Plan still shows which value is secret"


def test_job_with_invalid_status_is_bundled(job: JobFolder, tmp_path: Path) -> None:
    write_status_json(job, {"state": "failed", "ranks": {"x": {}}, "attempt": "?"})
    assert {"status.json", "logs/rank_0.log", "contents.txt"} <= unzip(bundle(job, tmp_path / "b.zip")).keys()


def test_existing_zip_is_not_replaced_and_a_folder_gets_the_default_name(job: JobFolder, tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_text("mine")
    with pytest.raises(FileProblem, match="exists"):
        bundle(job, tmp_path / "b.zip")
    assert (tmp_path / "b.zip").read_text() == "mine"
    assert unzip(bundle(job, tmp_path / "b.zip", replace=True))
    assert bundle(job, tmp_path) == tmp_path / "job-bundle.zip"


@pytest.mark.parametrize("place", ["/proc/b.zip", "nowhere/b.zip"])
def test_unwritable_place_gives_a_message(job: JobFolder, tmp_path: Path, place: str) -> None:
    with pytest.raises(FileProblem, match=r"b\.zip: "):
        bundle(job, tmp_path / place)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 KiB."""
    path = tmp_path / "small"
    path.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(path)], capture_output=True, check=False).returncode
    ):
        pytest.skip("mount is not permitted here")
    yield path
    subprocess.run(["umount", str(path)], check=False)


def test_full_disk_gives_a_message_and_leaves_no_file(job: JobFolder, small_disk: Path) -> None:
    job.log(1).write_bytes(os.urandom(400_000).hex().encode() + b"\n")
    (job.path / "big.txt").write_text(os.urandom(400_000).hex())
    with pytest.raises(FileProblem, match="disk is full"):
        bundle(job, small_disk / "b.zip")
    assert list(small_disk.iterdir()) == []


def test_command_prints_the_zip_and_refuses_other_folders(job: JobFolder, tmp_path: Path) -> None:
    code, out, err = dstui("bundle", "job", cwd=tmp_path)
    assert (code, out) == (0, f"{tmp_path}/job-bundle.zip\n") and "read it before you pass it on" in err
    assert json.loads(unzip(tmp_path / "job-bundle.zip")["machine.json"])["host"]
    code, _, err = dstui("bundle", "job", cwd=tmp_path)
    assert code == 2 and "--force" in err
    os.mkfifo(tmp_path / "pipe")
    code, _, err = dstui("bundle", "job", "-o", "pipe", "--force", cwd=tmp_path)
    assert (code, err) == (2, "dstui: pipe: is neither a file nor a folder: name a regular file, and is not replaced\n")
    code, _, err = dstui("bundle", "nothing-like-it", cwd=tmp_path)
    assert code == 1
    (tmp_path / "photos").mkdir()
    code, _, err = dstui("bundle", "photos", cwd=tmp_path)
    assert code == 2 and "is not a job folder" in err


def test_file_swapped_for_a_link_while_read_is_left_out(job: JobFolder, tmp_path: Path) -> None:
    """Let another process swap a link to a private file with a log and the Plan, as fast as it can."""
    private = tmp_path / "id_rsa"
    private.write_text("my private words\n" * 50)
    swapped = [job.log(0), job.path / "plan.yaml", job.path / "notes.txt"]
    swap = """
import ctypes, os, sys
private, *paths = sys.argv[1:]
exchange = ctypes.CDLL(None).renameat2
for path in paths:
    open(path, "w").write("harmless words")
    os.symlink(private, path + ".link")
print("swapping", flush=True)
pairs = [(path.encode(), f"{path}.link".encode()) for path in paths]
while True:
    for path, link in pairs:
        exchange(-100, path, -100, link, 2)
"""
    with subprocess.Popen([sys.executable, "-c", swap, private, *swapped], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout and swapper.stdout.readline() == b"swapping\n"
            texts = ["".join(unzip(bundle(job, tmp_path / "b.zip", replace=True)).values()) for _ in range(SWAPS)]
            assert swapper.poll() is None
        finally:
            swapper.kill()
    assert [number for number, text in enumerate(texts) if "my private words" in text] == []
    assert any("harmless words" in text for text in texts), "otherwise nothing was swapped"


def test_bundle_holds_no_cursor_movement(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "a\x1b]0;x\x07b", PLAN + "# \x1b[2J\u202e\n", {0: "fine\n"})
    (folder.path / "c\rd.txt").write_text("\x9b1m")
    (folder.path / "broken\x1b[2J\n.txt").write_bytes(b"\xff")
    with zipfile.ZipFile(bundle(folder, tmp_path / "b.zip", more={"machine.json": '{"host": "\u202e\\r"}'})) as archive:
        texts = [*archive.namelist(), *(archive.read(name).decode() for name in archive.namelist())]
    assert [text for text in texts if UNSAFE.search(text.replace("\n", ""))] == []
    assert any("is left out" in text for text in texts)
