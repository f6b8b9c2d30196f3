"""Non-interactive ssh: command lines that end by themselves, the meaning of their failures, and the address of a host for other hosts.

OpenSSH's client and configuration are used unchanged. DeepSpeed and pdsh use them too, so what works here works there. Ranks on other hosts
need an address, since a name may be known only to the ssh configuration of this machine.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence

from dstui.base import child_python
from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise

CONNECT_SECONDS = 5
ALIVE_SECONDS = 3
"""Half of the silence in seconds after which a connection is given up."""
FORWARD_NOTHING = ("-a", "-x", "-oClearAllForwardings=yes")
"""Options that override ~/.ssh/config: keys of the user's ssh agent are not exposed to other hosts, and no ports are opened."""
SSH_OPTIONS = {
    "PDSH_SSH_ARGS_APPEND": (*FORWARD_NOTHING, "-oBatchMode=yes", "-oServerAliveInterval=5", "-oServerAliveCountMax=3"),
    "OMPI_MCA_plm_rsh_args": FORWARD_NOTHING,  # Open MPI up to 4
    "PRTE_MCA_plm_ssh_args": FORWARD_NOTHING,  # and from 5 on
    "HYDRA_LAUNCHER_EXTRA_ARGS": FORWARD_NOTHING,  # MPICH, MVAPICH2
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": FORWARD_NOTHING,
}
"""The ssh options of launchers, by environment variable: no forwarding, and pdsh asks nothing and notices a lost host."""


def ssh_command(host: str, words: Sequence[str], *, connect_seconds: float = CONNECT_SECONDS) -> list[str]:
    """Return the command that runs words on another host: no password, no question, no forwarding, and an end if the network is lost.

    A remote login may set SSH_AUTH_SOCK too: the command runs without it.
    """
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(connect_seconds))),
        "ServerAliveInterval": str(ALIVE_SECONDS),
        "ServerAliveCountMax": "2",
        "LogLevel": "ERROR",
    }
    pairs = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-T", *FORWARD_NOTHING, *pairs, "--", host, shlex.join(["env", "-u", "SSH_AUTH_SOCK", *words])]


def python_command(*candidates: str) -> list[str]:
    """Return a command that runs standard input under the first of these interpreters that exists, isolated from other imports."""
    run = " ".join(('exec "$python"', *child_python.options(candidates[0]), "-"))
    search = f'cd / && for python; do command -v "$python" >/dev/null 2>&1 && {run}; done; echo "no Python here" >&2; exit 127'
    return ["sh", "-c", search, "sh", *candidates]


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a host cannot be used over ssh, and what to do."""

    id: str
    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class _Sign:
    """A text that ssh prints, with its meaning; {host} is the host's name."""

    id: str
    text: str
    problem: str
    fix: str


INSTALL_PYTHON = "install Python 3.8 or newer, at the same path on every host"
SIGNS = (
    _Sign(
        "key-changed",
        "REMOTE HOST IDENTIFICATION HAS CHANGED|Offending .* key in",
        "its host key has changed",
        "if {host} was reinstalled: ssh-keygen -R {host}, then ssh {host} once",
    ),
    _Sign(
        "key-unknown",
        "Host key verification failed",
        "its host key is not known here",
        "ssh {host} once and answer yes (or ssh-keyscan {host} >> ~/.ssh/known_hosts, where the network is trusted)",
    ),
    _Sign(
        "login",
        "Permission denied",
        "it asks for a password: login by key does not work",
        "ssh-copy-id {host} (create a key with ssh-keygen if there is none)",
    ),
    _Sign(
        "name",
        "Could not resolve hostname",
        "its name cannot be resolved",
        "add it to /etc/hosts or to Host in ~/.ssh/config, or correct the hostfile",
    ),
    _Sign("refused", "Connection refused", "nothing listens on its ssh port", "start sshd on {host}, or name its Port in ~/.ssh/config"),
    _Sign(
        "unreachable",
        "timed out|No route to host|Network is unreachable|Timeout, server .* not responding",
        "it does not answer on the network",
        "ping {host}: is it up, and is there a firewall in between?",
    ),
    _Sign("closed", "Connection closed by|Connection reset by|kex_exchange", "it closed the connection", "look at sshd's log on {host}"),
    _Sign("no-python", "no Python here", "there is no Python", INSTALL_PYTHON),
    _Sign("old-python", "Python [0-9.]+ is too old", "its Python is too old", INSTALL_PYTHON),
    _Sign(
        "allocation",
        "Unable to create step for job .*: Requested node configuration is not available",
        "SLURM has no resources on it for this job: it is not in the allocation, or they are all in use",
        "name the hosts of the allocation in the Plan (scontrol show hostnames), or allocate its own (salloc --nodelist={host})",
    ),
    _Sign("no-ssh", "^ssh: No such file", "there is no ssh program on this machine", "install openssh-client"),
)
"""Messages of ssh and srun, specific ones first."""


def failure(host: str, reported: str) -> Failure:
    """Return the meaning of the standard error of ssh or srun; for unknown messages, the last lines."""
    for sign in SIGNS:
        if re.search(sign.text, reported, re.M):
            return Failure(sign.id, sign.problem, sign.fix.format(host=shlex.quote(host)))
    last = (reported.strip().splitlines() or ["it ended without an answer"])[-1]
    return Failure("other", sanitise(last), f"try: ssh {shlex.quote(host)} true")


def late(host: str, seconds: float) -> Failure:
    """Return the failure of a host that accepted the connection and then sent nothing."""
    fix = f"try: ssh {shlex.quote(host)} true. A home folder on a hanging file system, or a shell whose startup files wait, causes this"
    return Failure("silent", f"it did not answer within {seconds:g} s", fix)


ANSWERS = 15.0
"""Seconds for the host to answer."""


def meeting_address(host: str) -> str:
    """Return the first address that `hostname -I` prints on the host, as DeepSpeed's runner does.

    If the host prints none, return ssh's name for it, else the host's name without the user.
    """
    reported = " ".join(_lines(ssh_command(host, ["hostname", "-I"])))
    return next(_addresses(reported.split()), None) or ssh_name(host)


def ssh_name(host: str) -> str:
    """Return the name of the host in ssh's configuration (HostName)."""
    named = (line.partition(" ")[2] for line in _lines(["ssh", "-G", "--", host]) if line.startswith("hostname "))
    return next(named, "") or host.rpartition("@")[2]


def is_address(text: str) -> bool:
    """Return whether a text is an IP address, which needs no resolving."""
    return next(_addresses([text]), None) is not None


def is_loopback(text: str) -> bool:
    """Return whether a text is a loopback address."""
    return is_address(text) and ipaddress.ip_address(text.partition("%")[0]).is_loopback


def is_local_name(name: str) -> bool:
    """Return whether this name or address means the local host everywhere."""
    return name == "localhost" or is_loopback(name)


def _addresses(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that are addresses: a shell may print others."""
    for word in words:
        try:
            ipaddress.ip_address(word)
        except ValueError:
            continue
        yield word


def _lines(command: Sequence[str]) -> list[str]:
    """Return the output lines of a command; none if it fails."""
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return ran.stdout.decode(errors="replace").splitlines() if ran.returncode == 0 else []
