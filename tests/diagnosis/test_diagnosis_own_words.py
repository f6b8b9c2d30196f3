"""Reports in which one process tells of another: torchrun's table, checkpoints, Ray, servers, Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import diagnose_lines, traceback

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU {} has a total capacity of 31.36 GiB."
WRITE = "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"
HEAD = "Traceback (most recent call last):"
FRAME = ['  File "/home/u/train.py", line 30, in step', "    loss = model(batch)"]
AGENT = [
    HEAD,
    '  File "/opt/env/lib/python3.11/site-packages/torch/distributed/run.py", line 905, in <module>',
    "    main()",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "============================================================",
    "train.py FAILED",
]


def entry(rank: int, code: int, *error: str) -> list[str]:
    """Return one entry of torchrun's table, with the traceback that `@record` puts into it."""
    last = [f"  traceback : {error[0]}", *(f"  {line}" for line in error[1:])]
    return [
        "[0]:",
        "  time      : 2026-05-03_06:23:56",
        f"  rank      : {rank} (local_rank: {rank})",
        f"  exitcode  : {code} (pid: 30{rank})",
        *last,
    ]


def table(others: list[str], first: list[str]) -> list[str]:
    return [*AGENT, "Failures:", *others, "------", "Root Cause (first observed failure):", *first, "======"]


def ended(rank: int) -> list[str]:
    return entry(rank, -15, f"Signal 15 (SIGTERM) received by PID 30{rank}")


@pytest.mark.parametrize("before", ["", "2026-05-03T06:23:57.123456789Z ", "n04: [default0]:"])
def test_traceback_in_the_table_of_torchrun_belongs_to_the_rank_of_its_entry(tmp_path: Path, before: str) -> None:
    own = [f"[rank6]:step {step} loss 2.{step}" for step in range(8)]  # only this rank's output is shown
    told = table([*ended(0), *ended(6)], entry(1, 1, HEAD, *FRAME, "ValueError: odd"))
    found = diagnose_lines(tmp_path / "log", [*own, *(before + line for line in told)])
    assert (found.cause, found.first_failing_rank, found.every_rank) == ("USER-PY", 1, False)


def test_table_in_which_every_rank_has_the_same_traceback(tmp_path: Path) -> None:
    each = [entry(rank, 1, HEAD, *FRAME, OOM.format(rank)) for rank in range(4)]
    found = diagnose_lines(tmp_path / "log", [*traceback(0, OOM.format(0)), *table([*each[0], *each[1], *each[2]], each[3])])
    assert (found.cause, found.every_rank) == ("OOM-GPU", True)


def test_checkpoint_that_fails_on_every_rank_is_reported_by_one(tmp_path: Path) -> None:
    lines = [HEAD, *FRAME, "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])"]
    for rank in range(2):
        lines += [
            f"{HEAD} (RANK {rank})",
            '  File "/opt/env/lib/python3.11/site-packages/torch/serialization.py", line 855, in __exit__',
            "    end()",
            WRITE,
        ]
    found = diagnose_lines(tmp_path / "log", [f"[rank0]: {line}" for line in lines])
    assert (found.cause, found.every_rank) == ("CKPT-DISK", True)


def test_error_of_a_task_that_ray_repeats_or_nobody_asked_for_ended_nothing(tmp_path: Path) -> None:
    frame = ['  File "/tmp/ipykernel_1/2.py", line 4, in square', "ValueError: odd"]
    unasked = "2026-02-26 00:05:46,835\tERROR worker.py:433 -- Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ray::square() (pid=6115)"
    again = "(raylet) Task square failed. There are 9 retries remaining, so the task will be retried. Error: User exception:"
    told = [unasked, *frame, "", again, "ray::square() (pid=6534, ip=10.0.114.86)", *frame]
    assert diagnose_lines(tmp_path / "a", [*told, "", "Success! Results: [16, 16]"]).kind is None
    assert diagnose_lines(tmp_path / "b", [*told, *traceback(None, "KeyError: 'x'")]).cause == "USER-PY"


def test_error_in_an_actor_of_ray_is_not_one_of_the_driver_that_goes_on(tmp_path: Path) -> None:
    of = "(MapWorker(MapBatches(Prepare)) pid=13047, ip=10.0.159.116) "
    logged = [of + line for line in traceback(None, "ValueError: odd")]
    assert diagnose_lines(tmp_path / "a", [*logged, *(f"{of}row {row}" for row in range(40)), "[done] wrote out.parquet"]).kind is None
    assert diagnose_lines(tmp_path / "b", [*logged, *traceback(None, "KeyError: 'x'")]).cause == "USER-PY"


def test_words_of_python_3_14_for_an_exception_that_ends_nothing(tmp_path: Path) -> None:
    ignored = [
        "Exception ignored while calling deallocator <function Manager.__del__ at 0x7fe1c0844a90>:",
        *traceback(None, "PythonFinalizationError: cannot join thread at interpreter shutdown"),
    ]
    assert diagnose_lines(tmp_path / "log", ["Training completed", *ignored]).kind != "failure"


@pytest.mark.parametrize(("host", "cause"), [("127.0.0.1", "USER-PY"), ("localhost", "USER-PY"), ("10.1.2.3", "NO-INTERNET")])
def test_server_on_the_same_host_is_not_the_internet(tmp_path: Path, host: str, cause: str) -> None:
    http = '  File "/usr/lib/python3.11/http/client.py", line 279, in _read_status'
    first = [
        HEAD,
        '  File "/home/u/ask.py", line 3, in <module>',
        "    ask()",
        http,
        "    line = self.fp.readline()",
        "TimeoutError: timed out",
    ]
    during = ["", "During handling of the above exception, another exception occurred:", ""]
    last = f"requests.exceptions.ReadTimeout: HTTPConnectionPool(host='{host}', port=30000): Read timed out. (read timeout=600)"
    assert diagnose_lines(tmp_path / "log", [*first, *during, *traceback(None, last)]).cause == cause


@pytest.mark.parametrize(
    "words",
    [
        "[2026-06-08 01:41:51] Received sigquit from a child process. It usually means the child failed.",
        "[2026-06-12 02:56:07] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    ],
)
def test_sglang_ends_after_an_exception_that_a_process_of_it_has_logged(tmp_path: Path, words: str) -> None:
    logged = [
        "[2026-06-08 01:40:50] ERROR Scheduler hit an exception: " + HEAD,
        *FRAME,
        "ValueError: odd",
        *(f"note {line}" for line in range(40)),
    ]
    assert diagnose_lines(tmp_path / "a", logged).kind is None
    assert diagnose_lines(tmp_path / "b", [*logged, words]).cause == "USER-PY"


def test_text_that_breaks_off_within_a_later_traceback_failed(tmp_path: Path) -> None:
    logged = [f"(EngineCore pid=3) ERROR 06-12 12:49:02 [core.py:1199] {line}" for line in traceback(None, OOM.format(0))]
    torn = [f"(APIServer pid=1) {line}" for line in [HEAD, *FRAME * 12]]
    assert diagnose_lines(tmp_path / "log", [*logged, *torn]).cause == "OOM-GPU"


def test_vllm_that_was_asked_to_end(tmp_path: Path) -> None:
    end = "(APIServer pid=9) INFO 06-12 15:31:34 [launcher.py:128] [shutdown] API server: signalling HTTP server shutdown"
    assert diagnose_lines(tmp_path / "log", ["(APIServer pid=9) INFO:     Application startup complete.", end]).cause == "CTRL-C"


def test_agents_of_torchrun_that_finished_do_not_find_the_store_of_the_first_one(tmp_path: Path) -> None:
    done = "INFO:torch.distributed.elastic.agent.server.api:[default] worker group successfully finished. Waiting 300 seconds for other agents to finish."
    lost = (
        "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n29_55260_0' has failed to shutdown the rendezvous '31628' due to an "
        "error of type RendezvousConnectionError."
    )
    assert diagnose_lines(tmp_path / "a", ["epoch 49", done, done, lost]).kind == "success"
    assert diagnose_lines(tmp_path / "b", ["epoch 49", lost]).kind != "success"


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("REMOTE-ENV", "train-worker-0   0/1     ImagePullBackOff   0          2m"),
        ("REMOTE-ENV", '  Warning  Failed  2m  kubelet  Failed to pull image "registry.io/train:1": rpc error: code = NotFound'),
        (
            "SLURM-PREEMPT",
            "    Message:   Preempted to accommodate a workload (UID: d34468c2-1ce5) due to prioritization in the ClusterQueue",
        ),
    ],
)
def test_words_of_kubernetes_that_prove_the_cause(tmp_path: Path, cause: str, text: str) -> None:
    found = diagnose_lines(tmp_path / "log", ["NAME   READY   STATUS   RESTARTS   AGE", text])
    assert (found.cause, found.confidence) == (cause, "high")


def test_nccl_without_memory_on_its_gpu(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", ["n1:77:77 [0] NCCL WARN Cuda failure 2 'out of memory'", "NCCL error: unhandled cuda error"])
    assert found.cause == "OOM-GPU"
