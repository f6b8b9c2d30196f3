"""Follow tracebacks line by line in each stream: which exception ended what, in whose code, and whether it did harm."""

from __future__ import annotations

import re
from dataclasses import replace

from dstui.base.dataclass import dataclass
from dstui.diagnosis.recognition.activity import STEPS
from dstui.diagnosis.recognition.labels import rank_in

HEADER = "Traceback (most recent call"
CHAINED = ("During handling of the above exception", "was the direct cause of the following exception")
AT_EXIT = ("Exception ignored in atexit callback", "Error in atexit._run_exitfuncs")
IGNORED = (
    "Exception ignored in",
    "Exception ignored on calling",
    "Exception ignored while",  # Python 3.14
    "so the task will be retried. Error: User exception",  # Ray
    "suppress with 'RAY_IGNORE_UNHANDLED_ERRORS",  # the result of a task of Ray's that nobody asked for
    *AT_EXIT,
)
THREAD_HEAD = "Exception in thread"
SPAWNED_PROCESS = re.compile(r"-- Process (\d+) terminated with the following error:")
"""The line that torch.multiprocessing.spawn puts before the traceback of one of its processes."""
CHILD_PROCESS = re.compile(r"^Process (?:\w*Process)-(\d+):\s*$")
"""The line that multiprocessing puts before the traceback of one of its processes, counted from 1."""
OF_RANK = re.compile(r"Traceback \(most recent call last\): \(RANK (\d+)\)")
"""The head of a rank's traceback in the exception of PyTorch's distributed checkpoints, which every rank prints."""
RAISES = re.compile(r"^\s+raise (?:\w+\.)*(\w+)")
FRAME = re.compile(r'^[\s>]*File "([^"]+)", line (\d+)(?:, in (\S+))?')
PATH = r"(?:~?/|~?\\|[A-Za-z]:[\\/])[^:\n]+"
NAME = r"(<[^>\n]+>|[^\s(]+)"
CELL = re.compile(
    rf"^(?:File )?({PATH}):(\d+),? in {NAME}|^(Cell In ?\[\d+\]|Input In \[\d+\])(?:, line (\d+))?"
    rf"|^(<ipython-input-[^>]+>|{PATH}\.pyx?) in {NAME}|^File ({PATH}):(\d+)\s*$"
)
"""A frame in the format of IPython and Jupyter, of Linux or Windows; the last form is that of a module's own lines."""
CELL_CODE = re.compile(r"^\s*(?:-+> ?)?\d+(?:\s|$)")
"""A numbered source line below such a frame."""
ANNOUNCED = re.compile(r"^([A-Za-z_]\w*)\s{2,}Traceback \(most recent call last\)")
"""The head of an IPython traceback, with the class."""
RICH = re.compile(r"^[│|] (\S+\.py):(\d+)(?:\s+in\s+(\w+))?")
"""A frame in the format of rich."""
RICH_MARK = re.compile(r"^[│|] +❱ *(\d+) ")
"""The line of code that rich marks below it: the number after a long path is broken at the console's width."""
EXCEPTION = re.compile(
    r"^(?!Error: *[-+\d.e% ]+$)"  # a figure that a program calls its error
    r"(?:[A-Za-z_]\w*\.)*"
    r"((?:_*[A-Z]\w*)?(?:Error|Exception|Interrupt|Timeout|Expired|NotFound|Refused|Fault|StopIteration|SystemExit))"
    r"(?=:|\s*$|\s+:|Traceback|\s{4,}\S|\. Did you mean)"  # the last three: another rank has written into the line
)
OTHER_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)+(_*[A-Z]\w*|error|timeout|gaierror|herror)(?=:\s|$)")
"""An exception whose name contains none of those words (torch._dynamo.exc.Unsupported): only directly after the frames of a traceback."""
SHREDDED = re.compile(r"^[\w.]*?(\w{4,})\1|^[\w.]+(?:\s+:|Traceback)")
"""Two ranks that wrote into one pipe at the same time."""
HEAD = 200
"""Characters of a line that can contain the names of two exceptions."""
LOADERS = {"torch/serialization.py:load": "MODEL-FILE-PATH", "torch/serialization.py:save": "SAVE-FOLDER"}
"""A file and function in the traceback -> the cause if a file is missing."""
NEAR = 6
"""Lines after a frame within which an exception belongs to it if the head of the traceback is missing, as in an excerpt."""
WITHOUT_HEADER = ("SyntaxError", "IndentationError", "TabError")
LIBRARY = re.compile(
    r"site-packages|dist-packages|\.pyx$|/rank/hook/sitecustomize\.py|/lib/python\d|<frozen|/[Ll]ib/(?:asyncio|concurrent|http|importlib|json|multiprocessing|urllib)/"
    r"|/[Ll]ib/(?:os|pathlib|pickle|runpy|shutil|socket|ssl|subprocess|threading|tempfile|zipfile)\.py|/(?:deepspeed|transformers|torch|accelerate|peft|trl|datasets)/"
)
LAUNCHER = re.compile(
    r"deepspeed/launcher/(?:runner|launch)\.py|torch/distributed/(?:run|launch|launcher/api|elastic/agent/server/\w+)\.py|accelerate/commands/|bin/(?:deepspeed|torchrun|accelerate)$"
)

BACKGROUND = re.compile(r"threading\.py:_bootstrap_inner$|/wandb/sdk/internal/")
"""The first frame of every thread, or of wandb's own helper."""
TRACKER = re.compile(
    r"/wandb/sdk/(?:internal/|interface/router|mailbox|lib/(?:asyncio_manager|sock_client|service))|/swanlab/data/callbacker"
    r"|/logging/__init__\.py$"
)
"""Files of a tracker's own helpers, and Python's logging, which prints its own errors: their exceptions end nothing."""
LEVEL = re.compile(r"(?:^|[\[\s|:(-])(?:ERROR|CRITICAL|EXCEPTION)(?!: [A-Z])(?:[\]\s|:)-]|$)")
"""A logger's header before a traceback that was passed to it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback."""

    file: str
    line: str = ""
    function: str = ""
    text: str = ""
    """The source line in the traceback."""
    number: int = 0
    """Its line number in the log."""

    @property
    def in_library(self) -> bool:
        """Return whether it is outside of the user's own code."""
        return LIBRARY.search(self.file) is not None

    @property
    def where(self) -> str:
        """Return `train.py, line 30, in main`."""
        line = f", line {self.line}" if self.line else ""
        return f"{self.file}{line}{f', in {self.function}' if self.function else ''}"


NO_FRAME = Frame("")


@dataclass(slots=True)
class Raised:
    """An exception at the end of a traceback."""

    name: str
    chain: int
    """Exceptions that were raised while another was handled share its number."""
    traced: bool
    """True if a traceback precedes it."""
    ignored: bool
    in_user_code: bool
    in_launcher: bool
    clean: bool = True
    """True if the line comes from a single rank."""
    place: str = ""
    """The signature's id if the place where it was raised shows the cause of an unknown exception."""
    own: Frame = NO_FRAME
    """The last frame in the user's own code."""
    deepest: Frame = NO_FRAME
    """The frame that raised it."""
    at_exit: bool = False
    """True if Python only reports it while the interpreter exits: the program had ended by then."""
    of_destructor: bool = False
    """True if Python only reports it (`Exception ignored in`), or it belongs to a tracker."""
    in_deepspeed: bool = False
    """True if the traceback has a frame of DeepSpeed."""
    in_thread: bool = False
    """True if it ended a thread, which does not end the process."""
    wraps: bool = False
    """True if it was raised from another exception explicitly, to reword it."""
    chained: bool = False
    """True if it was raised while another one was handled."""
    rank: int | None = None
    """The rank in the line in which its traceback began."""
    of_rank: int | None = None
    """The rank that it happened on, whichever rank printed it."""
    logged: bool = False
    """True if it was logged: the program may have continued."""
    process: int | None = None
    """The process number reported by torch.multiprocessing.spawn: the rank on its host."""
    child: int | None = None
    """The number of the process in multiprocessing, from 1."""
    within: str = ""
    """The total steps of the progress bar in whose line its traceback began."""


class Traces:
    """Follows the tracebacks of one stream."""

    def __init__(self) -> None:
        self.chain = 0
        self.open = False
        self.at_frame = False
        """True if the last line was a frame, so that an indented line now is its source code."""
        self.last_line = 0
        """The line of the last frame, or of the head of a traceback."""
        self._indent = 0
        """The indent of the last frame: its code is deeper."""
        self._chained = self._again = self._launcher = self._exiting = self._thread = self._wraps = self._logged = self._deepspeed = (
            self._tracker
        ) = False
        self._ignored = 0
        self._frame = self._own = NO_FRAME
        self._within = self._loader = ""
        self._rank: int | None = None
        self._of_rank: int | None = None
        self._process: int | None = None
        self._child: int | None = None
        self._raises = ""
        self.announced = ""
        """The class in the head of a notebook's traceback, if its name does not look like an exception."""

    def feed(self, text: str, number: int = 0, rank: int | None = None, before: str = "") -> Raised | None:
        """Process one line with its number, the rank of its label, and its prefix. Return the exception if the line ends a traceback."""
        if HEADER in text:
            self._begin(number)
            named = ANNOUNCED.match(text)
            self.announced = named[1] if named and not EXCEPTION.match(f"{named[1]}:") else ""
            before += text[: text.index(HEADER)]
            self._logged = LEVEL.search(before) is not None
            self._rank = rank if rank is not None else rank_in(text[: text.index(HEADER)])
            if self._rank is None and self._logged:
                self._rank = rank_in(before)
            self._of_rank = int(of[1]) if (of := OF_RANK.search(text)) else None
            self._within = steps[-1][1] if (steps := STEPS.findall(text)) else ""
        elif found := SPAWNED_PROCESS.search(text):
            self._begin(number)
            self._process = int(found[1])
        elif found := CHILD_PROCESS.match(text):
            self._child = int(found[1])
        elif any(words in text for words in IGNORED):
            self._ignored += 1
            self._exiting = any(words in text for words in AT_EXIT)
        elif THREAD_HEAD in text:
            self._thread = True
        elif any(words in text for words in CHAINED):
            self._chained, self._wraps = True, CHAINED[1] in text
        elif frame := _frame(text, number):
            self._frame, self.at_frame, self.last_line, self._raises = frame, True, number, ""
            self._indent = _indent(text)
            if not frame.in_library:
                self._own = frame
            self._launcher |= LAUNCHER.search(frame.file) is not None
            self._loader = LOADERS.get("/".join(frame.file.split("/")[-2:]) + f":{frame.function}", self._loader)
            self._tracker |= TRACKER.search(frame.file) is not None
            self._deepspeed |= "deepspeed/" in frame.file
            self._thread |= BACKGROUND.search(f"{frame.file}:{frame.function}") is not None
            return None
        elif (found := self._exception(text, number)) and not self.is_code(text):
            return self._end(found[1], number, clean=SHREDDED.match(text[:HEAD]) is None)
        elif not self.is_code(text):
            self._leave_frame(text)
        elif found := RAISES.match(text):
            self._raises = found[1]
        return None

    def _leave_frame(self, text: str) -> None:
        """Leave the last frame; if this is the line of its code that rich marks, give it that number."""
        self.at_frame = False
        if self._frame.text and (found := RICH_MARK.match(text)):
            marked = replace(self._frame, line=found[1])
            self._own = marked if self._own is self._frame else self._own
            self._frame = marked

    def unnamed(self, last: int) -> Raised | None:
        """Return the exception of a traceback that ends with a message without a class; its last line of code shows the class."""
        if not self._raises or not self._frame.file or not 1 < last - self.last_line <= NEAR:
            return None
        return self._end(self._raises, last, clean=True)

    @property
    def in_launcher(self) -> bool:
        """Return whether the current traceback is the launcher's own."""
        return self.open and self._launcher

    @property
    def logged(self) -> bool:
        """Return whether the last traceback was logged."""
        return self._logged

    @property
    def in_tracker(self) -> bool:
        """Return whether the current traceback belongs to a tracker's own helper."""
        return self._tracker and not self._own.file

    @property
    def ignoring(self) -> bool:
        """Return whether the next exception is one that Python only reports: of a destructor, or at exit."""
        return self._ignored > 0

    def is_code(self, text: str) -> bool:
        """Return whether this line is the source code below a frame."""
        return self.at_frame and ((text.startswith("    ") and _indent(text) > self._indent) or CELL_CODE.match(text) is not None)

    def _exception(self, text: str, number: int) -> re.Match[str] | None:
        near = self.open and bool(self._frame.file) and number - self._frame.number <= NEAR
        announced = re.match(rf"^({self.announced})(?=:|\s*$)", text) if self.announced and self.open else None
        return announced or EXCEPTION.match(self._dedented(text)) or (OTHER_EXCEPTION.match(text) if near else None)

    def _dedented(self, text: str) -> str:
        """Return the line without its indent if it is as deep as the frames above it: TensorFlow repeats an exception so in its message."""
        return text[self._indent :] if self.at_frame and _indent(text) == self._indent else text

    def _begin(self, number: int) -> None:
        if not self._chained:
            self.chain += 1
            self._launcher = self._wraps = False
        self._again = self._chained
        self._deepspeed, self._tracker, self._loader = False, False, ""
        self.last_line = number
        self.open, self._chained, self.at_frame, self._frame, self._own = True, False, False, NO_FRAME, NO_FRAME

    def _end(self, name: str, number: int, *, clean: bool) -> Raised:
        frame = self._frame
        traced = self.open or (bool(frame.file) and (name in WITHOUT_HEADER or number - frame.number <= NEAR))
        raised = Raised(
            name,
            self.chain,
            traced,
            self.ignoring or self.in_tracker,
            in_user_code=traced and bool(frame.file) and not frame.in_library,
            in_launcher=self._launcher,
            clean=clean,
            place=self._loader if name == "FileNotFoundError" else "",
            own=self._own,
            deepest=frame,
            at_exit=self.ignoring and self._exiting,
            of_destructor=self.ignoring or self.in_tracker,
            in_deepspeed=self._deepspeed,
            in_thread=self._thread,
            wraps=self._wraps,
            process=self._process,
            child=self._child,
            logged=self._logged,
            within=self._within,
            chained=self._again,
            rank=self._rank if self.open else None,
            of_rank=self._of_rank if self.open else None,
        )
        self.open = self.at_frame = self._thread = self._wraps = False
        self._process = self._child = None
        self._ignored = max(self._ignored - 1, 0)
        self._frame = NO_FRAME
        return raised


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _frame(text: str, number: int) -> Frame | None:
    """Return the frame in a line; None if it is not a frame."""
    if found := FRAME.match(text):
        return Frame(found[1].replace("\\", "/"), found[2], found[3] or "", text.strip(), number)
    if found := RICH.match(text):
        return Frame(found[1], found[2], found[3] or "", text.strip(" │|"), number)
    if found := CELL.match(text):
        path = found[1] or found[4] or found[6] or found[8]
        line, function = found[2] or found[5] or found[9] or "", found[3] or found[7] or ""
        return Frame(path.replace("\\", "/"), line, function, text.strip(), number)
    return None
