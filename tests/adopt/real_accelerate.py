"""Ask accelerate itself, in a child process: what it loads from YAML texts, and what its questionnaire writes for given answers.

Its argument is the release's folder, for the import path. Standard input: {"load": [text, …], "ask": [{fragment of a prompt: answer, …},
…], "launch": [text, …]}; standard output: {"loaded": […], "written": […], "launched": […]}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from enum import Enum
from pathlib import Path
from typing import Any


def ask_accelerate(
    folder: Path, load: list[str], ask: list[dict[str, Any]] | None = None, launch: list[str] | None = None
) -> dict[str, Any]:
    """Start the child process and return its answer."""
    env = {**os.environ, "DS_ACCELERATOR": "cpu"}
    question = json.dumps({"load": load, "ask": ask or [], "launch": launch or []})
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], env=env, input=question, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.rpartition("ANSWER")[2])
    return answer


def loaded(text: str, folder: str) -> Any:
    """Return what accelerate loads from a file, or why it refuses it."""
    from accelerate.commands.config.config_args import load_config_from_file

    path = Path(folder, "c.yaml")
    path.write_text(text)
    try:
        return {name: value.value if isinstance(value, Enum) else value for name, value in vars(load_config_from_file(str(path))).items()}
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace(str(path), "FILE")


def written(answers: dict[str, Any], folder: str) -> str:
    """Return the YAML that the questionnaire writes; unanswered questions get their defaults."""
    from accelerate.commands.config import cluster

    def field(prompt: str, convert: Any = None, default: Any = None, error_message: str = "") -> Any:
        given = next((answer for part, answer in answers.items() if part in prompt), "")
        return default if given == "" and default is not None else convert(str(given)) if convert else str(given)

    def options(prompt: str, choices: list[Any], convert: Any = None, default: int = 0) -> Any:
        given = next((answer for part, answer in answers.items() if part in prompt), None)
        at = default if given is None else [str(choice) for choice in choices].index(str(given))
        return convert(at) if convert else at

    cluster._ask_field, cluster._ask_options = field, options
    path = Path(folder, "w.yaml")
    cluster.get_cluster_input().to_yaml_file(str(path))
    return path.read_text()


def launch_environment(text: str, folder: str) -> Any:
    """Return the parallelism variables of `accelerate launch` for a YAML, or for a line of options that begins with --; or its error."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    path = Path(folder, "l.yaml")
    path.write_text(text)
    words = text.split() if text.startswith("--") else ["--config_file", str(path), "train.py"]
    try:
        args, *_ = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))
        args.deepspeed_fields_from_accelerate_config = ""  # deepspeed_launcher sets this when it starts DeepSpeed
        return {name: value for name, value in prepare_deepspeed_cmd_env(args)[1].items() if "PARALLELISM_CONFIG" in name}
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    asked = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        answer = {"loaded": [loaded(text, folder) for text in asked["load"]], "written": [written(one, folder) for one in asked["ask"]]}
        answer["launched"] = [launch_environment(text, folder) for text in asked["launch"]]
    print("ANSWER", json.dumps(answer))
