"""10,000 generated and broken shell scripts are read without running anything, each in bounded time.

pytest tests/long/test_shell_fuzz.py -s
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Any

from dstui.adopt.shell.read import Unparsed, read_shell
from dstui.adopt.shell.shell_state import ShellContext, ShellLimit
from dstui.base.shell_parser import SECONDS
from tests.adopt.shell_launches import parse, parse_inner
from tests.adopt.test_job_files import JOBS, PAGE, TASKS
from tests.adopt.test_shell import BATCH_FILE, SAME_AS_BASH

INPUTS = 10_000
SLOW = 5.0
"""Seconds, besides the parser's own limit."""
PIECES = (
    *(
        "deepspeed t.py",
        "torchrun --nproc_per_node $N x.py",
        "$(touch CANARY)",
        "`touch CANARY`",
        "eval touch CANARY",
        "> CANARY",
        "| tee CANARY",
    ),
    *(
        "for i in {1..999999999}; do",
        "while :; do",
        "done",
        "if [ -z $X ]; then",
        "elif [[ $A == b* ]]; then",
        "else",
        "fi",
        "case $1 in a) ",
        ";;",
        "esac",
    ),
    *(
        "f() { f; }",
        "f",
        "A=($(echo a b))",
        '"${A[@]:1}"',
        "$((1 << 99))",
        "$((N++))",
        "${X:-${Y:=${Z%%*}}}",
        "<<EOF\n",
        "EOF\n",
        "<<<",
        "'",
        '"',
        "\\",
        "\n",
    ),
    *(
        "source /dev/stdin",
        "exec touch CANARY",
        "trap 'touch CANARY' EXIT",
        "\x00",
        "\x1b[2J",
        "é",
        "\U0001f600",
        "<your_path>",
        "&&",
        "||",
        ";",
        "&",
        "(",
        ")",
        "{",
        "}",
        "[[",
        "]]",
        "$$",
        "!",
    ),
    *("command: [torchrun, ", "\nrun: |\n  ", "\n- ", "{{ x.y }}", "&a [*a]", "$(RANK)", '"request": "launch",', "/*", "//", "```bash\n", "```\n", "t:\n\t$@ "),
)  # fmt: skip
REAL = (*SAME_AS_BASH.values(), *(text for text, _ in JOBS.values()), PAGE, *TASKS.values(), BATCH_FILE)
NAMES = ("x.sh", "x.sh", "x.sh", "x.bat", *TASKS)


def random_text(random_: random.Random) -> str:
    """Return a text: combined pieces, or a real script with parts cut, doubled or replaced."""
    if random_.random() < 0.5:
        return " ".join(random_.choice(PIECES) for _ in range(random_.randrange(1, 40)))
    text = random_.choice(REAL)
    for _ in range(random_.randrange(1, 6)):
        at, to = sorted(random_.randrange(len(text) + 1) for _ in range(2))
        text = random_.choice((text[:at] + text[to:], text[:to] + text[at:], text[:at] + random_.choice(PIECES) + text[at:]))
        text = text[:20_000]
    return text


def test_ten_thousand_texts_are_read_and_nothing_is_run() -> None:
    started: list[tuple[Any, ...]] = []

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.system", "os.exec", "os.posix_spawn") or (event == "subprocess.Popen" and "shfmt" not in str(arguments[1])):
            started.append((event, arguments))

    sys.addaudithook(audit)
    outcomes, slowest, random_ = Counter[str](), 0.0, random.Random(29)
    for _ in range(INPUTS):
        text = random_text(random_)
        begun = time.perf_counter()
        try:
            shell = read_shell(text, ShellContext("/project", random_.choice(NAMES), parse=parse_inner), parse)
            outcomes["launches" if shell.launches else "none"] += 1
        except (Unparsed, ShellLimit) as problem:
            outcomes[type(problem).__name__] += 1
            assert problem.message
        slowest = max(slowest, time.perf_counter() - begun)
        assert slowest < SLOW + SECONDS, text
    print(f"\n{INPUTS:,} texts: {dict(outcomes)}; slowest {slowest:.2f} s")
    assert started == []
