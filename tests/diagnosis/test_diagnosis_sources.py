"""Sources of logs: standard input, several files and folders, archives, labels and colours; and nothing read is trusted."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import time
import zipfile
import zlib
from pathlib import Path

import pytest

from dstui.base import zips
from dstui.base.files import FileProblem
from dstui.bundle.bundle import bundle
from dstui.cli import main
from dstui.diagnosis import diagnose
from dstui.diagnosis.reading import packed
from dstui.jobs.store.folder import JobFolder
from tests.command import dstui
from tests.diagnosis.crash_texts import SAMPLES, diagnose_lines, ended, fallout, spawned, traceback
from tests.jobs.made import PLAN, make_job

FAILED = [*spawned(4), "step 1 loss 2.0", *traceback(2, SAMPLES["OOM-GPU"][0]), *fallout(0), *ended(4, 1)]
TEXT = "\n".join(FAILED) + "\n"
PLAIN = [line.partition("]: ")[2] for line in traceback(2, SAMPLES["OOM-GPU"][0])]


def piped(data: bytes) -> subprocess.CompletedProcess[str]:
    return dstui("diagnose", "-", "--json", given=data)


def test_standard_input_may_be_a_gzip(tmp_path: Path) -> None:
    for data in (TEXT.encode(), gzip.compress(TEXT.encode()), TEXT.replace("\n", "\r\n").encode("utf-16")):
        told = json.loads(piped(data).stdout)
        assert (told["cause"], told["first_failing_rank"], told["evidence"][-1]["file"]) == ("OOM-GPU", 2, "-")
    assert piped(b"").returncode == 1
    refused = piped(b"PK\x03\x04 and so on")
    assert (refused.returncode, refused.stderr.startswith("dstui: -: this zip cannot be read")) == (2, True)


def test_standard_input_may_be_a_zip_of_logs() -> None:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("a/rank_0.log", "step 1\n")
        archive.writestr("b/rank_2.log", TEXT)
    told = json.loads(piped(memory.getvalue()).stdout)
    assert (told["cause"], told["first_failing_rank"], told["evidence"][-1]["file"]) == ("OOM-GPU", 2, "-/b/rank_2.log")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_log_written_by_powershell_is_read(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff".encode(encoding)
    (tmp_path / "run.log").write_bytes(mark + ("步 1\r\n" * 300_000 + TEXT.replace("\n", "\r\n")).encode(encoding))
    found = diagnose([tmp_path / "run.log"])
    assert (found.cause, found.first_failing_rank) == ("OOM-GPU", 2)
    (tmp_path / "cut.log").write_bytes((mark + TEXT.encode(encoding))[:-1])
    assert diagnose([tmp_path / "cut.log"]).cause == "OOM-GPU"


def test_two_files_of_a_slurm_job_are_one_run(tmp_path: Path) -> None:
    out, err = tmp_path / "slurm-88.out", tmp_path / "slurm-88.err"
    out.write_text("\n".join([*spawned(4), "step 1 loss 2.0", "Training complete."]))
    err.write_text("\n".join([*traceback(2, "KeyError: 'labels'"), *fallout(0), *ended(4, 1)]))
    for order in ([out, err], [err, out]):
        found = diagnose(order)
        assert (found.cause, found.first_failing_rank) == ("USER-PY", 2)
    assert diagnose([out]).cause == "SUCCESS"


def test_folders_of_node_logs_and_single_files_combine(tmp_path: Path) -> None:
    for node in range(2):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "train.log").write_text("\n".join(traceback(9, "KeyError: 'x'") if node else fallout(0)))
    (tmp_path / "node0" / "older.log.gz").write_bytes(gzip.compress(b"step 0\n"))
    (tmp_path / "launcher.txt").write_text("\n".join(ended(16, 1)))
    found = diagnose([tmp_path / "node0", tmp_path / "node1", tmp_path / "launcher.txt"])
    assert (found.cause, found.first_failing_rank) == ("USER-PY", 9)
    assert found.evidence[0].file == str(tmp_path / "node1" / "train.log")


def test_bundle_gives_the_same_diagnosis_as_its_job_folder(tmp_path: Path) -> None:
    logs = {0: "step 1\n", 1: "step 1\n" + "\n".join(PLAIN) + "\n"}
    folder = make_job(tmp_path / "job", PLAN, logs, state="failed")
    began = time.time() - 100
    for rank, code in ((0, 143), (1, 1)):
        record = {"rank": rank, "host": "h1", "pid": 1, "started": began, "ended": began + 9 - rank, "exit_code": code, "world_size": 2}
        folder.record(rank).write_text(json.dumps(record))
    zipped = bundle(JobFolder(folder.path), tmp_path / "report.zip")
    of_folder, of_zip = diagnose([folder.path]), diagnose([zipped])
    assert (of_zip.cause, of_zip.first_failing_rank, of_zip.host) == ("OOM-GPU", 1, "h1")
    assert of_zip.fixes == of_folder.fixes
    assert any(fix.patch for fix in of_zip.fixes)
    assert [line.file for line in of_zip.evidence] == [line.file.replace(str(folder.path), str(zipped)) for line in of_folder.evidence]
    assert not list(Path(packed.tempfile.gettempdir()).glob("dstui-*/report")), "no temporary file remains"


def test_zip_of_logs_is_read_as_a_folder_and_writes_nothing_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, absolute = tmp_path / "temporary", tmp_path / "absolute.log"
    temporary.mkdir()
    monkeypatch.setattr(packed.tempfile, "tempdir", str(temporary))
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("a/rank_0.log", "\n".join(line.partition("]: ")[2] for line in fallout(0)))
        archive.writestr("b/rank_2.log", "\n".join(PLAIN))
        archive.writestr("../outside.log", "Killed\n")
        archive.writestr(str(absolute), "Killed\n")
        archive.writestr("weights.bin", b"\0" * 100)
    found = diagnose([tmp_path / "logs.zip"])
    assert (found.cause, found.first_failing_rank, found.others) == ("OOM-GPU", 2, ())
    assert found.evidence[-1].file == str(tmp_path / "logs.zip" / "b" / "rank_2.log")
    assert not list(temporary.iterdir()) and not absolute.exists()


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["diagnose", str(path)]) == 2
    return capsys.readouterr().err


def test_endless_expansion_is_refused_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packed, "MAX_EXPANDED", 4 << 20)
    (tmp_path / "bomb.log.gz").write_bytes(gzip.compress(b"\0" * (5 << 20)))
    assert "it expands to more than 1 GiB" in refused(tmp_path / "bomb.log.gz", capsys)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank_0.log", b"\0" * (3 << 20))
        archive.writestr("rank_1.log", b"\0" * (3 << 20))
    assert "it expands to more than 1 GiB" in refused(tmp_path / "bomb.zip", capsys)
    monkeypatch.setattr(zips, "MAX_DIRECTORY", 100)
    assert "its table of contents is too large: too many files" in refused(tmp_path / "bomb.zip", capsys)


def test_broken_archive_gives_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = gzip.compress(TEXT.encode() * 50)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"step 1\n" * 9000, mtime=0)[:-20])
    found = diagnose([tmp_path / "cut.gz"])
    assert (found.cause, found.notes[-1]) == (None, f"{tmp_path / 'cut.gz'} breaks off: the gzip is not whole.")
    (tmp_path / "bad.gz").write_bytes(whole[:12] + bytes(200) + whole[212:])
    assert "not a whole gzip" in refused(tmp_path / "bad.gz", capsys)
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04" + zlib.compress(b"x") * 9)
    assert "this zip cannot be read" in refused(tmp_path / "bad.zip", capsys)
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("model.bin", b"x")
    (tmp_path / "empty.zip").write_bytes(memory.getvalue())
    assert "no log in this folder" in refused(tmp_path / "empty.zip", capsys)
    with pytest.raises(FileProblem):
        diagnose([tmp_path / "none.zip"])


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-03-01 10:00:00 ",
        "2026-03-01 10:00:00,123 ",
        "[2026-03-01T10:00:00.123Z] ",
        "Mar  1 10:00:00 ",
        "Mar 01 10:00:00 node7 python[4711]: ",
        "[default2]:",
        "2: ",
        "\x1b[0m\x1b[36m",
        "  0%|          | 0/3 [00:00<?, ?it/s]\r 33%|###   | 1/3 [00:01<00:02]\r",
    ],
)
def test_line_prefix_changes_nothing(tmp_path: Path, prefix: str) -> None:
    found = diagnose_lines(tmp_path / "log", [prefix + line + "\r" for line in traceback(2, "KeyError: 'labels'")])
    assert (found.cause, found.first_failing_rank) == ("USER-PY", 2)
    assert "/home/me/project/train.py, line 30" in found.why
    bare = diagnose_lines(tmp_path / "log", [prefix + line for line in traceback(None, "KeyError: 'labels'")])
    assert bare.cause == "USER-PY"


def test_torchruns_label_is_the_rank_on_a_single_host(tmp_path: Path) -> None:
    plain = [line.partition("]: ")[2] for line in traceback(2, "KeyError: 'labels'")]
    lines = [*(f"[default{rank}]:step 1" for rank in range(4)), *(f"[default2]:{line}" for line in plain)]
    ready = [f"[default{rank}]:[INFO] world_size=4 rank={rank}" for rank in range(4)]
    assert diagnose_lines(tmp_path / "a", [*ready, *lines]).first_failing_rank == 2
    assert diagnose_lines(tmp_path / "b", ["world_size=8", *lines]).first_failing_rank is None, "there are other hosts"
    assert diagnose_lines(tmp_path / "c", lines).first_failing_rank == 2, "nothing mentions another host"
    assert diagnose_lines(tmp_path / "d", ["torchrun --nnodes=2 --nproc_per_node=4 train.py", *lines]).first_failing_rank is None


def test_many_long_distinct_lines_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dstui.diagnosis.recognition import shapes

    monkeypatch.setattr(shapes, "MAX_BYTES", 1 << 20)
    seen = shapes.Shapes()
    for number in range(60):
        seen.match(b"".join(b"abcdefgh"[(number >> bit) & 7 : ((number >> bit) & 7) + 1] * 7000 for bit in range(9)))
        assert sum(map(len, seen.nothing)) <= 1 << 20
