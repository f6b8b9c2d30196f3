"""What a failure could also be: causes with the same words, told only where the answer is not sure, with what tells them apart."""

from __future__ import annotations

from pathlib import Path

from dstui.diagnosis import report
from dstui.tui.run.diagnosis_pane import full_rows
from tests.diagnosis.crash_texts import SAMPLES, ended, fallout, of_lines, spawned, traceback

LIBRARY = "/opt/env/lib/python3.11/site-packages/{}/part.py"


def test_an_answer_that_is_sure_has_no_rivals(tmp_path: Path) -> None:
    found = of_lines(tmp_path / "log", [*spawned(2), *traceback(1, SAMPLES["OOM-GPU"][0]), *fallout(0), *ended(2, 1)])
    assert (found.confidence, found.could_be) == ("high", ())
    assert "could also be" not in report(found)


def test_a_kill_that_nothing_proves_may_have_been_the_kernels_or_the_schedulers(tmp_path: Path) -> None:
    found = of_lines(tmp_path / "log", [*spawned(2), *fallout(0), *ended(2, -9)])
    assert (found.cause, found.could_be[:2]) == ("KILLED-UNKNOWN", ("OOM-HOST", "SLURM-CANCEL"))
    said = report(found)
    assert "it could also be:" in said
    assert "OOM-HOST: The host ran out of memory" in said
    assert "To tell: sacct -j JOB" in said
    assert any("OOM-HOST" in str(row) for row in full_rows(found, 100)), "in the dialog too"
    assert found.as_json()["could_be"] == list(found.could_be)


def test_of_the_causes_that_are_alike_the_one_that_the_text_has_a_word_of_comes_first(tmp_path: Path) -> None:
    words = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"
    plain = of_lines(tmp_path / "a", [*spawned(2), f"[rank1]: {words}", *ended(2, -6)])
    assert (plain.cause, plain.could_be[0]) == ("NCCL-WATCHDOG", "HANG-DESYNC")
    skipped = "[rank0]: worker 3: [Errno 28] No space left on device, retrying"
    load = SAMPLES["MODEL-LOAD"][0]
    full = of_lines(tmp_path / "b", [*spawned(2), skipped, *traceback(1, load), *ended(2, 1)])
    assert (full.cause, full.could_be[0]) == ("MODEL-LOAD", "CKPT-DISK")
    assert "USER-PY" in full.could_be, "the script's own mistake may have led to it"


def test_an_exception_that_a_library_raised_points_to_what_that_library_is_known_for(tmp_path: Path) -> None:
    found = of_lines(tmp_path / "log", traceback(None, "ValueError: odd", LIBRARY.format("datasets")))
    assert (found.cause, found.confidence, found.could_be) == ("USER-PY", "medium", ("DATA", "RACE-FS"))
    own = of_lines(tmp_path / "log", traceback(None, "TypeError: 'labels' is no list"))
    assert (own.confidence, own.could_be) == ("high", ()), "a mistake in the script's own line needs no rival"
    key = of_lines(tmp_path / "log", traceback(None, "KeyError: 'labels'"))
    assert (key.confidence, key.could_be[0]) == ("medium", "DATA"), "what is not there may be missing in the data"


def test_an_end_without_a_cause_names_what_the_text_mentions(tmp_path: Path) -> None:
    found = of_lines(tmp_path / "log", [*spawned(2), "[rank1]: write failed, retrying: [Errno 28] No space left on device", *ended(2, 1)])
    assert (found.cause, found.could_be[0], found.could_be[-1]) == (None, "CKPT-DISK", "USER-PY")
    bare = of_lines(tmp_path / "log", [*spawned(2), *ended(2, 127)])
    assert (bare.cause, bare.could_be) == (None, ("NO-DS-CMD", "NO-SCRIPT"))


def test_the_words_of_a_message_tell_what_an_exception_that_nobody_knows_could_be(tmp_path: Path) -> None:
    """None of these is a signature's; each says in our own words what a library of tomorrow may say."""
    for words, cause in (
        ("RuntimeError: fused op got Half where it wants Float", "DTYPE-MIX"),
        ("ValueError: these two arrays have other shapes", "USER-SHAPE"),
        ("RuntimeError: operands live on cuda:1 and on the cpu", "DEVICE-MIX"),
        ("ValueError: the data set has no rows", "DATA"),
        ("RuntimeError: the kernel did not compile", "OP-BUILD"),
        ("RuntimeError: NCCL gave up", "NCCL-SYSTEM"),
        ("OSError: the pretrained tokenizer is not here", "MODEL-FILES"),
        ("ValueError: zero_stage and this option are exclusive", "CONFIG-ASSERT"),
        ("RuntimeError: that download of https://host/x went wrong", "NO-INTERNET"),
        ("RuntimeError: non-finite values everywhere", "NAN"),
        ("OSError: nobody may write there: quota", "CKPT-DISK"),
        ("RuntimeError: somebody failed to listen there", "PORT-IN-USE"),
        ("RuntimeError: the worker 3 has died", "DL-WORKER"),
        ("RuntimeError: no kernel image for this card", "DRIVER-OLD"),
        ("RuntimeError: odd parameters were unused_params", "DDP-UNUSED"),
        ("ValueError: the loss scale is odd", "LOSS-SCALE-MIN"),
        ("RuntimeError: could not deserialize", "MODEL-LOAD"),
        ("ValueError: LOCAL_RANK is odd", "ENV-RANK-MISSING"),
        ("RuntimeError: hardware trouble", "GPU-ECC"),
    ):
        found = of_lines(tmp_path / "log", traceback(None, words, LIBRARY.format("odd")))
        assert (found.cause, found.confidence) == ("USER-PY", "low"), words
        assert cause in found.could_be, (words, found.could_be)


def test_of_a_failed_run_the_last_exception_that_a_line_names_is_told_where_nothing_better_is_known(tmp_path: Path) -> None:
    named = "RuntimeError: the mesh is upside down"
    found = of_lines(tmp_path / "log", [*spawned(2), named, *(f"step {n}" for n in range(90)), *ended(2, 1)])
    assert (found.cause, found.kind, found.confidence) == ("USER-PY", "failure", "low")
    assert "upside down" in found.title


def test_a_text_that_ends_with_an_error_in_words_that_nobody_knows_names_what_they_speak_of(tmp_path: Path) -> None:
    found = of_lines(tmp_path / "log", [*(f"step {number} loss 2.0" for number in range(90)), "fatal: the parquet shard cannot be decoded"])
    assert (found.cause, found.kind, found.could_be[0]) == (None, None, "DATA")
    assert "it could be:" in report(found)
    quiet = of_lines(tmp_path / "log", [*(f"step {number} loss 2.0" for number in range(90)), "the parquet shard is decoded"])
    assert quiet.could_be == ()
