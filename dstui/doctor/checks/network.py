"""Checks of the network between hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dstui.doctor.case import Case, Outcome, doctor_check
from dstui.doctor.checks.gpus import findings_with_codes, outcome_of
from dstui.doctor.gather import PORT
from dstui.hosts.ssh import is_loopback
from dstui.machine.codec import known

Outcomes = Iterator[Outcome]
SLOW_MEGABITS = 10_000


@doctor_check("names")
def names(case: Case) -> Outcomes:
    """Every host resolves the names that the job needs, and none resolves its own to the loopback address."""
    reported = case.ready.get("names")
    hosts = tuple(host.rpartition("@")[2] for host in case.hosts)
    needed = hosts if case.names_needed is None else case.names_needed
    if len(case.hosts) < 2 or not reported:
        yield Outcome("skipped", "one host")
        return
    unknown = [host for host in needed if not reported.get(host)]
    names = () if is_loopback(case.meeting) else hosts
    looped = [host for host in names if any(address.startswith("127.") for address in reported.get(host) or ())]
    if unknown:
        fix = f"add {unknown[0]} and its address to /etc/hosts on {case.host}; a name of ~/.ssh/config is known to ssh alone"
        yield Outcome("fail", f"cannot resolve the name {unknown[0]}", fix)
    elif looped:
        fix = f"map {looped[0]} to its address in the cluster, in /etc/hosts on {case.host}: ranks would look for each other on themselves"
        yield Outcome("fail", f"resolves {looped[0]} to {reported[looped[0]][0]}", fix)
    elif twin := _like(case, lambda ready: ready.get("identity")):
        fix = f"give each host once, with all its slots: take {twin} or {case.host} out"
        yield Outcome("fail", f"is the same machine as {twin}: their ranks would share its GPUs, and meet on the same ports", fix)
    elif twin := _like(case, lambda ready: (ready.get("names") or {}).get("")):
        fix = "give each machine its own host name: MPI identifies hosts by it"
        yield Outcome("warn", f"calls itself {reported['']}, as {twin} does", fix)
    else:
        known_names = f"resolves the names of all {len(case.hosts)} hosts"
        yield Outcome("ok", known_names if all(map(reported.get, hosts)) else f"needs no names: the ranks meet at {case.meeting}")


def _like(case: Case, fact: Callable[[Mapping[str, Any]], object]) -> str | None:
    """Return the first other host with the same fact."""
    mine = fact(case.ready)
    return next((other.host for other in case.others if mine and fact(other.ready) == mine), None)


def _port(case: Case) -> int:
    port = case.plan.cluster.master_port if case.plan else None
    return port or PORT


@doctor_check("port")
def port(case: Case) -> Outcomes:
    """The port of rank 0 is free there, and every other host reaches it."""
    number, listened, connected = _port(case), case.ready.get("listen"), case.ready.get("connect")
    if case.first and listened and listened.get("problem"):
        ours = case.plan is None or case.plan.cluster.master_port is None
        fix = f"choose another cluster.master_port, or end {listened['holder']}"
        more = "; a launch by dstui takes a free one, the rendered command does not" if ours else ""
        yield Outcome("warn" if ours else "fail", f"port {number} is taken by {listened['holder']}{more}", fix)
    elif case.first and listened:
        yield Outcome("ok", f"port {number} is free")
    elif connected and connected["reached"]:
        yield Outcome("ok", f"reaches port {number} on {_meeting(case)}")
    elif connected:
        fix = "open the ports between the hosts in the firewall (from 1024 on: NCCL and gloo choose theirs), or set cluster.master_addr"
        if is_loopback(case.meeting):
            fix = f"remove cluster.master_addr: every host finds itself at {case.meeting}, and dstui asks {case.hosts[0]} for its address"
        yield Outcome("fail", f"does not reach port {number} on {_meeting(case)}: {connected['problem']}", fix)
    else:
        yield Outcome("skipped", "not tried")


def _meeting(case: Case) -> str:
    """Return the first host, and its address if the others use that."""
    first = case.hosts[0]
    return first if case.meeting in ("", first.rpartition("@")[2]) else f"{first} ({case.meeting})"


@doctor_check("interface")
def interface(case: Case) -> Outcomes:
    """The network interface that NCCL would choose is the right one on every host."""
    nics = [nic for nic in known(case.machine.host.nics, ()) if not nic.virtual and nic.state != "down"]
    if len(case.hosts) < 2 or not nics:
        yield Outcome("skipped", "one host" if len(case.hosts) < 2 else "no interface is known")
        return
    fastest = max(nics, key=lambda nic: known(nic.speed, 0))
    default = next((nic for nic in nics if nic.default_route), fastest)
    chosen = "NCCL_SOCKET_IFNAME" in case.requirement.environment
    if missing := _missing_interface(case):
        own = ", ".join(nic.name for nic in nics[:6])
        yield Outcome(
            "fail", f"{missing} names no interface of this host, which has {own}", f"name one of them in cluster.env, as {nics[0].name}"
        )
        return
    lacking = [other.host for other in case.others if default.name not in _names(other)]
    if known(fastest.speed, 0) > known(default.speed, 0) > 0 and not chosen:
        fix = f"cluster.env: {{NCCL_SOCKET_IFNAME: {fastest.name}, GLOO_SOCKET_IFNAME: {fastest.name}}}"
        yield Outcome("warn", f"{fastest.name} is faster than {default.name}, over which the host has its default route", fix)
    elif chosen and lacking:
        yield Outcome("warn", f"{lacking[0]} has no interface {default.name}", "give NCCL_SOCKET_IFNAME as a list of prefixes: eth,ens")
    elif 0 < known(fastest.speed, 0) < SLOW_MEGABITS and case.requirement.stage == 3:
        fix = "zero_hpz_partition_size keeps the weights' gathers within a host; stage 1 or 2 sends less"
        yield Outcome("warn", f"{fastest.name} has {known(fastest.speed, 0) / 1000:g} Gb/s: ZeRO-3 over hosts will wait for it", fix)
    else:
        yield Outcome("ok", default.name)


def _missing_interface(case: Case) -> str:
    """Return the variable that names a missing interface, as `NAME=value`; "" if there is none.

    NCCL reads the value as prefixes separated by commas; a leading `=` means whole names, a leading `^` excludes them.
    """
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = str(case.requirement.environment.get(variable) or case.get(f"cluster.env.{variable}") or "")
        exact, wanted = value.startswith("="), [name for name in value.lstrip("=").split(",") if name]
        if value.startswith("^") or not wanted:
            continue
        exact = exact or variable.startswith("GLOO")
        if not any(nic == name if exact else nic.startswith(name) for nic in _names(case) | {"lo"} for name in wanted):
            return f"{variable}={value}"
    return ""


def _names(case: Case) -> set[str]:
    return {nic.name for nic in known(case.machine.host.nics, ())}


@doctor_check("rdma")
def rdma(case: Case) -> Outcomes:
    """InfiniBand and RoCE ports are up, and GPUs may use them directly."""
    ports = known(case.machine.host.infiniband, ())
    if len(case.hosts) < 2 or not ports:
        yield Outcome("skipped", "one host" if len(case.hosts) < 2 else "no RDMA adapter")
        return
    found = findings_with_codes(case, "MC017")
    yield from map(outcome_of, found)
    modules = known(case.machine.driver.modules, ())
    if case.machine.gpus and not {"nvidia_peermem", "nv_peer_mem"} & set(modules):
        fix = "modprobe nvidia-peermem, as root (not needed if NCCL logs that it uses DMA-BUF)"
        yield Outcome("warn", "the module nvidia-peermem is not loaded: GPUs reach the adapters through the host's memory", fix)
    elif not found:
        yield Outcome("ok", f"{len(ports)} ports")


@doctor_check("all-reduce", once=True)
def all_reduce(case: Case) -> Outcomes:
    """All hosts add up a number together, over gloo and, where there are GPUs, over nccl, as the ranks will meet."""
    nccl = (case.deep or {}).get("nccl") or {}
    if case.deep is None:
        yield Outcome("skipped", "only with --deep")
    elif case.deep.get("problem"):
        fix = "see the checks names, port and interface; GLOO_SOCKET_IFNAME names the interface"
        yield Outcome("fail", str(case.deep["problem"]), fix)
    elif nccl.get("problem"):
        fix = "gloo works: NCCL_DEBUG=INFO in cluster.env says what nccl chose; NCCL_SOCKET_IFNAME names the interface"
        yield Outcome("fail", f"over nccl: {nccl['problem']}", fix)
    else:
        over = f"; over nccl in {nccl['seconds']:.1f} s" if nccl else ""
        yield Outcome("ok", f"{case.deep['ranks']} ranks in {case.deep['seconds']:.1f} s{over}")
