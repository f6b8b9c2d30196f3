"""Signatures of the runtimes of other accelerators than NVIDIA's: Ascend, Gaudi, ROCm, XPU."""

from __future__ import annotations

from dstui.diagnosis import patches
from dstui.diagnosis.signature import Remedy, Signature, rx

SIGNATURES = (
    Signature(
        "NPU-LINK",
        "root",
        "Ascend ranks could not connect to each other",
        "A rank did not start, or did not get as far, another device is faulty, or a firewall is between the hosts.",
        (
            "EI0006: ",
            "Getting socket times out",
            rx("HCCL(", r"^\[ERROR\] HCCL\(.*(?:[Tt]ime ?out|TIMEOUT|cqe error status)"),
        ),
        (
            "Check the ranks without this message: they did not start, or failed first",
            Remedy("Wait longer for the other ranks: half an hour", patches.environment("HCCL_CONNECT_TIMEOUT", "1800")),
        ),
        "hccn_tool -i 0 -link -g on each host: whether the device's link is up.",
        explains=("NPU-ERROR",),
        alone=True,
        sure=False,
        alike=("INIT-HANG-NET", "KILLED-UNKNOWN"),
    ),
    Signature(
        "NPU-RANKTABLE",
        "root",
        "The rank table does not fit the devices of this host",
        "Device numbers, addresses or the number of servers in RANK_TABLE_FILE are not those of the hosts.",
        ("EI0004: ", "The ranktable is invalid"),
        ("Write a new rank table for these hosts, or start without one (torchrun and msrun need none)",),
        "hccn_tool -i 0 -ip -g: the address of each device.",
        explains=("NPU-ERROR",),
        alone=True,
    ),
    Signature(
        "NPU-ERROR",
        "root",
        "An operator failed on the NPU",
        "The runtime of Ascend does not know an operator for these shapes or types, or the device is at fault.",
        (
            rx("9999: Inner Error", r"\bE[A-Z]9999: Inner Error"),
            *(f"{code}: " for code in ("EZ1001", "EZ3002", "EZ3003")),
            rx("errCode", r"'errCode': 'E[5-9B]\d{4}'"),
            "[EB0000]",
            "NPU function error: ",
            rx(" failed, error code ", r"\baclr?\w+ failed, error code \d+"),
        ),
        (
            "Read the lines below its code: they name the operator and what it refused",
            Remedy("Let the traceback show the line that called it (slower)", patches.environment("ASCEND_LAUNCH_BLOCKING", "1")),
        ),
        "ASCEND_LAUNCH_BLOCKING=1 in the environment of the ranks, and the same run: the line that it stops in.",
        sure=False,
        alike=("USER-PY", "DTYPE-UNSUPPORTED", "OOM-GPU"),
    ),
    Signature(
        "DEVICE-PERM",
        "root",
        "This user may not open the device files of the accelerator",
        "They belong to a group that the user is not in, or the container was started without them.",
        (rx("Permission denied", r"Permission denied: '?/dev/(?:davinci|hisi|nvidia|dri|kfd|accel|neuron|hl|habana|cambricon|mtgpu)"),),
        (
            "ls -l of that file shows its group: sudo usermod -aG GROUP $USER, and log in again (ROCm and Intel: render and video; Ascend: "
            "HwHiAiUser)",
            "In a container: give it the devices (--device=/dev/…), or start it as that group (--group-add)",
        ),
        "ls -l of the file in the message, and id, as the user of the ranks.",
        alone=True,
        sure=False,
        explains=("CKPT-PERM", "NPU-ERROR", "ACCEL-ERROR"),
        alike=("NO-GPU",),
        answer="CKPT-PERM",
    ),
    Signature(
        "XLA-OPERATION",
        "root",
        "The TPU's compiler has no such operation",
        "A part of the model that XLA compiles has an operation, or a shape that changes, which the device cannot run.",
        (
            rx("Detected unsupported operations", r"Detected unsupported operations when trying to compile graph"),
            rx("TPU compilation failed", r"^\s*(?:\(\d\) )?(?:\S+Error: )?.{0,60}TPU compilation failed"),
        ),
        (
            "The message names the operation: move it into the input pipeline, which runs on the CPU, or replace it",
            "tf.config.set_soft_device_placement(True) lets TensorFlow run it on the host (slower)",
        ),
        "The same function alone under tf.function(jit_compile=True).",
        sure=False,
        alike=("USER-PY", "OOM-GPU"),
        answer="ACCEL-ERROR",
    ),
    Signature(
        "ACCEL-ABORT",
        "root",
        "AMD's runtime aborted the process after a fault on the GPU",
        "A kernel reached memory that does not belong to it, or the GPU itself is at fault; the line after it names the kernel.",
        (rx("aborting with error", r"Queue \S+ aborting with error ?: ?HSA_STATUS_ERROR(?!_OUT_OF_RESOURCES)"),),
        ("Run it again with AMD_SERIALIZE_KERNEL=3: the traceback then shows the call", "Check whether the GPU answers: rocm-smi"),
        "dmesg -T | tail -n 50 on that host: what the kernel said at that moment.",
        alone=True,
        sure=False,
        explains=("ACCEL-ERROR", "SIGABRT"),
        alike=("CUDA-ILLEGAL",),
        answer="ACCEL-ERROR",
    ),
    Signature(
        "ACCEL-ERROR",
        "root",
        "The accelerator's runtime reported an error",
        "The driver, a kernel or the device failed below PyTorch.",
        (
            rx("FATAL ERROR :: MODULE:", r"FATAL ERROR :: MODULE:(?!PT_DEVMEM Allocation)"),  # Gaudi
            rx("synStatus", r"synStatus\s*[=:]\s*(?!0\b|synSuccess)\w+"),
            rx("_RESULT_ERROR_DEVICE_LOST", r"(?:UR|ZE|PI)_RESULT_ERROR_DEVICE_LOST"),  # XPU
            rx("HSA_STATUS_ERROR", r"HSA_STATUS_ERROR(?!_OUT_OF_RESOURCES)\w*"),  # ROCm
            rx("HIPBLAS_STATUS_", r"HIPBLAS_STATUS_(?!SUCCESS)\w+"),
        ),
        ("Read the kernel's log of that host (dmesg), and check whether the device answers: rocm-smi, hl-smi, xpu-smi",),
        "dmesg -T | tail -n 50 on that host: what the kernel said at that moment.",
        sure=False,
        alike=("OOM-GPU", "CUDA-ILLEGAL", "DRIVER-OLD"),
    ),
)
