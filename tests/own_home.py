"""A home folder for the test session: neither a .deepspeed_env nor half-built operations of the user's decide what a test says.

Operations that DeepSpeed compiles take a minute each, so they are kept from one session to the next, where `tests.releases` keeps what is made
once: under the versions that made them.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.releases import FOLDER

OPERATIONS = ".cache/torch_extensions"
"""Where torch keeps what it compiles, below the home folder."""


def enter(home: Path) -> None:
    """Make the folder the home of this process and of all that it starts."""
    kept, operations = FOLDER / "torch_extensions", home / OPERATIONS
    kept.mkdir(parents=True, exist_ok=True)
    operations.parent.mkdir()
    operations.symlink_to(kept)
    downloads = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "pip"
    os.environ.setdefault("PIP_CACHE_DIR", str(downloads))  # checked by hash, and torch takes minutes to fetch
    os.environ["DSTUI_RELEASES"] = str(FOLDER.parent)
    os.environ["HOME"] = str(home)
    for name in ("XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "DS_ENV_FILE"):
        os.environ.pop(name, None)
