"""`dstui checkpoint PATH`: show a checkpoint, convert it to full weights or a universal one, or check whether a Plan can resume from it."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from dstui.base.output import Ink, json_text, remark, say, tell
from dstui.base.text import sanitise
from dstui.checkpoints.checkpoint import Checkpoint, read_checkpoint
from dstui.checkpoints.convert import Conversion, Kind, conversion_problem, convert, describe_checkpoint, estimate_cost, format_gib
from dstui.checkpoints.resume import resume_arguments, resume_findings, resume_line
from dstui.commands.plan_argument import plan_of
from dstui.documents.plan_files import read_pool
from dstui.documents.training_script import script_facts_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("path", type=Path, metavar="PATH", help="the folder that holds `latest`, or the folder of one tag")
    parser.add_argument("--tag", help="which of its checkpoints (default: the one that `latest` names)")
    parser.add_argument("--json", action="store_true", help="what is in it as one JSON object")
    parser.add_argument("--fp32", type=Path, metavar="DIR", help="write whole 32-bit weights into DIR, as safetensors")
    parser.add_argument("--max-shard-size", default="5GB", metavar="SIZE", help="the largest file of --fp32 (5GB)")
    parser.add_argument("--universal", type=Path, metavar="DIR", help="write one into DIR that any number of ranks can load")
    parser.add_argument("--resume", type=Path, metavar="PLAN", help="print whether PLAN can resume from it")
    parser.add_argument("--force", action="store_true", help="convert even if memory or disk seem too small, or its pickles name code")


def run(args: argparse.Namespace) -> int:
    """Show, convert or compare. Return 0; 1 if the checkpoint is incomplete or unsuitable; 2 if it cannot be read."""
    checkpoint = read_checkpoint(args.path, args.tag)
    if args.resume is not None:
        return _resume(checkpoint, args.resume)
    if args.fp32 is not None:
        return _convert("fp32", checkpoint, args.fp32, args)
    if args.universal is not None:
        return _convert("universal", checkpoint, args.universal, args)
    tell(json_text(checkpoint.as_json(), 2) if args.json else _shown(checkpoint))
    return int(bool(checkpoint.problems))


def _shown(found: Checkpoint) -> str:
    """Return the content of a checkpoint as lines."""
    several = f"  (one of {len(found.tags)}: {', '.join(found.tags[-4:])})" if len(found.tags) > 1 else ""
    lines = [f"{found.path}{several}", *(f"  {fact.name:<11} {fact.text}" for fact in describe_checkpoint(found))]
    return "\n".join(sanitise(line) for line in lines)


def _convert(kind: Kind, checkpoint: Checkpoint, target: Path, args: argparse.Namespace) -> int:
    """Print what the conversion needs, and convert. Return 1 if that is impossible."""
    if why := conversion_problem(checkpoint, trusted=args.force):
        say(f"{why}; --force does it anyway" if checkpoint.strange and not checkpoint.problems and not args.force else why)
        return 1
    needed = estimate_cost(kind, checkpoint, target)
    memory = f"{format_gib(needed.memory)} of memory ({format_gib(needed.memory_free)} free)"
    say(f"it takes about {memory} and {format_gib(needed.disk)} of disk ({format_gib(needed.disk_free)} free)")
    if needed.too_much and not args.force:
        say(f"{needed.too_much}: nothing was written (--force tries anyway)")
        return 1
    show = _Progress(needed.disk)
    convert(Conversion(kind, args.max_shard_size, trusted=bool(checkpoint.strange)), checkpoint, target, show)
    show.end()
    tell(f"written  {target}  ({', '.join(sorted(path.name for path in target.iterdir())[:6])})")
    return 0


class _Progress:
    """Shows the last line of DeepSpeed's tool and the written share in place on a terminal, else nothing."""

    def __init__(self, whole: int) -> None:
        self.whole, self.shown = max(whole, 1), os.isatty(2)

    def __call__(self, line: str, written: int) -> None:
        if self.shown:
            remark(Ink(f"\r\x1b[K{min(100, 100 * written // self.whole):3d} %  "), line[:100], Ink("\x1b[A"))

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            remark(Ink("\r\x1b[K\x1b[A"))


def _resume(checkpoint: Checkpoint, path: Path) -> int:
    """Print whether a Plan can load the checkpoint. Return 1 if it cannot."""
    from dstui.machine.probe import probe
    from dstui.render.target import Target

    plan = plan_of(str(path))
    target = Target(plan, probe(), read_pool(plan))
    findings = list(resume_findings(checkpoint, plan, target.world_size))
    for finding in findings:
        tell(f"{finding.severity} {finding.code}: {finding.message}" + (f"\n    why: {finding.why}" if finding.why else ""))
        if finding.fix:
            tell(f"    do:  {finding.fix.text}")
    if not findings:
        tell(f"{path} can resume from step {checkpoint.step} of {checkpoint.path}")
        folder = str(checkpoint.folder.absolute())
        if args := resume_arguments(plan, script_facts_of(plan), folder):
            tell(f"    do:  add to job.args: {shlex.join(args)}")
        else:
            tell(f"    do:  no option of the script is known for it; it needs {resume_line(plan, folder)}")
    return int(bool(findings))
