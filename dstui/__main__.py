"""`python -m dstui`."""

import sys

from dstui.cli import main

sys.exit(main())
