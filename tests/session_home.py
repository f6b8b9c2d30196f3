"""A temporary home folder for the test session, so that no .deepspeed_env or half-built operation of the user changes a result.

Operations that DeepSpeed compiles take a minute each, so they are kept between sessions, in a folder of `tests.releases` named after the
versions that built them.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.releases import FOLDER

OPERATIONS = ".cache/torch_extensions"
"""Where torch keeps compiled extensions, below the home folder."""


def use_home(home: Path) -> None:
    """Make the folder the home of this process and of all processes that it starts."""
    kept, operations = FOLDER / "torch_extensions", home / OPERATIONS
    kept.mkdir(parents=True, exist_ok=True)
    operations.parent.mkdir()
    operations.symlink_to(kept)
    downloads = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "pip"
    os.environ.setdefault("PIP_CACHE_DIR", str(downloads))  # pip verifies hashes, and torch takes minutes to download
    os.environ["DSTUI_RELEASES"] = str(FOLDER.parent)
    os.environ["HOME"] = str(home)
    for name in ("XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "DS_ENV_FILE"):
        os.environ.pop(name, None)
