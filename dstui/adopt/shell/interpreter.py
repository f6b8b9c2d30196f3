"""Follow shell text step by step without running anything, and collect the launches that it would run.

What only a run decides stays open: an unset variable, the output of a program, a branch that depends on either. The text is read as started
without arguments. If that reaches no launch, branches on arguments are read as alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from dstui.adopt.shell import flow, programs
from dstui.adopt.shell.expansion import Expander, line_of
from dstui.adopt.shell.node_kinds import DEFINED_IN, KINDS, follow_unknown
from dstui.adopt.shell.reader import Follow, Shell, ShellCommand, Status, decided
from dstui.adopt.shell.recognise import Recognised, reads_its_input, recognise, starts_elsewhere
from dstui.adopt.shell.shell_state import (
    Launch,
    Node,
    ShellContext,
    ShellLimit,
    ShellState,
    Undecidable,
    Wrappers,
    hole,
    holes_in,
    to_display_text,
)
from dstui.adopt.shell.unknowns import Unknowns

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
    """One reading of a text: its launches, and what is unknown."""

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

    def follow(self, tree: Node, text: str, state: ShellState) -> Status:
        """Follow a text with its syntax tree. Raises ShellLimit."""
        return self._inside(text.encode(), lambda: Shell(self, state).run(tree.get("Stmts", ())))

    def statement(self, shell: Shell, statement: Node) -> Status:
        """Follow one statement."""
        self.count_step(line_of(statement))
        command = statement.get("Cmd")
        if command is None:
            return True
        if statement.get("Background"):
            shell = shell.fork()  # a process of its own
        given, target = self._redirections(shell, statement)
        inner = shell.with_streams(shell.given if given is None else given, shell.output)
        follow = KINDS.get(command["Type"], follow_unknown)
        if target:
            status = decided(lambda: self._written(target, follow, inner, command))
        elif shell.output is None:
            status = decided(lambda: follow(inner, command))
        else:
            status = follow(inner, command)
        return status if not statement.get("Negated") or status is None else not status

    def _written(self, target: str, follow: Follow, shell: Shell, command: Node) -> Status:
        """Follow a command whose output goes to a file. Raises Undecidable if the output is unknown."""
        printed: list[str] = []
        self.files.pop(target, None)
        status = follow(shell.with_streams(shell.given, printed), command)
        self.files[target] = "".join(printed)
        return status

    def count_step(self, line: int) -> None:
        """Count a step. Raises ShellLimit."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise ShellLimit(f"more than {MAX_STEPS:,} steps", line)

    def command(self, shell: Shell, command: ShellCommand) -> Status:
        """Follow a command by its words."""
        words, line = list(command.words), command.line
        while words and (first := UNSET.fullmatch(words[0])):
            self.unknowns.note(f"line {line}: ${first[1]} precedes a command and is never set: read as empty")
            words = words[1:]
        if not words:
            return None
        if found := recognise(words):
            return self._started(shell, found, command)
        if shell.given is not None and reads_its_input(words):
            return self.follow_text(shell.with_streams(None, shell.output).fork(), shell.given, line)
        if any(kind != "unset" for kind, _ in holes_in(words[0])):
            self.unknowns.unseen.append(f"line {line} runs {to_display_text(words[0])}, {self.context.decided_by_a_run}")
        return self._other(shell, replace(command, words=words))

    def _started(self, shell: Shell, found: Recognised, command: ShellCommand) -> Status:
        """Follow what a command starts: a launch, a shell with a text, or a script."""
        env, line = {**command.env, **found.env}, command.line
        if found.launcher == "shell":
            inner = shell.fork()
            inner.state.variables |= env
            inner.state.exported |= env.keys()
            return self.follow_text(inner, found.words[0], line, found.wrappers)
        if found.launcher == "script":
            return self._script(shell, found, env, line)
        for pattern in (one for one in command.patterns if one in found.words):
            text = to_display_text(pattern)
            self.unknowns.note(f"line {line}: {text} is a pattern: a shell puts the matching files in its place, the Plan keeps the text")
        self._launch(Launch(found.launcher, found.words, env, shell.state.folder, line, found.wrappers), shell.state)
        return None

    def _other(self, shell: Shell, command: ShellCommand) -> Status:
        """Follow a command that starts no training: a builtin, a function, or a program with known output."""
        (name, *rest), state = command.words, shell.state
        self._remember_quoted(name, rest, state, command.line)
        if name.startswith("--") and self.launches:
            self.unknowns.cut_off(self.launches[-1].line, command.line, name)
        if body := state.functions.get(name):
            return self._function(shell, body, rest)
        if name in ("source", "."):
            return self._source(shell, rest, command.line)
        if name == "eval":
            return self.follow_text(shell, " ".join(rest), command.line)
        if builtin := programs.BUILTINS.get(name):
            outer = {name: state.variables.get(name) for name in command.env}
            state.variables |= command.env
            status = builtin(shell, rest)
            for name, value in outer.items():
                state.variables.pop(name)
                state.variables |= {} if value is None else {name: value}
            return status
        if name in ("test", "["):
            return decided(lambda: shell.conditions.words(rest if name == "test" else rest[:-1]))
        if starts_elsewhere(command.words):
            self.unknowns.unseen.append(f"line {command.line}: what {name} starts cannot be followed; give the command that runs there")
        return self._program(shell, name, rest)

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
            self.follow_text(Shell(self, state), text, line, wrappers)

    def _program(self, shell: Shell, name: str, rest: list[str]) -> Status:
        """Follow a program: its output is added to the used output. Raises Undecidable if that is unknown."""
        if shell.given is None and name in programs.READ_FILES and rest and (text := shell.text_of(rest[-1])) is not None:
            shell, rest = shell.with_streams(text, shell.output), rest[:-1]
        printed = programs.printed(shell, name, rest)
        if name == "date" and printed:
            self.unknowns.moments.add(printed.strip())
        if name == "printf" and rest[:1] == ["-v"] and len(rest) > 2:
            text = programs.printed(shell, name, rest[2:])
            shell.state.variables[rest[1]] = hole("computed", rest[1]) if text is None else text
            return True
        if shell.output is None:
            return None if printed is None else True
        if printed is None:
            raise Undecidable
        shell.output.append(printed)
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

    def _inside(self, text: bytes, follow: Callable[[], Status]) -> Status:
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

    def follow_text(self, shell: Shell, text: str, line: int, wrappers: Wrappers = ()) -> Status:
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
                return self._inside(text.encode(), lambda: shell.run(_at_line(tree.get("Stmts", ()), line)))
        finally:
            self._wrapped = outer

    def _function(self, shell: Shell, body: Node, words: list[str]) -> Status:
        state = shell.state
        outer = state.positional, state.arguments_given
        state.positional, state.arguments_given = words, True
        with self._deeper(line_of(body)):
            status = self._inside(body.get(DEFINED_IN, self.text), lambda: shell.statement(body))
        state.positional, state.arguments_given = outer
        state.ended = "" if state.ended == "return" else state.ended
        flow.merge_early_ends(shell, "return", line_of(body))
        return status

    def _source(self, shell: Shell, words: list[str], line: int) -> Status:
        path = words[0] if words else ""
        text = shell.text_of(path)
        if text is None:
            self.unknowns.note(f"line {line}: {to_display_text(path)} is sourced and does not exist here: variables that it sets stay open")
            return None
        return self.follow_text(shell, text, line)

    def _script(self, shell: Shell, found: Recognised, env: Mapping[str, str], line: int) -> Status:
        """Follow a shell script that is here, or that the text has written, in a shell of its own."""
        name, *words = found.words
        text, outer = shell.text_of(name), shell.state
        if text is None:
            self.unknowns.unseen.append(f"line {line} runs {to_display_text(name)}, which does not exist here")
            return None
        self.unknowns.note(f"line {line} runs {to_display_text(name)}, which is read as well")
        exported = {one: value for one in outer.exported if (value := outer.variables.get(one)) is not None}
        variables = {**exported, **env, "0": name, "BASH_SOURCE": name}
        inner = ShellState(outer.folder, variables, {*exported, *env}, words, arguments_given=True)
        return self.follow_text(shell.with_state(inner), text, line, found.wrappers)

    def _redirections(self, shell: Shell, statement: Node) -> tuple[str | None, str]:
        """Return standard input if the text contains it, and the file that receives standard output."""
        given, target, expander = None, "", shell.expander
        for redirection in statement.get("Redirs", ()):
            operator, word = redirection["Op"], redirection["Word"]
            if operator in ("<<", "<<-"):
                given = _document(expander, redirection.get("Hdoc"), quoted=any(part["Type"] != "Lit" for part in word.get("Parts", ())))
                given = re.sub(r"(?m)^\t+", "", given) if operator == "<<-" else given
            elif operator == "<<<":
                given = expander.text(word) + "\n"
            elif operator == "<" and [part["Type"] for part in word.get("Parts", ())] == ["ProcSubst"]:
                with suppress(Undecidable):
                    given = shell.output_of(word["Parts"][0])
            elif operator == "<":
                given = shell.text_of(expander.text(word))
            elif operator in (">", ">|") and (redirection.get("N") or {}).get("Value", "1") == "1":
                path = expander.text(word)
                target = "" if path == "/dev/null" else shell.path(path)
        return given, target

    def source_of(self, node: Node) -> str:
        """Return the text of a node."""
        start, end = node.get("Pos", (0, 0))[0], node.get("End", (0, 0))[0]
        return self.text[start:end].decode("utf-8", "replace")


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
