"""The installed DeepSpeed's own parser as a service: one configuration per line in, one verdict per line out.

Run by file path with the interpreter of the ranks; imports nothing else of dstui. After its import (about 2 s) it prints
    {"ready": true, "version": "0.19.8", "types": {"fp16": false, "bf16": true}}
and then answers each line of standard input
    {"id": 1, "config": {…}, "world_size": 2}        (or "text": a file's content, read as DeepSpeed reads it)
with
    {"id": 1, "ok": false, "kind": "AssertionError", "message": "…", "warnings": ["…"]}
It ends when standard input ends.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # the parser needs no GPU, and probing for one takes seconds


class Warnings(logging.Handler):
    """Collects the warnings of DeepSpeed's logger during parsing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reported: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.reported.append(record.getMessage())


def as_read(text: str) -> Any:
    """Parse a file's content as DeepSpeed does: hjson with duplicate keys refused."""
    import hjson
    from deepspeed.runtime.config_utils import dict_raise_error_on_duplicate_keys

    return hjson.loads(text, object_pairs_hook=dict_raise_error_on_duplicate_keys)


def validate(request: dict[str, Any], reported: Warnings) -> dict[str, Any]:
    """Return DeepSpeed's verdict on one configuration for the planned number of ranks."""
    import deepspeed.runtime.config as module

    ranks = request.get("world_size") or 1
    reported.reported.clear()
    saved = module.dist
    module.dist = types.SimpleNamespace(get_rank=lambda *_a, **_k: 0, get_world_size=lambda *_a, **_k: ranks)
    answer: dict[str, Any] = {"id": request.get("id"), "ok": True, "kind": None, "message": ""}
    try:
        config = as_read(request["text"]) if "text" in request else request["config"]
        module.DeepSpeedConfig(copy.deepcopy(config))
    except Exception as error:  # any refusal is a verdict
        answer |= {"ok": False, "kind": type(error).__name__, "message": str(error)[:4000]}
    finally:
        module.dist = saved
    return answer | {"warnings": list(reported.reported)}


def requests() -> Iterator[dict[str, Any]]:
    """Yield the requests on standard input."""
    for line in sys.stdin:
        if line.strip():
            yield json.loads(line)


def float_types() -> dict[str, bool]:
    """Return which 16-bit floats DeepSpeed's accelerator supports; on a CPU that depends on its instructions."""
    from deepspeed.accelerator import get_accelerator

    here = get_accelerator()
    return {"fp16": bool(here.is_fp16_supported()), "bf16": bool(here.is_bf16_supported())}


def main() -> None:
    """Answer requests until standard input ends."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # DeepSpeed prints text that must not mix with the answers
    gc.disable()  # an import makes no garbage, and searching for some takes a fifth of its time
    import deepspeed
    import deepspeed.runtime.config
    from deepspeed.utils import logger

    gc.freeze()
    gc.enable()

    reported = Warnings()
    logger.handlers[:] = [reported]
    output.write(json.dumps({"ready": True, "version": deepspeed.__version__.partition("+")[0], "types": float_types()}) + "\n")
    for request in requests():
        output.write(json.dumps(validate(request, reported)) + "\n")


if __name__ == "__main__":
    main()
