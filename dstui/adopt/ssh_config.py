"""The hosts that an ssh configuration names (`Host worker-1 worker-2`): to be offered, not to be trusted.

Source: ssh_config(5). What a host's entry says is left to OpenSSH, which dstui and DeepSpeed use as it is.
"""

from __future__ import annotations

import re
import shlex

from dstui.base.limits import MAX_RANKS
from dstui.plan.hostfile import host_problem

_HOST = re.compile(r"\s*host(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*include(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)


def ssh_hosts(text: str) -> list[str]:
    """Return the names after `Host` in order, each once, without patterns (*, ?, !) and invalid names."""
    names = (name for line in text.splitlines() if (match := _HOST.match(line)) for name in _words(match[1]))
    return list(dict.fromkeys(name for name in names if not set(name) & set("*?!") and not host_problem(name)))[:MAX_RANKS]


def included(text: str) -> list[str]:
    """Return the files that `Include` names, as written (`~/.ssh/config.d/*`); the caller reads them."""
    return [word for line in text.splitlines() if (match := _INCLUDE.match(line)) for word in _words(match[1])]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that is never closed: OpenSSH refuses the file
        return []
