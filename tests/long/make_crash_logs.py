"""Recreate tests/diagnosis/crash_logs with real launchers, ranks and failures: `python tests/long/make_crash_logs.py [NAME…]`.

Each takes 10 to 30 s, the first one minutes, since DeepSpeed compiles an op. Only paths of this machine are replaced.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LOGS = HERE.parent / "diagnosis" / "crash_logs"
BIN = Path(sys.executable).parent
PORT = "29877"
DEEPSPEED = [str(BIN / "deepspeed"), "--master_port", PORT, "--num_gpus", "2"]
TORCHRUN = [str(BIN / "torchrun"), "--nproc_per_node", "2", "--master_port", PORT]
SCRIPT = "crash_script.py"
PLAIN = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
CONFIGS = {
    "plain": PLAIN,
    "batch": {**PLAIN, "train_batch_size": 7},
    "both": {**PLAIN, "fp16": {"enabled": True}, "bf16": {"enabled": True}},
    "stage-4": {**PLAIN, "zero_optimization": {"stage": 4}},
    "auto": {**PLAIN, "gradient_accumulation_steps": "auto"},
    "scheduler": {**PLAIN, "scheduler": {"type": "Cosine", "params": {}}},
}
FAULTS = ("raise", "kill", "segfault", "abort", "exit-3", "exit-1", "skip", "memory")
COMMANDS: dict[str, list[str]] = {
    **{f"config-{name}": [*DEEPSPEED, SCRIPT, "--config", f"{name}.json"] for name in CONFIGS if name != "plain"},
    **{f"deepspeed-{fault}": [*DEEPSPEED, SCRIPT, "--fault", fault] for fault in FAULTS},
    **{f"torchrun-{fault}": [*TORCHRUN, SCRIPT, "--fault", fault] for fault in FAULTS},
    "import": [*DEEPSPEED, SCRIPT, "--fault", "import"],
    "shape": [*TORCHRUN, SCRIPT, "--fault", "shape"],
    "success": [*DEEPSPEED, SCRIPT],
    "no-checkpoint": [*DEEPSPEED, SCRIPT, "--load", "."],
    "no-script": [*DEEPSPEED, "nowhere.py"],
    "strict-arguments": [*DEEPSPEED, "strict.py", "--epochs", "3"],
    "no-launcher": [sys.executable, SCRIPT],
    "hostfile-twice": [str(BIN / "deepspeed"), "--hostfile", "twice", SCRIPT],
    "exclude-all": [str(BIN / "deepspeed"), "--hostfile", "one", "--exclude", "localhost", SCRIPT],
    "port-in-use": [*TORCHRUN, SCRIPT],
    "never-joins": [*TORCHRUN, SCRIPT, "--fault", "never-joins", "--timeout", "20"],
    "deepspeed-SIGINT": [*DEEPSPEED, SCRIPT, "--pause", "5"],
    "torchrun-SIGTERM": [*TORCHRUN, SCRIPT, "--pause", "5"],
}
STRICT = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs')\np.parse_args()\n"


def prepare(folder: Path) -> None:
    """Write the files that the commands need to their working folder."""
    (folder / SCRIPT).write_text((HERE / SCRIPT).read_text())
    (folder / "strict.py").write_text(STRICT)
    (folder / "one").write_text("localhost slots=2\n")
    (folder / "twice").write_text("localhost slots=2\nlocalhost slots=2\n")
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))


def output_of(name: str, command: list[str], folder: Path) -> str:
    """Return the output of a command, and its exit status as a shell reports it."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "DS_ACCELERATOR": "cpu", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as run:
        assert run.stdout is not None
        lines = []
        for line in run.stdout:
            lines.append(line)
            if "SIG" in name and line.startswith("step 0"):
                run.send_signal(getattr(signal, name.rpartition("-")[2]))
    code = run.returncode if run.returncode >= 0 else 128 - run.returncode
    return f"$ {' '.join(command)}\n{''.join(lines)}exit status {code}\n"


def anonymous(text: str, folder: Path) -> str:
    """Return the text without this machine's paths and names."""
    for path, stands in ((str(folder), "/home/me/project"), (str(BIN.parent), "/opt/env"), (str(Path.home()), "/home/me")):
        text = text.replace(path, stands)
    text = text.replace(sys.base_prefix, "/usr").replace(socket.gethostname(), "node1")
    return re.sub(r"--world_info=\S+", "--world_info=…", text)


def main(names: list[str]) -> None:
    """Make the named logs, or all."""
    LOGS.mkdir(exist_ok=True)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell ignores it for background processes, and our children would inherit that
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        prepare(folder)
        for name, command in COMMANDS.items():
            if names and name not in names:
                continue
            with socket.socket() as holder:
                if name == "port-in-use":
                    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    holder.bind(("", int(PORT)))
                    holder.listen()
                text = output_of(name, command, folder)
            (LOGS / f"{name}.txt").write_text(anonymous(text, folder))
            print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
