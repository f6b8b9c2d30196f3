"""List which rules the real DeepSpeed proves and which rest on its source: `python tests/check/proofs.py`."""

from __future__ import annotations

from collections import defaultdict

from cases import CASES
from test_rules import PARSED

from dstui.check.accelerate import RULES as ACCELERATE
from dstui.check.rule import Rule
from dstui.check.rules.all_rules import RULES

HOW = {
    "parse": "errors that DeepSpeed's parser shows (tests/check/test_rules.py)",
    "init": "errors that deepspeed.initialize or a step shows on CPU ranks (tests/long/test_initialize.py)",
    "source": "errors that need GPUs, several hosts, a package or a script of its own: the source line says so",
    "said": "warnings and notes",
}


def how(rule: Rule) -> str:
    """Return how a rule is proven."""
    if rule.severity != "error":
        return "said"
    if rule.code in {case.code for case in PARSED}:
        return "parse"
    return "init" if rule.code in {case.code for case in CASES if case.proof == "init"} else "source"


def main() -> None:
    """Print every rule, grouped by proof."""
    listed: dict[str, list[Rule]] = defaultdict(list)
    for rule in (*RULES.values(), *ACCELERATE.values()):
        listed[how(rule)].append(rule)
    for kind, words in HOW.items():
        print(f"\n{len(listed[kind])} {words}")
        for rule in listed[kind]:
            print(f"  {rule.code}  {rule.title}" + (f"  [{rule.source}]" if kind == "source" else ""))


if __name__ == "__main__":
    main()
