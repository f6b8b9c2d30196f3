"""Read the hosts in an ssh configuration (`Host worker-1 worker-2`), to suggest them to the user.

Source: ssh_config(5). All other settings are left to OpenSSH, which dstui and DeepSpeed use unchanged.
"""

from __future__ import annotations

import re
import shlex

from dstui.base.limits import MAX_RANKS
from dstui.plan.hostfile import host_problem

_HOST = re.compile(r"\s*host(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*include(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)


def ssh_hosts(text: str) -> list[str]:
    """Return the names after `Host` in order and without duplicates, patterns (*, ?, !) and invalid names."""
    names = (name for line in text.splitlines() if (match := _HOST.match(line)) for name in _words(match[1]))
    return list(dict.fromkeys(name for name in names if not set(name) & set("*?!") and not host_problem(name)))[:MAX_RANKS]


def included(text: str) -> list[str]:
    """Return the files that `Include` names, as written (`~/.ssh/config.d/*`); the caller reads them."""
    return [word for line in text.splitlines() if (match := _INCLUDE.match(line)) for word in _words(match[1])]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # an unclosed quote: OpenSSH refuses the file
        return []
