"""The PLAN argument of commands: any supported file, opened as a Plan."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dstui.base.output import say
from dstui.documents.open import open_document
from dstui.plan import Plan


def add_no_site(parser: argparse.ArgumentParser) -> None:
    """Add the option that ignores the site file."""
    parser.add_argument("--no-site", action="store_true", help="without the site file (/etc/dstui/site.yaml, $DSTUI_SITE)")


def plan_of(name: str, sets: Sequence[str] = (), *, site: bool = True) -> Plan:
    """Open a file or a shipped Plan, and print what an import changed. Raises FileProblem or PlanError.

    `site`: apply the site file.
    """
    opened = open_document(name, sets, site=site)
    for note in (*opened.notes, *opened.plan.beneath.problems):
        say(note)
    return opened.plan
