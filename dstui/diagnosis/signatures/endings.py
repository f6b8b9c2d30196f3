"""Signatures of process ends: signals, exit statuses, and stops by users and schedulers."""

from __future__ import annotations

from dstui.diagnosis import patches
from dstui.diagnosis.signature import Remedy, Signature, rx

NO_END = r"\b(?:not|but|if|when|before|until|once|epochs?|steps?|init\w*)\b"
"""Words beside the word for an end that give it another meaning."""

SIGNATURES = (
    # Ends that an exit status reports; most have no text of their own
    Signature(
        "KILLED-UNKNOWN",
        "root",
        "A rank was killed (SIGKILL), and nothing shows by whom",
        "The kernel does it when memory runs out, without a message in the log; so can a person or a scheduler.",
        (
            rx("Killed", r"^(?:.*: line \d+: +\d+ )?Killed(?=\W*$| {2,}|: \d| python)"),
            rx("illed", r"^(?:zsh: killed\b|\[\d+\]\s*[+-]?\s+(?:\d+ )?[Kk]illed\s)"),
            rx("Killed", r"(?:(?:it/s|s/it)[^]\[]{0,300}\] *|\d)Killed$"),
            rx("Killed", r"^make: \*\*\* \[.*\] Killed"),
        ),
        (
            "Look for the kernel's messages: dmesg | grep -i oom, or oom_kill in the cgroup's memory.events",
            Remedy("Ask the scheduler for all memory of each node", patches.all_memory),
        ),
        "dmesg | grep -i oom, and grep oom_kill /sys/fs/cgroup/memory.events, on the host that failed.",
        alone=True,
        sure=False,
        alike=("OOM-HOST", "SLURM-CANCEL"),
    ),
    Signature(
        "KILLED-NOT-OOM",
        "root",
        "A rank was killed (SIGKILL), and nothing shows by whom",
        "A person, the scheduler or a watchdog did it, or the script itself.",
        remedies=("Look into the log of the scheduler or watchdog at that time, and for os.kill in the script",),
        confirm="sacct -j JOB --format=State,ExitCode,End, or journalctl of that minute, on the host that failed.",
        answer="KILLED-UNKNOWN",
    ),
    Signature(
        "HOST-LOST",
        "root",
        "A host could no longer be reached, and the job was given up",
        "It went down, was removed, or its network is cut: the other ranks silently waited for its ranks.",
        remedies=(
            "ping the host, and look at its console: start it again, or take it out of cluster.hosts",
            "dstui stop RUN, once it answers again: processes of the job may still be running there",
            Remedy("Wait forever, where the network is cut for long and the training continues", patches.setting("run.host_lost", 0)),
        ),
        confirm="dstui doctor PLAN: whether the host answers now.",
        alone=True,
    ),
    Signature(
        "KERNEL-GONE",
        "root",
        "The notebook's kernel is gone, and nothing says why",
        "It was killed, mostly for memory, or crashed in native code.",
        (
            rx("DeadKernelError", r"DeadKernelError: Kernel died"),
            rx("ernel", r"^The [Kk]ernel (?:crashed while executing code|appears to have died)"),
        ),
        ("Run the notebook as a script (jupyter nbconvert --to script): its end then has a status and a log",),
        "oom_kill in the cgroup's memory.events, or dmesg | grep -i oom.",
        alone=True,
        sure=False,
        alike=("OOM-HOST", "SIGSEGV"),
        answer="KILLED-UNKNOWN",
    ),
    Signature(
        "RAY-WORKER",
        "root",
        "A Ray worker died without a reason",
        "Its process is gone: killed for memory, by a person or a scheduler, or crashed in native code. Its own log may know more.",
        (
            rx("ActorDiedError", r"(?:ray\.exceptions\.)?ActorDiedError"),
            rx("WorkerCrashedError", r"(?:ray\.exceptions\.)?WorkerCrashedError"),
            rx("RayActorError", r"ray\.exceptions\.RayActorError: The actor died"),
        ),
        ("Look into the worker's own log (/tmp/ray/session_latest/logs), and for messages of the kernel: dmesg | grep -i oom",),
        "ray list workers --detail: how it ended.",
        sure=False,
        alike=("OOM-HOST", "SIGSEGV"),
        answer="KILLED-UNKNOWN",
    ),
    Signature(
        "VLLM-WORKER",
        "root",
        "A vLLM worker died without a message",
        "Its process is gone: killed for memory, by a person or a scheduler, or crashed in native code. vLLM interrupts the program then.",
        (rx("died unexpectedly, shutting down", r"Worker proc \S+ died unexpectedly, shutting down executor"),),
        ("VLLM_LOGGING_LEVEL=DEBUG, and the worker's own lines above; look for the kernel's messages: dmesg | grep -i oom",),
        "dmesg -T | grep -iE 'out of memory|killed process|segfault'",
        explains=("CTRL-C",),
        sure=False,
        alone=True,
        alike=("OOM-HOST", "SIGSEGV"),
        answer="KILLED-UNKNOWN",
    ),
    Signature(
        "SIGSEGV",
        "root",
        "A rank crashed in native code (segmentation fault)",
        "Incompatible libraries, an op built for another machine, a broken plug-in of NCCL.",
        (
            rx("Segmentation fault", r"Segmentation fault(?! (?!in\b|at\b|is\b|was\b|encountered|detected|occurred|received)[a-z])"),
            rx("segmentation fault", r"segmentation fault +\(core dumped\)|^\[\d+\].*segmentation fault"),
            "Segfault encountered",
            rx("died with signal 11", r"\bdied with signal 11\b"),  # Perl's
        ),
        (
            Remedy("Let Python print its stack at the next one", patches.environment("PYTHONFAULTHANDLER", "1")),
            "Look for two versions of a CUDA library: ldd, LD_LIBRARY_PATH",
        ),
        "grep -n -A20 'Fatal Python error' LOG, of that rank after a run with PYTHONFAULTHANDLER=1.",
        explains=("SIGABRT",),
        alone=True,
        alike=("OP-ABI", "CUDA-ILLEGAL"),
    ),
    Signature(
        "SIGILL",
        "root",
        "A rank ran an instruction that this CPU does not have",
        "A compiled op or package was built on another host, for a newer CPU (AVX-512): a cache of extensions that hosts share does it.",
        (rx("llegal instruction", r"(?:^|\s)[Ii]llegal instruction(?! was encountered)"),),
        ("rm -rf ~/.cache/torch_extensions, and a separate folder per kind of host (TORCH_EXTENSIONS_DIR)",),
        "lscpu of the host that failed, against that of the one that built it.",
        sure=False,
        alike=("SIGSEGV",),
        answer="OP-ABI",
        alone=True,
    ),
    Signature(
        "SIGABRT",
        "root",
        "Native code aborted",
        "A check in C++ failed: the line `what():`, or the one before the abort, says which.",
        (
            "Fatal Python error: Aborted",
            rx("terminate called", r"terminate called (?:after throwing|without an active)"),
            rx("what():", r"^\s*what\(\):\s"),
            rx("Aborted", r"Aborted +\(core dumped\)|^Aborted$"),
            rx("loating point exception", r"^(?:.*\d )?[Ff]loating point exception\b"),
            "*** Check failure stack trace: ***",  # glog's
            rx("Check failed: ", r"^F\d{4} [\d:.]+ +\d+ \S+:\d+\] Check failed: |: F \S+:\d+\] Check failed: "),
            rx("stack smashing detected", r"\*\*\* stack smashing detected \*\*\*"),
            rx("(): ", r"^(?:free|malloc|realloc|munmap_chunk)\(\): (?:invalid|corrupted|unaligned)"),
            rx("corrupt", r"^(?:double free or corruption|corrupted (?:size vs\. prev_size|double-linked list)|malloc_consolidate)"),
        ),
        (
            "Read the lines before it: `what():` names the reason",
            Remedy("Let Python print its stack at the next one", patches.environment("PYTHONFAULTHANDLER", "1")),
        ),
        "grep -n 'what():' LOG, of that rank: the reason.",
        alone=True,
        sure=False,
        alike=("NCCL-WATCHDOG", "CUDA-ILLEGAL", "ALLOC-REFUSED"),
    ),
    Signature(
        "EARLY-EXIT",
        "root",
        "A rank left early while others continued",
        "The script called sys.exit, or reached its end, on that rank only.",
        (),
        ("Look for sys.exit and for conditions on the rank in the script",),
        "dstui logs --rank N, or tail -n 50 of that rank's log.",
        sure=False,
        alike=("DESYNC-EARLY-EXIT", "KILLED-UNKNOWN"),
        source="deepspeed/launcher/launch.py:sigkill_handler",
    ),
    Signature(
        "USER-PY",
        "root",
        "The program raised an exception",
        "An error in the script, its arguments or its data.",
        remedies=("Look at the last frame of the traceback that is the script's own, and at what the message names",),
        confirm="That line of the script, run by itself with the same values, fails in the same way.",
    ),
    Signature(
        "LIBTORCH-CHECK",
        "root",
        "A check inside PyTorch failed (INTERNAL ASSERT)",
        "PyTorch reached a state that it considers impossible: a bug in PyTorch, or a consequence of an earlier error.",
        (rx("INTERNAL ASSERT FAILED", r"INTERNAL ASSERT FAILED at "),),
        ("Search for the file and line of the message among PyTorch's issues; try another release, or without what the message names",),
        "The same run with another release of PyTorch.",
        sure=False,
        alike=("IMPORT-VERSION", "CUDA-ILLEGAL"),
        answer="USER-PY",
    ),
    Signature(
        "ZOMBIE",
        "quiet",
        "The launcher died and its ranks trained on",
        "Nobody watches them: they hold GPUs, memory and the port until they end.",
        (),
        ("End them by id; dstui stop finds what belongs to a job",),
        "ps shows the node's launcher with the parent 1.",
    ),
    Signature("SUCCESS", "success", "The run ended well"),
    Signature(
        "LAST-WORDS",
        "success",
        "The program says that it came to its end",
        signs=(
            rx("train_runtime", r"^\W*train_runtime'?\s*[:=]"),
            "Training completed. Do not forget to share your model",
            "Reporting training SUCCESS",  # SageMaker
            "] worker group successfully finished.",  # torchrun
            *(
                rx(words, rf"^(?!.*(?i:{NO_END}))\W*(?:[\w,.:'-]+ {{1,8}}){{0,4}}\w*{words}\b.{{0,60}}$")
                for words in (
                    "raining complete",
                    "raining completed",
                    "raining Complete",
                    "raining Completed",
                    "RAINING COMPLETE",
                    "raining finished",
                    "raining done",
                    "raining is done",
                    "raining is finished",
                    "raining is complete",
                    "raining ended",
                )
            ),
            *(
                rx(words, rf"^(?!.*(?i:{NO_END}))\W*(?:[\w,.:'-]+ {{1,8}}){{0,4}}\w*{words}\W*$")
                for words in ("inished training", "ompleted training", "ompleted successfully", "inished successfully")
            ),
        ),
    ),
    Signature(
        "LAST-WORD",
        "success",
        "The last word of the program is that something is done",
        signs=(
            rx("exits successfully", r"Process \d+ exits successfully"),
            rx("ll done", r"^\W*[Aa]ll done\W*$"),
            *(rx(word, rf"^\W*{word}\W*$") for word in ("Done", "DONE", "Finished", "FINISHED")),
        ),
    ),
    Signature("BENIGN-NOISE", "success", "The run ended well; what it printed at its exit is harmless"),
    # Stops
    Signature(
        "SLURM-TIME",
        "stop",
        "The scheduler ended the job at its time limit",
        "The requested time of the job was over.",
        (
            "DUE TO TIME LIMIT",
            "TERM_RUNLIMIT",
            rx("Caught signal ", r"submitit.{0,99}Caught signal \w{1,20}.{0,99}this job is timed-out"),
            rx("maximum execution time", r"has exceeded the maximum execution time of \d+"),  # GitHub's runners
            rx("walltime", r"job killed: walltime \d+ exceeded limit"),
            rx("MaxRuntimeExceeded", r"^(?:[\d :-]+)?MaxRuntimeExceeded - "),  # SageMaker's
            rx("MaxWaitTimeExceeded", r"^(?:[\d :-]+)?MaxWaitTimeExceeded - "),
            rx("DeadlineExceeded", r"(?:[Rr]eason:?\s+|reason=)\"?DeadlineExceeded"),
        ),
        (
            "Save a checkpoint in time (#SBATCH --signal=B:USR1@600, bsub -wt 10), and resume in the next job",
            Remedy("Ask for twice the time", patches.longer_time),
        ),
        "sacct -j JOB --format=State,Timelimit,Elapsed (LSF: bjobs -l JOB; PBS: qstat -fx JOB)",
        alone=True,
    ),
    Signature(
        "USER-SIGNAL",
        "stop",
        "The scheduler ended the job by a signal that it sends before a limit (SIGUSR1 or SIGUSR2)",
        "LSF sends SIGUSR2 at the time limit, SGE before it suspends or kills, SLURM where --signal asks for it. A program that does "
        "not handle it ends.",
        (rx("User defined signal ", r"^(?:.*: line \d+: +\d+ )?User defined signal [12]\b"),),
        (
            "The last lines of the job's output name the limit, if the scheduler wrote them into another file",
            "Save a checkpoint in time, and resume in the next job",
            Remedy("Ask for twice the time", patches.longer_time),
        ),
        "bjobs -l JOB (qacct -j JOB, sacct -j JOB): the limit, and how long the job ran.",
        alone=True,
        sure=False,
        alike=("SLURM-CANCEL",),
        answer="SLURM-TIME",
    ),
    Signature(
        "SLURM-PREEMPT",
        "stop",
        "The scheduler took the nodes away",
        "A job of higher priority came, a spot instance was reclaimed, or a node failed.",
        (
            rx("DUE TO", r"DUE TO (?:PREEMPTION|NODE FAILURE)"),
            rx("Preempted to accommodate", r"Preempted to accommodate a workload \(UID: "),  # Kueue
            rx("Interrupted - ", r"^[\d :-]+Interrupted - (?:Training|Processing) job interrupted"),  # SageMaker's, for spot instances
            "Node failure on",
            rx("Caught signal ", r"submitit.{0,99}Caught signal \w{1,20}.{0,99}this job is preempted"),
        ),
        (Remedy("Let SLURM start it again (--requeue)", patches.requeue),),
        "sacct -j JOB --format=State,Restarts,End",
        alone=True,
    ),
    Signature(
        "SLURM-CANCEL",
        "stop",
        "The job was cancelled",
        "By its owner or an administrator (scancel, bkill, qdel), or by srun after one task failed.",
        (
            "TERM_OWNER",
            rx("CANCELLED AT", r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT (?!.*DUE TO (?:TIME|PREEMPTION|NODE))"),
            rx("PBS: job killed: ", r"PBS: job killed: (?:deleted|killed) by"),
        ),
        ("Start it again if it was not meant: dstui checkpoint PATH says from which step it can resume",),
        alone=True,
        confirm="sacct -j JOB --format=State,ExitCode,End (LSF: bhist -l JOB; PBS: qstat -fx JOB): who ended it.",
    ),
    Signature(
        "SIGHUP",
        "stop",
        "The terminal or the ssh connection was closed, and that ended the job (SIGHUP)",
        "torchrun handles SIGHUP itself, so that even nohup does not help.",
        (
            rx("got signal: 1", r"got signal: 1\b"),
            rx("death signal", r"Received (?:1|(?:Signals\.)?SIGHUP) death signal"),
            "closing signal SIGHUP",
            rx("Hangup", r"^(?:.*: line \d+: +\d+ )?Hangup\b"),
        ),
        ("dstui --headless --detach, or a launch from dstui's screens, continues without the terminal",),
        alone=True,
        confirm="last -F on the host that launched: the session that ended when the run did.",
    ),
    Signature(
        "CTRL-C",
        "stop",
        "Somebody stopped the run (SIGINT or SIGTERM)",
        "Ctrl-C, kill, or a scheduler.",
        (
            rx("Main process received SIG", r"Main process received SIG(?:INT|TERM), exiting"),
            rx(
                "KeyboardInterrupt", r"^(?!.*(?i:\b(?:press|hit|use|type|send)\b)).*(?<!except )(?<!except \()(?<!raise )KeyboardInterrupt"
            ),  # not the source line in a traceback
            "`Termination signal` is detected by the operating system",  # PaddlePaddle
            "free variable 'kill_cmd' referenced before assignment",
            "cannot access free variable 'kill_cmd'",
            rx("got signal: ", r"got signal: (?:2|15)\b"),
            rx("death signal", r"Received (?:2|15|(?:Signals\.)?SIG(?:INT|TERM)) death signal"),
            "closing signal SIGINT",
            rx(
                "erminated",
                r"^(?:.*: line \d+: +\d+ Terminated\b|\[\d+\]\s*[+-]?\s+(?:\d+ )?[Tt]erminated\s|zsh: terminated\b|Terminated$)",
            ),
            rx("^C", r"^(?:\^C)+$"),
            rx("nterrupted by", r"^(?!.*(?i:\b(?:if|when|can|be|not|resume\w*)\b)).{0,80}\b[Ii]nterrupted by (?:the )?user\W*$"),
            rx("ser interrupted", r"^\W*[Uu]ser interrupted (?:the )?(?:training|run)\b"),
            rx("Stopped - ", r"^[\d :-]+Stopped - (?:Training|Processing) job stopped"),  # SageMaker's
            rx(
                "interrupted, ",
                r"(?:Training|Experiment|Tune run|trial/tune run) (?:has been|was) interrupted, (?:but|and) the most recent",
            ),  # Ray's
            rx("ending Ray Tune run", r"(?:SIGINT|SIGUSR1|Stop signal) received.*ending Ray Tune run"),
            rx("The operation was cancel", r"The operation was cancell?ed\.?$"),
            rx("with signal ", r"^LAUNCH INFO .*(?:Terminating|Exit) with signal (?:2|15)\b"),  # PaddlePaddle's
            rx("srun: interrupt", r"^srun: (?:interrupt|sending Ctrl-C)"),
            rx("received abort signal", r"^\[neptune\] \[error\s*\] Run \S+ received abort signal"),  # from the page of the tracker
        ),
        remedies=("Start it again if it was not meant: dstui checkpoint PATH says from which step it can resume",),
        confirm="last -F on the host that launched: who was logged in when the run ended.",
        alone=True,
        alike=("SLURM-CANCEL", "SIGHUP"),
        source="deepspeed/launcher/launch.py:sigkill_handler",
    ),
    Signature(
        "AZURE-LOG",
        "hint",
        "Azure ML keeps the program's own output in another file, and that says why",
        signs=(rx("user_logs/std_log", r"(?:exited with status code \d|exit_code=\d).*user_logs/std_log"),),
        confirm="dstui diagnose user_logs/std_log.txt (az ml job download --name JOB --all).",
    ),
    Signature(
        "SIGTERM-HEARD",
        "hint",
        "The program says that it was asked to end (SIGINT or SIGTERM)",
        signs=(
            rx("eceived SIGTERM", r"[Rr]eceived SIGTERM\b"),
            rx(
                "nterrupt",
                r"^\W*[Ii]nterrupt(?:ed)?(?: received| detected| caught)?[!.,:]\W{0,4}(?i:sav|exit|stop|shut|clean|termin|quit)\w+",
            ),
            rx("aught signal", r"[Cc]aught signal (?:15|2|SIGTERM|SIGINT)\b"),
            "srun: forcing job termination",
            rx("[shutdown] API server", r"\[shutdown\] API server: (?:engine client stopped|signalling HTTP server shutdown)"),  # vLLM
        ),
    ),
)
