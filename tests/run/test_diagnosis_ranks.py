"""Which rank failed first, in every form in which logs name a rank, and when none is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_texts import of_lines

SITE = "/opt/env/lib/python3.11/site-packages/"
WHERE = ["Traceback (most recent call last):", '  File "/home/u/train.py", line 30, in <module>', "    main()"]
ERROR = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3; 79.35 GiB total capacity)"
PLAIN = [*WHERE, ERROR]
CLOSING = "W0210 14:23:37.385 2345 torch/distributed/elastic/multiprocessing/api.py:858] Sending process {} closing signal SIGTERM"
ENDED = "E0210 14:23:38.250 2345 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: {}) local_rank: {} (pid: 304) of binary: /bin/python"
AGENT = [
    "Traceback (most recent call last):",
    '  File "/opt/env/lib/python3.11/site-packages/torch/distributed/run.py", line 905, in <module>',
    "    main()",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
]


def table(rank: int, local: int, code: int = 1) -> list[str]:
    """Torchrun's table of one failure."""
    return [
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2025-02-10_14:23:37",
        f"  rank      : {rank} (local_rank: {local})",
        f"  exitcode  : {code} (pid: 304)",
    ]


@pytest.mark.parametrize(
    "label",
    [
        "[rank3]: ",  # PyTorch
        "[3] ",  # dstui, MPICH's hydra
        "[1,3]<stderr>:",  # mpirun --tag-output, Horovod
        "[1,3]<stderr>: ",
        "3: ",  # srun --label
        "[rank=3] ",
        "2026-03-01T10:00:00.123Z stderr F [rank3]: ",  # kubectl logs
        "n04: [rank3]: ",  # pdsh
    ],
)
def test_a_label_before_each_line_names_the_rank(tmp_path: Path, label: str) -> None:
    assert of_lines(tmp_path / "log", [label + line for line in PLAIN]).first_failing_rank == 3


@pytest.mark.parametrize(
    "label",
    [
        "rank:  3 | 2026-04-03 18:44:26,615 CRITICAL | ",
        "2026-04-03 18:44:26 [Rank 3] ERROR ",
        "[2026-04-03 18:44:26] CRITICAL [app.util:158, rank=3] ",
        "[rank: 3] ",  # Lightning
        "Rank 3: ",
        "(rank 3) ",
    ],
)
def test_a_label_of_the_program_names_the_rank_before_the_traceback_alone_or_before_the_error(tmp_path: Path, label: str) -> None:
    assert of_lines(tmp_path / "a", [label + WHERE[0], *PLAIN[1:]]).first_failing_rank == 3
    assert of_lines(tmp_path / "b", [*PLAIN, label + "Uncaught " + ERROR]).first_failing_rank == 3


@pytest.mark.parametrize("label", ["(RayTrainWorker pid=304, ip=10.0.0.3) ", "n04: ", "local_rank: 3 | ", "num_ranks 3: "])
def test_a_process_a_host_and_a_local_rank_are_no_rank(tmp_path: Path, label: str) -> None:
    assert of_lines(tmp_path / "log", [label + line for line in PLAIN]).first_failing_rank is None


def test_the_only_process_that_ended_by_itself_is_the_one_that_failed(tmp_path: Path) -> None:
    one_node = [*PLAIN, CLOSING.format(303), ENDED.format(1, 2), *AGENT]
    assert of_lines(tmp_path / "a", one_node).first_failing_rank == 2
    assert of_lines(tmp_path / "b", [*one_node, *table(2, 2)]).first_failing_rank == 2
    assert of_lines(tmp_path / "c", [*one_node, *table(10, 2)]).first_failing_rank == 10, "the rank on its node is not the rank"
    alone = of_lines(tmp_path / "d", [CLOSING.format(303), ENDED.format(1, 2), *AGENT])
    assert (alone.cause, alone.first_failing_rank) == (None, 2)


def test_a_label_beats_the_launchers_word(tmp_path: Path) -> None:
    lines = [f"[rank1]: {line}" for line in PLAIN]
    assert of_lines(tmp_path / "a", [*lines, CLOSING.format(303), ENDED.format(1, 2), *AGENT, *table(2, 2)]).first_failing_rank == 1


def test_no_rank_is_named_where_several_ended_by_themselves_or_spoke_of_a_lost_peer(tmp_path: Path) -> None:
    two = [*PLAIN, ENDED.format(1, 2), ENDED.format(1, 0), *AGENT]
    assert of_lines(tmp_path / "a", two).first_failing_rank is None
    lost = [*WHERE, "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3000"]
    assert of_lines(tmp_path / "b", [*PLAIN, *lost, CLOSING.format(303), ENDED.format(1, 2), *AGENT]).first_failing_rank is None


def test_every_rank_shows_it_where_there_are_as_many_tracebacks_as_torchrun_has_processes(tmp_path: Path) -> None:
    lines = [*PLAIN * 3, CLOSING.format(303), CLOSING.format(305), ENDED.format(1, 2), *AGENT, *table(2, 2)]
    found = of_lines(tmp_path / "a", lines)
    assert (found.every_rank, found.first_failing_rank) == (True, None)
    found = of_lines(tmp_path / "b", [*PLAIN, *lines])
    assert (of_lines(tmp_path / "c", lines[4:]).every_rank, found.cause) == (False, "OOM-GPU")


def test_tracebacks_that_ranks_wrote_into_each_other_count_each_and_a_chained_one_counts_once(tmp_path: Path) -> None:
    ends = [CLOSING.format(303), ENDED.format(1, 1), *AGENT]
    mixed = [WHERE[0], *PLAIN, *PLAIN[1:]]
    assert of_lines(tmp_path / "a", [*mixed, *ends]).every_rank
    again = [*PLAIN, "", "During handling of the above exception, another exception occurred:", "", *PLAIN]
    found = of_lines(tmp_path / "b", [*again, *ends])
    assert (found.every_rank, found.first_failing_rank) == (False, 1)


SPAWN = f'  File "{SITE}torch/multiprocessing/spawn.py", line {{}}, in {{}}'
SPAWNED = [WHERE[0], WHERE[1], "    mp.spawn(work, nprocs=4)", SPAWN.format(140, "join"), "    raise ProcessExitedException("]


@pytest.mark.parametrize("error", ["torch.multiprocessing.spawn.ProcessExitedException: ", "Exception: "])
@pytest.mark.parametrize("quoted", [[], SPAWNED])
def test_spawn_names_the_process_that_a_signal_ended(tmp_path: Path, error: str, quoted: list[str]) -> None:
    killed = of_lines(tmp_path / "a", [*quoted, f"{error}process 3 terminated with signal SIGKILL"])
    assert (killed.cause, killed.first_failing_rank) == ("KILLED-UNKNOWN", 3)
    odd = of_lines(tmp_path / "b", [*quoted, f"{error}process 3 terminated with signal SIGFPE"])
    assert (odd.kind, odd.cause, odd.first_failing_rank) == ("failure", None, 3)


def test_spawn_names_the_process_that_ended_by_itself(tmp_path: Path) -> None:
    line = "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code {}"
    one, own, windows = (of_lines(tmp_path / str(code), [*SPAWNED, line.format(code)]) for code in (1, 17, 3221226505))
    assert (one.kind, one.cause, one.first_failing_rank) == ("failure", None, 2)
    assert (own.cause, own.confidence, own.first_failing_rank) == ("EARLY-EXIT", "medium", 2)
    assert (windows.kind, windows.cause, windows.first_failing_rank) == ("failure", None, 2), "a crash of Windows is no exit status"


def test_the_error_that_spawn_tells_of_a_process_is_that_ranks(tmp_path: Path) -> None:
    told = ["torch.multiprocessing.spawn.ProcessRaisedException: ", "", "-- Process 2 terminated with the following error:"]
    frames = [WHERE[0], SPAWN.format(69, "_wrap"), "    fn(i, *args)", *WHERE[1:]]
    whole = of_lines(tmp_path / "a", [*SPAWNED, *told, *frames, ERROR])
    assert (whole.cause, whole.first_failing_rank) == ("OOM-GPU", 2)
    mine = of_lines(tmp_path / "d", [*WHERE, "OSError: handle is closed", *SPAWNED, *told, *frames, "ValueError: no batch"])
    assert (mine.first_failing_rank, "no batch" in mine.title) == (2, True), "what a helper printed before did not end the run"
    left_out = of_lines(tmp_path / "b", [*told, "...", "ValueError: no batch"])
    assert (left_out.cause, left_out.first_failing_rank) == ("USER-PY", 2)
    nodes = of_lines(tmp_path / "c", ["torchrun --nnodes 2 train.py", *told, *frames, ERROR])
    assert (nodes.cause, nodes.first_failing_rank) == ("OOM-GPU", None), "on several nodes the process's number is no rank"


def test_a_port_that_torchruns_agent_cannot_have_is_no_ranks_failure(tmp_path: Path) -> None:
    agent = [
        WHERE[0],
        f'  File "{SITE}torch/distributed/elastic/agent/server/api.py", line 498, in _rendezvous',
        "    self._store = TCPStore(",
    ]
    words = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. code: -98, name: EADDRINUSE"
    found = of_lines(tmp_path / "log", [*agent, words])
    assert (found.cause, found.first_failing_rank) == ("PORT-IN-USE", None)


def test_an_end_that_torchrun_tells_counts_where_somebody_joined_the_lines(tmp_path: Path) -> None:
    found = of_lines(tmp_path / "log", [f"{ENDED.format(-9, 0)} {WHERE[0]}  {WHERE[1]}"])
    assert (found.cause, found.first_failing_rank) == ("KILLED-UNKNOWN", 0)
