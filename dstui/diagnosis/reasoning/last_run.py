"""Separate several runs in one file, which was appended to or holds a manual restart. Only the last run is judged. Pure.

After the end of a run, only messages of processes that it took down follow. If many lines follow an end that say nothing about a failure,
something else has run since, and everything above is over.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

from dstui.base.dataclass import dataclass
from dstui.diagnosis.findings import Findings, Hit
from dstui.diagnosis.recognition.activity import FLUSHED, bar_advances, has_moving_bar, is_loop, runs_long, shape_recurs
from dstui.diagnosis.recognition.exits import LSF_DONE

QUIET = 60
"""Lines without a word about a failure, after the end of a launcher or of a run with one process."""
QUIET_AMONG_RANKS = 1000
"""The same after the end of a rank, whose peers may continue."""
QUIET_TO_THE_END = 200
"""The same if nothing failed up to a stop or the end of the file: no published failure had more than 77 such lines."""
BUFFER = 2 * 8192
"""Bytes that a program and one worker of it may have printed before its end, and that reach a file only after the message about it: Python
writes its standard output in pieces of 8192."""
FRAME = 2
"""Lines of a traceback per frame that is read: the source line follows it."""
BEGINNING = 2
"""Lines at the beginning of a file that no run prints later, by which another beginning is recognised."""
BEGINS_AGAIN = 2
"""Ends after which the beginning of the file recurs, from which on it begins a run: the head of a loop would not follow each of them."""
PROGRESS = re.compile(
    r"(?i)(?<![a-z])(?:steps?|epochs?|iter\w*|loss|batch\w*|acc\w*|lr|samples?|tokens?|eta|train\w*|eval\w*|it/s)(?![a-z])|\d%"
)
"""Output of a program at work."""
PARSER_ERRORS = frozenset({"BAD-ARGS", "LOCAL-RANK-ARG"})
"""Errors that end a program at its first line."""
SHELL_REPORT = re.compile(r"\S+: line \d+: +\d+ [A-Z]")
"""A shell's message about the end of a program."""
FOLLOWS = ("symptom", "cascade")
"""Roles of consequences of another end, or possible ones."""
LSF_REPORT = re.compile(r"^Exited with (?:exit code|signal) \d+\.?")
"""The status in LSF's report, which it appends to the output of each job."""
ANSWERED = 3
"""Lines below a command that show that it has run."""
OWN_REPORT = 10
"""More lines than a signal handler's report has."""
SERVER = re.compile(r"\(APIServer pid=(\d+)\)")
"""The label of vLLM's server: another process id is another run."""
HANDLER_REPORT = "is detected by the operating system"
"""In the report of PaddlePaddle's signal handler, after which the process exits."""
RAY_JOB = re.compile(r"/(session_[\d_-]+/runtime_resources/working_dir_files/_ray_pkg_\w+)/")
"""The folder to which Ray unpacks the code of one job: another folder is another job."""


@dataclass(frozen=True, slots=True)
class End:
    """An end in the log: its line, whether the whole run ended, whether it is only a consequence, whether it was on purpose."""

    line: int
    launcher: bool
    whole: bool
    follows: bool
    stop: bool
    crash: bool = False
    """True for a crash of native code: the stacks of all threads may follow."""
    gone: bool = False
    """True if nothing after it can belong to that process: a shell reported its end, or it ended before it did anything."""


def keep_last_run(found: Findings) -> Findings:
    """Return the findings without what earlier runs left if one file holds several. Several files are several ranks or hosts."""
    if len(found.files) != 1:
        return found
    ends = _ends(found)
    cut = max(
        _last_cut(found, ends),
        _last_of_another_job(found),
        _last_of_another_server(found),
        _last_report_of_lsf(found),
        _last_start_at_a_prompt(found),
    )
    launchers = [end.line for end in ends if end.launcher]
    if cut == 0:
        return replace(found, several_runs=any(later - earlier > QUIET for earlier, later in pairwise(launchers)))
    if found.well_at is not None and found.well_at[1] <= cut:
        found = replace(found, well=frozenset(), well_at=None, all_well=False)
    hits = tuple(hit for hit in found.hits if hit.at[1] > cut)
    return replace(
        found,
        several_runs=True,
        passed=tuple(hit for hit in found.hits if hit.at[1] <= cut and _ended(hit) and hit.signature.role == "root"),
        hits=hits,
        named=tuple(hit for hit in found.named if hit.at[1] > cut),
        ends=tuple(end for end in found.ends if end.at[1] > cut),
        tracebacks=len({hit.at for hit in hits if hit.raised and hit.raised.traced and not hit.raised.ignored}),
        spoke=frozenset(hit.rank for hit in hits if hit.rank is not None and hit.signature.role in ("root", "symptom", "cascade")),
        enqueued={},
        closing=0,
        killed=tuple(one for one in found.killed if one[2][1] > cut),
    )


def _ends(found: Findings) -> list[End]:
    """Return everything that ended something, in line order."""
    unlabelled = not found.agents and not found.labelled and all(hit.rank in (None, 0) for hit in found.hits)
    one = found.writer is not None or (unlabelled and found.world in (None, 1))
    known = [
        End(
            hit.at[1],
            launcher := _is_from_launcher(hit),
            one or launcher,
            _follows(hit),
            hit.signature.role == "stop",
            hit.signature.id == "SIGSEGV",
            _gone(hit),
        )
        for hit in found.hits
        if _ended(hit)
    ]
    reported = [
        End(end.at[1], end.exit.whole or end.root, one or end.exit.whole or end.root, follows=False, stop=False)
        for end in found.ends
        if end.exit.code != 0
    ]
    if found.several_nodes:  # another node may continue below
        known, reported = [[replace(end, launcher=False, whole=False) for end in part] for part in (known, reported)]
    return sorted([*known, *reported], key=lambda end: end.line)


def _ended(hit: Hit) -> bool:
    if hit.signature.role == "stop":
        return True
    raised = hit.raised is not None and hit.raised.traced and not hit.raised.ignored
    return hit.signature.role in ("root", *FOLLOWS) and (raised or hit.signature.alone)


def _gone(hit: Hit) -> bool:
    imports = hit.raised is not None and hit.raised.name in ("ImportError", "ModuleNotFoundError") and hit.raised.own.function == "<module>"
    return imports or hit.signature.id in PARSER_ERRORS or HANDLER_REPORT in hit.text or SHELL_REPORT.match(hit.text) is not None


def _follows(hit: Hit) -> bool:
    return hit.signature.role in FOLLOWS and hit.signature.id != "CHILD-FAILED"


def _is_from_launcher(hit: Hit) -> bool:
    raised = hit.raised
    return hit.signature.role == "stop" or (raised is not None and (raised.in_launcher or raised.process is not None))


def _last_cut(found: Findings, ends: list[End]) -> int:
    """Return the line of the last end after which something else ran; 0 if there is none."""
    traced, last, cut = found.traced.get(0, ()), found.final.get(0, 0), 0
    each_time = _begins_after_each(found, ends)
    for end, after in zip_longest(ends, ends[1:]):
        until = after.line if after else last
        stacks = traced[bisect_right(traced, end.line) : bisect_left(traced, until)]
        quiet = until - end.line - FRAME * len(stacks)
        if end.crash:  # several processes may have written their stacks into the same lines, of which few are recognised
            quiet = min(quiet, max(later - earlier for earlier, later in pairwise((end.line, *stacks, until))))
        if end.whole and (
            _begins_anew(found, ends[0].line, end.line, until)
            or (each_time and len(_beginnings(found, end.line, until)) >= BEGINNING)
            or (end.stop and after is not None and (after.gone or end.gone))
        ):
            enough = True
        elif after is None:
            tail = next(iter(found.tails.values()), [])
            enough = _something_else_runs(found, end, quiet, tail)
        else:
            enough = quiet >= (QUIET if end.whole else QUIET_TO_THE_END if after.stop else QUIET_AMONG_RANKS) and not after.follows
        cut = end.line if enough else cut
    return cut


def _last_of_another_job(found: Findings) -> int:
    """Return the line of the last exception of another of Ray's jobs than the last one; 0 if there is none."""
    jobs = [(hit.at[1], named[1]) for hit in found.hits if hit.raised and (named := RAY_JOB.search(hit.raised.own.file))]
    last = max(jobs, default=(0, ""))[1]
    return max((line for line, job in jobs if job != last), default=0)


def _last_of_another_server(found: Findings) -> int:
    """Return the line of the last exception of another of vLLM's servers than the last one; 0 if there is none."""
    last = [served[1] for _, line in found.ending.get(0, []) if (served := SERVER.search(line))][-1:]
    return max((hit.at[1] for hit in found.hits if (served := SERVER.search(hit.stream)) and hit.raised and [served[1]] != last), default=0)


def _last_report_of_lsf(found: Findings) -> int:
    """Return the line of LSF's last report but one, which ends an earlier job's text; 0 if there are not two."""
    reports = sorted(end.at[1] for end in found.ends if LSF_DONE.match(end.text) or LSF_REPORT.match(end.text))
    return reports[-2] if len(reports) > 1 else 0


def _last_start_at_a_prompt(found: Findings) -> int:
    """Return the line of a shell's prompt at which a program was started again, and printed something; 0 if there is none."""
    commands = found.commands.get(0, [])
    again = [line for place, (line, program) in enumerate(commands) if program in {one for _, one in commands[:place]}]
    return again[-1] if again and found.final.get(0, 0) - again[-1] >= ANSWERED else 0


def _something_else_runs(found: Findings, end: End, quiet: int, tail: Sequence[str]) -> bool:
    """Return whether the text after the last end belongs to another run."""
    below = [line for number, line in found.ending.get(0, []) if number > end.line]
    if end.whole and end.stop and end.gone:
        return len(below) > OWN_REPORT
    if end.stop:  # a bar may still have been redrawn before it
        again = found.last.get(0, 0) > end.line and has_moving_bar(tail)
    else:
        again = has_moving_bar(below) or bar_advances(below) or shape_recurs(found.loops, below)
    if end.launcher and again:
        return True
    if end.whole and ((end.gone and is_loop(below)) or (not end.stop and runs_long(below))):
        return True
    much = (found.final.get(0, 0) - end.line) * found.width.get(0, 0) > BUFFER
    trains = any(PROGRESS.search(line) for line in tail)  # destructors and warnings can continue for long, too
    enough = (
        QUIET_AMONG_RANKS if found.several_nodes or not trains else QUIET if is_loop(tail) or (end.whole and much) else QUIET_TO_THE_END
    )
    return quiet >= enough and not _printed_late(found, end, tail)


def _begins_anew(found: Findings, first: int, end: int, until: int) -> bool:
    """Return whether the text between two lines repeats the beginning of the file, which did not recur before the first end."""
    before = Counter(which for line, which in found.begun.get(0, []) if line <= first)
    return sum(before[which] == 1 for which in _beginnings(found, end, until)) >= BEGINNING


def _begins_after_each(found: Findings, ends: list[End]) -> bool:
    """Return whether the beginning of the file recurs after several ends: then it begins a run, however often it recurred before."""
    last = found.final.get(0, 0) + 1
    lines = [end.line for end in ends if end.whole]
    return sum(len(_beginnings(found, line, until)) >= BEGINNING for line, until in pairwise([*lines, last])) >= BEGINS_AGAIN


def _beginnings(found: Findings, after: int, until: int) -> set[int]:
    """Return which of the first lines of the file recur between two lines."""
    return {which for line, which in found.begun.get(0, []) if after < line < until}


def _printed_late(found: Findings, end: End, tail: Sequence[str]) -> bool:
    """Return whether the text after a stop may just be what the program had printed before it."""
    last = found.final.get(0, 0)
    return end.stop and (last - end.line) * found.width.get(0, 0) <= BUFFER and not any(FLUSHED.search(line) for line in tail)
