"""Generate command lines and the files that they name: `prepare(seed, …)` writes the files and returns the words, reproducibly."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dstui.cli import COMMANDS
from tests.hostile import jobs
from tests.hostile.plans import KINDS, document, model_config, recorded
from tests.hostile.values import Values, dump_json

NO_BYTE = re.compile("\0|[\ud800-\udc7f\udd00-\udfff]")
"""Characters that arguments and environment variables cannot contain."""
MAX_WANTED = ("check", "check", "render", "logs", "diagnose", "--headless", "--headless", "--headless", "")


class Words:
    """The command lines of one seed."""

    def __init__(self, values: Values, folder: Path, victim: dict[str, Any]) -> None:
        self.values, self.folder, self.victim = values, folder, victim
        self.one_of, self.chance = values.one_of, values.chance

    def command(self) -> list[str]:
        """Return a command line."""
        kind = self.one_of(*COMMANDS, *MAX_WANTED)
        words = self.makers().get(kind, self.any_command)()
        if self.chance(0.03):
            words.insert(self.values.random.randrange(len(words) + 1), self.text())
        return [kind, *words] if kind else words

    def makers(self) -> dict[str, Callable[[], list[str]]]:
        """Return command -> generator of its arguments; other commands get a file and some options."""
        return {
            "--headless": self.headless, "check": self.check, "render": self.render, "machine": self.machine, "runs": self.runs,
            "logs": self.logs, "diagnose": lambda: [self.one_of(self.job, self.file)(), *self.options(["--json"])],
            "stacks": lambda: [self.run(), *self.options(["--json"], ["--rank", self.number()], ["--deadline", self.number()])],
            "bundle": lambda: [self.run(), *self.options(["-o", self.one_of("out.zip", self.text())], ["--lines", self.number()])],
            "stop": lambda: [self.run()], "attach": lambda: [self.run()],
            "forecast": self.forecast,
            "tune": lambda: [self.file("plan"), "--budget", self.one_of("1s", self.text()), *self.options(["--json"], ["--steps", self.number()])],
            "doctor": lambda: [self.write("nothing.yaml", self.values.corrupted("version: 1").encode("utf-8", "backslashreplace"))],
        }  # fmt: skip

    def headless(self) -> list[str]:
        kind = self.one_of(*KINDS)
        words = [self.file(kind), *self.here_or_recorded(), *self.options(["--set", self.setting()], ["--json"])]
        words += ["--dry-run"] if "--machine" in words or self.chance(0.5) else []
        return words + (["--", self.text()] if self.chance(0.9 if kind == "config" else 0.02) else [])

    def check(self) -> list[str]:
        by = (["--integration", "trainer"], ["--deepspeed-version", self.one_of("0.16.9", self.text())], ["--world-size", self.number()])
        files = [self.file() for _ in range(self.one_of(1, 1, 2))]
        return [*files, *self.options(["--json"], ["--strict"], ["--machine", self.recorded()], *by)]

    def render(self) -> list[str]:
        only = self.one_of("command", "ds_config", "hostfile", "env")
        return [
            self.file("plan"),
            *self.here_or_recorded(),
            *self.options(["--only", only], ["-o", self.one_of("out", self.text())], ["--set", self.setting()]),
        ]

    def machine(self) -> list[str]:
        return self.one_of(["--machine", self.recorded()], ["--machine", self.file()], ["--hosts", self.hostfile()])

    def forecast(self) -> list[str]:
        """Return arguments for `forecast`, mostly with a model whose config.json exists."""
        model = self.write("model/config.json", model_config(self.values).encode("utf-8", "backslashreplace")).rpartition("/")[0]
        source = ["--set", f"model.source={model}"] if self.chance(0.9) else []
        gpu = ["--gpu-memory", self.one_of("80GB", self.text())]
        return [self.file("plan"), *source, *self.one_of(gpu, ["--machine", self.recorded()]), *self.options(["--json"], ["--recommend"])]

    def runs(self) -> list[str]:
        self.job()
        return [*self.options(["--json"], ["--changes"]), *(["--diff", self.run(), self.run()] if self.chance(0.3) else [])]

    def logs(self) -> list[str]:
        of = (["--rank", self.number()], ["--host", self.text()], ["--attempt", self.number()], ["--grep", self.text()], ["--time"])
        since, level = self.one_of("10m", "14:02", self.text()), self.one_of("error", "warning", self.text())
        numbers = self.one_of("csv", "json")
        return [self.run(), *self.options(*of, ["--level", level], ["--since", since], ["--metrics", numbers])]

    def any_command(self) -> list[str]:
        return [self.file(), *self.options(["--json"], ["-o", self.text()], ["--machine", self.recorded()])]

    # values of arguments

    def text(self) -> str:
        return self.values.text()

    def number(self) -> str:
        return str(self.one_of(0, 1, 2, -1, 10**30, "1e999", "nan", "0.5", self.text()))

    def options(self, *choices: list[str]) -> list[str]:
        """Return up to two of the choices."""
        return [word for words in self.values.random.sample(choices, min(self.values.random.randrange(3), len(choices))) for word in words]

    def setting(self) -> str:
        path = self.one_of(
            "deepspeed.zero_optimization.stage", "cluster.hosts", "job.args", "name", "cluster.env.A", "x.y.z", self.text()[:100]
        )
        if not self.values.bad():
            return "deepspeed.zero_optimization.stage=2"
        return f"{path}={dump_json(self.values.value()) if self.chance(0.5) else self.text()}"

    def name(self, suffix: str) -> str:
        """Return a file name, sometimes an unusual one."""
        if self.chance(0.75):
            return f"file{suffix}"
        name = NO_BYTE.sub("", self.text()).replace("/", "_")[:80]
        return (f"x{name}" if name.strip(".") == "" else name) + self.one_of("", "\udce9") + suffix

    def write(self, name: str, content: bytes) -> str:
        """Write a file into the folder and return its name."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return name

    def file(self, kind: str = "") -> str:
        """Write a file of this kind, or any kind, and return its name; rarely return a text that names no file."""
        if self.chance(0.05):
            return self.text()
        suffix, content = document(self.values, kind or self.one_of(*KINDS))
        return self.write(self.name(suffix), content)

    def recorded(self) -> str:
        return self.write("m.json", recorded(self.values).encode("utf-8", "backslashreplace"))

    def here_or_recorded(self) -> list[str]:
        """Return a recorded machine in most cases, since probing this one takes a quarter of a second."""
        return ["--machine", self.recorded()] if self.chance(0.8) else []

    def hostfile(self) -> str:
        """Write a hostfile whose first host is refused, so that the test contacts no host."""
        lines = [self.one_of("localhost slots=2", "# x", "", f"{self.text()} slots={self.values.number()}", self.text()) for _ in range(3)]
        return self.write(self.name(""), "\n".join(["-x slots=1", *lines]).encode("utf-8", "backslashreplace"))

    def job(self) -> str:
        """Write a job folder and return its name."""
        name = f"dstui_runs/{self.name('-20260102-030405')}"
        shutil.rmtree(self.folder / name, ignore_errors=True)
        written = [self.write(f"{name}/{file}", content) for file, content in jobs.files(self.values, self.folder, self.victim).items()]
        if self.chance(0.3):
            jobs.replace_by_special_file(self.values, self.folder / self.one_of(*written))
        return name

    def run(self) -> str:
        """Return an argument that names a run, or nearly so."""
        job = self.job()
        return str(self.one_of(job, job, job.rpartition("/")[2], str(self.folder / job), "", self.text()))


def prepare(seed: int, folder: Path, canary: Path, victim: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Write the files of a seed's command into an empty folder; return its words and its environment."""
    values = Values(seed, canary)
    script = folder / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch '{canary}'\n")
    script.chmod(0o755)
    state = folder.with_name(f"{folder.name}-state")
    index = state / "dstui" / "runs.jsonl"
    index.parent.mkdir(parents=True)
    entry = {"folder": "/nowhere", "name": "x", "tag": "t", "started": "", "begun_in": ""}
    index.write_bytes(b"".join(dump_json(values.tampered(entry)).encode("utf-8", "backslashreplace") + b"\n" for _ in range(2)))
    words = Words(values, folder, victim).command()
    more = values.one_of({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "10"}, {"COLUMNS": values.text()[:50]})
    env = {"XDG_STATE_HOME": str(state), "XDG_CONFIG_HOME": str(state), "HOME": str(state), **more}
    return [NO_BYTE.sub("", word) for word in words], {name: NO_BYTE.sub("", value) for name, value in env.items()}
