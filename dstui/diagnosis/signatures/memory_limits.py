"""Signatures of exhausted memory: of the GPU, of the host, and shared memory."""

from __future__ import annotations

from dstui.diagnosis import patches
from dstui.diagnosis.signature import Remedy, Signature, rx

SIGNATURES = (
    Signature(
        "OOM-GPU",
        "root",
        "A GPU ran out of memory",
        "Parameters, gradients, optimizer states and activations of one rank need more than its GPU has free.",
        (
            "CUDA out of memory",
            rx("OutOfMemoryError", r"(?<!ray\.exceptions)(?:cuda|torch|^|\W)\.?(?<!ray\.exceptions\.)(?<!in function ')OutOfMemoryError"),
            "hipErrorOutOfMemory",
            "CUDA error: out of memory",
            "HIP out of memory",
            rx("out of memory", r"(?:Error|Exception): (?:NPU|XPU|MPS backend|HPU) out of memory"),
            "CUBLAS_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_ALLOC_FAILED",
            rx("_ERROR_OUT_OF_", r"(?:UR|ZE|PI)_(?:RESULT_)?ERROR_OUT_OF_(?:RESOURCES|DEVICE_MEMORY)"),  # Intel's
            rx("GPU out of memory", r"(?:Error|Exception): .*\bGPU out of memory"),
            "CUDA driver error: out of memory",
            rx("Cuda failure", r"Cuda failure (?:\d+ )?'out of memory'"),  # NCCL
            "Triton Error [CUDA]: out of memory",
            "EL0004: ",  # Ascend's
            "[driver error:out of memory]",
            rx("Malloc device memory failed", r"Malloc device memory failed, size"),
            rx("PT_DEVMEM", r"PT_DEVMEM Allocation failed"),  # Gaudi's
            rx("evice", r"[Dd]evice ?(?:\(id:\d+\))? memory (?:isn't|is not) enough"),  # MindSpore's
        ),
        (
            Remedy("Halve the micro-batch and double the accumulation: the same batch, half the activations", patches.halve_micro_batch),
            Remedy("One ZeRO stage further: what is partitioned shrinks with the number of ranks", patches.next_stage),
            Remedy("Keep the optimizer's states in host memory", patches.offload_optimizer),
            "Recompute activations (gradient_checkpointing_enable() in the script), or shorten the sequences",
            "If much is reserved but little allocated: PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        "dstui forecast PLAN shows what a rank needs; nvidia-smi shows who else uses the GPU.",
        explains=("NCCL-CUDA", "NCCL-REMOTE", "NPU-ERROR", "ACCEL-ERROR"),
        alike=("GPU-BUSY",),
    ),
    Signature(
        "OOM-GPU-OTHER",
        "root",
        "A GPU ran out of memory",
        "TensorFlow, JAX or Theano asked for more than is left of what it took of the GPU.",
        (
            "Dst tensor is not initialized",  # TensorFlow's, of a copy to the GPU
            rx(
                "RESOURCE_EXHAUSTED",
                r"RESOURCE_EXHAUSTED: (?:.{0,60}Out of memory|Failed to allocate|Error (?:alloc|load)\w+.{0,80}Attempting to)",
            ),  # JAX's
            rx("OOM when allocating", r"OOM when allocating tensor"),  # TensorFlow's
            rx("ResourceExhaustedError", r"errors_impl\.ResourceExhaustedError"),
            rx("CUDA_ERROR_OUT_OF_MEMORY", r"(?:Error|ERROR|[Ee]xception)\b.*CUDA_ERROR_OUT_OF_MEMORY"),  # of the driver
            rx("of device memory", r"Error allocating \d+ bytes of device memory"),  # Theano's
        ),
        (
            "Halve the batch, or shorten the sequences",
            "TensorFlow and JAX take most of a GPU at their start: let only one of your processes use it, or switch that off "
            "(TF_FORCE_GPU_ALLOW_GROWTH=true, XLA_PYTHON_CLIENT_PREALLOCATE=false)",
        ),
        "nvidia-smi, just before it fails: who else uses the GPU.",
        explains=("NCCL-CUDA", "NCCL-REMOTE", "ACCEL-ERROR"),
        alike=("GPU-BUSY",),
        answer="OOM-GPU",
    ),
    Signature(
        "CUDA-START",
        "root",
        "A library of CUDA (cuBLAS, cuDNN) could not start on a GPU",
        "Most often no memory was left on the GPU for its workspace; an earlier failure of a kernel on the same GPU looks the same.",
        (
            rx("_STATUS_NOT_INITIALIZED", r"CU(?:BLAS|DNN)_STATUS_NOT_INITIALIZED"),
            "Unable to find a valid cuDNN algorithm",
            rx("unable to find an engine to execute", r"(?:FIND|GET) was unable to find an engine to execute this computation"),
        ),
        (
            Remedy("Halve the micro-batch and double the accumulation: the same batch, half the activations", patches.halve_micro_batch),
            "CUDA_LAUNCH_BLOCKING=1: if another line fails then, an index was out of range before",
        ),
        "nvidia-smi, just before it fails.",
        sure=False,
        alike=("CUDA-ASSERT", "GPU-BUSY"),
        answer="OOM-GPU",
    ),
    Signature(
        "VLLM-MEMORY",
        "root",
        "vLLM found too little GPU memory for its cache",
        "It takes gpu_memory_utilization of the whole GPU for weights and cache; if it shares the GPU with training, less is free.",
        (
            "No available memory for the cache blocks",
            rx("less than desired GPU memory utilization", r"Free memory on device .*less than desired GPU memory utilization"),
            rx("KV cache", r"larger than the (?:maximum number of tokens that can be stored in|available) KV cache"),
        ),
        (
            "A smaller gpu_memory_utilization if training shares the GPU, a larger one if vLLM has it alone; max_model_len",
            "vLLM on separate GPUs (server mode)",
        ),
        "nvidia-smi at that moment: who holds what.",
        sure=False,
        alike=("GPU-BUSY",),
        answer="OOM-GPU",
    ),
    Signature(
        "GPU-BUSY",
        "root",
        "Another process uses the GPU",
        "Another process holds the GPU's memory, or the GPU is in exclusive mode and taken: often a rank that an earlier run left behind.",
        (
            rx("busy or unavailable", r"CUDA-capable device(?:s are|\(s\) is/are) busy or unavailable"),
            # A rank's own context on a neighbour's GPU takes half a gigabyte; more is another program. If no process is called "this" one,
            # since a container knows it by another number, it is the one that holds what PyTorch has allocated.
            rx(
                "memory in use",
                r"^(?=.*this process has|(?:.*Process \d+ has (?:[89]|\d{2,3})\.\d+ GiB memory in use){2}"
                r"|.*Process \d+ has.*Process \d+ has.*allocated memory (?:[0-7]\.\d+ GiB|[\d.]+ [KM]iB) is)"
                r".*Process \d+ has (?:[89]|\d{2,3})\.\d+ GiB memory in use",
            ),
            # Out of memory although this process holds almost nothing of a GPU with many GiB.
            rx(
                "is free",
                r"capacity of [\d.]+ GiB of which [\d.]+ (?:bytes|KiB|MiB) is free.*this process has (?:0 bytes|[\d.]+ (?:KiB|MiB))",
            ),
            rx("already allocated", r"GiB total capacity; [\d.]+ (?:bytes|KiB|MiB) already allocated; [\d.]+ (?:bytes|KiB|MiB) free"),
            "Error in memory profiling. Initial free memory",  # vLLM's: memory of the GPU was freed while it measured
            "EJ0001: Failed to initialize the HCCP process",  # Ascend's
            "free memory size is less than half of total memory size",
        ),
        ("End the processes that hold the GPU (nvidia-smi lists them), or choose other GPUs with cluster.include",),
        "nvidia-smi --query-compute-apps=pid,used_memory --format=csv, on that host.",
        explains=("OOM-GPU", "NPU-ERROR"),
        sure=False,  # the other process may be a rank of the same run, on the wrong GPU
        alike=("OOM-GPU",),
    ),
    Signature(
        "QUANT-SPILL",
        "root",
        "The quantized model does not fit on the GPU, and cannot be partly in host memory",
        "device_map found too little free GPU memory and put modules on the CPU or the disk, which 8-bit and 4-bit weights refuse.",
        (rx("dispatched on the CPU or the disk", r"dispatched on the CPU or the disk\..*enough GPU RAM"),),
        (
            "device_map={'': local rank}: each rank holds the whole quantized model on its own GPU",
            "A smaller type (nf4 instead of int8), or a GPU that no other process uses",
        ),
        "nvidia-smi --query-gpu=memory.free --format=csv, before the start.",
        alike=("OOM-GPU", "DEVICE-MAP-Z3"),
    ),
    Signature(
        "OOM-HOST",
        "root",
        "The host ran out of memory, and the kernel killed a process",
        "Each rank loads the whole checkpoint, optimizer states are offloaded, or pinned copies and data-loader workers add up to more "
        "than the host, the container or the SLURM job may use.",
        (
            rx("oom", r"[Dd]etected \d+ oom[_-]kill event"),
            rx("oom", r"oom-kill:|oom_kill (?:event|[1-9])|oom_reaper"),
            rx("Out Of Memory", r": Out Of Memory$"),
            rx("Killed process", r"(?:Out of memory|Memory cgroup out of memory).*Killed process \d+|Killed process \d+ \("),
            rx("OOMKilled", r"OOMKilled(?!\W{0,4}(?i:false)\b)"),  # Kubernetes' and docker's
            rx("low on resource: memory", r"node was low on resource: memory"),
            rx("running low on memory", r"killed due to the node running low on memory"),
            rx("killed due to memory pressure", r"killed due to memory pressure \(OOM\)"),
            rx("available RAM", r"crashed after using all available RAM"),
            rx("OUT_OF_MEMORY", r"(?<!\w)OUT_OF_MEMORY(?!\w)"),  # SLURM's state, not CUDA_ERROR_OUT_OF_MEMORY
        ),
        (
            Remedy("Offload to ordinary instead of pinned memory", patches.unpin),
            Remedy("Ask the scheduler for all memory of each node", patches.all_memory),
            "Load the model once, not once per rank: low_cpu_mem_usage, HfDeepSpeedConfig before from_pretrained, fewer ranks per host",
            "Give the job more memory: #SBATCH --mem=0, #BSUB -R rusage[mem=…], #PBS -l mem=…, resources.limits.memory of the pod",
        ),
        "dmesg | grep -i oom, and grep oom_kill /sys/fs/cgroup/memory.events, on the host that failed.",
        explains=("KILLED-UNKNOWN", "DL-WORKER", "SIGABRT"),
        alone=True,
    ),
    Signature(
        "JOB-MEMORY",
        "root",
        "The job used more memory than it had asked for, and the scheduler ended it",
        "Its request is smaller than what the ranks, their data loaders and the offloaded states need; the host itself may have more.",
        (
            "TERM_MEMLIMIT",
            rx("memory limit", r"slurmstepd(?:-[\w.-]+)?: error: .*[Ee]xceeded (?:(?:job|step) )?memory limit"),
            rx("exceeded limit", r"PBS: job killed: \w*mem \w+ exceeded limit"),
        ),
        (
            Remedy("Ask the scheduler for all memory of each node", patches.all_memory),
            "Ask for more: #BSUB -R rusage[mem=…] and -M, #PBS -l mem=…, #SBATCH --mem=…; the report of the job says how much it used",
            "Load the model once, not once per rank: low_cpu_mem_usage, HfDeepSpeedConfig before from_pretrained, fewer ranks per host",
        ),
        "bjobs -l JOB, qstat -fx JOB or sacct -j JOB --format=ReqMem,MaxRSS: what was asked for and what was used.",
        explains=("OOM-HOST", "KILLED-UNKNOWN", "DL-WORKER", "SIGABRT"),
        alone=True,
        answer="OOM-HOST",
    ),
    Signature(
        "MEMORY-LIMIT",
        "root",
        "A limit on the memory of each process (ulimit) refused an allocation",
        "The ranks inherit the limits of the shell or the batch system that they are started from. The kernel killed nothing: "
        "the process requested more than its limit and was refused.",
        remedies=(
            "Raise it where the job is started from: ulimit -v unlimited (and ulimit -d unlimited), or ask the batch system for more",
            Remedy("Offload to ordinary instead of pinned memory", patches.unpin),
            "Fewer data-loader workers, smaller buckets: less is asked for",
        ),
        confirm="ulimit -a, in the environment of the ranks.",
        explains=("ALLOC-REFUSED", "DL-WORKER", "SIGABRT"),
        alone=True,
        alike=("ALLOC-REFUSED",),
    ),
    Signature(
        "ALLOC-REFUSED",
        "root",
        "An allocation of host memory was refused",
        "One allocation is larger than what the host can give, a limit of the process (ulimit -v) is in the way, or the kernel promises "
        "no more than it has (vm.overcommit_memory is 2). The kernel killed nothing.",
        (
            rx("DefaultCPUAllocator", r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)"),
            rx("Cannot allocate memory", r"Cannot allocate memory"),
            rx("Insufficient memory", r"error: \(-4:Insufficient memory\)"),  # OpenCV's
            rx("[WinError ", r"\[WinError (?:8|14|1455)\]"),
            rx("MemoryError", r"^(?:[\w.]*\.)?_?(?:Array|Arrow)?MemoryError\b(?!.*\bdevice memory)"),
        ),
        (
            Remedy("Offload to ordinary instead of pinned memory", patches.unpin),
            Remedy("Ranks on CPUs: halve the micro-batch and double the accumulation", patches.halve_micro_batch),
            "Compare the size in the message with the memory of the host: a number too large is a mistake of the script or its data",
            "ulimit -v unlimited, where the job is started from",
        ),
        "ulimit -v in the environment of the ranks, free -g and sysctl vm.overcommit_memory on the host.",
        explains=("DL-WORKER", "SIGABRT"),
        alike=("MEMORY-LIMIT", "OOM-HOST"),
    ),
    Signature(
        "SIGBUS-SHM",
        "root",
        "A process died of a bus error, most often a sign that shared memory (/dev/shm) is full",
        "NCCL and data-loader workers put their buffers into /dev/shm, and a container gets 64 MB of it by default; "
        "a mapped file on a full or broken disk does the same.",
        (
            rx("us error", r"(?:^|\W)[Bb]us error"),
            "insufficient shared memory (shm)",
            "out of shared memory",
            rx("shared memory", r"unable to (?:open|write to|allocate) .*shared memory"),
            rx("unable to mmap", r"unable to mmap \d+ bytes from file </torch_"),
            rx("/torch_", r"unable to (?:open|write to|map).*</torch_\w+"),
            rx("/dev/shm/", r"No space left on device: '/dev/shm/"),
        ),
        (
            "docker run --shm-size=16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory at /dev/shm",
            "Fewer data-loader workers (num_workers)",
            "Look for what fills it: ls -l /dev/shm, and the disk of mapped checkpoints",
        ),
        "df /dev/shm on the host, while a run is active.",
        explains=("DL-WORKER", "CKPT-DISK", "NCCL-SYSTEM", "KILLED-UNKNOWN", "SIGABRT"),
        alike=("CKPT-DISK", "OOM-HOST"),
    ),
    Signature(
        "PINNED-MEM",
        "root",
        "Pinned host memory could not be allocated",
        "The limit on locked memory, WSL or the container leaves no room for pinned offload buffers.",
        (
            "cudaHostAlloc",
            "failed to pin",
            "allocate_host_memory",  # torch_npu's
            "aclrtMallocHost",
            rx("pin_memory", r"CUDA error: (?:out of memory|invalid argument).*pin_memory"),
        ),
        (Remedy("Offload to ordinary memory", patches.unpin), "ulimit -l unlimited for the ranks"),
        "ulimit -l, in the environment of the ranks.",
        explains=("OOM-GPU",),
        alike=("ALLOC-REFUSED", "OOM-GPU"),
    ),
    Signature(
        "DL-WORKER",
        "root",
        "A data-loader worker was killed",
        "Workers are separate processes: they die of full shared memory or of too little host memory.",
        (
            rx("encountered in worker", r"Unexpected (?:segmentation fault|bus error|floating-point exception) encountered in worker"),
            rx("DataLoader worker", r"DataLoader worker \(pid(?:\(s\))?[^)]*\) (?:is killed by signal|exited unexpectedly)"),
            rx("Pin memory thread", r"Pin memory thread exited unexpectedly"),
            rx("DataLoader timed out", r"DataLoader timed out after \d+ seconds"),
        ),
        ("Fewer workers (num_workers), smaller prefetch; num_workers=0 shows the error itself",),
        "dmesg | grep -i oom (memory), and df /dev/shm (shared memory), on the host that failed.",
        explains=("SIGABRT",),
        sure=False,
        alike=("OOM-HOST", "SIGBUS-SHM"),
        source="torch/utils/data/dataloader.py:_try_get_data",
    ),
    Signature(
        "TOO-MANY-FILES",
        "root",
        "Too many open files",
        "Each tensor that a worker sends costs a file descriptor, and the limit is low.",
        ("Too many open files", "received 0 items of ancdata"),
        (
            Remedy("Raise it in the job's script (SLURM)", patches.job_script_line("ulimit -n 65536")),
            "ulimit -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system')",
        ),
        "ulimit -n, in the environment of the ranks.",
        alike=("SIGBUS-SHM",),
        source="torch/utils/data/dataloader.py:_try_get_data",
    ),
    Signature(
        "TOO-MANY-PROCESSES",
        "root",
        "No further thread or process could be started",
        "The limit on the processes of a user (ulimit -u) or of the container (pids) is reached: each rank has workers and threads.",
        (
            rx("can't start new thread", r"RuntimeError: can't start new thread"),
            rx(
                "Resource temporarily unavailable",
                r"(?:BlockingIOError: |pthread_create|fork|Thread creation).*Resource temporarily unavailable",
            ),
        ),
        (
            Remedy("One OpenMP thread per rank", patches.environment("OMP_NUM_THREADS", "1")),
            "Fewer data-loader workers",
            Remedy("Raise it in the job's script (SLURM)", patches.job_script_line("ulimit -u unlimited")),
            "ulimit -u unlimited; docker run --pids-limit=-1",
        ),
        "ulimit -u, in the environment of the ranks, against ps -eLf | wc -l.",
        sure=False,
        alike=("ALLOC-REFUSED", "TOO-MANY-FILES"),
    ),
    Signature(
        "SHM-LEAK",
        "quiet",
        "DeepSpeed's buffers of earlier runs are still in /dev/shm",
        "Its all-reduce on CPUs leaves deepspeed_allreduce_buffer_* behind, which take memory until they are removed.",
        (rx("deepspeed_allreduce_buffer_", r"deepspeed_allreduce_buffer_\d+_\S+_\d+_\d+"),),
        ("Remove those that no process maps: rm /dev/shm/deepspeed_allreduce_buffer_*",),
        confirm="ls -l /dev/shm on the host that failed.",
    ),
)
