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
            rx("HCCL function error: ", r"HCCL function error: Hccl(?:GetRootInfo|CommInit)"),
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
            rx("HCCL function error: ", r"HCCL function error: (?!Hccl(?:GetRootInfo|CommInit))"),
            rx("ERR0", r"\bERR0\d{4} (?:PTA|OPS|DIST|GRAPH|PROF) "),  # torch_npu's codes
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
        "ROCM-ARCH",
        "root",
        "This PyTorch has no kernels for this AMD GPU",
        "The wheel was built for other architectures (gfx…) than the GPU's, or HSA_OVERRIDE_GFX_VERSION names one that does not fit.",
        (
            rx("invalid device function", r"HIP error: (?:invalid device function|the operation cannot be performed)"),
            rx("hipErrorNoBinaryForGpu", r"hipErrorNoBinaryForGpu"),
            rx("hipErrorInvalidDeviceFunction", r"hipErrorInvalidDeviceFunction"),
        ),
        (
            "Compare rocminfo | grep gfx with python -c 'import torch; print(torch.cuda.get_arch_list())', and install a wheel that has it",
            "A GPU of the same family: HSA_OVERRIDE_GFX_VERSION=10.3.0 for RDNA 2, 11.0.0 for RDNA 3 lets it use its kernels",
        ),
        "rocminfo | grep gfx, and torch.cuda.get_arch_list().",
        alike=("DRIVER-OLD",),
        sure=False,
        answer="DRIVER-OLD",
    ),
    Signature(
        "MIOPEN",
        "root",
        "AMD's MIOpen failed in a convolution",
        "Its cache of compiled kernels is of another release or on a disk that cannot be locked, its workspace found no memory, or it "
        "has no kernel for this GPU.",
        (rx("miopenStatus", r"miopenStatus(?!Success)[A-Z]\w+"), rx("MIOpen Error", r"MIOpen(?:\(HIP\))?:? ?Error")),
        (
            "Remove its cache: rm -rf ~/.config/miopen ~/.cache/miopen",
            Remedy("Keep its cache on a local disk", patches.environment("MIOPEN_USER_DB_PATH", "/tmp/miopen")),
            "A smaller batch, if the GPU is nearly full",
        ),
        "MIOPEN_ENABLE_LOGGING=1 MIOPEN_LOG_LEVEL=5 and the same run: the kernel that failed, and why.",
        sure=False,
        alike=("OOM-GPU", "ACCEL-ERROR"),
        answer="ACCEL-ERROR",
    ),
    Signature(
        "TPU-BUSY",
        "root",
        "The TPU could not be opened",
        "Another process uses it (one at a time can), or the container may not open its device.",
        (
            "TPU initialization failed",
            rx("already in use by", r"TPU is already in use by"),
            rx("libtpu_lockfile", r"libtpu_lockfile.*(?:[Ff]ailed|denied|held|in use)"),
        ),
        (
            "End the process that uses it: sudo lsof -w /dev/accel* /dev/vfio/*; rm /tmp/libtpu_lockfile if none does",
            "In a container: docker run --privileged --net=host",
        ),
        "sudo lsof -w /dev/accel* /dev/vfio/* on that host.",
        sure=False,
        alike=("NO-GPU", "ACCEL-ERROR"),
        answer="GPU-BUSY",
    ),
    Signature(
        "CCL-START",
        "root",
        "oneCCL could not start between the ranks",
        "It found no transport that works: no provider of libfabric, another MPI than it was built for, or a network interface that "
        "is not there.",
        (
            rx("init_transport", r"atl_\w+\.cpp.*init_transport"),
            rx("failed to initialize ATL", r"failed to initialize ATL"),
            rx("|CCL_ERROR|", r"\|CCL_ERROR\|.*(?:init|fi_|MPI_)"),
        ),
        (
            Remedy("Use plain TCP to see whether the rest works", patches.environment("FI_PROVIDER", "tcp")),
            "source setvars.sh of one oneAPI release only; CCL_ATL_TRANSPORT=mpi where mpirun starts the ranks",
        ),
        "CCL_LOG_LEVEL=info and FI_LOG_LEVEL=info, and fi_info on each host.",
        explains=("SIGABRT",),
        sure=False,
        alone=True,
        alike=("INIT-HANG-NET", "MPI-LINK"),
        answer="INIT-HANG-NET",
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
