"""Follow shell text step by step without running anything, and collect the launches that it would run.

What only a run decides stays open: an unset variable, the output of a program, a branch that depends on either. The text is read as started
without arguments. If that reaches no launch, branches on arguments are read as alternatives.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from dstui.adopt.shell import flow, programs
from dstui.adopt.shell.conditions import Conditions
from dstui.adopt.shell.expansion import Expander, line_of
from dstui.adopt.shell.node_kinds import DEFINED_IN, KINDS, follow_unknown
from dstui.adopt.shell.reader import Follow, ShellCommand
from dstui.adopt.shell.recognise import Recognised, recognise, starts_elsewhere
from dstui.adopt.shell.shell_state import (
    OPEN,
    Launch,
    Node,
    ShellContext,
    ShellLimit,
    ShellState,
    Streams,
    Undecidable,
    Wrappers,
    hole,
    holes_in,
    to_display_text,
)
from dstui.adopt.shell.unknowns import COUNTS_GPUS, Unknowns

MAX_STEPS = 20_000
"""Commands and loop turns to follow."""
MAX_LAUNCHES = 200
MAX_TEXTS = 500
"""Different texts of eval and bash -c to follow; each is parsed by a child process."""
MAX_DEPTH = 40
"""Nested functions, evals and bash -c."""
UNSET = re.compile(hole("unset", r"(\w+)"))
QUOTED_LAUNCH = re.compile(r"\s*(?:\w+=\S*\s+)*(?:uv\s+run\s+|srun\s+)?(?:deepspeed|torchrun|accelerate\s+launch)\s+\S")
ONLY_WORDS = (
    *("grep", "egrep", "pgrep", "pkill", "git", "logger", "sed", "awk", "tee", "curl", "kubectl", "ssh", "pdsh"),
    *("log", "info", "warn", "error", "die", "usage"),
)
"""Programs, and usual names of functions, whose words are not commands that run here."""


class ShellReader:
    """One reading of a text: its launches, and what is unknown.

    The success of a command is True, False, or None if only a run tells.
    """

    def __init__(self, context: ShellContext, *, arguments_are_open: bool = False) -> None:
        self.context = context
        self.unknowns = Unknowns(context, arguments_are_open=arguments_are_open)
        self.launches: list[Launch] = []
        self.undecided: dict[str, int] = {}
        """Variable -> the line of the branch that decides it while the script runs."""
        self.condition = 0
        """The line of the undecided branch that is being followed."""
        self.made = set[str]()
        """Folders that the text creates."""
        self.files: dict[str, str] = {}
        """Files that the text writes: path -> content."""
        self.quoted: list[tuple[str, ShellState, int, Wrappers]] = []
        """Launches in words of other programs, such as a submitter's."""
        self.text = b""
        """The text to which the positions of the followed nodes belong."""
        self._steps = self._depth = 0
        self._wrapped: Wrappers = ()
        self._trees: dict[str, Node | None] = {}
        """Syntax trees of texts that were followed: a loop runs the same text repeatedly."""

    def follow(self, tree: Node, text: str, state: ShellState) -> bool | None:
        """Follow a text with its syntax tree. Raises ShellLimit."""
        return self._inside(text.encode(), lambda: self.run(tree.get("Stmts", ()), state, Streams()))

    def run(self, statements: Sequence[Node], state: ShellState, streams: Streams) -> bool | None:
        """Follow statements one after another. Return the success of the last."""
        status: bool | None = True
        for statement in statements:
            if state.ended:
                break
            status = self.statement(statement, state, streams)
        return status

    def statement(self, statement: Node, state: ShellState, streams: Streams) -> bool | None:
        """Follow one statement."""
        self.count_step(line_of(statement))
        command = statement.get("Cmd")
        if command is None:
            return True
        given, target = self._redirections(statement, state)
        follow = KINDS.get(command["Type"], follow_unknown)
        given = streams.given if given is None else given
        if target:
            status = self.decided(lambda: self._written(target, follow, command, state, given))
        elif streams.output is None:
            status = self.decided(lambda: follow(self, command, state, Streams(given)))
        else:
            status = follow(self, command, state, Streams(given, streams.output))
        return status if not statement.get("Negated") or status is None else not status

    def _written(self, target: str, follow: Follow, command: Node, state: ShellState, given: str | None) -> bool | None:
        """Follow a command whose output goes to a file. Raises Undecidable if the output is unknown."""
        printed: list[str] = []
        self.files.pop(target, None)
        status = follow(self, command, state, Streams(given, printed))
        self.files[target] = "".join(printed)
        return status

    def count_step(self, line: int) -> None:
        """Count a step. Raises ShellLimit."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise ShellLimit(f"more than {MAX_STEPS:,} steps", line)

    def expander(self, state: ShellState) -> Expander:
        """Return an expander for this state."""
        return Expander(
            state,
            lambda node: self._output_of(node, state),
            self.unknowns.unset,
            lambda node: self.unknowns.name_of(self._source_of(node), line_of(node)),
        )

    def conditions(self, state: ShellState) -> Conditions:
        """Return an evaluator of tests for this state."""
        return Conditions(self.expander(state), self.unknowns.as_tested, lambda path: self.is_folder(state, path))

    def is_folder(self, state: ShellState, path: str) -> bool | None:
        """Return whether a folder exists; None if the path has a hole or the answer is unknown."""
        if path_in(state, path) in self.made:
            return True
        return None if OPEN in path + state.folder else self.context.is_folder(path_in(state, path))

    def decided(self, decide: Callable[[], bool | None]) -> bool | None:
        """Return the result of `decide`; None if only a run decides it."""
        with suppress(Undecidable):
            return decide()
        return None

    def command(self, command: ShellCommand, state: ShellState, streams: Streams) -> bool | None:
        """Follow a command by its words."""
        words, line = list(command.words), command.line
        while words and (first := UNSET.fullmatch(words[0])):
            self.unknowns.note(f"line {line}: ${first[1]} precedes a command and is never set: read as empty")
            words = words[1:]
        if not words:
            return None
        if found := recognise(words):
            env = {**command.env, **found.env}
            if found.launcher == "shell":
                inner = state.copy()
                inner.variables |= env
                inner.exported |= env.keys()
                return self.follow_text(found.words[0], inner, streams, line, found.wrappers)
            if found.launcher == "script":
                return self._script(found, env, state, streams, line)
            for pattern in (one for one in command.patterns if one in found.words):
                text = to_display_text(pattern)
                self.unknowns.note(
                    f"line {line}: {text} is a pattern: a shell puts the matching files in its place, the Plan keeps the text"
                )
            self._launch(Launch(found.launcher, found.words, env, state.folder, line, found.wrappers), state)
            return None
        if any(kind != "unset" for kind, _ in holes_in(words[0])):
            self.unknowns.unseen.append(f"line {line} runs {to_display_text(words[0])}, {self.context.decided_by_a_run}")
        return self._other(replace(command, words=words), state, streams)

    def _other(self, command: ShellCommand, state: ShellState, streams: Streams) -> bool | None:
        """Follow a command that starts no training: a builtin, a function, or a program with known output."""
        name, *rest = command.words
        self._remember_quoted(name, rest, state, command.line)
        if name.startswith("--") and self.launches:
            self.unknowns.cut_off(self.launches[-1].line, command.line, name)
        if body := state.functions.get(name):
            return self._function(body, rest, state, streams)
        if name in ("source", "."):
            return self._source(rest, state, streams, command.line)
        if name == "eval":
            return self.follow_text(" ".join(rest), state, streams, command.line)
        if builtin := programs.BUILTINS.get(name):
            outer = {name: state.variables.get(name) for name in command.env}
            state.variables |= command.env
            status = builtin(self, rest, state, streams.given)
            for name, value in outer.items():
                state.variables.pop(name)
                state.variables |= {} if value is None else {name: value}
            return status
        if name in ("test", "["):
            return self.decided(lambda: self.conditions(state).words(rest if name == "test" else rest[:-1]))
        if starts_elsewhere(command.words):
            self.unknowns.unseen.append(f"line {command.line}: what {name} starts cannot be followed; give the command that runs there")
        return self._program(name, rest, state, streams)

    def _remember_quoted(self, name: str, words: Sequence[str], state: ShellState, line: int) -> None:
        """Remember words of a program that are launches themselves: used if the text has no other."""
        if name in programs.BUILTINS or name in programs.PRINTING or name in ONLY_WORDS or len(self.quoted) >= MAX_DEPTH:
            return
        for at, word in enumerate(words):
            if " " in word and QUOTED_LAUNCH.match(word):
                self.quoted.append((word, state.copy(), line, ((name, *words[:at]),)))

    def follow_quoted(self) -> None:
        """Follow the launches in words of other programs."""
        for text, state, line, wrappers in self.quoted:
            self.follow_text(text, state, Streams(), line, wrappers)

    def _program(self, name: str, rest: list[str], state: ShellState, streams: Streams) -> bool | None:
        """Follow a program: its output is added to the used output. Raises Undecidable if that is unknown."""
        given = streams.given
        if given is None and name in programs.READ_FILES and rest and (text := self._text_of(state, rest[-1])) is not None:
            given, rest = text, rest[:-1]
        printed = programs.printed(name, rest, state, given, self.context)
        if name == "date" and printed:
            self.unknowns.moments.add(printed.strip())
        if name == "printf" and rest[:1] == ["-v"] and len(rest) > 2:
            text = programs.printed(name, rest[2:], state, None, self.context)
            state.variables[rest[1]] = hole("computed", rest[1]) if text is None else text
            return True
        if streams.output is None:
            return None if printed is None else True
        if printed is None:
            raise Undecidable
        streams.output.append(printed)
        return True

    def _launch(self, launch: Launch, state: ShellState) -> None:
        if len(self.launches) >= MAX_LAUNCHES:
            raise ShellLimit(f"more than {MAX_LAUNCHES} launches", launch.line)
        exported = {name: value for name, value in state.variables.items() if name in state.exported and isinstance(value, str)}
        wrappers = (*self._wrapped, *launch.wrappers)
        self.launches.append(
            replace(launch, env=exported | dict(launch.env), wrappers=wrappers, condition=self.condition, written=dict(self.files))
        )

    # Nested text

    def _inside(self, text: bytes, follow: Callable[[], bool | None]) -> bool | None:
        """Follow nodes whose positions belong to another text."""
        outer, self.text = self.text, text
        try:
            return follow()
        finally:
            self.text = outer

    @contextmanager
    def _deeper(self, line: int) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ShellLimit(f"more than {MAX_DEPTH} nested functions, evals or shells", line)
        yield
        self._depth -= 1

    def follow_text(self, text: str, state: ShellState, streams: Streams, line: int, wrappers: Wrappers = ()) -> bool | None:
        """Follow a text that would be run (eval, bash -c)."""
        if text not in self._trees:
            if len(self._trees) == MAX_TEXTS:
                raise ShellLimit(f"more than {MAX_TEXTS} texts are run (eval, bash -c)", line)
            self._trees[text] = self.context.parse(text)
        tree = self._trees[text]
        if tree is None:
            return None
        outer, self._wrapped = self._wrapped, (*self._wrapped, *wrappers)
        try:
            with self._deeper(line):
                return self._inside(text.encode(), lambda: self.run(_at_line(tree.get("Stmts", ()), line), state, streams))
        finally:
            self._wrapped = outer

    def _function(self, body: Node, words: list[str], state: ShellState, streams: Streams) -> bool | None:
        outer = state.positional, state.arguments_given
        state.positional, state.arguments_given = words, True
        with self._deeper(line_of(body)):
            status = self._inside(body.get(DEFINED_IN, self.text), lambda: self.statement(body, state, streams))
        state.positional, state.arguments_given = outer
        state.ended = "" if state.ended == "return" else state.ended
        flow.merge_early_ends(self, state, "return", line_of(body))
        return status

    def _source(self, words: list[str], state: ShellState, streams: Streams, line: int) -> bool | None:
        path = words[0] if words else ""
        text = self._text_of(state, path)
        if text is None:
            self.unknowns.note(f"line {line}: {to_display_text(path)} is sourced and does not exist here: variables that it sets stay open")
            return None
        return self.follow_text(text, state, streams, line)

    def _text_of(self, state: ShellState, name: str) -> str | None:
        """Return the text of a file that the text has written, or that is here."""
        path = path_in(state, name)
        if path in self.files:
            return self.files[path]
        return None if OPEN in path or path.startswith(("/proc/", "/sys/", "/dev/")) else self.context.text_of(path)

    def _script(self, found: Recognised, env: Mapping[str, str], state: ShellState, streams: Streams, line: int) -> bool | None:
        """Follow a shell script that is here, or that the text has written, in a shell of its own."""
        name, *words = found.words
        text = self._text_of(state, name)
        if text is None:
            self.unknowns.unseen.append(f"line {line} runs {to_display_text(name)}, which does not exist here")
            return None
        self.unknowns.note(f"line {line} runs {to_display_text(name)}, which is read as well")
        exported = {one: value for one in state.exported if (value := state.variables.get(one)) is not None}
        inner = ShellState(
            state.folder, {**exported, **env, "0": name, "BASH_SOURCE": name}, {*exported, *env}, words, arguments_given=True
        )
        return self.follow_text(text, inner, streams, line, found.wrappers)

    def _redirections(self, statement: Node, state: ShellState) -> tuple[str | None, str]:
        """Return standard input if the text contains it, and the file that receives standard output."""
        given, target, expander = None, "", self.expander(state)
        for redirection in statement.get("Redirs", ()):
            operator, word = redirection["Op"], redirection["Word"]
            if operator in ("<<", "<<-"):
                given = _document(expander, redirection.get("Hdoc"), quoted=any(part["Type"] != "Lit" for part in word.get("Parts", ())))
                given = re.sub(r"(?m)^\t+", "", given) if operator == "<<-" else given
            elif operator == "<<<":
                given = expander.text(word) + "\n"
            elif operator == "<" and [part["Type"] for part in word.get("Parts", ())] == ["ProcSubst"]:
                with suppress(Undecidable):
                    given = self._output_of(word["Parts"][0], state)
            elif operator == "<":
                given = self._text_of(state, expander.text(word))
            elif operator in (">", ">|") and (redirection.get("N") or {}).get("Value", "1") == "1":
                path = expander.text(word)
                target = "" if path == "/dev/null" else path_in(state, path)
        return given, target

    def _output_of(self, node: Node, state: ShellState) -> str:
        """Return the output of a command substitution. Raises Undecidable if an unknown program prints it."""
        if COUNTS_GPUS.search(self._source_of(node)):
            raise Undecidable
        printed: list[str] = []
        self.run(node.get("Stmts", ()), state.copy(), Streams(output=printed))
        return "".join(printed)

    def follow_pipe_source(self, statement: Node, state: ShellState) -> str | None:
        """Follow the left side of a pipe and return its output; None if programs or launches print it."""
        before, printed = len(self.launches), list[str]()
        with suppress(Undecidable):
            self.statement(statement, state.copy(), Streams(output=printed))
            return "".join(printed) if len(self.launches) == before else None
        del self.launches[before:]
        self.statement(statement, state.copy(), Streams())
        return None

    def _source_of(self, node: Node) -> str:
        start, end = node.get("Pos", (0, 0))[0], node.get("End", (0, 0))[0]
        return self.text[start:end].decode("utf-8", "replace")


def path_in(state: ShellState, path: str) -> str:
    """Return a path without `..`; relative paths start from the state's current folder."""
    return posixpath.normpath(posixpath.join(state.folder, path))


def _document(expander: Expander, body: Node | None, *, quoted: bool) -> str:
    """Return a here-document. With a quoted delimiter its text is literal."""
    parts = (body or {}).get("Parts", ())
    if quoted:
        return "".join(part.get("Value", "") for part in parts)
    return expander.text({"Parts": [{"Type": "DblQuoted", "Parts": parts}]})


def _at_line(statements: Sequence[Node], line: int) -> Sequence[Node]:
    """Give statements of a nested text the line number of the command that runs them."""
    for statement in statements:
        for node in (statement, statement.get("Cmd") or {}):
            if "Pos" in node:
                node["Pos"] = (node["Pos"][0], line)
    return statements
