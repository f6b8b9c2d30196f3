"""Hostile or mistaken input gives a message and status 1 or 2, within limits of time and memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest

from tests.hostile.forked import CommandResult, Forked

MEMORY = 300 << 20
SECONDS = 6
"""CPU seconds allowed for a command. 3 are enough on the machine where the cases were written; others are slower."""
FORKED = Forked(memory=4 * MEMORY, cpu=SECONDS)
RAW = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
"""Control characters except newline and tab, C1 controls and bidirectional overrides, as UTF-8."""

LONG = "x" * 5000
OSC = "\x1b]52;c;aGFja2Vk\x07"
BYTE = "caf\udce9"
"""A file name with an invalid UTF-8 byte, as Python represents it."""
PLAN = "version: 1\njob: {script: train.py}\n"
CONFIG = '{"train_micro_batch_size_per_gpu": 1}'
RUNS = f"{PLAN}deepspeed: {{train_micro_batch_size_per_gpu: 1, optimizer: {{type: Adam, params: {{torch_adam: true}}}}}}\n"
DEEP = {"brackets": "[" * 40_000, "braces": "{" * 40_000, "dashes": "\n" + "- " * 20_000, "both": '{"a":[' * 20_000}


@dataclass(frozen=True)
class Case:
    """A command, the files in its folder, and the expected answer."""

    name: str
    words: tuple[str, ...]
    says: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    status: int = 2
    twin: bool = False
    """True if other cases cover the same files and the same command."""


TURNS = cycle((False, True))
"""True if the command is render or --headless, which load a Plan by the same function."""


def of_plan(name: str, text: str, says: str, *, status: int = 2, files: Mapping[str, str | bytes] | None = None) -> Iterator[Case]:
    """Yield cases for a Plan that render and headless refuse; check reports a diagnostic (1) or that the file is unreadable (2)."""
    more = {"plan.yaml": text, **(files or {})}
    other = next(TURNS)
    yield Case(f"{name}, render", ("render", "plan.yaml"), says, more, twin=other)
    yield Case(f"{name}, --headless", ("--headless", "plan.yaml", "--dry-run"), says, more, twin=not other)
    if status:
        yield Case(f"{name}, check", ("check", "plan.yaml"), says, more, status)


def of_cluster(name: str, cluster: str, says: str, **more: Mapping[str, str | bytes]) -> Iterator[Case]:
    """Yield cases for a Plan with this cluster section."""
    return of_plan(name, f"{PLAN}cluster: {cluster}\n", says, status=1, **more)


def nested() -> Iterator[Case]:
    says = "nested deeper than 60 levels"
    for name, deep in DEEP.items():
        yield from of_plan(f"a Plan of {name}", f"{PLAN}deepspeed: {deep}", says)
        if name != "dashes":
            yield Case(f"{name} in a ds_config.json", ("check", "a.json"), says, {"a.json": deep})
            yield Case(f"{name} in one that is launched", ("--headless", "a.json", "--dry-run", "--", "t.py"), says, {"a.json": deep})
        yield Case(f"{name} in an accelerate YAML", ("check", "a.yaml"), says, {"a.yaml": f"distributed_type: DEEPSPEED\na: {deep}"})
        yield Case(f"{name} after --set", ("--headless", "p", "--dry-run", "--set", f"deepspeed.a={deep}"), says, {"p": PLAN})
    machine = '{"gpus": ' + "[" * 40_000
    yield Case("a recorded machine", ("machine", "--machine", "m.json"), says, {"m.json": machine})
    yield Case("a recorded machine to check for", ("check", "quickstart", "--machine", "m.json"), says, {"m.json": machine})
    yield from of_plan("an alias within itself", f"{PLAN}deepspeed: {{a: &a [*a]}}\n", says)
    yield Case("one in an accelerate YAML", ("check", "a.yaml"), says, {"a.yaml": "distributed_type: &a {a: *a}\n"})


def numbers() -> Iterator[Case]:
    yield from of_cluster("slots by the billion", "{hosts: {a: 1, b: 1}, num_gpus: 999999999}", "is more than 1024, the maximum")
    yield from of_cluster("slots of one host", "{hosts: {localhost: 9999999999}}", "slots are more than 1,024, the most of one host")
    yield from of_cluster("ranks on the CPU", "{cpu_ranks: 9999999999}", "is more than 1024")
    yield from of_cluster("a port", "{master_port: 65536}", "is more than 65535")
    many = ", ".join(f"h{n}: 1024" for n in range(100))
    yield from of_cluster("many hosts", f"{{hosts: {{{many}}}}}", "102,400 ranks are more than 65,536")
    hostfile = {"h": "a slots=99999999999\n"}
    for words in (("render", "plan.yaml"), ("--headless", "plan.yaml", "--dry-run")):
        says = "line 1: 99999999999 slots are more than 1,024"
        yield Case(f"a hostfile, {words[0]}", words, says, {"plan.yaml": f"{PLAN}cluster: {{hostfile: h}}\n", **hostfile})
    yield Case("a hostfile to look at", ("machine", "--hosts", "h"), "slots are more than 1,024", hostfile)
    yield from of_plan("restarts", f"{PLAN}run: {{restarts: {{max: 999999999}}}}\n", "is more than 1000", status=1)
    yield from of_plan("silence", f"{PLAN}run: {{silence: 1e99}}\n", "is more than 604800", status=1)
    for name, number in {
        "digits": "7" * 4200,
        "more digits": "7" * 5000,
        "hexadecimal": "0x" + "f" * 9000,
        "fraction": "0." + "1" * 900,
    }.items():
        says = f"a number of {len(number):,} digits: the limit is 60"
        yield from of_plan(f"{name}", f"{PLAN}deepspeed: {{train_batch_size: {number}}}\n", says)
        yield Case(f"{name} in an accelerate YAML", ("check", "a.yaml"), says, {"a.yaml": f"num_processes: {number}\n"})
        if "x" not in number:
            text = f'{{"train_batch_size":\n {number}}}'
            yield Case(f"{name} in JSON", ("check", "a.json"), f"a.json:2:2: {says}", {"a.json": text})
            yield Case(f"{name} in hjson", ("check", "a.json"), f"a.json:3:2: {says}", {"a.json": f"# hjson\n{text}"})
    for value in ("1e999", "-1e999", "1e59", "9" * 59):
        files = {"plan.yaml": f"{PLAN}deepspeed: {{train_batch_size: {value}, zero_optimization: {{stage: {value}}}}}\n"}
        yield Case(f"{value} in a Plan", ("check", "plan.yaml"), "stage is ", files, 1)


def many() -> Iterator[Case]:
    count = 24_000
    keys = "".join(f"key_{number}: 1\n" for number in range(count))
    yield from of_plan(f"{count} unknown keys", PLAN + keys, f"and {count - 50:,} further mistakes, which are not listed", status=1)
    indented = "".join(f"  key_{number}: 1\n" for number in range(count))
    yield Case(f"{count} under deepspeed", ("check", "p"), "more findings of this kind", {"p": f"{PLAN}deepspeed:\n{indented}"}, 1)
    config = "{" + ", ".join(f'"key_{number}": 1' for number in range(count)) + "}"
    yield Case(f"{count} in a ds_config.json", ("check", "a.json"), "more findings of this kind", {"a.json": config}, 1)
    again = "{" + '"a": 1, ' * count + '"b": 1}'
    yield Case(f"{count} times the same", ("check", "a.json"), "a second time", {"a.json": again}, 1)
    sixty = "".join(f"key_{number}: 1\n" for number in range(60_000))
    yield from of_plan("60,000 unknown keys", PLAN + sixty, "it expands to more than 50,000 values")
    yield Case(
        "an include of many slots",
        ("render", "p"),
        "names slot",
        {"p": f"{PLAN}cluster: {{hosts: {{a: 9}}, include: 'a:{'0,' * 40_000}99'}}\n"},
    )
    dots = {"p": f"{PLAN}{'.' * 900}: 1\n{'deepspeed' + '.a' * 400}: 1\n"}
    yield Case("keys of dots", ("render", "p"), "unknown key", dots)
    wide = "a key whose path is longer than 1,000 characters"
    yield Case("long keys in each other", ("render", "p"), wide, {"p": f"{PLAN}deepspeed: {f'{{{LONG[:300]}: ' * 4}1{'}' * 4}\n"})
    yield Case("a key of 2,000 characters", ("check", "a.json"), wide, {"a.json": f'{{"{LONG}": 1}}'})
    yield Case("quotes that never end", ("check", "a.json"), "not JSON", {"a.json": '{"a": "' + '\\"' * 300_000})
    yield Case("comments that never end", ("check", "a.json"), "not JSON", {"a.json": "/* " * 300_000})


def texts() -> Iterator[Case]:
    unknown_user = f"{PLAN}cluster: {{hostfile: ~nosuchuser/x}}\n"
    yield from of_plan("an unknown user", unknown_user, "no such file or folder", status=0)
    nul = "a NUL (\\0) cannot be in it"
    yield from of_cluster("a NUL in a path", '{hostfile: "a\\0b"}', nul)
    yield from of_cluster("a NUL in a variable", '{env: {A: "a\\0b"}}', nul)
    yield from of_plan("a NUL in an argument", 'version: 1\njob: {script: t.py, args: ["a\\0b"]}\n', nul, status=1)
    yield from of_cluster(
        "a second line in a variable", '{env: {A: "a\\nB=c"}}', "a second line cannot be in it: .deepspeed_env has one line"
    )
    yield from of_cluster("an escape in a variable", '{env: {A: "\\e[2J"}}', "a control character (\\x1b) cannot be in it")
    for name, pattern in {"repeats": "(a){1000000000000}", "brackets": "(" * 50_000 + ")" * 50_000}.items():
        metrics = f"{PLAN}run: {{metrics: {{reward: '{pattern}'}}}}\n"
        yield from of_plan(f"a pattern with {name}", metrics, "regular expression", status=1)
    yield Case(
        "a name of 5,000 characters", ("render", "p"), "longer than a file name can be", {"p": f"{PLAN}cluster: {{hostfile: {LONG}}}\n"}
    )


def typed() -> Iterator[Case]:
    """Yield a very long path, one with an invalid UTF-8 byte and one with an escape sequence, for every argument that takes a path."""
    for name, path in {"long": LONG, "longer": f"{LONG}/{LONG}", "no UTF-8": BYTE, "an escape": OSC, "a user": "~nosuchuser/x"}.items():
        for command in ("diagnose", "render", "check", "doctor"):
            yield Case(f"{name}, {command}", (command, path), "dstui: " if command != "check" else ": ")
        for command in ("logs", "stop", "bundle", "stacks", "attach"):
            yield Case(f"{name}, {command}", (command, path), "dstui: ", status=1)
        yield Case(f"{name}, runs --diff", ("runs", "--diff", path, path), "dstui: ", status=1)
        for option in ("--machine", "--hosts"):
            yield Case(f"{name}, machine {option}", ("machine", option, path), "dstui: ")
        yield Case(f"{name}, headless", ("--headless", path, "--dry-run"), "dstui: ")
        yield Case(f"{name}, the screen", (path,), "dstui: ")
    for name, path in {"long": LONG, "longer": f"{LONG}/{LONG}"}.items():
        yield Case(f"{name}, render -o", ("render", "quickstart", "-o", path), "longer than a file name can be")
        yield Case(f"{name}, machine --save", ("machine", "--save", path), "longer than a file name can be")
        yield Case(
            f"{name}, --run-dir", ("--headless", "p", "--run-dir", path), "longer than a file name can be", {"p": RUNS, "train.py": ""}, 1
        )


def names() -> Iterator[Case]:
    option = "a host's name never begins with '-'"
    yield from of_cluster("an option", "{hosts: {-oProxyCommand=touch canary: 1}}", "a host's name has no spaces")
    yield from of_cluster("an option without blanks", "{hosts: {-oProxyCommand=canary: 1}}", option)
    yield from of_cluster("a master", "{hosts: {a: 1}, master_addr: -oProxyCommand=canary}", option)
    for host in (
        "a;canary",
        "a$(canary)",
        "a`canary`",
        "a|b",
        "a&b",
        "a'b",
        'a"b',
        "a\\b",
        "a>b",
        "ä",
        "a/b",
        "a,b",
        "a*",
        "{a}",
        "a\x1bb",
    ):
        quoted = '"' + host.replace("\\", "\\\\").replace('"', '\\"').replace("\x1b", "\\e") + '"'
        yield from of_cluster(f"the host {host!a}", f"{{hosts: {{{quoted}: 1}}}}", "a host's name has letters, digits")
        yield Case(f"the host {host!a} in a hostfile", ("machine", "--hosts", "h"), "a host's name has letters", {"h": f"{host} slots=1\n"})
    yield Case("an option in a hostfile", ("machine", "--hosts", "h"), option, {"h": "-oProxyCommand=canary slots=1\n"})
    yield from of_plan("a module that is an option", "version: 1\njob: {module: --help}\n", "is not the name of a module", status=1)


def hostile() -> Iterator[Case]:
    """Yield escape sequences in keys, values and names, and names that look like options."""
    told = "\\u001b]52;c;aGFja2Vk\\u0007"
    key = '"\\e]52;c;aGFja2Vk\\a"'
    yield from of_plan("an escape in a key", f"{PLAN}{key}: 1\n", told, status=0)
    yield from of_plan("an escape in a value", f"{PLAN}cluster: {{launcher: {key}}}\n", told, status=1)
    everywhere = {
        "p": f"version: 1\nname: {key}\njob: {{script: {key}, args: [{key}, a]}}\ndeepspeed: {{{key}: {key}, train_micro_batch_size_per_gpu: 1}}\n"
    }
    for words in (("render", "p"), ("--headless", "p", "--dry-run")):
        yield Case(f"escapes that are rendered, {words[0]}", words, f'"{told}": "{told}"', everywhere, 0)
        yield Case(f"a command with escapes, {words[0]}", words, "\"$(printf '\\033')\"", everywhere, 0)
    yield Case("an escape in JSON", ("check", "a.json"), told, {"a.json": '{"\\u001b]52;c;aGFja2Vk\\u0007": 1}'}, 1)
    yield Case("half a letter in a key of JSON", ("check", "a.json"), "\\ud800", {"a.json": '{"\\ud800": 1}'}, 1)
    half = {"a.json": '{"train_micro_batch_size_per_gpu": 1, "\\ud800": 1}'}
    yield Case("half a letter that is launched", ("--headless", "a.json", "--dry-run", "--", "t.py"), "not valid UTF-8", half)
    yield Case("a name of another encoding", ("--headless", f"{BYTE}.yaml", "--dry-run"), "Nothing was started", {f"{BYTE}.yaml": RUNS}, 0)
    yield Case(
        "a configuration of one",
        ("--headless", f"{BYTE}.json", "--dry-run", "--", "t.py"),
        "Nothing was started",
        {f"{BYTE}.json": CONFIG},
        0,
    )
    yield Case("a script of one", ("--headless", "a.json", "--dry-run", "--", f"{BYTE}.py"), "not valid UTF-8", {"a.json": CONFIG})
    for script in ("--help", "-m", "bind:x.py", "-"):
        yield Case(
            f"the script {script}",
            ("render", "p", "--only", "command"),
            f" ./{script}\n",
            {"p": f'version: 1\njob: {{script: "{script}"}}\n'},
            0,
        )
        yield Case(
            f"the script {script} typed", ("--headless", "a.json", "--dry-run", "--", script), f" ./{script}\n", {"a.json": CONFIG}, 0
        )
    here = {"p": f"{RUNS}cluster: {{hostfile: h, launcher: local}}\n", "h": "localhost slots=3\n"}
    for words in (("render", "p"), ("--headless", "p", "--dry-run")):
        yield Case(f"a hostfile of this machine, {words[0]}", words, "--num_gpus 3", here, 0)
    elsewhere = here | {"h": "localhost slots=1\nother slots=1\n"}
    yield Case("a hostfile of others", ("render", "p"), "local starts ranks on this machine only, but there is other", elsewhere)


def pasted() -> Iterator[Case]:
    """Yield texts given in place of the output of `nvidia-smi topo -m`."""
    matrix = "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n"
    for name, text in {
        "names without an end": "GPU0 " + "ib1" * 40 + "!",
        "a GPU with a long number": f"{matrix}GPU{'1' * 5000} X\n",
        "many UUIDs": "GPU 0: " + " (UUID: " * 100_000,
        "a speed that is none": f"{matrix}GPU 0: A100\nLink 0: ... GB/s\n",
        "lists": "[]",
        "no object": "{} {}",
        "no list": '{"gpus": 1}',
    }.items():
        good = text.startswith(matrix)
        yield Case(f"pasted: {name}", ("machine", "--machine", "m"), "" if good else "m: ", {"m": text}, 0 if good else 2)


def mistyped() -> Iterator[Case]:
    """Yield words and files that a newcomer gets wrong."""
    good = {"p": RUNS, "train.py": ""}
    yield Case("a command", ("chekc", "p"), "there is no command and no Plan chekc: did you mean dstui check?", good)
    yield Case("an option", ("--headless", "p", "--dryrun"), "unrecognized arguments: --dryrun (did you mean --dry-run?)", good)
    yield Case("a part of an option", ("--headles", "p"), "unrecognized arguments: --headles (did you mean --headless?)", good)
    yield Case("an option of a command", ("check", "p", "--strickt"), "(did you mean --strict?)", good)
    yield Case("an option with a value", ("check", "p", "--world-sise=2"), "(did you mean --world-size?)", good)
    for words in (
        ("stop", ""),
        ("check", ""),
        ("--headless", ""),
        ("--machine", "", "--headless", "p"),
        ("render", "p", "--output="),
        ("docs", ""),
        ("doctor", "--fleet", ""),
    ):
        yield Case("an empty argument: " + " ".join(words), words, "an argument is empty", good)
    yield Case("an option like no other", ("stop", "--all"), "unrecognized arguments: --all\n")
    yield Case(
        "a Plan in place of a machine",
        ("check", "p", "--machine", "p"),
        "p: neither a snapshot of `dstui machine --save` nor a matrix",
        good,
    )
    yield Case("a file in place of a folder", ("render", "p", "-o", "p"), "p: there is a file of this name", good)
    yield Case("a folder in place of a file", ("import", "."), ". is a folder: name a file in it")
    for name, content, says in (
        ("UTF-16", RUNS.encode("utf-16"), "is encoded in UTF-16: save the file as UTF-8"),
        ("Latin-1", f"{RUNS}name: caf\xe9\n".encode("latin-1"), "not UTF-8 (byte 0xe9): save the file as UTF-8"),
        ("binary", b"\x7fELF\0\0", "is a binary file, not text"),
        ("empty", b"", "the file is empty"),
        ("only comments", b"# a\n# b\n", "only comments are in the file"),
        ("a tab", b"version: 1\njob:\n\tscript: t.py\n", "a tab where YAML wants spaces: indent with spaces"),
        ("a key twice", b"version: 1\nname: a\nname: b\n", "the key 'name' is given a second time (first on line 2)"),
        ("more than 1 MiB", b"#" * (2 << 20), "is larger than 1 MiB"),
    ):
        yield Case(f"{name}, check", ("check", "p"), says, {"p": content})
        yield Case(f"{name}, import", ("import", "p"), says, {"p": content}, twin=True)
    for name, content in (("BOM", b"\xef\xbb\xbf" + RUNS.encode()), ("CRLF", RUNS.replace("\n", "\r\n").encode())):
        yield Case(f"{name} is read", ("check", "p"), "p: ", {"p": content, "train.py": ""}, 0)
    yield Case("a newer Plan", ("check", "p"), "7: this dstui reads version 1: update dstui", {"p": PLAN.replace("1", "7")}, 1)


CASES = [case for make in (nested, numbers, many, texts, typed, names, hostile, pasted, mistyped) for case in make()]


def assert_answer(case: Case, ran: CommandResult) -> None:
    """Assert that a command answered as the case expects."""
    assert (ran.status, "Traceback" in ran.output) == (case.status, False), ran.output[-3000:]
    assert case.says in ran.output, ran.output[-3000:]
    assert not RAW.search(ran.out + ran.err), ran.output[-3000:]
    assert ran.memory < MEMORY


def write_files(case: Case, folder: Path) -> Path:
    """Write the case's files and return their folder."""
    for name, content in case.files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=[pytest.mark.twin] if case.twin else []) for case in CASES])
def test_bad_input_gives_a_message(case: Case, tmp_path: Path) -> None:
    assert_answer(case, FORKED.run(case.words, write_files(case, tmp_path)))
    assert not (tmp_path / "canary").exists()


def test_fresh_interpreter_answers_like_forked_command(tmp_path: Path) -> None:
    for number, case in enumerate(CASES[:: len(CASES) // 6]):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert_answer(case, FORKED.run(case.words, write_files(case, folder), own=True))
