"""Run the supervisor of one job: python -m dstui.jobs.supervisor FOLDER [LOCK_FD]."""

from __future__ import annotations

import sys

from dstui.jobs.supervisor.supervisor import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
