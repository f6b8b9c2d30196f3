"""Turn lines into findings: every sign of a signature, every exception, every exit, with rank and position. Pure."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from dstui.diagnosis.findings import TEXT_CAP, Collected, Hit, Place
from dstui.diagnosis.recognition import activity
from dstui.diagnosis.recognition.activity import bar_advances, breaks_off, finished_bar
from dstui.diagnosis.recognition.dumps import Dumps, Ras
from dstui.diagnosis.recognition.exception_kinds import DATA_PATH, cause_of, of_pip, to_be_written
from dstui.diagnosis.recognition.labels import REMARKED, WARNED, Label, local_in, rank_in, rank_of_beginning, read_label
from dstui.diagnosis.recognition.launchers import Key, Launchers, time_of
from dstui.diagnosis.recognition.prefixes import Prefixes
from dstui.diagnosis.recognition.shapes import Shape, Shapes
from dstui.diagnosis.recognition.traces import HEADER, Raised, Traces
from dstui.diagnosis.signature import Sign, Signature
from dstui.diagnosis.signatures import BY_ID

Signs = Sequence[tuple[Sign, Signature]]
KEPT = 40
"""Hits of one signature in one stream that are kept."""
NAMED = 10
"""Exceptions without a traceback that are kept."""
WENT_ON = 20
"""Lines after an exception that was logged that show that it ended nothing, where nothing else says how the run ended."""
DONE = frozenset({"LAST-WORDS", "LAST-WORD"})
"""Signatures by which a program reports its completion."""
WORKER_LABEL = re.compile(r":\([^\s,]+ pid=\d+")
"""The label of one of Ray's workers: the run ends with the driver's exception."""
LONG = 1000
"""The same, after the first of several."""
AFTER_FRAMELESS = 10
"""The same, after tracebacks without a frame: whatever ends a program has one, so somebody caught these and lost their frames."""
MAX_LOOPS = 200
"""Shapes of lines above tracebacks that are kept."""
HEADS = 300
"""Characters of a line that may contain a logger's header."""
MESSAGE = 10
"""The most lines of an exception's message."""
DUMP_LINE = re.compile(r'File "|\bline \d+ in |Thread 0x|most recent call')
"""A part of a stack, also where several processes write theirs into one line."""
LOGGED = re.compile(
    r"\s*(?:\[?\d{4}-|\[?\d\d:\d\d|\[\d\d/\d\d |\[?(?:INFO|WARN|ERROR|DEBUG)\b|[WEI]\d{4} |(?:srun|slurmstepd|wandb|pdsh@?\S*): )"
)
"""The beginning of a logged line, which is not part of a message."""


INSTALLED = re.compile(r"\s*Successfully installed \S")
"""Pip's report of a success: it did without the wheels that it could not build."""
FILE_CAUSES = frozenset({"MODEL-FILES", "MODEL-FILE-PATH", "MODEL-FILES-PART", "DATA-FILE"})
LOADS = re.compile(r"load_(?:state_dict|checkpoint|from_checkpoint)")
"""Functions that load a checkpoint into a model."""
EMPTY = re.compile(r"size of tensor [ab] \(0\) must match|\b(?:vec|mat\d?|input) \(0\)")
"""An operand without a value: below frames of DeepSpeed, a weight that ZeRO 3 has partitioned."""
FIRST_CALLS = frozenset({"set_device", "_lazy_init", "init", "synchronize", "mem_get_info", "current_stream"})
"""Functions of torch.cuda that need only the GPU itself: if they run out of memory, another process uses it."""


def unnamed(raised: Raised, text: str) -> Signature:
    """Return the signature for an exception that no other one knows."""
    return BY_ID[cause_of(raised, text)]


PLACES: tuple[tuple[str, str, Callable[[Raised, str], bool]], ...] = (
    ("CKPT-SHAPE", "MODEL-LOAD", lambda raised, _: "transformers/modeling_utils" in raised.deepest.file),
    ("USER-SHAPE", "CKPT-SHAPE", lambda raised, _: LOADS.search(raised.deepest.function) is not None),
    ("MODEL-FILE-PATH", "DATA-FILE", lambda _, text: re.search(DATA_PATH, text) is not None),
    *((cause, "SAVE-FOLDER", lambda raised, _: to_be_written(raised)) for cause in FILE_CAUSES),
    ("AUTO-UNRESOLVED", "USER-PY", lambda raised, _: raised.name == "TypeError" and not raised.in_deepspeed),  # a number left as a string
    ("IMPORT-TORCH", "IMPORT-OTHER", lambda raised, text: raised.in_user_code and "import name '_" in text),  # private parts of PyTorch
    ("IMPORT-ASKED", "USER-PY", lambda raised, text: raised.in_user_code and "name 'deepspeed' is not defined" in text),  # not imported
    ("MODEL-LOAD", "DATA", lambda raised, text: raised.in_user_code and "Ran out of input" in text),  # pickle's word for any empty file
    ("USER-SHAPE", "Z3-PARTITIONED", lambda raised, text: raised.in_deepspeed and EMPTY.search(text) is not None),
    ("OOM-GPU", "GPU-BUSY", lambda raised, _: "torch/cuda/" in raised.deepest.file and raised.deepest.function in FIRST_CALLS),
)
"""The cause that a text has by itself -> the one that it has because of where it was raised, and the condition."""


def _at_its_place(signature: Signature, raised: Raised | None, text: str) -> Signature:
    """Return the signature that the text has because of where it was raised."""
    if raised is None:
        return signature
    for cause, other, applies in PLACES:
        if signature.id == cause and applies(raised, text):
            return BY_ID[other]
    return unnamed(raised, "") if signature.id == "WINDOWS" and not raised.in_deepspeed else signature


def _has_frame(hit: Hit) -> bool:
    """Return whether the traceback of an exception shows where it was raised."""
    return hit.raised is not None and hit.raised.deepest.file != ""


def _same_chain(hit: Hit, raised: Raised) -> bool:
    """Return whether this exception was being handled when that one was raised."""
    return hit.raised is not None and hit.raised.chain == raised.chain


class Scanner:
    """Collects findings from the lines of one file after another."""

    def __init__(self) -> None:
        self.found = Collected()
        self.shapes = Shapes()
        self._launchers = Launchers(self.found)
        self._reports = (Dumps(self.found), Ras(self.found))
        self._traces: dict[Key, Traces] = defaultdict(Traces)
        self._kept: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        """Signature, label and file -> its hits, by their index."""
        self._time: dict[Key, float] = {}
        self._message: dict[Key, tuple[int, Raised]] = {}
        """The position of an exception: the lines after it are its message."""
        self._announces: dict[Key, int] = {}
        """The position of an exception whose line ends with a colon: the next line may contain another one."""
        self._remark: dict[Key, int] = {}
        """The position of a logger's warning that quotes an error, which may continue below."""
        self._file_rank: int | None = None
        self._tracebacks = 0
        """The number of tracebacks in the files before the current one."""
        self._prefixes = Prefixes()

    def begin(self, name: str, rank: int | None) -> None:
        """Begin a new file; `rank` if it is known to be one rank's own."""
        self.found.files.append(name)
        self._file_rank = rank
        self._prefixes = Prefixes()
        self._tracebacks = self.found.tracebacks
        self.found.loops = set()

    def learn_beginning(self, lines: list[str]) -> None:
        """Learn the prefix of the current file from its first lines, before any is fed."""
        self._prefixes.learn_beginning(lines)
        self._file_rank = rank_of_beginning(lines) if self._file_rank is None else self._file_rank

    def end(self, tail: list[tuple[int, str]], whole: list[tuple[int, str]]) -> None:
        """End the current file. `tail`: its last non-blank lines with their numbers; `whole`: the same with overwritten text."""
        if not tail:
            return
        place, last = len(self.found.files) - 1, tail[-1][0]
        self.found.last[place], self.found.final[place] = tail[0][0], last
        self.found.ending[place] = whole
        traces = [(key, trace) for key, trace in self._traces.items() if key[0] == place]
        for key, trace in traces:
            if (raised := trace.unnamed(last)) is not None:
                self._keep(unnamed(raised, tail[-1][1]), Label(tail[-1][1], key[1]), (place, last), key, raised)
        self.found.launcher_broke = any(trace.in_launcher for _, trace in traces)
        opened = max((trace.last_line for _, trace in traces if trace.open), default=-1)
        torn = opened >= last - 1
        if sentence := breaks_off(tail[-1][1], within_traceback=torn):
            self.found.cut.append(f"{self.found.files[place]} {sentence} (line {last}).")
        if not torn:
            self._who_survived(place, tail, whole)

    def _who_survived(self, place: int, tail: list[tuple[int, str]], whole: list[tuple[int, str]]) -> None:
        """Mark exceptions after which the run continued: logged ones, or those within a loop that the file's end shows at work."""

        def in_file(hit: Hit) -> bool:
            return hit.at[0] == place and hit.raised is not None and not hit.raised.ignored

        raised = [hit for hit in self.found.hits if in_file(hit)]
        lines, last = [hit.at[1] for hit in raised] or [0], tail[-1][0]
        went_on = max(lines) < last - WENT_ON or min(lines) < last - LONG
        logged = all((hit.raised and hit.raised.logged) or WORKER_LABEL.search(hit.stream) for hit in raised) and not self.found.ends
        after = [text for number, text in (whole if self._alone else tail) if number > max(lines)]
        ended = any(end.exit.code != 0 for end in self.found.ends)
        if raised and (
            (logged and went_on) or bar_advances(after) or (self._alone and not ended and activity.loop_continues(self.found.loops, after))
        ):
            self._survived(in_file)
            self.found.tracebacks = self._tracebacks
        elif raised and self._alone and not ended and self._reports_completion(place, max(lines), after):
            self._survived(in_file)
            self.found.tracebacks, self.found.end_untold = self._tracebacks, True
        elif raised and self._alone and not ended and not any(map(_has_frame, raised)) and len(after) > AFTER_FRAMELESS:
            self._survived(in_file)
            self.found.tracebacks = self._tracebacks
        elif of := finished_bar(tail[-1][1]):
            within = [hit for hit in raised if hit.raised and hit.raised.within == of]
            self._survived(within.__contains__)
            self.found.tracebacks -= sum(hit.raised is not None and not hit.raised.logged for hit in within)

    def _reports_completion(self, place: int, line: int, after: list[str]) -> bool:
        """Return whether the program continues after its last exception and reports its completion at the end.

        This does not prove a success: buffered output may reach the file after the traceback of an exception that ended the program.
        """
        done = any(hit.at[0] == place and hit.at[1] > line and hit.signature.id in DONE for hit in self.found.hits)
        return done and activity.loop_continues(self.found.loops, after, activity.FEW)

    @property
    def _alone(self) -> bool:
        """Return whether there is no sign of a second process."""
        found = self.found
        return found.world in (None, 1) and not found.labelled and not found.agents and found.local is None

    def _survived(self, survived: Callable[[Hit], bool]) -> None:
        """Mark these exceptions as harmless."""
        for index, hit in enumerate(self.found.hits):
            if hit.raised and survived(hit):
                self.found.hits[index] = replace(hit, raised=replace(hit.raised, ignored=True))

    def feed(self, number: int, line: str, shape: Shape, above: Sequence[str] = ()) -> None:
        """Process one line of the current file with its shape, and the lines above it if they matter."""
        place = (len(self.found.files) - 1, number)
        label = self._label(line)
        label = self._launchers.in_entry(label, line, (place[0], label.stream))
        if label.rank is None and self._file_rank is not None:
            label = Label(label.text, label.stream, self._file_rank, label.host, None)
        if label.local is not None:
            self.found.local = max(self.found.local or 0, label.local)
        if label.rank is not None and label.stream.startswith("rank"):
            self.found.labelled.add(label.rank)
        key, before = (place[0], label.stream), above[-1] if above else ""
        trace = self._traces[key]
        code = trace.is_code(label.text)
        raised = None
        if shape.first is not None:
            self.found.begun.setdefault(place[0], []).append((number, shape.first))
        if when := time_of(label.text) or time_of(line):
            self._time[key] = when
        if shape.facts:
            ignoring, in_tracker = trace.ignoring, trace.in_tracker
            if HEADER in line and len(self.found.loops) < MAX_LOOPS:
                self.found.loops.update(activity.shape(one) for one in above if activity.NUMBER.search(one))
            raised = trace.feed(label.text, number, label.rank, self._head_of(line, before))
            if trace.announced:
                self.shapes.expect(trace.announced)
            self.found.tracebacks += HEADER in label.text and not ignoring and not trace.logged
            if raised is not None and in_tracker:
                stream, ended = f"{place[0]}:{label.stream}", raised
                self._survived(lambda hit: hit.stream == stream and _same_chain(hit, ended))
                self.found.tracebacks -= not trace.logged
            if INSTALLED.match(label.text):
                self._survived(lambda hit: hit.at[0] == place[0] and hit.raised is not None and of_pip(hit.raised))
            self._launchers.feed(label, place, key)
            for report in self._reports:
                report.feed(label, place)
        if raised or trace.open or trace.at_frame or DUMP_LINE.search(label.text):
            self.found.traced.setdefault(place[0], array("Q")).append(number)
        warned = raised is None and self._is_of_a_warning(label.text, before, number, key)
        signs = [
            (sign, signature)
            for sign, signature in shape.signs
            if (not code or signature.in_code) and (not warned or signature.alone or signature.role in ("success", "benign"))
        ]
        self._signatures(signs, label, place, key, raised)

    def _is_of_a_warning(self, text: str, before: str, number: int, key: Key) -> bool:
        """Return whether a line continues a warning: the one below Python's, or several below a logger's that quotes an error."""
        if REMARKED.match(text):
            self._remark.pop(key, None)
            if "Error" in text:
                self._remark[key] = number
            return False
        if HEADER in text or LOGGED.match(text):
            self._remark.pop(key, None)
        return WARNED.search(before[-HEADS:]) is not None or number - self._remark.get(key, -MESSAGE) < MESSAGE

    @staticmethod
    def _head_of(line: str, before: str) -> str:
        """Return what a logger has put before the head of a traceback, in its line or the one above."""
        return f"{before[:HEADS]}\n{line[: line.index(HEADER)][:HEADS]}\n" if HEADER in line else ""

    def _label(self, line: str) -> Label:
        """Return the labels of a line, also after the file's prefix."""
        line, host = self._prefixes.stripped(line)
        if host is not None:
            label = self._label_of(line)
            return replace(label, host=label.host or host, stream=host + label.stream)
        return self._label_of(line)

    def _label_of(self, line: str) -> Label:
        outer = read_label(line, late=False)
        bare = self._prefixes.without(outer.text)
        if bare == outer.text:
            return read_label(line)
        inner = read_label(bare)
        ranks = (inner.rank, outer.rank, rank_in(outer.text[: len(outer.text) - len(bare)]))
        rank = next((one for one in ranks if one is not None), None)
        return Label(inner.text, outer.stream + inner.stream, rank, inner.host or outer.host, outer.task, inner.local)

    def _signatures(self, signs: Signs, label: Label, place: Place, key: Key, raised: Raised | None) -> None:
        matched = False
        if raised:
            raised = self._inherited(raised, place, key)
            self._message[key] = (place[1], raised)
            self._announces[key] = place[1] if label.text.rstrip().endswith(":") else 0
        of_message = raised or self._continued_exception(label.text, place, key)
        for sign, signature in signs:
            if sign.matches(label.text):
                matched |= signature.role not in ("benign", "hint", "performance")
                by = raised if signature.alone or signature.role not in ("root", "symptom") else of_message
                self._keep(_at_its_place(signature, by, label.text), label, place, key, by)
        if raised and not matched and raised.traced and raised.name != "SystemExit":
            self._keep(unnamed(raised, label.text), label, place, key, raised)
        elif raised and not matched and not raised.ignored:
            named = Hit(BY_ID["USER-PY"], place, label.text[:TEXT_CAP], f"{place[0]}:{label.stream}", label.rank, label.host, raised=raised)
            self.found.named = [*self.found.named[1 - NAMED :], named]

    def _inherited(self, raised: Raised, place: Place, key: Key) -> Raised:
        """Return an exception with the traceback of the one whose message contains it (`BackendCompilerFailed: … raised:`)."""
        _, outer = self._message.get(key, (0, None))
        if raised.traced or outer is None or not outer.traced or place[1] != self._announces.get(key, 0) + 1:
            return raised
        return replace(outer, name=raised.name, chained=True)

    def _continued_exception(self, text: str, place: Place, key: Key) -> Raised | None:
        """Return the exception whose message continues in this line."""
        began, raised = self._message.get(key, (0, None))
        if (
            raised is None
            or not raised.traced
            or place[1] - began > MESSAGE
            or HEADER in text
            or LOGGED.match(text)
            or WARNED.search(text)
            or self._traces[key].at_frame
        ):
            self._message.pop(key, None)
            return None
        return None if raised.ignored else raised

    def _keep(self, signature: Signature, label: Label, place: Place, key: Key, raised: Raised | None) -> None:
        named = (raised.of_rank if raised else None, label.rank, rank_in(label.text), raised.rank if raised else None)
        rank = next((one for one in named if one is not None), None)
        if (
            signature.role in ("root", "symptom", "cascade")
            and rank is not None
            and not (raised and (raised.ignored or raised.in_launcher))
        ):
            self.found.spoke.add(rank)
        stream, when = f"{place[0]}:{label.stream}", self._time.get(key)
        local = label.local if label.local is not None else local_in(label.text)
        hit = Hit(signature, place, label.text[:TEXT_CAP], stream, rank, label.host, label.task, local, when, raised)
        kept = self._kept[(signature.id, label.stream, place[0])]
        if kept and self.found.hits[kept[-1]].at == place:
            return
        if len(kept) < KEPT:
            kept.append(len(self.found.hits))
            self.found.hits.append(hit)
        else:  # of many, the first and the latest
            self.found.hits[kept[-1]] = hit
