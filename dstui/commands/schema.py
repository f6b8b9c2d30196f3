"""`dstui schema`: the JSON Schema of a Plan, for completion and checks in editors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from dstui.base.files import write_atomic
from dstui.base.output import refuse, say, tell
from dstui.plan.catalogue import RELEASES, nearest_release, version_tuple
from dstui.plan.json_schema import plan_schema
from dstui.site.schema import site_schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--deepspeed-version", metavar="V", help=f"with the keys of this release (known: {', '.join(RELEASES)})")
    parser.add_argument("--site", action="store_true", help="that of a site file (docs/site.md) instead")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write it into a file, and print how to configure an editor for it"
    )
    parser.add_argument("--force", action="store_true", help="let -o replace a file with other content")


def run(args: argparse.Namespace) -> int:
    """Print or write the schema. Return 0; 2 after an error."""
    try:
        version = args.deepspeed_version
        if version and version_tuple(nearest_release(version)) != version_tuple(version):
            say(f"the keys are those of DeepSpeed {nearest_release(version)}, the nearest release that is known")
        text = json.dumps(site_schema(version) if args.site else plan_schema(version), indent=1, ensure_ascii=False) + "\n"
        if args.output is None:
            tell(text, end="")
            return 0
        state = "written" if write_atomic(args.output, text, replace=args.force) else "unchanged"
        what = "site file" if args.site else "Plan"
        tell(f"{state}  {args.output}\nfirst line of a {what}:  # yaml-language-server: $schema={args.output}")
    except ValueError:
        return refuse(f"--deepspeed-version {args.deepspeed_version}: a version is three numbers, such as {RELEASES[-1]}")
    return 0
