"""Signatures of missing GPUs and drivers, before the first line of the script."""

from __future__ import annotations

from dstui.diagnosis import patches
from dstui.diagnosis.signature import Remedy, Signature, rx

SIGNATURES = (
    Signature(
        "CVD-IGNORED",
        "hint",
        "CUDA_VISIBLE_DEVICES was ignored",
        "The launcher drops it where num_gpus, include or exclude choose the GPUs.",
        (rx("VISIBLE_DEVICES", r"Detected (?:\w*_)?VISIBLE_DEVICES=\S* but ignoring it because"),),
        ("Choose the GPUs in one place: cluster.include: localhost:2,3",),
        source="deepspeed/launcher/runner.py:main",
    ),
    Signature(
        "NO-GPU",
        "root",
        "There is no GPU that PyTorch can use",
        "No driver, a container without its GPUs, a CPU-only PyTorch, or an empty CUDA_VISIBLE_DEVICES.",
        (
            "Unable to proceed, no GPU resources available",
            "No CUDA GPUs are available",
            "Found no NVIDIA driver on your system",
            "found no CUDA devices",
            "Torch not compiled with CUDA enabled",
            "no CUDA-capable device is detected",
        ),
        (
            Remedy("Leave CUDA_VISIBLE_DEVICES as the host has it", patches.without("cluster.env.CUDA_VISIBLE_DEVICES")),
            "In a container: start it with docker run --gpus all. Elsewhere: a PyTorch wheel with CUDA",
        ),
        "nvidia-smi -L, and python -c 'import torch; print(torch.cuda.device_count())'",
        alike=("DRIVER-OLD", "FABRIC"),
        source="deepspeed/launcher/runner.py:main",
        explains=("NO-GPU-ASKED",),
    ),
    Signature(
        "NO-GPU-ASKED",
        "root",
        "The program asks for a GPU, and PyTorch has none here",
        "No driver, a container without its GPUs, a CPU-only PyTorch, an empty CUDA_VISIBLE_DEVICES; or the program was written for a GPU.",
        (
            "Failed to initialize NVML: Unknown Error",
            rx("NVIDIA-SMI has failed", r"NVIDIA-SMI has failed because it couldn't communicate"),
            rx("CUDA is not available", r"(?:Error|Exception): .*CUDA is not available"),
            "torch.cuda.is_available() is False",
            "No device of requested type available",  # SYCL's
            rx("No GPU found", r"No GPU found\. A GPU is needed"),
            rx("But your machine only has: []", r"^\s*But your machine only has: \[\]"),  # Lightning's
            "No supported gpu backend found",
            rx("could not select device driver", r"could not select device driver .*gpu"),
            rx("requires a GPU", r"(?:Error|Exception): .*\brequires a GPU\b"),
            rx("ou need a GPU", r"(?:Error|Exception): .*\b[Yy]ou need a GPU\b"),
            rx("find any", r"(?:Error|Exception): .*\b(?:cannot|can't|could not) find any (?:\w+ )?(?:accelerator|GPU)s?\b"),
            rx("can only be used on CUDA", r"can only be used on CUDA"),
            rx("no GPUs found", r"ProcessGroupNCCL is only supported with GPUs, no GPUs found"),
        ),
        (
            "In a container: start it with docker run --gpus all. Elsewhere: a PyTorch wheel with CUDA, and unset CUDA_VISIBLE_DEVICES",
            "Without a GPU: map_location, no fp16, --use_cpu",
        ),
        "nvidia-smi -L, and python -c 'import torch; print(torch.cuda.device_count())'",
        explains=("CONTAINER",),
        sure=False,
        alike=("DRIVER-OLD", "WSL-LIBCUDA"),
        answer="NO-GPU",
    ),
    Signature(
        "NEURON-DEVICE",
        "root",
        "A Neuron device (Trainium, Inferentia) could not be opened",
        "Another process holds it, the driver is not loaded, or the container was started without it.",
        (
            rx("Could not open the nd", r"TDRV:\w+\s+Could not open the nd\d"),
            rx("Failed to initialize devices", r"NRT:\w+\s+Failed to initialize devices"),
        ),
        (
            "End the process that holds it: neuron-ls shows the pid per device",
            "If neuron-ls finds no device: load the driver (sudo modprobe neuron), or give the container --device=/dev/neuron0 and so on",
        ),
        "neuron-ls, on that host and in the container.",
        alone=True,
        sure=False,
        alike=("GPU-BUSY",),
        answer="NO-GPU",
    ),
    Signature(
        "NO-GPU-QUIET",
        "quiet",
        "No GPU was found, so the CPU trained",
        "DeepSpeed warns and continues if it finds no accelerator.",
        (
            rx(
                "Setting accelerator to CPU",
                r"Setting accelerator to CPU\. If you have GPU or other accelerator, we were unable to detect it",
            ),
        ),
        (
            "In a container: start it with docker run --gpus all. Elsewhere: a PyTorch wheel with CUDA, and unset CUDA_VISIBLE_DEVICES",
            "If the CPU is meant: set DS_ACCELERATOR=cpu",
        ),
        "nvidia-smi -L, and python -c 'import torch; print(torch.cuda.device_count())'",
        answer="NO-GPU",
        source="deepspeed/accelerator/real_accelerator.py:get_accelerator",
    ),
    Signature(
        "INVALID-ORDINAL",
        "root",
        "A rank asks for a GPU that is not there",
        "There are more ranks on the host than visible GPUs, or an index exceeds CUDA_VISIBLE_DEVICES.",
        (
            "invalid device ordinal",
            "Invalid device id",
            rx("torch.cuda.device_count() is", r"on CUDA device \d+ but torch\.cuda\.device_count\(\) is"),
            rx("You requested ", r"You requested (?:gpu|GPUs): \["),
            "Set device failed, invalid device",  # Ascend's
            rx("Invalid CUDAPlace(", r"Invalid CUDAPlace\(\d+\), must inside"),  # PaddlePaddle's
        ),
        (
            Remedy("As many ranks as the host has GPUs", patches.without("cluster.num_gpus", "cluster.env.CUDA_VISIBLE_DEVICES")),
            "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        ),
        "python -c 'import torch; print(torch.cuda.device_count())' there.",
        explains=("NCCL-CUDA", "NPU-ERROR"),
        alike=("NCCL-DUP-GPU", "NO-GPU"),
    ),
    Signature(
        "DRIVER-OLD",
        "root",
        "The NVIDIA driver and PyTorch's CUDA are incompatible",
        "The driver is older than the CUDA of the wheel, was upgraded without a reboot, or the wheel has no kernels for this GPU.",
        (
            "The NVIDIA driver on your system is too old",
            "CUDA driver version is insufficient",
            "no kernel image is available for execution",
            "device kernel image is invalid",
            rx("Error 803", r"Error 803: system has unsupported display driver"),
            "forward compatibility was attempted on non supported HW",
            "Driver/library version mismatch",
            rx("is not compatible with the current PyTorch installation", r"CUDA capability sm_\d+ is not compatible"),
        ),
        ("Upgrade the driver and reboot, or install a PyTorch wheel for the driver's CUDA",),
        "nvidia-smi's CUDA version against torch.version.cuda; torch.cuda.get_arch_list()",
        alike=("NO-GPU", "FABRIC"),
    ),
    Signature(
        "TOOLCHAIN-AGE",
        "root",
        "The CUDA tools that compile a kernel and the driver, or the GPU, have incompatible versions",
        "A kernel was compiled for a newer CUDA than the driver or ptxas knows, or for a GPU that the compiler does not know.",
        (
            rx("--gpu-architecture", r"nvrtc: error: invalid value for --gpu-architecture"),
            rx("Unsupported .version", r"ptxas fatal\s*: Unsupported \.version"),
            "provided PTX was compiled with an unsupported toolchain",
        ),
        ("Upgrade the driver and reboot, or install a PyTorch wheel (and triton, and nvcc) of the driver's CUDA",),
        "nvidia-smi's CUDA version against torch.version.cuda and nvcc -V",
        sure=False,
        alike=("OP-BUILD", "CUDA-MISMATCH"),
        answer="DRIVER-OLD",
    ),
    Signature(
        "FABRIC",
        "root",
        "The NVSwitch fabric is not up",
        "GPUs joined by NVSwitch need nvidia-fabricmanager of the driver's own version.",
        ("system not yet initialized", "cudaErrorSystemNotReady", rx("Error 802", r"Error 802\b")),
        ("systemctl start nvidia-fabricmanager, in the driver's version",),
        "nvidia-smi -q | grep -A2 Fabric",
        alike=("DRIVER-OLD", "XID"),
    ),
)
