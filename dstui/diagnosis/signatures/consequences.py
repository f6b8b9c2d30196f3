"""Signatures of consequences of another process's end, and of harmless messages that look alarming."""

from __future__ import annotations

from dstui.diagnosis.signature import Signature, rx

SIGNATURES = (
    # Consequences of another end
    Signature(
        "CPUADAM-ATTR",
        "cascade",
        "The optimizer's destructor complains that its op was never built",
        signs=(
            "object has no attribute 'ds_opt_adam'",
            "object has no attribute 'ds_opt_lion'",
            "object has no attribute 'ds_opt_adagrad'",
        ),
        source="deepspeed/ops/adam/cpu_adam.py:__init__",
    ),
    Signature(
        "ENGINE-DEAD",
        "cascade",
        "A server of a model, or its client, reports that the engine's process ended",
        signs=(
            "EngineCore encountered an issue. See stack trace",
            "Engine core initialization failed. See root cause above",
            "Engine process failed to start. See stack trace for the root cause",
            "WorkerProc initialization failed due to an exception in a background process",
            "server crashed for some reason, unable to proceed",  # DeepSpeed-MII's
            rx("Worker failed with error", r"Worker failed with error .*please check the stack trace above for the root cause"),
        ),
        alike=("OOM-GPU", "KILLED-UNKNOWN"),
    ),
    Signature(
        "NCCL-REMOTE",
        "cascade",
        "A peer of this rank is gone (NCCL)",
        signs=(
            "ncclRemoteError",
            "remote process exited or there was a network error",
            rx("NCCL communicator was aborted", r"NCCL communicator was aborted"),
            "ncclInternalError: Internal check failed",
        ),
        alike=("NCCL-SYSTEM", "KILLED-UNKNOWN"),
    ),
    Signature(
        "RDZV-CASCADE",
        "cascade",
        "The node that keeps the rendezvous is gone",
        signs=(
            "RendezvousConnectionError",
            "RendezvousClosedError",
            rx(
                "DistNetworkError",
                r"DistNetworkError: (?:[Ff]ailed to recv, got 0 bytes|Broken pipe|Connection reset)",
            ),
            rx("has failed to", r"has failed to (?:shutdown|send a keep-alive)"),
            rx("got error: ", r"got error: .*(?:Connection (?:reset|closed|refused)|Broken pipe|failed to recv)"),
            rx("RuntimeError: ", r"^RuntimeError: (?:Broken pipe|Connection reset by peer)$"),  # messages of torch's store before release 2
            rx("failed on SocketImpl", r"recv(?:Value(?:WithTimeout)?|Vector) failed on"),
            "sendBytes failed on",
            rx('Failed to check the "should dump" flag', r"Failed to check the \"should dump\" flag on TCPStore"),
        ),
        alike=("RDZV-TIMEOUT", "DESYNC-EARLY-EXIT", "KILLED-UNKNOWN"),
    ),
    Signature(
        "GLOO-PEER",
        "cascade",
        "A peer of this rank is gone (gloo)",
        signs=(
            "Connection closed by peer",
            "Connection reset by peer",
            rx("gloo", r"gloo.*(?:Broken pipe|Socket closed|Connection refused)"),
        ),
        alike=("KILLED-UNKNOWN", "INIT-HANG-NET"),
    ),
    Signature(
        "FR-DUMP",
        "cascade",
        "The flight recorder was dumped because another rank timed out",
        signs=("Received a dump signal due to a collective timeout from", "flight recorder dump signal", "signal dumping"),
    ),
    Signature(
        "CHILD-FAILED",
        "cascade",
        "The launcher says that a child failed",
        signs=(
            "ChildFailedError",
            "ProcessRaisedException",
            "ProcessExitedException",
            rx("terminated with", r"\bprocess \d+ terminated with (?:signal SIG|exit code \d)"),
            "SignalException: Process",
            rx("CalledProcessError", r"CalledProcessError: Command .* (?:returned non-zero exit status|died with)"),
        ),
    ),
    Signature("PARENT-GONE", "cascade", "A process of multiprocessing lost the one that it talks to", alike=("KILLED-UNKNOWN", "CTRL-C")),
    Signature(
        "WORKER-RERAISED",
        "cascade",
        "An exception that was raised elsewhere, told again",
        signs=(
            rx("Caught ", r"Caught \w+ in (?:DataLoader worker process|replica|pin memory thread)"),
            "Process group watchdog thread terminated with exception",
            "Some NCCL operations have failed or timed out",
            "To avoid data inconsistency, we are taking the entire process down",
        ),
    ),
    # Harmless
    Signature(
        "TRITON-NFS",
        "benign",
        "Triton's cache on a network folder: slow at the end, and a race that harms nothing",
        signs=(
            "appears to be on an NFS system",
            "Error in atexit._run_exitfuncs",
            rx(".triton/autotune/", r"\.triton/autotune/\S+\.pickle\.tmp"),
        ),
    ),
    Signature(
        "OVERFLOW",
        "benign",
        "A step was skipped because fp16 overflowed",
        signs=(rx("OVERFLOW! Rank", r"OVERFLOW! Rank \d+ Skipping step"), "Grad overflow on iteration"),
    ),
    Signature(
        "OMP-NOTE", "benign", "One OpenMP thread per rank", signs=("Setting OMP_NUM_THREADS environment variable for each process to be 1",)
    ),
    Signature(
        "TOKENIZERS-FORK",
        "benign",
        "A notice of the tokenizers library",
        signs=("huggingface/tokenizers: The current process just got forked",),
    ),
    Signature("NOHOSTFILE-NOTE", "benign", "No hostfile: this machine alone", signs=("Unable to find hostfile",)),
    Signature(
        "Z3-TRACE",
        "benign",
        "ZeRO 3 relearns the order of modules",
        signs=("Invalidate trace cache @ step",),
        source="deepspeed/runtime/zero/partitioned_param_coordinator.py:trace_prologue",
    ),
    Signature(
        "PG-NOT-DESTROYED",
        "benign",
        "The process group was not destroyed at the end",
        signs=("process group has NOT been destroyed", "destroy_process_group() was not called"),
        source="deepspeed/launcher/runner.py:fetch_hostfile",
    ),
    Signature(
        "ADVICE",
        "benign",
        "Advice, not evidence",
        signs=(
            "CUDA_LAUNCH_BLOCKING=1",
            "Compile with `TORCH_USE_CUDA_DSA`",
            "For debugging consider passing",
            "Failed to import Triton kernels. Please make sure your triton version is compatible",  # vLLM does without them
        ),
    ),
)
