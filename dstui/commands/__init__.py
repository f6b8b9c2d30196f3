"""The subcommands of dstui, one module each: its arguments and its run."""

from __future__ import annotations

from dstui import __version__

TYPE_CHECKING = False  # importing typing would cost as much as the rest of `dstui --version`
if TYPE_CHECKING:
    import argparse

COMMANDS = {
    "tour": "a guided tour of ten minutes, with a real training on this machine",
    "new": "a Plan from a template of the site or of dstui; without a name, lists them",
    "site": "the file with defaults, locks and templates for all users here: init, check",
    "check": "diagnostics for Plans, ds_config.json and accelerate YAML",
    "probe": "the ranks of a Plan up to the end of deepspeed.initialize: the resolved configuration, nothing trained",
    "explain": "what will happen at a launch, and where each value of a Plan comes from",
    "render": "the files and the command that a Plan produces",
    "import": "convert existing files to a Plan: ds_config.json, accelerate YAML, a pasted launch, a hostfile",
    "run": "a command as it is, its launches caught and run as jobs: dstui run -- bash finetune.sh",
    "forecast": "whether a Plan fits, how fast it would be, and which plan is best",
    "tune": "the best candidates of the forecast, measured by short jobs, and the Plan that won",
    "machine": "what this machine has: GPUs, links, host, software",
    "doctor": "whether this machine, and every host of a Plan, is ready; which host of a fleet differs from the others",
    "runs": "the jobs that were started, even if their terminal is closed",
    "plot": "the metrics of runs over their steps, as curves in text or as a picture",
    "attach": "show a job again in the TUI",
    "logs": "what the ranks of a job printed",
    "diagnose": "why a run failed, from its logs, whoever started it",
    "stacks": "the current Python stacks of a job's ranks",
    "bundle": "a zip of a job for a bug report, without secrets",
    "stop": "stop all processes of a job on every host",
    "checkpoint": "what is in a checkpoint, its complete weights, whether a Plan can resume from it",
    "docs": "what a key or the code of a finding means",
    "schema": "the JSON Schema of a Plan, for editors",
    "settings": "your settings, such as theme and keys: one file, opened in your editor",
    "completion": "a script that completes dstui's commands in bash, zsh or fish",
}
"""Name -> description in one line. Each command is the module of that name in this package."""


BEGIN_HERE = {
    "dstui tour": "ten minutes through all of it, with a real training on this machine",
    "dstui --headless quickstart": "train a tiny model now: on all GPUs, or on two CPU ranks",
    "dstui": "choose script, ZeRO stage, offload and batch on the screen, and launch",
    "dstui check plan.yaml": "find the mistakes in a Plan or a ds_config.json",
    "dstui run -- bash train.sh": "your own launch, unchanged, with logs and diagnosis",
}
"""The first commands of a newcomer, with what they do."""


def session_parser() -> argparse.ArgumentParser:
    """Return the parser of dstui without a command: for the TUI and --headless."""
    from argparse import RawDescriptionHelpFormatter

    from dstui.base.arguments import Parser

    parser = Parser(
        prog="dstui",
        usage="dstui [OPTIONS] [PLAN]\n       dstui COMMAND ...",
        description='From "I have GPUs and a training script" to "DeepSpeed is training, and I can see every rank".\n\nbegin here:\n'
        + "\n".join(f"  {command:<28} {what}" for command, what in BEGIN_HERE.items()),
        epilog="commands (dstui COMMAND --help):\n" + "\n".join(f"  {name:<10} {what}" for name, what in COMMANDS.items()),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="PLAN", help="a Plan (YAML) or a ds_config.json; `quickstart` is a shipped Plan")
    parser.add_argument("--version", action="version", version=f"dstui {__version__}")
    parser.add_argument("--machine", metavar="FILE", help="plan for the machine recorded in FILE instead of this one")
    parser.add_argument(
        "--no-reference",
        "--no-oracle",
        action="store_true",
        help="edit without the verdict of the installed DeepSpeed (a process of 250 MB)",
    )
    parser.add_argument("--plain", action="store_true", help="numbered prompts instead of the screen (also with ACCESSIBLE=1 or TERM=dumb)")
    headless = parser.add_argument_group("without a screen")
    headless.add_argument("--headless", action="store_true", help="check, launch, print every rank's lines, exit with the job's status")
    headless.add_argument("--dry-run", action="store_true", help="print what would be written and run, and start nothing")
    headless.add_argument("--json", action="store_true", help="one JSON event per line instead of text")
    headless.add_argument("--detach", action="store_true", help="print the job folder and leave the job running")
    headless.add_argument("--strict", action="store_true", help="stop a job in which no rank reads the configuration, and exit with 1")
    headless.add_argument("--trust-site", action="store_true", help="agree once to the commands that a site or team file runs in the job")
    headless.add_argument("--no-preflight", action="store_true", help="do not check the hosts before a launch to several")
    headless.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="override a key: deepspeed.zero_optimization.stage=2"
    )
    headless.add_argument(
        "--no-observe", action="store_true", help="no hook in the ranks that reports what DeepSpeed does (run.observe: off)"
    )
    headless.add_argument("--run-dir", metavar="DIR", help="the job folder itself (default: dstui_runs/NAME-DATE-TIME)")
    return parser
