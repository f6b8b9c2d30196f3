"""Hand programs that need DeepSpeed to the interpreter that has already imported it (tests/warm_deepspeed.py)."""

import os
import sys


def _hand_over(path, words):
    """Let the warm interpreter run a program, and exit with its status. Returns if the interpreter refuses."""
    import contextlib
    import json
    import socket
    from pathlib import Path

    with socket.socket(socket.AF_UNIX) as warm:
        try:
            warm.connect(path)
            wanted = {"words": words, "environment": dict(os.environ), "folder": str(Path.cwd()), "prefix": sys.prefix}
            socket.send_fds(warm, [json.dumps(wanted).encode()], [0, 1, 2])
            if warm.recv(1) != b"y":
                return
        except OSError:
            return
        status = b""
        with contextlib.suppress(OSError):
            status = warm.recv(1)
        os._exit(status[0] if status else 1)


_program = sys.orig_argv[1:]
_FILES = ("/dstui/reference/", "/tests/forecast/ranks.py", "/tests/adopt/real_accelerate.py")
"""Parts of the paths of programs to hand over."""
_BEGINNING = "# asks DeepSpeed\n"
"""The first line of `python -c` programs to hand over: the doctor's, and some of the tests."""
if "DSTUI_TESTS_WARM" in os.environ and (
    any(file in word for word in _program[:1] for file in _FILES) or (_program[:1] == ["-c"] and _program[1].startswith(_BEGINNING))
):
    _hand_over(os.environ["DSTUI_TESTS_WARM"], _program)
