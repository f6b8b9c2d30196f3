"""Alternative causes of a failure: named only if the diagnosis is uncertain, with facts that distinguish them."""

from __future__ import annotations

from pathlib import Path

from dstui.diagnosis import report
from dstui.tui.run.diagnosis_pane import full_rows
from tests.diagnosis.crash_texts import SAMPLES, diagnose_lines, ended, fallout, spawned, traceback

LIBRARY = "/opt/env/lib/python3.11/site-packages/{}/part.py"


def test_certain_diagnosis_has_no_alternatives(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", [*spawned(2), *traceback(1, SAMPLES["OOM-GPU"][0]), *fallout(0), *ended(2, 1)])
    assert (found.confidence, found.could_be) == ("high", ())
    assert "could also be" not in report(found)


def test_unproven_kill_may_be_the_kernels_or_the_schedulers(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", [*spawned(2), *fallout(0), *ended(2, -9)])
    assert (found.cause, found.could_be[:2]) == ("KILLED-UNKNOWN", ("OOM-HOST", "SLURM-CANCEL"))
    said = report(found)
    assert "it could also be:" in said
    assert "OOM-HOST: The host ran out of memory" in said
    assert "To confirm: sacct -j JOB" in said
    assert any("OOM-HOST" in str(row) for row in full_rows(found, 100)), "the dialog shows it too"
    assert found.as_json()["could_be"] == list(found.could_be)


def test_alternative_that_the_text_mentions_comes_first(tmp_path: Path) -> None:
    words = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"
    plain = diagnose_lines(tmp_path / "a", [*spawned(2), f"[rank1]: {words}", *ended(2, -6)])
    assert (plain.cause, plain.could_be[0]) == ("NCCL-WATCHDOG", "HANG-DESYNC")
    skipped = "[rank0]: worker 3: [Errno 28] No space left on device, retrying"
    load = SAMPLES["MODEL-LOAD"][0]
    full = diagnose_lines(tmp_path / "b", [*spawned(2), skipped, *traceback(1, load), *ended(2, 1)])
    assert (full.cause, full.could_be[0]) == ("MODEL-LOAD", "CKPT-DISK")
    assert "USER-PY" in full.could_be, "a mistake in the script may be the cause"


def test_exception_of_a_library_suggests_its_known_causes(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", traceback(None, "ValueError: odd", LIBRARY.format("datasets")))
    assert (found.cause, found.confidence, found.could_be) == ("USER-PY", "medium", ("DATA",))
    own = diagnose_lines(tmp_path / "log", traceback(None, "TypeError: 'labels' is no list"))
    assert (own.confidence, own.could_be) == ("high", ()), "an error in the script's own line has no alternatives"
    key = diagnose_lines(tmp_path / "log", traceback(None, "KeyError: 'labels'"))
    assert (key.confidence, key.could_be[0]) == ("medium", "DATA"), "something missing may be missing in the data"


def test_end_without_a_cause_names_what_the_text_mentions(tmp_path: Path) -> None:
    found = diagnose_lines(
        tmp_path / "log", [*spawned(2), "[rank1]: write failed, retrying: [Errno 28] No space left on device", *ended(2, 1)]
    )
    assert (found.cause, found.could_be[0], found.could_be[-1]) == (None, "CKPT-DISK", "USER-PY")
    bare = diagnose_lines(tmp_path / "log", [*spawned(2), *ended(2, 127)])
    assert (bare.cause, bare.could_be) == (None, ("NO-DS-CMD", "NO-SCRIPT"))


def test_type_of_an_exception_alone_suggests_nothing(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", traceback(None, "RuntimeError: odd", LIBRARY.format("odd")))
    assert (found.cause, found.confidence, found.could_be) == ("USER-PY", "medium", ())


def test_notebook_s_own_path_and_words_about_a_call_suggest_nothing(tmp_path: Path) -> None:
    cell = traceback(None, "ValueError: odd", "/tmp/ipykernel_27612/784.py")
    cell.insert(-1, f'  File "{LIBRARY.format("odd")}", line 7, in part')
    assert "OP-BUILD" not in diagnose_lines(tmp_path / "cell", cell).could_be
    call = traceback(None, "TypeError: forward() got an unexpected keyword argument 'ids'", LIBRARY.format("torch/nn/modules"))
    assert "CONFIG-ASSERT" not in diagnose_lines(tmp_path / "call", call).could_be


def test_words_of_an_unknown_exception_suggest_causes(tmp_path: Path) -> None:
    """No signature knows these messages: they are our guesses of what future libraries may print."""
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
        found = diagnose_lines(tmp_path / "log", traceback(None, words, LIBRARY.format("odd")))
        assert (found.cause, found.confidence) == ("USER-PY", "low"), words
        assert cause in found.could_be, (words, found.could_be)


def test_last_named_exception_is_reported_if_nothing_better_is_known(tmp_path: Path) -> None:
    named = "RuntimeError: the mesh is upside down"
    found = diagnose_lines(tmp_path / "log", [*spawned(2), named, *(f"step {n}" for n in range(90)), *ended(2, 1)])
    assert (found.cause, found.kind, found.confidence) == ("USER-PY", "failure", "low")
    assert "upside down" in found.title


def test_unknown_error_at_the_end_names_its_subjects(tmp_path: Path) -> None:
    found = diagnose_lines(
        tmp_path / "log", [*(f"step {number} loss 2.0" for number in range(90)), "fatal: the parquet shard cannot be decoded"]
    )
    assert (found.cause, found.kind, found.could_be[0]) == (None, None, "DATA")
    assert "it could be:" in report(found)
    quiet = diagnose_lines(tmp_path / "log", [*(f"step {number} loss 2.0" for number in range(90)), "the parquet shard is decoded"])
    assert quiet.could_be == ()


def test_zero_is_suspected_only_where_deepspeed_is_spoken_of(tmp_path: Path) -> None:
    raised = traceback(None, "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x3)")
    plain = diagnose_lines(tmp_path / "plain", raised)
    told = diagnose_lines(tmp_path / "told", ["[INFO] DeepSpeed info: version=0.19", *raised])
    assert [("Z3-PARTITIONED" in found.could_be, found.cause) for found in (plain, told)] == [(False, "USER-SHAPE"), (True, "USER-SHAPE")]


def test_key_and_signal_are_told_apart(tmp_path: Path) -> None:
    pressed = diagnose_lines(tmp_path / "pressed", ["step 1 loss 2.0", *traceback(None, "KeyboardInterrupt")])
    ended = diagnose_lines(tmp_path / "ended", ["step 1 loss 2.0", "Terminated"])
    assert [(found.cause, "scheduler" in found.why) for found in (pressed, ended)] == [("CTRL-C", False), ("CTRL-C", True)]
