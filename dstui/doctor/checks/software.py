"""Checks of the packages that ranks import and the ops that DeepSpeed compiles at their start."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from dstui.doctor.case import Case, Outcome, doctor_check
from dstui.doctor.checks.gpus import findings_with_codes, outcome_of
from dstui.doctor.checks.reach import UNASKED
from dstui.machine.codec import Unknown
from dstui.plan.launchers import PROGRAMS

Outcomes = Iterator[Outcome]
BUILD = "apt install build-essential python3-dev (or your system's names for g++ and Python.h), pip install ninja"
UNSEEN = "; packages on PYTHONPATH and in your own site-packages were not checked (-I)"
LIGHT = "{} has neither torch nor deepspeed: enough to plan, check and launch, not for the ranks"
ADAM = ("adam", "adamw", "onebitadam")


@doctor_check("deepspeed")
def deepspeed(case: Case) -> Outcomes:
    """torch, DeepSpeed and what reads its configuration are installed for the interpreter of the ranks, and can be imported."""
    software, imports = case.machine.software, case.ready.get("imports")
    if not case.asked:
        yield Outcome("skipped", UNASKED)
        return
    if case.plan is None and software.torch is None and software.deepspeed is None:
        fix = f"name the interpreter of the ranks in job.python, or {pip_install(case, 'torch deepspeed')}"
        yield Outcome("warn", LIGHT.format(software.python_path), fix)
        return
    for name, version in (("torch", software.torch), ("deepspeed", software.deepspeed)):
        if version is None:
            observed = f"{name} is not installed for {case.python or software.python_path}" + (UNSEEN if case.isolated else "")
            fix = f"{pip_install(case, name)}, or name an interpreter that has it in job.python"
            yield Outcome("warn" if case.isolated else "fail", observed, fix)
            return
    if imports and imports.get("problem"):
        yield Outcome(
            "fail",
            f"importing torch and deepspeed fails: {imports['problem']}",
            "the packages are incompatible with each other: reinstall them",
        )
    elif missing := findings_with_codes(case, "MC022"):
        yield replace(outcome_of(missing[0]), verdict="warn") if case.isolated else outcome_of(missing[0])
    else:
        yield Outcome("ok", f"torch {software.torch}, deepspeed {software.deepspeed}" + ("; both can be imported" if imports else ""))


def pip_install(case: Case, names: str) -> str:
    """Return the command that installs packages for the interpreter of the ranks."""
    return f"{shlex.quote(case.python)} -m pip install {names}"


@doctor_check("torch-cuda")
def torch_cuda(case: Case) -> Outcomes:
    """torch's build fits the driver and the GPUs."""
    found, imports, gpus = findings_with_codes(case, "MC014"), case.ready.get("imports") or {}, case.machine.gpus
    if not gpus or not case.asked:
        yield Outcome("skipped", UNASKED if gpus else "no NVIDIA GPU here")
        return
    yield from map(outcome_of, found)
    if found:
        return
    if imports.get("gpus") == 0:
        hidden = case.machine.host.environment.get("CUDA_VISIBLE_DEVICES")
        fix = (
            "unset CUDA_VISIBLE_DEVICES"
            if hidden is not None
            else "reinstall torch with CUDA, and check whether a container hides the GPUs"
        )
        yield Outcome("fail", f"torch finds no GPU, though there are {len(gpus)}", fix)
        return
    capabilities = {"sm_" + gpu.compute_capability.replace(".", "") for gpu in gpus if isinstance(gpu.compute_capability, str)}
    lacking = _lacking(capabilities, imports.get("arches") or [])
    if lacking:
        yield Outcome("fail", f"this torch has no kernels for {', '.join(lacking)}", "install a torch built for a newer CUDA")
    else:
        yield Outcome("ok", f"torch for CUDA {case.machine.software.torch_cuda}")


def _lacking(capabilities: set[str], arches: list[str]) -> list[str]:
    """Return the capabilities for which torch has neither code of the same major version nor PTX to compile."""
    majors = {arch[:-1].replace("compute_", "sm_") for arch in arches}
    return sorted(capability for capability in capabilities if arches and capability[:-1] not in majors)


def builds(case: Case) -> str:
    """Return what DeepSpeed compiles at the start of this job; "" if nothing is known."""
    optimizer = str(case.get("deepspeed.optimizer.type", "")).lower()
    offload = case.get("deepspeed.zero_optimization.offload_optimizer.device", "none")
    if case.plan and optimizer in ADAM and case.get("deepspeed.optimizer.params.torch_adam") is not True:
        return "the CPU's Adam" if offload in ("cpu", "nvme") else "the fused Adam"
    if case.plan and case.cpu:
        return "the CPU's collectives"
    return ""


@doctor_check("compiler")
def compiler(case: Case) -> Outcomes:
    """The tools to compile DeepSpeed's ops are installed: g++, ninja, Python's headers."""
    software = case.machine.software
    tools = {"g++": software.gxx, "ninja": software.ninja, "Python.h": software.python_headers}
    missing = [name for name, there in tools.items() if there is None or there is False]
    needed = builds(case)
    if missing:
        what = f"DeepSpeed compiles {needed} at the start of this job" if needed else "needed as soon as DeepSpeed compiles an op"
        yield Outcome("fail" if needed else "warn", f"no {', no '.join(missing)}: {what}", BUILD)
    else:
        yield Outcome("ok", "g++, ninja and Python.h")


@doctor_check("nvcc")
def nvcc(case: Case) -> Outcomes:
    """The CUDA toolkit for compiling DeepSpeed's ops is there and fits torch."""
    software, toolkit, cuda = case.machine.software, case.machine.software.cuda_toolkit, case.machine.software.torch_cuda
    needed = builds(case)
    if not case.machine.gpus or not isinstance(cuda, str):
        yield Outcome("skipped", "no GPU, or no torch with CUDA")
    elif software.nvcc is None:
        fix = f'install the toolkit of CUDA {cuda}, or avoid ops: "torch_adam": true in the optimizer\'s params'
        yield Outcome("fail" if needed else "warn", f"no nvcc, with which DeepSpeed compiles {needed or 'its ops'}", fix)
    elif isinstance(toolkit, str) and toolkit.split(".")[0] != cuda.split(".")[0]:
        fix = f"install the toolkit of CUDA {cuda} and set CUDA_HOME; DS_SKIP_CUDA_CHECK=1 at your own risk"
        yield Outcome("fail" if needed else "warn", f"nvcc is of CUDA {toolkit}, torch of {cuda}: DeepSpeed refuses to compile", fix)
    else:
        yield Outcome("ok", f"nvcc {toolkit if toolkit else 'of unknown version'} for torch's CUDA {cuda}")


@doctor_check("libaio")
def libaio(case: Case) -> Outcomes:
    """libaio, where something is offloaded to NVMe."""
    zero = "deepspeed.zero_optimization"
    devices = [case.get(f"{zero}.offload_{what}.device") for what in ("optimizer", "param")]
    software = case.machine.software
    if "nvme" not in devices:
        yield Outcome("skipped", "nothing is offloaded to NVMe")
    elif software.libaio is False or software.libaio_headers is False:
        what = "libaio" if software.libaio is False else "the headers of libaio"
        yield Outcome("fail", f"no {what}, with which DeepSpeed compiles its asynchronous I/O", "apt install libaio-dev")
    else:
        yield Outcome("ok", "libaio and its headers")


@doctor_check("extension-cache")
def extension_cache(case: Case) -> Outcomes:
    """torch's folder of compiled ops has no lock of a killed build, and is on a local disk."""
    cache = case.ready.get("extensions")
    if not cache:
        yield Outcome("skipped", "not checked")
    elif cache["stale"]:
        lock = cache["stale"][0]
        message = f"{lock} is from a build that was killed: every run would silently wait for it forever"
        yield Outcome("fail", message, f"rm {shlex.join(cache['stale'])}")
    elif cache["network"]:
        fix = "export TORCH_EXTENSIONS_DIR=/tmp/$USER/torch_extensions, also in cluster.env"
        yield Outcome("warn", f"{cache['folder']} is on a network file system: hosts disturb each other while compiling", fix)
    else:
        yield Outcome("ok", cache["folder"])


@doctor_check("launcher", once=True)
def launcher(case: Case) -> Outcomes:
    """The program that starts ranks on other hosts is on this machine."""
    name = case.get("cluster.launcher")
    program = PROGRAMS.get(str(name), "ssh")
    path = getattr(case.start.software, program) if program else program
    if len(case.hosts) < 2 and case.here:
        yield Outcome("skipped", "one machine: the launcher is DeepSpeed's own")
    elif path is None:
        yield Outcome(
            "fail", f"no {program} here", f"apt install {'openssh-client' if program == 'ssh' else program}, or another cluster.launcher"
        )
    else:
        yield Outcome("ok", f"{program} is {'there' if isinstance(path, Unknown) else path}")


@doctor_check("launcher-needs")
def launcher_needs(case: Case) -> Outcomes:
    """The launcher's requirements are installed on every host: mpi4py, orted and the like."""
    modules, programs = case.ready.get("modules") or {}, case.ready.get("programs") or {}
    if not modules and not programs:
        yield Outcome("skipped", "nothing beside DeepSpeed")
        return
    for name in (name for name, there in modules.items() if not there):
        fix = f"{shlex.quote(case.python)} -m pip install {name}"
        observed = f"{name} is not installed for {case.python}, which {case.get('cluster.launcher')} needs"
        yield Outcome("warn" if case.isolated else "fail", observed + (UNSEEN if case.isolated else ""), fix)
    for name in (name for name, path in programs.items() if not path):
        fix = f"install it there, or put its folder on the PATH that a non-interactive ssh has (ssh {shlex.quote(case.host)} which {name})"
        yield Outcome("fail", f"no {name} on the PATH of a non-interactive ssh, which {case.get('cluster.launcher')} starts there", fix)
    if all(modules.values()) and all(programs.values()):
        yield Outcome("ok", ", ".join((*modules, *programs)))
