"""Output of commands: safe on any terminal, and no traceback if it cannot be written."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.base.output import Ink, remark, tell
from dstui.base.text import counted, escaped

ANY = st.text(st.characters() | st.characters(categories=["Cs"]) | st.sampled_from("\x1b[]0;m\x07\r\n\t\x9b\u202e\U000e0041"), max_size=100)


@given(ANY)
def test_output_has_no_control_characters_except_newline_and_tab(text: str) -> None:
    shown = escaped(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\n\t"]
    assert escaped(shown) == shown


@given(ANY)
def test_escaped_json_has_the_same_value(text: str) -> None:
    assert json.loads(escaped(json.dumps({text: [text]}, ensure_ascii=False))) == {text: [text]}


def test_output_keeps_no_colours_of_its_input(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Ink("\x1b[31m"), "red \x1b[31mnot", Ink("\x1b[0m"))
    remark("\x1b]52;c;aGk=\x07")
    found = capsys.readouterr()
    assert (found.out, found.err) == ("\x1b[31mred \\u001b[31mnot\x1b[0m\n", "\\u001b]52;c;aGk=\\u0007\n")


def test_invalid_arguments_are_escaped_in_messages() -> None:
    for words in (["check"], ["--headless"], []):
        done = subprocess.run(
            [sys.executable, "-m", "dstui", *words, "x", "--no\x1b]0;title\x07"], capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 2
        assert b"\x1b" not in done.stderr and b"\\u001b]0;title\\u0007" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_disk_gives_a_message() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "dstui", "check", "quickstart"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (2, b"dstui: standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_works_in_an_encoding_without_our_characters(encoding: str) -> None:
    script = f"import sys; sys.stdout.reconfigure(encoding={encoding!r}); from dstui.cli import main; sys.exit(main(['check', '✔é.json']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"") and done.stdout.startswith({"ascii": b"v\\xe9", "latin-1": b"v\xe9"}[encoding])


def test_bars_are_ascii_where_the_encoding_or_the_terminal_is() -> None:
    script = "import sys; from dstui.base import output; output.begin(); output.tell('█░ é', output.json_text('é█'))"
    piped = subprocess.run([sys.executable, "-c", script], capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, check=False)
    assert piped.stdout == b'#. \\xe9"\\u00e9\\u2588"\n'
    main, side = pty.openpty()
    subprocess.run([sys.executable, "-c", script], stdout=side, env=os.environ | {"LC_ALL": "C"}, check=False)
    assert os.read(main, 100) == piped.stdout.replace(b"\n", b"\r\n")
    os.close(main)
    os.close(side)


@pytest.mark.parametrize(("number", "said"), [(0, "0 ranks"), (1, "1 rank"), (2, "2 ranks"), (None, "? ranks")])
def test_nouns_agree_with_their_number(number: int | None, said: str) -> None:
    assert counted(number, "rank") == said
