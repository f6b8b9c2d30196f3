"""Exceptions without a signature: which one ended the process, the line of the script that led there, and what the message asks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dstui.diagnosis import report
from tests.diagnosis.crash_texts import diagnose_lines, ended, fallout, spawned, traceback

LIBRARY = "/opt/env/lib/python3.11/site-packages/torch/nn/functional.py"
OFFLINE = "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /x"
HANDLING = "During handling of the above exception, another exception occurred:"
DIRECT = "The above exception was the direct cause of the following exception:"


def test_frame_of_a_compiled_library_is_not_the_scripts_own(tmp_path: Path) -> None:
    last = "FileNotFoundError: [Errno 2] Unable to open file (unable to open file: name = 'Checkpoints/net.h5', errno = 2)"
    frames = [
        '  File "/home/me/train.py", line 9, in main',
        "    net.load_weights(path)",
        '  File "h5py/h5f.pyx", line 106, in h5py.h5f.open',
    ]
    found = diagnose_lines(tmp_path / "log", ["Traceback (most recent call last):", *frames, last])
    assert found.cause == "MODEL-FILES"
    assert "train.py" in found.evidence[0].text


@pytest.mark.parametrize(
    "path", ["c:\\My Models\\env\\lib\\site-packages\\zoo\\__init__.py", "~/env/lib/python3.11/site-packages/zoo/__init__.py"]
)
def test_line_of_a_librarys_module_is_not_the_cells_own(tmp_path: Path, path: str) -> None:
    cell = ["---------", "KeyError                Traceback (most recent call last)", "Cell In[3], line 1", "----> 1 import zoo", ""]
    lines = [*cell, f"File {path}:12", "     11 # sizes", "---> 12 SIZE = SIZES['small']", "", "KeyError: 'small'"]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.confidence) == ("USER-PY", "medium")
    assert "Raised by a library" in report(found)


def test_assertion_of_a_cell_is_told_with_the_cells_line(tmp_path: Path) -> None:
    head = ["AssertionError          Traceback (most recent call last)", "/tmp/ipykernel_1/77.py in <cell line: 8>()"]
    found = diagnose_lines(tmp_path / "log", [*head, "----> 8 assert ready", "", "AssertionError: "])
    assert found.title == "The program raised an exception: AssertionError"
    assert "77.py, in <cell line: 8>. The condition of an assert was false" in found.why


def test_exception_that_tensorflow_repeats_in_its_message_is_read(tmp_path: Path) -> None:
    inner = '    File "/opt/env/lib/python3.11/site-packages/keras/src/optimizers/adam.py", line 9, in build'
    repeated = "    ResourceExhaustedError: {{node Fill}} OOM when allocating tensor with shape[3,3] and type float on /device:GPU:0"
    lines = [*traceback(None, "ResourceExhaustedError: in user code:"), "", inner, "        self.fill(*args)", "", repeated]
    assert diagnose_lines(tmp_path / "log", lines).cause == "OOM-GPU"


def test_header_of_a_traceback_that_sacred_shortened(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent calls WITHOUT Sacred internals):",
        '  File "train.py", line 3, in main',
        "    draw()",
        "odd.error: no size",
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.confidence) == ("USER-PY", "high")


def test_deepest_script_line_and_raising_library_are_named(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/me/train.py", line 30, in <module>',
        "    main()",
        '  File "/home/me/model.py", line 7, in forward',
        "    return attend(q, k)",
        f'  File "{LIBRARY}", line 5100, in attend',
        "    assert q.size(1) == k.size(1)",
        "AssertionError: sequence 4096 is not divisible by 3 ranks",
    ]
    found = diagnose_lines(tmp_path / "log", [*spawned(2), *(f"[rank1]: {line}" for line in lines), *fallout(0), *ended(2, 1)])
    assert (found.cause, found.first_failing_rank) == ("USER-PY", 1)
    assert "AssertionError: sequence 4096 is not divisible by 3 ranks" in found.title
    assert f"Raised by a library ({LIBRARY}, line 5100, in attend), called from /home/me/model.py, line 7, in forward" in found.why
    assert [line.text for line in found.evidence[:2]] == ['File "/home/me/model.py", line 7, in forward', lines[-1]]
    assert found.fixes[0].text.startswith("At /home/me/model.py, line 7, in forward: ")


@pytest.mark.parametrize(
    ("last", "meaning"),
    [
        ("NameError: name 'profile' is not defined", "`profile`"),
        ("NameError: name 'modle' is not defined. Did you mean: 'model'?", "`model`"),
        ("AttributeError: 'Net' object has no attribute 'trian'. Did you mean: 'train'?", "similar `train`"),
        ("UnboundLocalError: cannot access local variable 'loss' where it is not associated with a value", "`loss` had no value"),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "is None"),
        ("AttributeError: 'Net' object has no attribute 'generate'", "A `Net` has no `generate`"),
        ("KeyError: 'labels'", "no entry 'labels'"),
        ("TypeError: fit() got an unexpected keyword argument 'callbacks'", "takes no `callbacks`"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'out/vocab.words'", "`out/vocab.words` is not there"),
        ("AssertionError", "it has no message"),
        ("ZeroDivisionError: division by zero", "empty data set"),
        ("my.package.OddInputError: {not a field} of {0}", ""),
    ],
)
def test_advice_follows_from_the_words_of_an_exception(tmp_path: Path, last: str, meaning: str) -> None:
    found = diagnose_lines(tmp_path / "log", traceback(None, last))
    assert found.cause == "USER-PY"
    assert last in found.title
    assert meaning in found.why
    assert "/home/me/project/train.py, line 30" in found.fixes[0].text
    assert "Mend" not in report(found)
    assert "?." not in report(found)


def test_error_after_a_caught_one_wins_in_a_chain_and_alone(tmp_path: Path) -> None:
    bug = "NameError: name 'api' is not defined"
    chained = diagnose_lines(tmp_path / "a", [*traceback(None, OFFLINE), "", HANDLING, "", *traceback(None, bug)])
    assert (chained.cause, chained.others) == ("USER-PY", ())
    assert bug in chained.title
    later = diagnose_lines(tmp_path / "b", [*traceback(0, OFFLINE), "[rank0]: going on without it", *traceback(0, bug), *fallout(1)])
    assert (later.cause, later.first_failing_rank, later.others) == ("USER-PY", 0, ())


def test_wrapper_of_a_known_exception_keeps_its_cause(tmp_path: Path) -> None:
    for between in (HANDLING, DIRECT):
        lines = [*traceback(None, OFFLINE), "", between, "", *traceback(None, "RuntimeError: could not prepare the data")]
        assert diagnose_lines(tmp_path / "log", lines).cause == "NO-INTERNET"
    lines = [*traceback(None, "KeyError: 'x'"), "", HANDLING, "", *traceback(None, "torch.OutOfMemoryError: CUDA out of memory. Tried")]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.others) == ("OOM-GPU", ())


def test_first_of_two_ranks_in_one_output_counts(tmp_path: Path) -> None:
    found = diagnose_lines(
        tmp_path / "log", [*spawned(2), *traceback(None, OFFLINE), *traceback(None, "NameError: name 'x' is not defined")]
    )
    assert found.cause == "NO-INTERNET", "it may not be a single process"


def test_exception_in_a_thread_did_not_end_the_run(tmp_path: Path) -> None:
    thread = ["Exception in thread Thread-4 (_pin_memory_loop):", *traceback(None, "EOFError", LIBRARY)]
    stopped = diagnose_lines(tmp_path / "a", [*thread, *traceback(None, "KeyboardInterrupt")])
    assert (stopped.cause, stopped.kind) == ("CTRL-C", "stop")
    failed = diagnose_lines(tmp_path / "b", [*thread, *traceback(None, "ValueError: an odd label")])
    assert "an odd label" in failed.title
    alone = diagnose_lines(tmp_path / "c", thread)
    assert (alone.cause, alone.kind) == ("USER-PY", "failure")


NOTEBOOK = [
    "Traceback (most recent call last):",
    '  File "/opt/env/lib/python3.11/site-packages/nbclient/client.py", line 918, in _check_raise_for_error',
    "    raise CellExecutionError.from_cell_and_msg(cell, exec_reply_content)",
    "nbclient.exceptions.CellExecutionError: An error occurred while executing the following cell:",
    "------------------",
    "trainer.train()",
    "------------------",
    "",
    "\x1b[31m---------------------------------------------------------------------------\x1b[39m",
    "\x1b[31mValueError\x1b[39m                                Traceback (most recent call last)",
    "\x1b[36mCell In[7], line 3\x1b[39m",
    "\x1b[32m      2\x1b[39m x = 1",
    "\x1b[32m----> 3\x1b[39m trainer.train()",
    "\x1b[36mFile ~/project/loop.py:41\x1b[39m, in \x1b[36mstep\x1b[39m\x1b[34m(batch)\x1b[39m",
    "     40 def step(batch):",
    "---> 41     check(batch)",
    "File /opt/env/lib/python3.11/site-packages/lib/check.py:12, in check(batch)",
    "\x1b[31mValueError\x1b[39m: too few labels",
]


def test_notebook_error_wins_over_the_runner_of_the_notebook(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", NOTEBOOK)
    assert (found.cause, found.kind) == ("USER-PY", "failure")
    assert "ValueError: too few labels" in found.title
    assert "~/project/loop.py, line 41, in step" in found.why
    assert "site-packages/lib/check.py, line 12, in check" in found.why


def test_notebook_cell_is_user_code(tmp_path: Path) -> None:
    for frame, where in (
        ("Cell In[3], line 5", "Cell In[3], line 5"),
        ("Input In [3], in <cell line: 2>()", "Input In [3]"),
        ("<ipython-input-3-0a1b2c> in <module>()", "<ipython-input-3-0a1b2c>, in <module>"),
    ):
        found = diagnose_lines(
            tmp_path / "log", ["NameError        Traceback (most recent call last)", frame, "NameError: name 'q' is not defined"]
        )
        assert f"Raised in the script's own code: {where}" in found.why


def test_no_rank_is_blamed_if_all_fail_at_once(tmp_path: Path) -> None:
    lines = [*spawned(3), *(line for rank in (2, 0, 1) for line in traceback(rank, "KeyError: 'labels'")), *ended(3, 1)]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.every_rank, found.ranks, found.as_json()["every_rank"]) == (True, (0, 1, 2), True)
    assert "[every rank]" in report(found)
    two = diagnose_lines(
        tmp_path / "log", [*spawned(3), *traceback(2, "KeyError: 'labels'"), *traceback(0, "KeyError: 'labels'"), *ended(3, 1)]
    )
    assert not two.every_rank
    assert "[rank 2]" in report(two)


def test_real_python_output_is_read(tmp_path: Path) -> None:
    """Runs the real interpreter for a chain, a thread and an ignored exception."""
    script = tmp_path / "train.py"
    script.write_text(
        "import threading, traceback\n"
        "def loader():\n    raise EOFError('gone')\n"
        "thread = threading.Thread(target=loader)\nthread.start()\nthread.join()\n"
        "try:\n    raise ConnectionError('Max retries exceeded with url: /x')\n"
        "except ConnectionError:\n    traceback.print_exc()\n"
        "def step(batch):\n    try:\n        return batch['a']\n    except KeyError:\n        return missing_name\n"
        "step({})\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    found = diagnose_lines(tmp_path / "log", done.stderr.splitlines())
    assert "NameError: name 'missing_name' is not defined" in found.title
    assert f"Raised in the script's own code: {script}, line 15, in step" in found.why
    assert (found.confidence, found.others) == ("high", ())


def test_notebook_error_is_named_by_its_first_line_and_kernel_messages_are_no_cause(tmp_path: Path) -> None:
    cell = ["UnsupportedOperation                      Traceback (most recent call last)", "Cell In[5], line 2", "----> 2 json.dump(x, fp)"]
    found = diagnose_lines(tmp_path / "a", [*cell, "", "UnsupportedOperation: not writable"])
    assert (found.cause, "not writable" in found.title) == ("USER-PY", True)
    crashed = "The Kernel crashed while executing code in the current cell or a previous cell."
    assert diagnose_lines(tmp_path / "b", [*cell, "", "UnsupportedOperation: not writable", crashed]).cause == "USER-PY"
    assert diagnose_lines(tmp_path / "c", [crashed]).cause == "KILLED-UNKNOWN"


def test_advice_names_the_copy_of_a_tensor_that_numpy_cannot_read(tmp_path: Path) -> None:
    last = "TypeError: can't convert cuda:3 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
    found = diagnose_lines(tmp_path / "log", traceback(None, last))
    assert "on a GPU (cuda:3)" in found.why
    assert ".detach().cpu()" in found.fixes[0].text


def test_comment_in_the_source_of_a_notebooks_frame_is_no_message(tmp_path: Path) -> None:
    lines = [
        "Cell In[4], line 1",
        "----> 1 fetch(name)",
        "File /opt/env/lib/python3.11/site-packages/hub/a.py:1113, in fetch(name)",
        "   1111 def fetch(name):",
        "   1112     # there is no RepositoryNotFoundError here, since the index was found",
        "-> 1113     return socket.read(name)",
        "KeyboardInterrupt: ",
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.kind, found.others) == ("CTRL-C", "stop", ())
