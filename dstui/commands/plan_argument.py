"""The Plan that a command is given: any file that people have, opened as one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dstui.base.output import say
from dstui.documents.open import open_document
from dstui.plan import Plan


def add_no_site(parser: argparse.ArgumentParser) -> None:
    """Add the option that leaves the site file out."""
    parser.add_argument("--no-site", action="store_true", help="without what the site file says (/etc/dstui/site.yaml, $DSTUI_SITE)")


def plan_of(name: str, sets: Sequence[str] = (), *, site: bool = True) -> Plan:
    """Open a file or a shipped Plan, and say what was changed where it is made of another kind of file. Raises FileProblem or PlanError.

    `site`: with what the site file says.
    """
    opened = open_document(name, sets, site=site)
    for note in (*opened.notes, *opened.plan.beneath.problems):
        say(note)
    return opened.plan
