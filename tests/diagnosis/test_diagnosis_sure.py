"""Nothing is told for sure that may be otherwise: exceptions of libraries, stops after errors, memory that may be the rank's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import ended, of_lines, spawned, traceback

CANCELLED = "slurmstepd: error: *** JOB 3349 ON n03 CANCELLED AT 2026-01-06T04:52:18 ***"
RAISED = [line.partition("]: ")[2] for line in traceback(0, "ValueError: two of them are odd")]
NO_MEMORY = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB. GPU 0 has a total capacity of 10.75 GiB of which 36.50 MiB is free. "
    "Process 81 has {} memory in use. Process 97 has {} memory in use. Of the allocated memory {} is allocated by PyTorch, and 9.43 MiB is reserved"
)


def test_an_exception_of_a_library_that_tells_of_another_process_is_never_sure(tmp_path: Path) -> None:
    found = of_lines(tmp_path / "a", [*RAISED[:-1], "ray.exceptions.ActorUnavailableError: The actor d5a1 is unavailable: Socket closed"])
    assert (found.cause, found.confidence) == ("USER-PY", "low")
    assert of_lines(tmp_path / "b", RAISED).confidence == "high"


def test_the_name_of_one_of_pythons_own_exceptions_alone_is_never_sure(tmp_path: Path) -> None:
    unknown = of_lines(tmp_path / "a", [*RAISED[:-1], "MemoryError: the pool of the card is empty"])
    assert (unknown.cause, unknown.confidence) == ("ALLOC-REFUSED", "medium")
    assert of_lines(tmp_path / "b", [*RAISED[:-1], "MemoryError"]).confidence == "high"


def test_a_stop_soon_after_a_reported_exception_is_not_sure(tmp_path: Path) -> None:
    stop = [*RAISED[:-1], "KeyboardInterrupt"]
    reported = "RuntimeError: the engine is gone"
    for line, level in ((reported, "medium"), ("step 3 loss 2.0", "high")):
        found = of_lines(tmp_path / "log", [line, "step 4 loss 2.0", *stop])
        assert (found.cause, found.confidence) == ("CTRL-C", level)


def test_a_stop_long_after_an_error_ended_the_run_and_one_soon_after_it_leaves_it_unsure(tmp_path: Path) -> None:
    soon = of_lines(tmp_path / "a", [*RAISED, *(f"step {n} loss 2.0" for n in range(20)), CANCELLED])
    assert (soon.cause, soon.confidence) == ("USER-PY", "medium")
    late = of_lines(tmp_path / "b", [*RAISED, *(f"step {n} loss 2.0" for n in range(2000)), CANCELLED])
    assert (late.cause, late.kind) == ("SLURM-CANCEL", "stop")


@pytest.mark.parametrize(
    ("cause", "held"),
    [
        ("OOM-GPU", ("252.00 MiB", "10.47 GiB", "9.69 GiB")),
        ("GPU-BUSY", ("252.00 MiB", "10.47 GiB", "120.00 MiB")),
        ("GPU-BUSY", ("30.10 GiB", "41.47 GiB", "29.69 GiB")),
    ],
)
def test_memory_that_pytorch_itself_has_allocated_is_nobody_elses(tmp_path: Path, cause: str, held: tuple[str, str, str]) -> None:
    assert of_lines(tmp_path / "log", [*RAISED[:-1], NO_MEMORY.format(*held)]).cause == cause


@pytest.mark.parametrize("sign", ["", "❌ ", "✗ "])
def test_a_scripts_own_word_of_an_exit_status_counts_and_that_of_a_tools_box_does_not(tmp_path: Path, sign: str) -> None:
    assert of_lines(tmp_path / "a", ["step 1", f"{sign}Training failed with exit code -9"]).cause == "KILLED-UNKNOWN"
    assert of_lines(tmp_path / "b", ["  │ exit code: -4", "step 1"]).cause is None


def test_a_gpu_that_fell_off_the_bus_is_known_where_the_drivers_line_is_wrapped(tmp_path: Path) -> None:
    lines = ["NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID: 10de:26b5) installed in this system has"]
    assert of_lines(tmp_path / "log", [*lines, "NVRM: fallen off the bus and is not responding to commands."]).cause == "XID"


def test_what_a_log_goes_on_after_is_not_sure_to_have_ended_it(tmp_path: Path) -> None:
    for end in (RAISED, [CANCELLED]):
        told = [of_lines(tmp_path / "log", [*end, *(f"part {n} was put away" for n in range(count))]) for count in (5, 30)]
        assert [found.confidence for found in told] == ["high", "medium"]
        assert told[0].cause == told[1].cause
    shown = of_lines(tmp_path / "log", ["[WARNING] did not save: stage3_gather_16bit_weights_on_model_save=False", "step 2"])
    assert (shown.cause, shown.confidence) == ("GATHER16", "medium"), "the run went on"


def test_a_cause_is_not_sure_where_a_program_raised_something_unknown_below_it(tmp_path: Path) -> None:
    memory = traceback(None, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    odd = traceback(None, "KeyError: 'odd'")
    assert of_lines(tmp_path / "a", [*spawned(2), *memory, *ended(2, 1)]).confidence == "high"
    found = of_lines(tmp_path / "b", [*spawned(2), *memory, *odd, *ended(2, 1)])
    assert (found.cause, found.confidence, "USER-PY" in found.could_be) == ("OOM-GPU", "medium", True)
