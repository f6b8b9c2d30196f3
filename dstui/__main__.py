"""Run dstui as `python -m dstui`. This puts the current folder on the import path, so that is removed: its files are not part of dstui."""

import os
import sys

if sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - nothing is imported before this
    del sys.path[0]

from dstui.cli import main

sys.exit(main())
