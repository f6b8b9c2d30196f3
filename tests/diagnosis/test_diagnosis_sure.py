"""No uncertain cause is reported as certain: exceptions of libraries, stops after errors, memory that may be the rank's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import diagnose_lines, ended, spawned, traceback

CANCELLED = "slurmstepd: error: *** JOB 3349 ON n03 CANCELLED AT 2026-01-06T04:52:18 ***"
RAISED = [line.partition("]: ")[2] for line in traceback(0, "ValueError: two of them are odd")]
NO_MEMORY = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB. GPU 0 has a total capacity of 10.75 GiB of which 36.50 MiB is free. "
    "Process 81 has {} memory in use. Process 97 has {} memory in use. Of the allocated memory {} is allocated by PyTorch, and 9.43 MiB is reserved"
)


def test_library_exception_about_another_process_is_uncertain(tmp_path: Path) -> None:
    found = diagnose_lines(
        tmp_path / "a", [*RAISED[:-1], "ray.exceptions.ActorUnavailableError: The actor d5a1 is unavailable: Socket closed"]
    )
    assert (found.cause, found.confidence) == ("USER-PY", "low")
    assert diagnose_lines(tmp_path / "b", RAISED).confidence == "high"


def test_name_of_a_builtin_exception_alone_is_uncertain(tmp_path: Path) -> None:
    unknown = diagnose_lines(tmp_path / "a", [*RAISED[:-1], "MemoryError: the pool of the card is empty"])
    assert (unknown.cause, unknown.confidence) == ("ALLOC-REFUSED", "medium")
    assert diagnose_lines(tmp_path / "b", [*RAISED[:-1], "MemoryError"]).confidence == "high"


def test_stop_soon_after_a_reported_exception_is_uncertain(tmp_path: Path) -> None:
    stop = [*RAISED[:-1], "KeyboardInterrupt"]
    reported = "RuntimeError: the engine is gone"
    for line, level in ((reported, "medium"), ("step 3 loss 2.0", "high")):
        found = diagnose_lines(tmp_path / "log", [line, "step 4 loss 2.0", *stop])
        assert (found.cause, found.confidence) == ("CTRL-C", level)


def test_stop_long_after_an_error_is_certain_and_soon_after_it_uncertain(tmp_path: Path) -> None:
    soon = diagnose_lines(tmp_path / "a", [*RAISED, *(f"step {n} loss 2.0" for n in range(20)), CANCELLED])
    assert (soon.cause, soon.confidence) == ("USER-PY", "medium")
    late = diagnose_lines(tmp_path / "b", [*RAISED, *(f"step {n} loss 2.0" for n in range(2000)), CANCELLED])
    assert (late.cause, late.kind) == ("SLURM-CANCEL", "stop")


@pytest.mark.parametrize(
    ("cause", "held"),
    [
        ("OOM-GPU", ("252.00 MiB", "10.47 GiB", "9.69 GiB")),
        ("GPU-BUSY", ("252.00 MiB", "10.47 GiB", "120.00 MiB")),
        ("GPU-BUSY", ("30.10 GiB", "41.47 GiB", "29.69 GiB")),
    ],
)
def test_memory_allocated_by_pytorch_is_not_another_users(tmp_path: Path, cause: str, held: tuple[str, str, str]) -> None:
    assert diagnose_lines(tmp_path / "log", [*RAISED[:-1], NO_MEMORY.format(*held)]).cause == cause


@pytest.mark.parametrize("sign", ["", "❌ ", "✗ "])
def test_scripts_exit_message_counts_but_not_a_tools_box(tmp_path: Path, sign: str) -> None:
    assert diagnose_lines(tmp_path / "a", ["step 1", f"{sign}Training failed with exit code -9"]).cause == "KILLED-UNKNOWN"
    assert diagnose_lines(tmp_path / "b", ["  │ exit code: -4", "step 1"]).cause is None


def test_wrapped_driver_message_about_a_lost_gpu_is_known(tmp_path: Path) -> None:
    lines = ["NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID: 10de:26b5) installed in this system has"]
    assert diagnose_lines(tmp_path / "log", [*lines, "NVRM: fallen off the bus and is not responding to commands."]).cause == "XID"


def test_error_that_the_log_continues_after_is_uncertain(tmp_path: Path) -> None:
    for end in (RAISED, [CANCELLED]):
        told = [diagnose_lines(tmp_path / "log", [*end, *(f"part {n} was put away" for n in range(count))]) for count in (5, 30)]
        assert [found.confidence for found in told] == ["high", "medium"]
        assert told[0].cause == told[1].cause
    shown = diagnose_lines(tmp_path / "log", ["[WARNING] did not save: stage3_gather_16bit_weights_on_model_save=False", "step 2"])
    assert (shown.cause, shown.confidence) == ("GATHER16", "medium"), "the run went on"


def test_cause_is_uncertain_above_an_unknown_exception(tmp_path: Path) -> None:
    memory = traceback(None, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    odd = traceback(None, "KeyError: 'odd'")
    assert diagnose_lines(tmp_path / "a", [*spawned(2), *memory, *ended(2, 1)]).confidence == "high"
    found = diagnose_lines(tmp_path / "b", [*spawned(2), *memory, *odd, *ended(2, 1)])
    assert (found.cause, found.confidence, "USER-PY" in found.could_be) == ("OOM-GPU", "medium", True)


def test_cause_beside_another_failure_or_after_a_completion_is_uncertain(tmp_path: Path) -> None:
    memory, earlier = (
        [line.partition("]: ")[2] for line in traceback(0, error)]
        for error in (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "ValueError: the first file has no column `text`",
        )
    )
    before = {
        "alone": [],
        "an earlier step": ["python: can't open file 'prepare.py': [Errno 2] No such file or directory", *spawned(1)],
        "a survived error": [*earlier, "falling back to the second file"],
        "a completion": ["Training completed.", "now to export it"],
    }
    found = {name: diagnose_lines(tmp_path / "log", [*lines, *memory]) for name, lines in before.items()}
    assert {name: one.cause for name, one in found.items()} == dict.fromkeys(before, "OOM-GPU")
    assert [one.confidence for one in found.values()] == ["high", "medium", "medium", "medium"]


def test_message_without_an_end_is_certain_only_at_the_end_of_the_text(tmp_path: Path) -> None:
    linker = ["/usr/bin/ld: cannot find -lcurand: No such file or directory", "collect2: error: ld returned 1 exit status"]
    on = ["INFO the results are in out/", "INFO the plots are in out/plots", "INFO the table is in out/table"]
    told = [diagnose_lines(tmp_path / "log", lines) for lines in (linker, [*linker, *on])]
    assert [(found.cause, found.confidence) for found in told] == [("LD-CURAND", "high"), ("LD-CURAND", "medium")]
    probed = [line.replace("-lcurand", "-laio") for line in linker]
    assert diagnose_lines(tmp_path / "log", [*probed, *on]).kind is None, "DeepSpeed only asks whether it could build async_io"


def test_message_is_certain_only_right_above_a_bad_end_and_an_exception_only_with_its_traceback(tmp_path: Path) -> None:
    linker = ["/usr/bin/ld: cannot find -lcurand: No such file or directory", "collect2: error: ld returned 1 exit status"]
    steps = [f"step {number} loss 2.{number}" for number in range(20)]
    told = [diagnose_lines(tmp_path / "log", [*linker, *more, *ended(0, 1)]) for more in ([], steps)]
    assert [(found.cause, found.confidence) for found in told] == [("LD-CURAND", "high"), ("LD-CURAND", "medium")]
    printed = diagnose_lines(tmp_path / "log", ["ModuleNotFoundError: No module named 'packaging'"])
    assert (printed.cause, printed.confidence) == ("IMPORT-MISSING", "medium"), "the program may have caught and printed it"


def test_only_a_package_whose_first_name_is_missing_is_certainly_missing(tmp_path: Path) -> None:
    lost = ("ModuleNotFoundError: No module named 'transformers'", "ModuleNotFoundError: No module named 'transformers.models.new'")
    told = [diagnose_lines(tmp_path / "log", [*RAISED[:-1], words]) for words in lost]
    assert [(found.cause, found.confidence) for found in told] == [("IMPORT-MISSING", "high"), ("IMPORT-MISSING", "medium")]
    assert "IMPORT-VERSION" in told[1].could_be


def test_launcher_that_was_given_python_as_the_script_is_told_so(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", ["python: can't open file '/w/python': [Errno 2] No such file or directory", *ended(0, 2)])
    assert (found.cause, found.title, found.confidence) == ("NO-SCRIPT", "The launcher was given `python` as the script", "high")


def test_missing_repository_is_uncertain_where_it_may_be_a_data_set(tmp_path: Path) -> None:
    missing = "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error: {} does not exist"
    told = [diagnose_lines(tmp_path / "log", [*RAISED[:-1], missing.format(what)]) for what in ("models/x", "api/datasets/x")]
    assert [(found.cause, found.confidence) for found in told] == [("MODEL-FILES", "high"), ("MODEL-FILES", "medium")]


def test_calls_that_may_belong_to_another_release_are_uncertain(tmp_path: Path) -> None:
    own = "TypeError: OwnTrainer.loss() got an unexpected keyword argument 'batch'"
    theirs = "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'max_prompt_length'"
    told = [diagnose_lines(tmp_path / "log", [*RAISED[:-1], words]) for words in (own, theirs)]
    assert [(found.cause, found.confidence) for found in told] == [("USER-PY", "medium"), ("IMPORT-VERSION", "medium")]
    mixed = "ImportError: cannot import name 'grid' from 'torch._inductor.kernel' (/opt/env/lib/python3.11/site-packages/torch/_inductor/kernel.py)"
    files = ("/opt/env/lib/python3.11/site-packages/torch/_inductor/x.py", "/opt/env/lib/python3.11/site-packages/deepspeed/x.py")
    found = [diagnose_lines(tmp_path / "log", traceback(None, mixed, file)) for file in files]
    assert [one.confidence for one in found] == ["medium", "high"]


def test_warnings_of_a_logger_and_left_threads_are_not_the_cause(tmp_path: Path) -> None:
    warned = "WARNING 09-30 23:47:19 [_ipex_ops.py:16] Import error msg: No module named 'intel_extension_for_pytorch'"
    failed = diagnose_lines(tmp_path / "a", [warned, "RuntimeError: Engine core initialization failed", *ended(1, 1)])
    assert failed.cause != "IMPORT-MISSING"
    left = "terminate called without an active exception"
    memory = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU"
    assert diagnose_lines(tmp_path / "b", [left, *RAISED[:-1], memory]).cause == "OOM-GPU"
    offline = "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been disabled."
    found = diagnose_lines(tmp_path / "c", [*RAISED[:-1], offline])
    assert (found.cause, found.confidence, found.title[:9]) == ("NO-INTERNET", "medium", "Downloads")


def test_name_that_a_module_of_the_project_lacks_is_no_matter_of_versions(tmp_path: Path) -> None:
    places = {
        "'own.batches' (/home/u/project/own/batches.py)": "USER-PY",
        "'transformers' (/home/u/transformers/src/transformers/__init__.py)": "IMPORT-VERSION",
        "'tokens' (/opt/env/lib/python3.11/site-packages/tokens/__init__.py)": "IMPORT-VERSION",
    }
    for place, cause in places.items():
        assert diagnose_lines(tmp_path / "log", [*RAISED[:-1], f"ImportError: cannot import name 'grid' from {place}"]).cause == cause
