"""Which rank failed first, in every format in which logs name ranks, and when none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.diagnosis.recognition.launchers import world_in
from dstui.diagnosis.recognition.shapes import Shapes
from tests.diagnosis.crash_texts import diagnose_lines, traceback

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
    """Return torchrun's table of one failure."""
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
        "[prterun-n1-4711@1,3]<stderr>: ",  # Open MPI 5
        "[3]<stderr>:",  # Horovod over gloo
        "Mon Mar  2 10:00:00 2026[1,3]<stderr>:",  # with --output-timestamp
        "[1,mpirank:3,algo-1]<stderr>:",  # SageMaker
        "[3]: ",
        " 3: ",  # srun --label, if other tasks have more digits
        "[default3]:",  # torchrun --tee
        "2026-03-02 10:00:00,123: rank3[4711][MainThread]: ERROR: app.train: ",  # Composer
        "3: ",  # srun --label
        "[rank=3] ",
        "2026-03-01T10:00:00.123Z stderr F [rank3]: ",  # kubectl logs
        "n04: [rank3]: ",  # pdsh
        "[pod/sft-node-0-1-x7k2p/node] [rank3]: ",  # kubectl logs --prefix
        "[pod/sft-node-0-3-x7k2p/node] ",  # a TrainJob with a rank in each pod
        "[pod/sft-worker-2/pytorch] 2026-03-01T10:00:00.123456789Z ",  # a PyTorchJob, --timestamps
    ],
)
def test_label_before_each_line_names_the_rank(tmp_path: Path, label: str) -> None:
    assert diagnose_lines(tmp_path / "log", [label + line for line in PLAIN]).first_failing_rank == 3


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
def test_program_label_before_the_traceback_or_the_error_names_the_rank(tmp_path: Path, label: str) -> None:
    assert diagnose_lines(tmp_path / "a", [label + WHERE[0], *PLAIN[1:]]).first_failing_rank == 3
    assert diagnose_lines(tmp_path / "b", [*PLAIN, label + "Uncaught " + ERROR]).first_failing_rank == 3


@pytest.mark.parametrize("label", ["(RayTrainWorker pid=304, ip=10.0.0.3) ", "n04: ", "local_rank: 3 | ", "num_ranks 3: "])
def test_process_host_and_local_rank_are_no_rank(tmp_path: Path, label: str) -> None:
    assert diagnose_lines(tmp_path / "log", [label + line for line in PLAIN]).first_failing_rank is None


def test_kubectl_pods_are_hosts_and_torchruns_table_has_their_ranks(tmp_path: Path) -> None:
    """Two pods with two ranks each, interleaved by `kubectl logs --prefix`: the number of a pod is not a rank."""
    pods = ["[pod/sft-node-0-0-abcde/node] ", "[pod/sft-node-0-1-x7k2p/node] "]
    failed = [CLOSING.format(303), ENDED.format(1, 0), *AGENT, *table(2, 0)]
    lines = [
        pods[0] + "step 1 loss 2.0",
        *(pods[1] + line for line in [*(f"[rank2]: {line}" for line in PLAIN), *failed]),
        pods[0] + "step 2 loss 2.0",
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.first_failing_rank, found.host) == (2, "sft-node-0-1-x7k2p")


def test_only_process_that_ended_by_itself_failed(tmp_path: Path) -> None:
    one_node = [*PLAIN, CLOSING.format(303), ENDED.format(1, 2), *AGENT]
    assert diagnose_lines(tmp_path / "a", one_node).first_failing_rank == 2
    assert diagnose_lines(tmp_path / "b", [*one_node, *table(2, 2)]).first_failing_rank == 2
    assert diagnose_lines(tmp_path / "c", [*one_node, *table(10, 2)]).first_failing_rank == 10, "the local rank is not the rank"
    alone = diagnose_lines(tmp_path / "d", [CLOSING.format(303), ENDED.format(1, 2), *AGENT])
    assert (alone.cause, alone.first_failing_rank) == (None, 2)


def test_label_wins_over_the_launchers_message(tmp_path: Path) -> None:
    lines = [f"[rank1]: {line}" for line in PLAIN]
    assert diagnose_lines(tmp_path / "a", [*lines, CLOSING.format(303), ENDED.format(1, 2), *AGENT, *table(2, 2)]).first_failing_rank == 1


def test_root_cause_in_torchruns_table_is_named_among_several(tmp_path: Path) -> None:
    two = [*PLAIN, ENDED.format(1, 2), ENDED.format(1, 0), *AGENT]
    assert diagnose_lines(tmp_path / "a", two).first_failing_rank is None
    assert diagnose_lines(tmp_path / "b", [*two, *table(2, 2)]).first_failing_rank == 2
    lost = [*WHERE, "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3000"]
    assert diagnose_lines(tmp_path / "c", [*PLAIN, *lost, CLOSING.format(303), ENDED.format(1, 2), *AGENT]).first_failing_rank == 2


def test_tables_of_older_releases_and_truncated_ones_are_read(tmp_path: Path) -> None:
    other = ["Other Failures:", "[1]:", "  time: 2021-07-01_10:00:01", "  rank: 0 (local_rank: 0)", "  exitcode: 1 (pid: 76)"]
    old = ["Root Cause:", "[0]:", "  time: 2021-07-01_10:00:00", "  rank: 3 (local_rank: 3)", "  exitcode: 1 (pid: 77)", *other]
    assert diagnose_lines(tmp_path / "a", [*PLAIN, *AGENT, *old]).first_failing_rank == 3
    cut = diagnose_lines(tmp_path / "b", [*AGENT, *table(3, 3)[:-1]])
    assert (cut.kind, cut.cause, cut.first_failing_rank) == ("failure", None, 3)


@pytest.mark.parametrize(
    "lines",
    [
        ["  Process name: [[62144,1],3]", "  Exit code:    1"],  # Open MPI
        ["  Process name: [prterun-n1-4711@1,3]", "  Exit code:    1"],
        ["RuntimeError: Horovod detected that one or more processes exited with non-zero status", "Process name: 3", "Exit code: 1"],
        ["Exit code: 1", "Process name: 3"],  # Horovod before 0.22
        ["Process 3 exit with status code 1."],
        ["MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "with errorcode 1."],
        ["Abort(1) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3"],
        ["=   RANK 3 PID 4711 RUNNING AT n1", "=   EXIT STATUS: 1"],  # Intel MPI
        ["[rank: 3] Child process with PID 4711 terminated with code 1. Forcefully terminating all other processes to avoid zombies"],
        ["ERROR:composer.cli.launcher:Rank 3 crashed with exit code 1."],
        ["srun: error: n2: task 3: Exited with exit code 1"],
    ],
)
def test_rank_that_a_launcher_saw_fail_is_named(tmp_path: Path, lines: list[str]) -> None:
    found = diagnose_lines(tmp_path / "a", [*PLAIN, *lines])
    assert (found.cause, found.first_failing_rank) == ("OOM-GPU", 3)
    alone = diagnose_lines(tmp_path / "b", ["step 1 loss 2.0", *lines])
    assert (alone.kind, alone.first_failing_rank) == ("failure", 3)


def test_signal_is_read_from_the_line_after_the_ranks_name(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", ["step 1", "=   RANK 3 PID 4711 RUNNING AT n1", "=   KILLED BY SIGNAL: 9 (Killed)"])
    assert (found.cause, found.first_failing_rank) == ("KILLED-UNKNOWN", 3)


@pytest.mark.parametrize(
    ("world", "told"),
    [
        (4, "torchrun --standalone --nproc_per_node=4 train.py"),
        (4, "python -m torch.distributed.launch --nnodes 2 --node_rank 0 --nproc_per_node 2 train.py"),
        (4, "accelerate launch --num_processes 4 train.py"),
        (4, "deepspeed --include localhost:0,1,2,3 train.py"),
        (4, "mpirun --allow-run-as-root -np 4 python train.py"),
        (
            4,
            "[INFO] [runner.py:571:main] cmd = python -u -m deepspeed.launcher.launch --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMSwgMiwgM119 x.py",
        ),
        (4, "[INFO] [launch.py:103:main] WORLD INFO DICT: {'localhost': [0, 1, 2, 3]}"),
        (4, "[INFO] [launch.py:109:main] nnodes=2, num_local_procs=2, node_rank=0"),
        (4, "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4"),
        (4, "Num processes: 4"),
        (4, "using world size: 4, data-parallel-size: 2, tensor-model-parallel size: 2"),
        (4, "  world_size ...................................... 4"),
        (4, "Rank 0: Completed store-based barrier for key:store_based_barrier_key:1 with 4 nodes."),
        (4, "n1:77:99 [0] NCCL INFO comm 0x55d rank 0 nranks 4 cudaDev 0 busId 7000 - Init COMPLETE"),
        (4, "Process rank: 3, device: cuda:3, n_gpu: 1, distributed training: True"),
        (4, "subprocess.CalledProcessError: Command '['python', '-u', 'x.py', '--local_rank=3']' returned non-zero exit status 1."),
        (4, "INFO:root:Initialized (rank/world-size) 0/4"),
        (4, "Running... (rank: 0/4)"),
        (4, "Training in distributed mode with multiple processes, 1 device per process.Process 0, total 4, device cuda:0."),
        (4, "Process (global: 0, local 0), total 4."),
        (4, "2022-03-01 10:00:00 | INFO | fairseq_cli.train | training on 4 devices (GPUs/TPUs)"),
        (4, "    GPU number: 4"),
        (1, "Not using distributed mode"),
        (1, "Training with a single process on 1 device (cuda:0)."),
        (1, "    Distributed training: False"),
        (1, "Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: False, 16-bits training: True"),
        (None, "Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: True"),
        (None, "deepspeed --hostfile hosts --num_gpus 4 train.py"),
        (None, "train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 2 * 2"),
        (None, "data_parallel_world_size=4"),
        (None, "--world_info=no-base64!"),
    ],
)
def test_number_of_ranks_is_read_from_any_message(world: int | None, told: str) -> None:
    assert world_in(told) == world
    assert world is None or Shapes().match(told.encode()) is not None, "such a line is examined"


def test_single_process_is_rank_0(tmp_path: Path) -> None:
    simple = f'  File "{SITE}accelerate/commands/launch.py", line 653, in simple_launcher'
    end = "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1."
    assert diagnose_lines(tmp_path / "a", [*PLAIN, WHERE[0], simple, end]).first_failing_rank == 0
    last = "[2023-04-07 13:09:33] [ERROR] [launch.py:324:sigkill_handler] ['python', '-u', 'x.py', '--local_rank=0'] exits with return code = -9"
    killed = diagnose_lines(tmp_path / "b", ["step 1 loss 2.0", last])
    assert (killed.cause, killed.first_failing_rank) == ("KILLED-UNKNOWN", 0)


def test_local_rank_and_node_number_give_the_rank(tmp_path: Path) -> None:
    command = "torchrun --nnodes 2 --node_rank 1 --nproc_per_node 4 --master_addr n1 train.py"
    assert diagnose_lines(tmp_path / "a", [command, *PLAIN, ENDED.format(1, 2), *AGENT]).first_failing_rank == 6
    assert diagnose_lines(tmp_path / "b", [command, *(f"[default3]:{line}" for line in PLAIN)]).first_failing_rank == 7


def test_arguments_with_a_local_rank_name_the_rank(tmp_path: Path) -> None:
    error = "train.py: error: unrecognized arguments: --local-rank={}"
    one = diagnose_lines(tmp_path / "a", [error.format(1), CLOSING.format(303), ENDED.format(2, 1)])
    assert (one.cause, one.every_rank, one.first_failing_rank) == ("LOCAL-RANK-ARG", False, 1)
    both = diagnose_lines(tmp_path / "b", [error.format(1), error.format(0), ENDED.format(2, 0)])
    assert (both.every_rank, both.first_failing_rank) == (True, 1)


def test_log_of_one_host_shows_all_its_ranks(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: {line}" for rank in range(8, 16) for line in PLAIN]
    assert diagnose_lines(tmp_path / "a", ["using world size: 16", *lines]).every_rank
    assert not diagnose_lines(tmp_path / "b", ["using world size: 16", *lines[:8]]).every_rank
    assert not diagnose_lines(tmp_path / "c", ["[rank16]: UserWarning: Error tracking is off", *lines]).every_rank


def test_every_rank_failed_if_there_are_as_many_tracebacks_as_processes(tmp_path: Path) -> None:
    lines = [*PLAIN * 3, CLOSING.format(303), CLOSING.format(305), ENDED.format(1, 2), *AGENT, *table(2, 2)]
    found = diagnose_lines(tmp_path / "a", lines)
    assert (found.every_rank, found.first_failing_rank) == (True, 2)
    found = diagnose_lines(tmp_path / "b", [*PLAIN, *lines])
    assert (diagnose_lines(tmp_path / "c", lines[4:]).every_rank, found.cause) == (False, "OOM-GPU")


def test_interleaved_tracebacks_count_each_and_a_chained_one_once(tmp_path: Path) -> None:
    ends = [CLOSING.format(303), ENDED.format(1, 1), *AGENT]
    mixed = [WHERE[0], *PLAIN, *PLAIN[1:]]
    assert diagnose_lines(tmp_path / "a", [*mixed, *ends]).every_rank
    again = [*PLAIN, "", "During handling of the above exception, another exception occurred:", "", *PLAIN]
    found = diagnose_lines(tmp_path / "b", [*again, *ends])
    assert (found.every_rank, found.first_failing_rank) == (False, 1)


SPAWN = f'  File "{SITE}torch/multiprocessing/spawn.py", line {{}}, in {{}}'
SPAWNED = [WHERE[0], WHERE[1], "    mp.spawn(work, nprocs=4)", SPAWN.format(140, "join"), "    raise ProcessExitedException("]


@pytest.mark.parametrize("error", ["torch.multiprocessing.spawn.ProcessExitedException: ", "Exception: "])
@pytest.mark.parametrize("quoted", [[], SPAWNED])
def test_spawn_names_the_process_ended_by_a_signal(tmp_path: Path, error: str, quoted: list[str]) -> None:
    killed = diagnose_lines(tmp_path / "a", [*quoted, f"{error}process 3 terminated with signal SIGKILL"])
    assert (killed.cause, killed.first_failing_rank) == ("KILLED-UNKNOWN", 3)
    odd = diagnose_lines(tmp_path / "b", [*quoted, f"{error}process 3 terminated with signal SIGFPE"])
    assert (odd.kind, odd.cause, odd.first_failing_rank) == ("failure", None, 3)


def test_spawn_names_the_process_that_ended_by_itself(tmp_path: Path) -> None:
    line = "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code {}"
    one, own, windows = (diagnose_lines(tmp_path / str(code), [*SPAWNED, line.format(code)]) for code in (1, 17, 3221226505))
    assert (one.kind, one.cause, one.first_failing_rank) == ("failure", None, 2)
    assert (own.cause, own.confidence, own.first_failing_rank) == ("EARLY-EXIT", "medium", 2)
    assert (windows.kind, windows.cause, windows.first_failing_rank) == ("failure", None, 2), "a crash of Windows is no exit status"


def test_error_reported_by_spawn_belongs_to_that_rank(tmp_path: Path) -> None:
    told = ["torch.multiprocessing.spawn.ProcessRaisedException: ", "", "-- Process 2 terminated with the following error:"]
    frames = [WHERE[0], SPAWN.format(69, "_wrap"), "    fn(i, *args)", *WHERE[1:]]
    whole = diagnose_lines(tmp_path / "a", [*SPAWNED, *told, *frames, ERROR])
    assert (whole.cause, whole.first_failing_rank) == ("OOM-GPU", 2)
    mine = diagnose_lines(tmp_path / "d", [*WHERE, "OSError: handle is closed", *SPAWNED, *told, *frames, "ValueError: no batch"])
    assert (mine.first_failing_rank, "no batch" in mine.title) == (2, True), "what a helper printed before did not end the run"
    left_out = diagnose_lines(tmp_path / "b", [*told, "...", "ValueError: no batch"])
    assert (left_out.cause, left_out.first_failing_rank) == ("USER-PY", 2)
    nodes = diagnose_lines(tmp_path / "c", ["torchrun --nnodes 2 train.py", *told, *frames, ERROR])
    assert (nodes.cause, nodes.first_failing_rank) == ("OOM-GPU", None), "on several nodes the process's number is no rank"


def test_port_unavailable_to_torchruns_agent_is_no_ranks_failure(tmp_path: Path) -> None:
    agent = [
        WHERE[0],
        f'  File "{SITE}torch/distributed/elastic/agent/server/api.py", line 498, in _rendezvous',
        "    self._store = TCPStore(",
    ]
    words = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. code: -98, name: EADDRINUSE"
    found = diagnose_lines(tmp_path / "log", [*agent, words])
    assert (found.cause, found.first_failing_rank) == ("PORT-IN-USE", None)


def test_torchruns_report_counts_if_lines_were_joined(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", [f"{ENDED.format(-9, 0)} {WHERE[0]}  {WHERE[1]}"])
    assert (found.cause, found.first_failing_rank) == ("KILLED-UNKNOWN", 0)


def test_unlabelled_message_of_every_task_is_every_ranks(tmp_path: Path) -> None:
    lines = ['FATAL:   "train": executable file not found in $PATH'] * 4
    found = diagnose_lines(tmp_path / "a", [*lines, "srun: error: n1: tasks 0-3: Exited with exit code 255"])
    assert (found.cause, found.every_rank) == ("NO-DS-CMD", True)
    assert not diagnose_lines(tmp_path / "b", [*lines, "srun: error: n1: tasks 0-7: Exited with exit code 255"]).every_rank


@pytest.mark.parametrize(
    "lines",
    [
        [
            "[rank12]:[E ProcessGroupNCCL.cpp:1182] [Rank 12] NCCL watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error"
        ],
        ["[E ProcessGroupNCCL.cpp:1182] [Rank 12] NCCL watchdog thread terminated with exception: NCCL error: ncclRemoteError"],
    ],
)
def test_nccl_error_belongs_to_its_rank_also_in_unlabelled_lines(tmp_path: Path, lines: list[str]) -> None:
    more = ["Last error:", "NET/IB : Got completion from peer 10.0.0.7<43064> with error 5, opcode 5351, len 0, vendor err 249 (Recv)"]
    noticed = "mpirun noticed that process rank 14 with PID 82 on node n1 exited on signal 6 (Aborted)."
    found = diagnose_lines(tmp_path / "log", [*lines, *more, noticed])
    assert (found.cause, found.first_failing_rank) == ("IB", 12)


def test_first_rank_of_an_nccl_timeout_is_named_and_a_note_names_silent_ranks(tmp_path: Path) -> None:
    late = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=327, OpType=ALLGATHER) ran for 600000 milliseconds"
    found = diagnose_lines(tmp_path / "log", ["dist_world_size=4", *(late.format(rank) for rank in (2, 1, 3)), "exit status 134"])
    assert (found.cause, found.first_failing_rank) == ("NCCL-WATCHDOG", 2)
    assert any("rank 0" in note for note in found.notes)


def test_every_rank_failed_if_torchruns_table_lists_all_with_exceptions(tmp_path: Path) -> None:
    shredded = [*WHERE, *WHERE, ERROR]
    other = ["Failures:", "[1]:", "  rank      : 1 (local_rank: 1)", "  exitcode  : 1 (pid: 305)"]
    found = diagnose_lines(tmp_path / "a", [*shredded, ENDED.format(1, 0), *AGENT, *other, *table(0, 0)])
    assert (found.every_rank, found.first_failing_rank) == (True, 0)
    killed = [*other[:-1], "  exitcode  : -15 (pid: 305)"]
    assert not diagnose_lines(tmp_path / "b", [*shredded, ENDED.format(1, 0), *AGENT, *killed, *table(0, 0)]).every_rank


def test_processes_started_by_the_script_are_all_if_each_fails(tmp_path: Path) -> None:
    one, two = ([f"Process Process-{number}:", *PLAIN] for number in (1, 2))
    assert diagnose_lines(tmp_path / "a", [*one, *two]).every_rank
    assert not diagnose_lines(tmp_path / "b", two).every_rank


def test_container_or_shell_error_is_no_ranks_failure(tmp_path: Path) -> None:
    lines = ["slurmstepd: error: pyxis:     mkdir: cannot create directory '/scratch/42': Permission denied"]
    found = diagnose_lines(tmp_path / "log", [*lines, "srun: error: n1: task 0: Exited with exit code 1"])
    assert (found.cause, found.first_failing_rank) == ("CKPT-PERM", None)


def test_indented_quotation_names_the_task(tmp_path: Path) -> None:
    lines = [
        "    640: [n1:77:0:77] Caught signal 11 (Segmentation fault: address not mapped)",
        "    srun: error: n1: task 640: Segmentation fault",
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank) == ("SIGSEGV", 640)


def test_two_ranks_of_four_are_not_every_rank(tmp_path: Path) -> None:
    """The agent had to end the other two, so its table lacks them."""
    closing = [f"W0101 api.py:897] Sending process {pid} closing signal SIGTERM" for pid in (501, 502)]
    rows = ["[1]:", "  rank      : 3 (local_rank: 3)", "  exitcode  : 1 (pid: 503)"]
    root = ["Root Cause (first observed failure):", "[0]:", "  rank      : 1 (local_rank: 1)", "  exitcode  : 1 (pid: 500)"]
    end = [*closing, "E0101 api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 500) of binary: python", "Failures:", *rows, *root]
    labelled = [*traceback(3, "KeyError: 'labels'"), *traceback(1, "KeyError: 'labels'")]
    found = diagnose_lines(tmp_path / "a", [*labelled, *end])
    assert (found.every_rank, found.first_failing_rank) == (False, 3)
    found = diagnose_lines(tmp_path / "b", [*(line.partition("]: ")[2] for line in labelled), *end])
    assert (found.every_rank, found.first_failing_rank) == (False, 1)


def test_tracebacks_interleaved_by_line_count_twice(tmp_path: Path) -> None:
    lines = [line.partition("]: ")[2] for line in traceback(0, "KeyError: 'labels'")]
    found = diagnose_lines(tmp_path / "log", ["dist_world_size=2", *(line for line in lines for _ in range(2))])
    assert found.every_rank


def test_number_of_processes_used_by_accelerate_is_read_but_not_its_advice(tmp_path: Path) -> None:
    note = [
        "The following values were not passed to `accelerate launch` and had defaults used instead:",
        "\t`--num_processes` was set to a value of `2`",
        "\t\tIf this was unintended please pass in `--num_processes=1`.",
    ]
    lines = [line.partition("]: ")[2] for line in traceback(0, "KeyError: 'labels'")]
    assert diagnose_lines(tmp_path / "a", [*note, *lines, *lines]).every_rank
    assert diagnose_lines(tmp_path / "b", [*note, *lines]).first_failing_rank is None


def test_rank_with_fewer_enqueued_collectives_is_named_though_all_time_out(tmp_path: Path) -> None:
    late = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600010"
    lines = [f"[rank{rank}]:[E1 12:00:00.0 ProcessGroupNCCL.cpp:616] [Rank {rank}] {late} milliseconds" for rank in range(4)]
    lines += [f"[rank{rank}]:[E1 12:00:00.0 x.cpp:1] [Rank {rank}] last enqueued NCCL work: {9 - (rank == 2)}" for rank in range(4)]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank, found.every_rank) == ("NCCL-WATCHDOG", 2, False)


LOST = traceback(1, "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, NCCL version 2.2")


def test_broken_link_is_the_cause_if_others_had_to_be_ended(tmp_path: Path) -> None:
    twice = [line.replace("[rank1]: ", "[rank1]: [rank1]: ") for line in LOST]
    ended = "W0516 10:49:23.9 10143 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 7 closing signal SIGTERM"
    for lines in (LOST, twice, [*twice, ended]):
        found = diagnose_lines(tmp_path / "log", lines)
        assert (found.cause, found.first_failing_rank, found.confidence) == ("NCCL-SYSTEM", 1, "low")
        assert "KILLED-UNKNOWN" in found.could_be, "a peer's death looks the same"


def test_paddle_launcher_names_the_failed_rank_and_signal(tmp_path: Path) -> None:
    lines = [
        "Container rank 3 status failed cmd ['python', 'train.py']",
        *(line.partition("]: ")[2] for line in traceback(0, "ValueError: odd")),
    ]
    assert diagnose_lines(tmp_path / "a", lines).first_failing_rank == 3
    assert diagnose_lines(tmp_path / "b", ["LAUNCH INFO 2026-05-06 18:17:34,071 Exit with signal 2"]).cause == "CTRL-C"


def test_failed_pytorch_check_is_reported_with_its_rank(tmp_path: Path) -> None:
    said = '[n1] Rank 1, Local Rank 1, INTERNAL ASSERT FAILED at "../torch/x.cpp":9, please report a bug to PyTorch. Empty.'
    found = diagnose_lines(tmp_path / "log", [said, "srun: error: n1: task 0: Exited with exit code 1"])
    assert (found.cause, found.first_failing_rank) == ("USER-PY", 1)


def test_ranks_with_different_exceptions_or_missing_ones_are_not_every_rank(tmp_path: Path) -> None:
    different = [*traceback(0, "ValueError: odd"), *traceback(1, "KeyError: 3")]
    assert not diagnose_lines(tmp_path / "a", different).every_rank
    assert not diagnose_lines(tmp_path / "b", [*traceback(1, "ValueError: odd"), *traceback(4, "ValueError: odd")]).every_rank, (
        "ranks 2 and 3 did not fail"
    )
    assert diagnose_lines(tmp_path / "c", [*traceback(0, "ValueError: odd"), *traceback(1, "ValueError: odd")]).every_rank
    other = ["Failures:", "[1]:", "  rank      : 1 (local_rank: 1)", "  exitcode  : 1 (pid: 305)"]
    one = diagnose_lines(tmp_path / "d", [*WHERE, ERROR, ENDED.format(1, 0), *AGENT, *other, *table(0, 0)])
    assert (one.every_rank, one.first_failing_rank) == (False, 0), "one traceback alone"


def test_rank_that_wrote_into_the_others_line_shows_the_same_error(tmp_path: Path) -> None:
    missing = "[Errno 2] No such file or directory: '/models/checkpoint-1/params.json'"
    frames = ['  File "/home/u/train.py", line 48, in load'] * 2
    both = [
        "Traceback (most recent call last):",
        *frames,
        f'FileNotFoundError    : with open(path, "r") as f:{missing}',
        "",
        f"FileNotFoundError: {missing}",
    ]
    found = diagnose_lines(tmp_path / "log", [*both, ENDED.format(1, 0), *AGENT, *table(1, 1), *table(0, 0)])
    assert (found.cause, found.every_rank) == ("MODEL-FILES", True)
