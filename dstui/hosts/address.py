"""Where the ranks of other hosts find a host that ssh reaches: its name may be one that only the ssh configuration here knows."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterator, Sequence

from dstui.hosts.ssh import ssh_command

ANSWERS = 15.0
"""Seconds that the host gets to answer."""


def meeting_address(host: str) -> str:
    """Return the first address that the host has by `hostname -I`, which DeepSpeed's runner takes too.

    Where the host does not say one, the name that ssh has for it; at last the host's name here, without the user's.
    """
    reported = " ".join(_lines(ssh_command(host, ["hostname", "-I"])))
    return next(_addresses(reported.split()), None) or ssh_name(host)


def ssh_name(host: str) -> str:
    """Return what ssh's configuration calls the host (HostName)."""
    named = (line.partition(" ")[2] for line in _lines(["ssh", "-G", "--", host]) if line.startswith("hostname "))
    return next(named, "") or host.rpartition("@")[2]


def is_address(text: str) -> bool:
    """Return whether a text is an IP address, which nobody has to resolve."""
    return next(_addresses([text]), None) is not None


def is_loopback(text: str) -> bool:
    """Return whether a text is an address by which every host finds itself."""
    return is_address(text) and ipaddress.ip_address(text.partition("%")[0]).is_loopback


def means_itself(name: str) -> bool:
    """Return whether every host means itself by this name or address."""
    return name == "localhost" or is_loopback(name)


def _addresses(words: Sequence[str]) -> Iterator[str]:
    """Yield those of the words that are addresses: a shell may print others."""
    for word in words:
        try:
            ipaddress.ip_address(word)
        except ValueError:
            continue
        yield word


def _lines(command: Sequence[str]) -> list[str]:
    """Return what a command prints; nothing where it fails."""
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return ran.stdout.decode(errors="replace").splitlines() if ran.returncode == 0 else []
