"""Explain an exception that no signature knows: where it was raised, the calls that led there, the meaning of its message. Pure."""

from __future__ import annotations

import re

from dstui.base.dataclass import dataclass
from dstui.diagnosis.recognition.traces import Raised

LONGEST = 200


@dataclass(frozen=True, slots=True)
class Reading:
    """The meaning of an exception's message, and what to check. {0} and so on are groups of the regular expression."""

    names: str
    regex: str
    meaning: str
    look: str


READINGS = (
    Reading(
        "AttributeError",
        r"'\w+' object has no attribute '(\w+)'\. Did you mean: '(\w+)'\?",
        "There is no `{0}`, and Python knows a similar `{1}`: misspelt, or of another release of its library.",
        "the spelling of `{0}`: is `{1}` meant?",
    ),
    Reading(
        "NameError",
        r"name '(\w+)' is not defined\. Did you mean: '(\w+)'\?",
        "Nothing there is called `{0}`, and Python knows a similar `{1}`: misspelt, or never set.",
        "the spelling of `{0}`: is `{1}` meant?",
    ),
    Reading(
        "NameError",
        r"name '(\w+)' is not defined",
        "Nothing there is called `{0}`: the line that sets it is missing, was skipped, or failed before.",
        "where `{0}` gets its value, and whether an error was caught on the way",
    ),
    Reading(
        "UnboundLocalError",
        r"variable '(\w+)'",
        "`{0}` had no value yet: the branch that sets it was not taken.",
        "the branches that set `{0}`",
    ),
    Reading(
        "AttributeError",
        r"'NoneType' object has no attribute '(\w+)'",
        "The object whose `{0}` is needed there is None.",
        "what returns None in that line: a look-up without a result, a function without a return",
    ),
    Reading(
        "AttributeError",
        r"'(\w+)' object has no attribute '(\w+)'",
        "A `{0}` has no `{1}`: the object is of another type than the code expects, or its library is another release.",
        "the type in that line, and the release of the library that `{0}` comes from",
    ),
    Reading(
        "AttributeError",
        r"module '([\w.]+)' has no attribute '(\w+)'",
        "The installed `{0}` has no `{1}`: another release than expected, or a file of that name in the way.",
        "pip show {0}, and where python imports it from",
    ),
    Reading(
        "KeyError",
        r"KeyError: (.+)",
        "The dictionary or table that is read there has no entry {0}.",
        "the keys that it has: print them just before",
    ),
    Reading(
        "IndexError",
        r"",
        "An index in that line is beyond the end of the list or tensor.",
        "its length, and where the index comes from",
    ),
    Reading(
        "TypeError",
        r"unexpected keyword argument '(\w+)'",
        "The function takes no `{0}`: its parameters have changed, in the script or with a release of its library.",
        "the function's parameters, in the script or in the installed release",
    ),
    Reading(
        "TypeError",
        r"missing \d+ required (?:positional|keyword-only) arguments?: (.+)",
        "The function needs {0} too: the call is not complete, or made for another release of its library.",
        "the function's parameters, in the script or in the installed release",
    ),
    Reading(
        "TypeError",
        r"can't convert (\S+) device type tensor to numpy",
        "NumPy cannot read a tensor that is on a GPU ({0}).",
        "the tensor that is converted in that line: .detach().cpu() copies it to the host",
    ),
    Reading(
        "TypeError",
        r"",
        "A value in that line has another type than the code expects.",
        "the types of the values in that line: print(type(…)) just before",
    ),
    Reading(
        "FileNotFoundError NotADirectoryError IsADirectoryError",
        r"'([^']+)'",
        "`{0}` is not there, or is not what was expected.",
        "whether `{0}` exists on every host, from the folder that the ranks start in",
    ),
    Reading(
        "ValueError",
        r"(?:too many|not enough) values to unpack",
        "What that line takes apart has more or fewer parts than it has names for: a function returns something else than expected.",
        "what is taken apart there: print it just before",
    ),
    Reading(
        "ValueError",
        r"invalid literal for int\(\) with base 10: ('.*')",
        "The text {0} is no whole number.",
        "where that text comes from: an argument, a file, the name of a folder",
    ),
    Reading(
        "ValueError",
        r"\b(max|min)\(\) (?:arg is an empty sequence|iterable argument is empty)",
        "There is nothing to take the {0}imum of: a list is empty, often because nothing was loaded, or everything was left out.",
        "how the list in that line is filled, and the messages above about what could not be loaded",
    ),
    Reading(
        "AssertionError",
        r"AssertionError:?\s*$",
        "The condition of an assert was false, and it has no message.",
        "the condition in that line: print both of its sides",
    ),
    Reading(
        "AssertionError",
        r"",
        "A condition that the code requires was false.",
        "the values that the message names",
    ),
    Reading(
        "ZeroDivisionError",
        r"",
        "A count is zero: no batch, no step, an empty data set.",
        "the length of the data set and of its loader on every rank",
    ),
    Reading(
        "NotImplementedError",
        r"NotImplementedError:?\s*$",  # with a message of its own, that says what is not implemented
        "The method that is called there has no code in this class: a subclass has to define it.",
        "the class of the object in that line, and whether it defines the method",
    ),
    Reading(
        "RuntimeError AcceleratorError",
        r"not implemented for '(\w+)'",
        "PyTorch has no such operation for the type {0} on that device; 16-bit types on a CPU are the usual case.",
        "the device and the type of the tensors in that line",
    ),
    Reading(
        "RuntimeError AcceleratorError",
        r"CUDA error|CU(?:BLAS|DNN|FFT|SPARSE)_STATUS|cuDNN error",
        "A kernel failed on the GPU; the line in the traceback may come later than the fault.",
        "the line that CUDA_LAUNCH_BLOCKING=1 shows",
    ),
    Reading(
        "OSError",
        r"\[Errno 5\]",
        "The disk, or the file system of the network, failed while it was read or written.",
        "dmesg, and the file by itself: cat FILE > /dev/null",
    ),
    Reading(
        "FileExistsError",
        r"'([^']+)'",
        "`{0}` is there already, and the code insists on making it.",
        "whether `{0}` is left from an earlier run; exist_ok=True where that is meant",
    ),
    Reading("StopIteration", r"", "An iterator had nothing more to give.", "the length of the data on every rank"),
    Reading("UnicodeDecodeError", r"", "A file is not in the encoding that it was read in.", "the file's encoding (open(…, encoding=…))"),
    Reading("RecursionError", r"", "A function calls itself without an end.", "the frames that come again and again"),
    Reading(
        "TimeoutError TimeoutExpired",
        r"",
        "Something did not answer in time.",
        "whether what it waits for is alive",
    ),
    Reading(
        "ConnectionError ConnectionRefusedError ConnectionResetError",
        r"",
        "Another program or host could not be reached, or went away.",
        "whether it is alive, and its own log",
    ),
)
"""The first match of name and message wins."""
ANY = Reading("", "", "", "the value, file or setting that the message names")
LIBRARY_CLASS = re.compile(r"(?:ray|torch|grpc|requests|urllib3|botocore|subprocess|concurrent|multiprocessing)\.")
"""The beginning of an exception whose class is about another process or host."""
ELSEWHERE = re.compile(
    r"CUDA|cuDNN|CU(?:BLAS|DNN)_|NCCL|\bHIP\b|hip(?:BLAS|Error)|(?i:miopen|rocblas)|RCCL"  # NVIDIA's and AMD's
    r"|HCCL|\b[Nn][Pp][Uu]\b|\bacl\w+|\bERR0\d{4}\b|\bE[A-Z]\d{4}\b"  # Ascend's
    r"|SYCL|level_zero|oneCCL|\bccl\b|Native API|(?:UR|ZE|PI)_(?:RESULT_)?ERROR|\b[Xx][Pp][Uu]\b"  # Intel's
    r"|synStatus|\bHPU\b|\bTPU\b|PJRT|StatusOr|\bn(?:rt|NRT)_|Neuron|MUSA|MCCL|CNCL|CNRT|\bMLU\b"
)
"""Words of the runtimes of accelerators, and of what connects them."""


def reading(raised: Raised, text: str) -> tuple[str, str]:
    """Return the meaning of an exception, as sentences, and what to check."""
    known, found = _fitting(raised, text)
    groups = [group[:LONGEST] for group in found.groups()] if found else []
    where = raised.own.where or raised.deepest.where
    look = f"At {where}: look at {known.look.format(*groups)}" if where else f"Look at {known.look.format(*groups)}"
    return " ".join(filter(None, (_path(raised), known.meaning.format(*groups)))), look


def points_elsewhere(raised: Raised, text: str) -> bool:
    """Return whether its message is about more than the line that raised it: a file, a GPU, or a library's own subject."""
    return bool(ELSEWHERE.search(text) or LIBRARY_CLASS.match(text)) or raised.name in ("FileNotFoundError", "FileExistsError", "OSError")


def _fitting(raised: Raised, text: str) -> tuple[Reading, re.Match[str] | None]:
    fitting = ((one, words) for one in READINGS if raised.name in one.names.split() and (words := re.search(one.regex, text)))
    return next(fitting, (ANY, None))


def _path(raised: Raised) -> str:
    """Return the path through the code as a sentence."""
    own, deepest = raised.own, raised.deepest
    if not deepest.file:
        return ""
    if own == deepest:
        return f"Raised in the script's own code: {own.where}."
    if own.file:
        return f"Raised by a library ({deepest.where}), called from {own.where}."
    return f"Raised by a library ({deepest.where}); the traceback has no line of the script itself."
