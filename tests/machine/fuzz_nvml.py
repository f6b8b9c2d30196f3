"""Take the snapshot of one profile repeatedly, each time with another NVML call failing in another way.

    fuzz_nvml.py PROFILE FUNCTION…      with FAKENVML_PROFILE naming a writable file, and CODES the codes (default: all)

Prints one JSON line per case: [function, code, gpu, lines of the snapshot, or an uncaught traceback].
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from dstui.machine import nvml

CODES = [*range(1, 29), 999]
"""Every nvmlReturn_t in nvml.h."""


def snapshot(profile: str) -> list[object]:
    """Return the lines that the program prints for a profile; a string if an exception escapes."""
    Path(os.environ["FAKENVML_PROFILE"]).write_text(profile)
    lines: list[object] = []
    nvml.emit = lambda kind, value: lines.append([kind, value])
    try:
        nvml.report([])
    except Exception:
        lines.append(traceback.format_exc())
    return lines


def main() -> None:
    """Try every function, code and GPU."""
    profile = Path(sys.argv[1]).read_text()
    codes = [int(code) for code in os.environ.get("CODES", "").split()] or CODES
    gpus = [str(gpu) for gpu in range(int(os.environ["GPUS"]))]
    print(json.dumps(["", 0, "-", snapshot(profile)]))
    for function in sys.argv[2:]:
        for code in codes:
            for gpu in gpus if "Device" in function and "Count" not in function else ["-"]:
                print(json.dumps([function, code, gpu, snapshot(f"! {function} {gpu} - {code}\n" + profile)]))


if __name__ == "__main__":
    main()
