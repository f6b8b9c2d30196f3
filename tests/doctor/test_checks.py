"""Each check of the doctor, on made-up hosts: one test per check."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dstui.check.rules.machine.requirement import Requirement
from dstui.doctor import ready as ready_program
from dstui.doctor.case import CHECKS, Case, Outcome
from dstui.doctor.checks import ORDER
from dstui.doctor.examine import examine, is_ready
from dstui.doctor.ready import hub as look_at_hub
from dstui.doctor.ready import keys, xids
from dstui.doctor.ready import model as look_at_model
from dstui.facts.model_files import read_models
from dstui.forecast.forecast import forecast
from dstui.hosts.ssh import Failure
from dstui.machine.snapshot import Driver, Gpu, Host, IbPort, Machine, Nic, PciGpu, Software, Unknown
from dstui.plan import Plan, load
from tests import machines
from tests.machines import gpu

GIB = 1 << 30
HEAD = "version: 1\njob: {script: train.py, args: [--deepspeed_config, '{ds_config}']}\n"


def plan(text: str = "") -> Plan:
    return load(HEAD + text)


def machine(
    *gpus: Gpu, host: dict[str, Any] | None = None, software: dict[str, Any] | None = None, driver: Driver | None = None
) -> Machine:
    return machines.machine(
        *gpus,
        host=Host(**(host or {})),
        software=Software(**(software or {})),
        driver=driver or Driver(state="ok", version="580.95", cuda="13.0", modules=()),
    )


def verdicts(id: str, case: Case) -> list[str]:
    return [judgement.verdict for judgement in CHECKS[id].evaluate(case)]


def one(id: str, case: Case) -> Outcome:
    found = list(CHECKS[id].evaluate(case))
    assert len(found) == 1, found
    assert found[0].fix is None or found[0].verdict != "ok"
    assert found[0].verdict not in ("warn", "fail") or found[0].fix, "a problem has a fix"
    return found[0]


def case(m: Machine | None = None, **facts: Any) -> Case:
    return Case(**{"host": "h1", "machine": m or machine(), "python": "/venv/bin/python", "hosts": ("h1",), **facts})


def two(change: Callable[[Case], Case], **facts: Any) -> Case:
    """Return a case with two hosts: the first is fine, the second is changed."""
    first = case(hosts=("h1", "h2"), **facts)
    second = change(replace(first, host="h2", here=False))
    return replace(second, others=(first,))


def test_every_check_has_a_title_and_a_test_and_a_place_in_the_order() -> None:
    mine = Path(__file__).read_text()
    for check in ORDER:
        assert check.title.endswith(".")
        assert f'"{check.id}"' in mine, f"the check {check.id} has no test"
    assert [check.id for check in ORDER][:2] == ["hostfile", "reach"]


def test_hostfile(tmp_path: Path) -> None:
    text = HEAD + "cluster: {hostfile: hosts}\n"
    named = load(text, str(tmp_path / "plan.yaml"), str(tmp_path))
    assert one("hostfile", case(plan=plan())).verdict == "skipped"
    assert one("hostfile", case(plan=named)).verdict == "fail"
    (tmp_path / "hosts").write_text("a slots=1\na slots=1\n")
    assert "line 2" in one("hostfile", case(plan=named)).observed
    (tmp_path / "hosts").write_text("a slots=1\nb slots=3\n")
    assert one("hostfile", case(plan=named)).observed == "2 hosts, 4 slots"


def test_reach() -> None:
    assert one("reach", case()).verdict == "ok"
    assert one("reach", case(failure=Failure("login", "it asks for a password", "ssh-copy-id h1"))).fix == "ssh-copy-id h1"


def test_python() -> None:
    assert "no interpreter at /venv/bin/python" in one("python", case(ready={"python_found": False})).observed
    same = machine(software={"python": "3.11.7"})
    assert one("python", two(lambda c: c, m=same)).verdict == "ok"
    other = two(lambda c: replace(c, machine=machine(software={"python": "3.10.1"})), m=same)
    assert one("python", other).observed == "Python 3.10.1 here, 3.11.7 on h1"


def test_versions() -> None:
    mine = {"torch": "2.9.1", "torch_cuda": "13.0", "deepspeed": "0.19.8"}
    assert one("versions", case()).verdict == "skipped"
    assert verdicts("versions", two(lambda c: c, m=machine(software=mine))) == ["ok"] * 4
    found = two(lambda c: replace(c, machine=machine(software={**mine, "deepspeed": None})), m=machine(software=mine))
    assert verdicts("versions", found) == ["ok", "ok", "fail", "ok"]


@pytest.mark.parametrize(("skew", "verdict"), [(None, "skipped"), (0.5, "ok"), (-7.0, "warn"), (3600.0, "warn")])
def test_clock(skew: float | None, verdict: str) -> None:
    assert one("clock", case(skew=skew)).verdict == verdict


def test_driver() -> None:
    assert one("driver", case()).verdict == "skipped"
    assert one("driver", case(machine(gpu()))).observed == "driver 580.95, CUDA up to 13.0"
    dead = machine(host={"pci_gpus": (PciGpu(bus_id="0000:1b:00.0"),)}, driver=Driver(state=Unknown("the driver answers: unknown error")))
    assert one("driver", case(dead)).verdict == "fail"


def test_gpu_count() -> None:
    assert one("gpu-count", case()).verdict == "skipped"
    assert one("gpu-count", case(slots=2)).observed == "2 ranks on the CPU"
    assert one("gpu-count", case(machine(gpu(0), gpu(1)), slots=2)).verdict == "ok"
    assert one("gpu-count", case(machine(gpu(0), gpu(1, problem="lost")), slots=2)).verdict == "fail"
    mixed = two(lambda c: replace(c, machine=machine()), m=machine(gpu()), slots=1)
    assert "there are some on h1" in one("gpu-count", mixed).observed


def test_gpu_health() -> None:
    assert one("gpu-health", case()).verdict == "skipped"
    assert one("gpu-health", case(machine(gpu()))).verdict == "ok"
    sick = machine(gpu(0, problem="the GPU is lost: it fell off the bus"), gpu(1, throttle=("hardware thermal",)))
    assert verdicts("gpu-health", case(sick)) == ["fail", "warn"]


def test_gpu_models() -> None:
    assert one("gpu-models", case()).verdict == "skipped"
    assert one("gpu-models", case(machine(gpu(0), gpu(1)))).observed == "all H100 80GB"
    found = two(lambda c: replace(c, machine=machine(gpu(name="NVIDIA A100-SXM4-80GB"))), m=machine(gpu()))
    assert one("gpu-models", found).verdict == "warn"


def test_gpu_idle() -> None:
    assert one("gpu-idle", case(machine(gpu()))).observed == "free"
    assert one("gpu-idle", case(machine(gpu(memory_used=40 * GIB)))).verdict == "warn"
    unused = case(machine(gpu(0), gpu(1, memory_used=40 * GIB)), requirement=Requirement(gpus=(0,)))
    assert one("gpu-idle", unused).verdict == "ok"


def test_xid() -> None:
    log = "6,1,2,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=7, GPU has fallen off the bus.\n6,2,3,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=8\n"
    assert xids(log) == {"79": 1, "31": 1} and xids(None) is None
    assert one("xid", case(ready={"xids": {}})).verdict == "skipped"
    assert one("xid", case(machine(gpu()))).verdict == "skipped"
    assert one("xid", case(machine(gpu()), ready={"xids": {"31": 4}})).verdict == "ok", "a faulty program is not a broken GPU"
    assert "fallen off the bus" in one("xid", case(machine(gpu()), ready={"xids": xids(log)})).observed


def test_deepspeed() -> None:
    installed = {"torch": "2.9.1", "deepspeed": "0.19.8"}
    assert one("deepspeed", case(machine(software=installed))).verdict == "ok"
    missing = one("deepspeed", case(machine(software={**installed, "deepspeed": None})))
    assert (missing.fix or "").startswith("/venv/bin/python -m pip install deepspeed, or ")
    broken = case(machine(software=installed), ready={"imports": {"problem": "ImportError: libcudart.so.13"}})
    assert "libcudart" in one("deepspeed", broken).observed
    lacking = case(machine(software={**installed, "accelerate": None}), requirement=Requirement(integration="trainer"))
    assert verdicts("deepspeed", lacking) == ["fail"] and verdicts("deepspeed", replace(lacking, isolated=True)) == ["warn"]
    bare = machine(software={"torch": None, "deepspeed": None})
    light = one("deepspeed", case(bare))
    assert light.verdict == "warn" and "neither torch nor deepspeed" in light.observed and "job.python" in (light.fix or "")
    assert one("deepspeed", case(bare, plan=plan())).verdict == "fail", "with a Plan, its ranks need both"


def test_torch_cuda() -> None:
    cuda = {"torch": "2.9.1", "torch_cuda": "13.0", "torch_hip": None}
    assert one("torch-cuda", case(machine(software=cuda))).verdict == "skipped"
    assert one("torch-cuda", case(machine(gpu(), software={**cuda, "torch_cuda": None}))).verdict == "fail"
    blind = case(machine(gpu(), software=cuda, host={"environment": {"CUDA_VISIBLE_DEVICES": ""}}), ready={"imports": {"gpus": 0}})
    assert one("torch-cuda", blind).fix == "unset CUDA_VISIBLE_DEVICES"
    old = case(machine(gpu(), software=cuda), ready={"imports": {"gpus": 1, "arches": ["sm_70", "sm_80", "sm_86"]}})
    assert "no kernels for sm_90" in one("torch-cuda", old).observed
    assert one("torch-cuda", replace(old, ready={"imports": {"gpus": 1, "arches": ["sm_80", "sm_90"]}})).verdict == "ok"
    consumer = case(machine(gpu(compute_capability="8.9"), software=cuda), ready={"imports": {"gpus": 1, "arches": ["sm_80", "sm_86"]}})
    assert one("torch-cuda", consumer).verdict == "ok", "code for 8.0 runs on 8.9"


def test_compiler() -> None:
    tools = {"gxx": "/usr/bin/g++", "ninja": "/venv/bin/ninja", "python_headers": True}
    adam = plan("deepspeed: {optimizer: {type: AdamW, params: {lr: 1e-4}}}\n")
    assert one("compiler", case(machine(software=tools))).verdict == "ok"
    bare = machine(gpu(), software={**tools, "gxx": None, "ninja": None})
    assert one("compiler", case(bare)).verdict == "warn"
    needed = one("compiler", case(bare, plan=adam))
    assert needed.verdict == "fail" and needed.observed.startswith("no g++, no ninja: DeepSpeed compiles the fused Adam")
    plain = plan("deepspeed: {optimizer: {type: AdamW, params: {lr: 1e-4, torch_adam: true}}}\n")
    assert one("compiler", case(bare, plan=plain)).verdict == "warn"


def test_nvcc() -> None:
    cuda = {"torch": "2.9.1", "torch_cuda": "13.0", "nvcc": "/usr/local/cuda/bin/nvcc", "cuda_toolkit": "13.0.2"}
    adam = plan("deepspeed: {optimizer: {type: Adam, params: {lr: 1e-4}}}\n")
    assert one("nvcc", case(machine(gpu(), software=cuda))).verdict == "ok"
    assert one("nvcc", case(machine(gpu(), software={**cuda, "nvcc": None}), plan=adam)).verdict == "fail"
    older = one("nvcc", case(machine(gpu(), software={**cuda, "cuda_toolkit": "12.4"}), plan=adam))
    assert older.verdict == "fail" and "refuses" in older.observed
    assert one("nvcc", case(machine(software=cuda))).verdict == "skipped"


def test_libaio() -> None:
    nvme = plan("deepspeed: {zero_optimization: {stage: 3, offload_optimizer: {device: nvme, nvme_path: /scratch}}}\n")
    assert one("libaio", case()).verdict == "skipped"
    assert one("libaio", case(machine(software={"libaio": True, "libaio_headers": False}), plan=nvme)).fix == "apt install libaio-dev"
    assert one("libaio", case(machine(software={"libaio": True, "libaio_headers": True}), plan=nvme)).verdict == "ok"


def test_extension_cache() -> None:
    cache = {"folder": "/home/jo/.cache/torch_extensions", "network": False, "stale": []}
    assert one("extension-cache", case()).verdict == "skipped"
    assert one("extension-cache", case(ready={"extensions": cache})).verdict == "ok"
    assert one("extension-cache", case(ready={"extensions": {**cache, "network": True}})).verdict == "warn"
    assert one("extension-cache", case(ready={"extensions": {**cache, "stale": ["/c/cpu_adam/lock"]}})).fix == "rm /c/cpu_adam/lock"


def test_launcher() -> None:
    assert one("launcher", case()).verdict == "skipped"
    both = {"hosts": ("h1", "h2"), "plan": plan("cluster: {hosts: {h1: 1, h2: 1}, launcher: pdsh}\n")}
    assert one("launcher", case(start=machine(software={"pdsh": None}), **both)).fix == "apt install pdsh, or another cluster.launcher"
    assert one("launcher", case(start=machine(software={"pdsh": "/usr/bin/pdsh"}), **both)).verdict == "ok"


def test_shm() -> None:
    assert one("shm", case(machine(host={"shm_total": 64 * GIB, "shm_free": 60 * GIB}), slots=8)).verdict == "ok"
    assert one("shm", case(machine(host={"shm_total": 64 << 20, "container": "docker"}), slots=2)).verdict == "warn"
    assert one("shm", case()).verdict == "skipped"


def test_memlock() -> None:
    offload = plan("deepspeed: {zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}}\n")
    small = machine(host={"memlock": 8 << 20})
    assert one("memlock", case(small)).verdict == "ok"
    assert one("memlock", case(small, plan=offload)).verdict == "warn"
    assert one("memlock", case(machine(host={"memlock": None}), plan=offload)).observed == "no limit"
    rdma = machine(host={"memlock": 8 << 20, "infiniband": (IbPort(device="mlx5_0", port=1, state="ACTIVE"),)})
    assert one("memlock", case(rdma, hosts=("h1", "h2"))).verdict == "fail"


@pytest.mark.parametrize(("limit", "verdict"), [(None, "ok"), (65536, "ok"), (1024, "warn")])
def test_open_files(limit: int | None, verdict: str) -> None:
    assert one("open-files", case(machine(host={"nofile": limit}))).verdict == verdict


def test_cpus() -> None:
    offload = plan("deepspeed: {zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}}\n")
    host = {"cpus_usable": 16, "cpu_quota": None}
    assert one("cpus", case(machine(host=host), slots=8)).observed == "2 for each of 8 ranks"
    assert one("cpus", case(machine(host=host), slots=8, plan=offload)).verdict == "warn"
    assert one("cpus", case(machine(host={**host, "cpu_quota": 2.0}), slots=8)).verdict == "warn"


def test_memory() -> None:
    host = {"memory_total": 64 * GIB, "memory_limit": None}
    assert one("memory", case(machine(host=host), slots=8)).verdict == "ok"
    tight = one("memory", case(machine(host={**host, "memory_limit": 8 * GIB}), slots=8))
    assert tight.verdict == "warn" and "cgroup" in tight.observed


def test_names() -> None:
    addresses = {"": "h2", "h1": ["10.0.0.1"], "h2": ["10.0.0.2"]}
    assert one("names", case()).verdict == "skipped"
    assert one("names", two(lambda c: replace(c, ready={"names": addresses}), ready={})).verdict == "ok"
    assert "cannot resolve the name h1" in one("names", two(lambda c: replace(c, ready={"names": {**addresses, "h1": []}}))).observed
    assert (
        "resolves h2 to 127.0.1.1" in one("names", two(lambda c: replace(c, ready={"names": {**addresses, "h2": ["127.0.1.1"]}}))).observed
    )
    known_to_ssh = {"": "h2", "h1": [], "h2": [], "10.0.0.1": ["10.0.0.1"]}
    meets = two(lambda c: replace(c, ready={"names": known_to_ssh}), names_needed=(), meeting="10.0.0.1")
    assert (one("names", meets).verdict, one("names", replace(meets, names_needed=("h1",))).verdict) == ("ok", "fail")


def test_port() -> None:
    taken = {"listen": {"problem": "Address already in use", "holder": "pid 7 (python)"}}
    assert one("port", case(ready={"listen": {"peers": 0}})).observed == "port 29500 is free"
    assert one("port", case(ready=taken)).verdict == "warn", "a local launch chooses a free port"
    assert one("port", case(ready=taken, plan=plan("cluster: {master_port: 29501}\n"))).verdict == "fail"
    hosts = "cluster: {hosts: {h1: 1, h2: 1}"
    assert one("port", case(ready=taken, plan=plan(f"{hosts}}}\n"))).verdict == "warn", "so does one on several hosts"
    assert one("port", case(ready=taken, plan=plan(f"{hosts}, master_port: 29501}}\n"))).verdict == "fail"
    reached = {"connect": {"reached": True, "problem": ""}}
    assert one("port", two(lambda c: replace(c, ready=reached))).observed == "reaches port 29500 on h1"
    refused = {"connect": {"reached": False, "problem": "Connection refused"}}
    assert one("port", two(lambda c: replace(c, ready=refused))).verdict == "fail"
    assert "remove cluster.master_addr" in str(one("port", two(lambda c: replace(c, ready=refused), meeting="127.0.0.1")).fix)


def test_interface() -> None:
    slow, fast = Nic(name="eth0", state="up", speed=1000, default_route=True), Nic(name="ib0", state="up", speed=200000)
    assert one("interface", case()).verdict == "skipped"
    several = {"hosts": ("h1", "h2")}
    assert "ib0" in str(one("interface", case(machine(host={"nics": (slow, fast)}), **several)).fix)
    told = Requirement(environment={"NCCL_SOCKET_IFNAME": "ib0"})
    assert one("interface", case(machine(host={"nics": (slow, fast)}), requirement=told, **several)).verdict == "ok"
    assert one("interface", case(machine(host={"nics": (slow,)}), requirement=Requirement(stage=3), **several)).verdict == "warn"
    assert one("interface", case(machine(host={"nics": (slow,)}), requirement=Requirement(stage=1), **several)).verdict == "ok"


@pytest.mark.parametrize(
    ("value", "verdict"),
    [("eth0", "ok"), ("eth", "ok"), ("=eth", "fail"), ("ib7", "fail"), ("ib,eth", "ok"), ("^docker,lo", "ok"), ("=eth0,ib0", "ok")],
)
def test_interface_that_no_host_has_is_named(value: str, verdict: str) -> None:
    own = machine(host={"nics": (Nic(name="eth0", state="up", speed=100000, default_route=True),)})
    told = Requirement(environment={"NCCL_SOCKET_IFNAME": value})
    found = one("interface", case(own, requirement=told, hosts=("h1", "h2")))
    assert found.verdict == verdict
    assert verdict == "ok" or (found.observed.startswith(f"NCCL_SOCKET_IFNAME={value} names no") and "eth0" in str(found.fix))


def test_launcher_needs() -> None:
    cluster = "cluster: {hosts: {h1: 1, h2: 1}, launcher: openmpi}\n"
    assert one("launcher-needs", case()).verdict == "skipped"
    there = {"modules": {"mpi4py": True}, "programs": {"orted": "/usr/bin/orted"}}
    assert one("launcher-needs", case(plan=plan(cluster), ready=there)).observed == "mpi4py, orted"
    lacks = one("launcher-needs", case(plan=plan(cluster), ready={**there, "modules": {"mpi4py": False}}))
    assert lacks.verdict == "fail" and lacks.fix == "/venv/bin/python -m pip install mpi4py"
    assert "no orted" in one("launcher-needs", case(plan=plan(cluster), ready={**there, "programs": {"orted": None}})).observed


def test_leftovers() -> None:
    assert one("leftovers", case()).verdict == "skipped"
    assert one("leftovers", case(ready={"leftovers": []})).verdict == "ok"
    left = [{"pid": 71 + number, "age": 7200.0, "what": "deepspeed.launcher.launch"} for number in range(4)]
    assert "pid 71 (deepspeed.launcher.launch, 120 min)" in one("leftovers", case(ready={"leftovers": left})).observed
    for m, held in ((machine(gpu()), "GPUs and ports"), (machine(), "they use cores, memory and ports")):
        assert held in str(one("leftovers", case(m, ready={"leftovers": left})).fix)


def test_leftovers_of_a_launch_are_found_among_own_processes() -> None:
    code = "print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "DSTUI_JOB": "a-tag"}
    ) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        assert child.pid in {each["pid"] for each in ready_program.leftovers()}
        child.communicate("")
    assert child.pid not in {each["pid"] for each in ready_program.leftovers()}


def test_module_is_found_by_the_jobs_interpreter_without_import() -> None:
    assert ready_program.modules([sys.executable], ["json", "no_such_module_here"]) == {"json": True, "no_such_module_here": False}
    assert ready_program.modules("/nowhere/python", ["json"]) == {}


def test_two_names_of_one_host_are_reported() -> None:
    known = {"": "worker", "h1": ["10.0.0.1"], "h2": ["10.0.0.1"]}
    second = two(lambda c: c, ready={"names": known})
    assert "calls itself worker, as h1 does" in one("names", second).observed
    assert one("names", replace(second, ready={"names": {**known, "": "other"}})).verdict == "ok"
    same = one("names", two(lambda c: c, ready={"names": known, "identity": "boot pid net"}))
    assert same.verdict == "fail" and "is the same machine as h1" in same.observed and "take h1 or h2 out" in str(same.fix)


def test_rdma() -> None:
    ports = (IbPort(device="mlx5_0", port=1, state="ACTIVE", gbps=400.0, link_layer="InfiniBand"),)
    down = (IbPort(device="mlx5_0", port=1, state="DOWN"),)
    several: dict[str, Any] = {"hosts": ("h1", "h2"), "requirement": Requirement(nodes=2)}
    assert one("rdma", case(machine(host={"infiniband": ()}), **several)).verdict == "skipped"
    assert one("rdma", case(machine(host={"infiniband": ports}), **several)).verdict == "ok"
    assert one("rdma", case(machine(host={"infiniband": down}), **several)).verdict == "warn"
    assert "peermem" in one("rdma", case(machine(gpu(), host={"infiniband": ports}), **several)).observed


def test_all_reduce() -> None:
    assert one("all-reduce", case()).verdict == "skipped"
    assert one("all-reduce", case(deep={"ranks": 2, "seconds": 3.0})).observed == "2 ranks in 3.0 s"
    assert one("all-reduce", case(deep={"problem": "h2: timed out"})).verdict == "fail"
    both = {"ranks": 2, "seconds": 3.0, "nccl": {"ranks": 2, "seconds": 4.0}}
    assert one("all-reduce", case(deep=both)).observed == "2 ranks in 3.0 s; over nccl in 4.0 s"
    failed = one("all-reduce", case(deep={**both, "nccl": {"problem": "h2: no NCCL"}}))
    assert (failed.verdict, failed.observed) == ("fail", "over nccl: h2: no NCCL")


def test_plan() -> None:
    assert one("plan", case()).verdict == "skipped"
    assert one("plan", case(plan=plan("deepspeed: {train_micro_batch_size_per_gpu: 1}\n"))).verdict == "ok"
    both = plan("deepspeed: {train_micro_batch_size_per_gpu: 1, fp16: {enabled: true}, bf16: {enabled: true}}\n")
    assert "fail" in verdicts("plan", case(plan=both))


def test_script() -> None:
    here = {"plan": plan(), "ready": {"script": {"hash": "aa", "compiles": True}}}
    assert one("script", case(**here)).verdict == "ok"
    assert one("script", case(plan=plan(), ready={"script": {"problem": "No such file or directory"}})).verdict == "fail"
    assert "line 3" in one("script", case(plan=plan(), ready={"script": {"problem": "line 3: invalid syntax", "compiles": False}})).observed
    differing = two(lambda c: replace(c, ready={"script": {"hash": "bb", "compiles": True}}), **here)
    assert "differs from the one on h1" in one("script", differing).observed


def test_model(tmp_path: Path) -> None:
    assert one("model", case()).verdict == "skipped"
    assert one("model", case(ready={"model": {"problem": "it has no config.json"}})).verdict == "fail"
    assert look_at_model(str(tmp_path / "none")) == {"problem": "there is no such folder"}
    (tmp_path / "config.json").write_text("{}")
    assert look_at_model(str(tmp_path)) == {"files": 0}
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}')
    (tmp_path / "1.safetensors").write_bytes(b"x" * 2000)
    assert look_at_model(str(tmp_path)) == {"problem": "2.safetensors is missing, which its index names"}
    (tmp_path / "2.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "git-lfs" in look_at_model(str(tmp_path))["problem"]
    (tmp_path / "2.safetensors").write_bytes(b"x" * 2000)
    whole = look_at_model(str(tmp_path))
    assert one("model", case(plan=plan("model: {source: ./m}\n"), ready={"model": whole})).observed == "./m: 2 files of weights"


class Hub(BaseHTTPRequestHandler):
    """A hub with one public model and one that needs a token."""

    def do_HEAD(self) -> None:
        model = self.path.removesuffix("/resolve/main/config.json")
        self.send_response({"/org/open": 200, "/org/gated": 401}.get(model, 404))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def hub_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Use an empty cache, and a local hub."""
    for name in list(os.environ):
        if name.startswith("HF_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield tmp_path
        server.shutdown()


def test_hub(hub_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(name: str) -> Outcome:
        return one("hub", case(plan=plan(f"model: {{source: {name}}}\n"), ready={"hub": look_at_hub(name)}))

    assert one("hub", case()).verdict == "skipped"
    assert verdict("org/open").verdict == "ok"
    assert "has no org/none (status 404)" in verdict("org/none").observed
    assert "no token" in verdict("org/gated").observed
    (hub_home / "token").write_text("hf_x")
    assert "there is a token" in verdict("org/gated").observed
    kept = hub_home / "hub/models--org--none/snapshots/1"
    kept.mkdir(parents=True)
    (kept / "config.json").write_text("{}")
    assert verdict("org/none").observed == "org/none is in the cache"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE" in verdict("org/open").observed


def test_unresponsive_hub_is_reported(hub_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts the connection and sends nothing
        monkeypatch.setattr(ready_program, "HUB_SECONDS", 0.3)
        for endpoint in (f"http://127.0.0.1:{deaf.getsockname()[1]}", "http://127.0.0.1:9", "no address"):
            monkeypatch.setenv("HF_ENDPOINT", endpoint)
            found = one("hub", case(plan=plan("model: {source: org/open}\n"), ready={"hub": look_at_hub("org/open")}))
            assert found.verdict == "warn" and f"{endpoint} does not answer (" in found.observed


def test_trackers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trainer = load("version: 1\njob: {script: t.py, args: [--report_to, tensorboard, wandb, --lr, '1']}\n")
    monitor = plan("deepspeed: {comet: {enabled: true}}\n")
    assert one("trackers", case()).verdict == one("trackers", case(plan=plan())).verdict == "skipped"
    assert "no key of Weights & Biases on h1" in one("trackers", case(plan=trainer)).observed
    assert "COMET" not in one("trackers", case(plan=monitor)).observed and one("trackers", case(plan=monitor)).verdict == "warn"
    assert one("trackers", case(plan=trainer, environment={"WANDB_API_KEY": "x"})).verdict == "ok"
    assert one("trackers", case(plan=trainer, environment={"WANDB_API_KEY": "x"}, here=False)).verdict == "warn", "it stays here"
    assert one("trackers", case(plan=trainer, ready={"keys": ["wandb"]})).verdict == "ok"
    offline = plan("cluster: {env: {WANDB_MODE: offline}}\ndeepspeed: {wandb: {enabled: true}}\n")
    assert one("trackers", case(plan=offline)).observed == "Weights & Biases: WANDB_MODE is offline"
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "NETRC", "COMET_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert keys() == []
    (tmp_path / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password secret\n")
    (tmp_path / ".comet.config").write_text("[comet]\napi_key=secret\n")
    assert keys() == ["wandb", "comet"]


def test_time_left() -> None:
    assert one("time-left", case()).verdict == "skipped"
    assert one("time-left", case(environment={"SLURM_JOB_END_TIME": str(int(time.time()) + 7230)})).observed.startswith("2 h 0 min until")
    assert one("time-left", case(environment={"SLURM_JOB_END_TIME": str(int(time.time()) + 600)})).verdict == "warn"
    assert "0 h 0 min" in one("time-left", case(environment={"SLURM_JOB_END_TIME": "1"})).observed


def test_folder() -> None:
    good = {"exists": True, "filesystem": "ext4", "free": 500 * GIB, "write_seconds": 0.01}
    assert one("folder", case(ready={"folders": {"/job": good}})).verdict == "ok"
    assert one("folder", case(ready={"folders": {"/job": {"exists": False}}})).verdict == "fail"
    assert one("folder", case(ready={"folders": {"/job": {**good, "problem": "Read-only file system"}}})).verdict == "fail"
    assert one("folder", case(ready={"folders": {"/job": {**good, "free": GIB}}})).verdict == "warn"
    assert one("folder", case(ready={"folders": {"/job": {**good, "write_seconds": 2.0}}})).verdict == "warn"


def test_shared_folder() -> None:
    assert one("shared-folder", case()).verdict == "skipped"
    assert one("shared-folder", two(lambda c: replace(c, ready={"shared": True}))).verdict == "ok"
    assert one("shared-folder", two(lambda c: replace(c, ready={"shared": False}))).verdict == "warn"


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    far = two(lambda c: c, environment={"HF_HOME": "/data/hf"})
    assert one("environment", case(environment={"HF_HOME": "/data/hf"})).verdict == "skipped"
    assert "HF_HOME" in one("environment", far).observed
    hosts = "cluster: {hosts: {h1: 2, h2: 2}, env: {HF_HOME: /data/hf}}\n"
    assert one("environment", replace(far, plan=plan(hosts))).verdict == "ok"
    assert one("environment", replace(far, plan=plan("cluster: {hosts: {h1: 2, h2: 2}, launcher: mpich}\n"))).verdict == "ok"
    (tmp_path / ".deepspeed_env").write_text("FOO=1\n")
    assert "every launch" in str(next(iter(CHECKS["environment"].evaluate(far))).fix)
    work = tmp_path / "work"
    work.mkdir()
    (work / ".deepspeed_env").write_text("FOO=1\n# a comment\n")
    own = load(HEAD.replace("job: {", f"job: {{workdir: {work}, ") + hosts)
    assert f"{work}/.deepspeed_env applies to every plain `deepspeed` launch from that folder, and its line 2 makes them fail" in str(
        list(CHECKS["environment"].evaluate(replace(far, plan=own)))[1].observed
    )


def test_unreachable_host_fails_once_and_is_not_checked_further() -> None:
    lost = case(failure=Failure("login", "it asks for a password", "ssh-copy-id h1"), here=False)
    results = examine([lost])
    assert [result.id for result in results if result.verdict == "fail"] == ["reach"]
    once = {check.id for check in ORDER if check.once}
    assert {result.verdict for result in results if result.id not in {"reach", *once}} == {"skipped"}
    assert not is_ready(results)


def test_variables_that_do_not_reach_the_ranks_are_reported_without_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lost = case(failure=Failure("name", "its name cannot be resolved", "correct it"), here=False, environment={"HF_HOME": "/data/hf"})
    assert [result.verdict for result in examine([lost]) if result.id == "environment"] == ["warn"]


def test_unknown_hosts_of_a_plan_are_a_failure() -> None:
    result = examine([case()], "cluster.include: the host 'h9' is not in the pool")[0]
    assert (result.id, result.verdict) == ("hosts", "fail") and "h9" in result.observed and result.fix


def test_incomplete_answer_stops_no_other_check() -> None:
    results = examine([case(ready={"folders": {"/job": {}}})])
    assert next(result for result in results if result.id == "folder").verdict == "skipped"
    assert next(result for result in results if result.id == "reach").verdict == "ok"


LLAMA = "model: {source: meta-llama/Llama-2-7b-hf, sequence_length: 2048, activation_checkpointing: true}\n"
STATES = "deepspeed: {train_micro_batch_size_per_gpu: 1, bf16: {enabled: true}, optimizer: {type: AdamW}, zero_optimization: {stage: %d}}\n"


def case_with_model(stage: int, memory: int, ram: int = 512, free: int = 2000) -> Case:
    """Return a host with eight GPUs of this memory in GiB, and a Plan with a model of 6.7 billion parameters."""
    eight = machine(
        *(gpu(i, memory_total=memory * GIB, memory_used=0) for i in range(8)), host={"memory_total": ram * GIB, "memory_limit": None}
    )
    written = plan(LLAMA + STATES % stage)
    facts = read_models(written)
    folders = {"/job": {"exists": True, "free": free * GIB, "write_seconds": 0.0, "filesystem": "xfs"}}
    found = forecast(written, facts, eight)
    return Case(host="a", machine=eight, plan=written, facts=facts, forecast=found, ready={"folders": folders})


def test_model_is_compared_with_gpu_memory_and_ram() -> None:
    assert one("gpu-room", case_with_model(3, 80)).verdict == "ok"
    small = one("gpu-room", case_with_model(1, 24))
    assert small.verdict == "warn" and small.fix and "ZeRO-3" in small.fix
    assert one("ram-room", case_with_model(3, 80)).verdict == "ok"
    assert one("ram-room", case_with_model(1, 80, ram=64)).verdict == "warn"
    assert one("gpu-room", Case(host="a", machine=machine(), plan=plan())).verdict == "skipped"


def test_checkpoints_are_compared_with_disk_space() -> None:
    assert "room for 22 checkpoints of 87.9 GB" in one("disk-room", case_with_model(3, 80)).observed
    assert one("disk-room", case_with_model(3, 80, free=100)).verdict == "warn"
    assert one("disk-room", Case(host="a", machine=machine(), plan=plan())).verdict == "skipped"


def test_accelerates_default_configuration_is_reported_where_it_could_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert one("accelerate-config", case()).verdict == "skipped"
    mine = Case(host="a", machine=machine(), plan=plan().set("job.integration", "accelerate"))
    assert one("accelerate-config", mine).verdict == "ok"
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "default_config.yaml").write_text("distributed_type: DEEPSPEED\n")
    found = one("accelerate-config", mine)
    assert found.verdict == "warn" and "without --config_file takes it silently" in found.observed
