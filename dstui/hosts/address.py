"""Find the address by which ranks on other hosts reach a host: its name may be known only to the ssh configuration of this machine."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterator, Sequence

from dstui.hosts.ssh import ssh_command

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
