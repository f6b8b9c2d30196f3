"""Follow branches and loops of shell text: one branch if the condition is known, else all of them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from dstui.adopt.shell.expansion import line_of, literal
from dstui.adopt.shell.reader import Shell, Status, decided
from dstui.adopt.shell.shell_state import OPEN, Node, Undecidable, hole

Way = Callable[[Shell], object]
"""One way in which a shell may go on."""
TESTS = ("TestClause", "ArithmCmd")
GLOB = re.compile(r"(?<!\\)[*?]")
"""A pattern outside of quotes, which the shell replaces by the files that it finds."""


def follow_list(shell: Shell, node: Node) -> Status:
    """Follow `a && b`, `a || b`. An unknown command is assumed to succeed, an unknown test is not."""
    before = shell.reader.unknowns.mark()
    status = shell.statement(node["X"])
    if shell.state.ended:
        return status
    if status is None and (_is_test(node["X"]) or (node["Op"] == "||" and _breaks(node["Y"]))):
        return alternatives(shell, node, [lambda one: one.statement(node["Y"]), _nothing])
    goes_on = status is not False if node["Op"] == "&&" else status is False
    if goes_on and _requires(shell, before, [node["Y"]], line_of(node)):
        return None
    return shell.statement(node["Y"]) if goes_on else status


def follow_if(shell: Shell, node: Node) -> Status:
    """Follow `if`, `elif` and `else`."""
    if not node.get("Cond"):
        return shell.run(node.get("Then", ()))
    before = shell.reader.unknowns.mark()
    decision = decided(lambda: shell.without_output().run(node["Cond"]))

    def otherwise(one: Shell) -> Status:
        other = node.get("Else")
        return follow_if(one, other) if other else True

    if decision is None:
        return alternatives(shell, node, [lambda one: one.run(node.get("Then", ())), otherwise])
    if decision and _requires(shell, before, node.get("Then", ()), line_of(node)):
        decision = False
    return shell.run(node.get("Then", ())) if decision else otherwise(shell)


def _requires(shell: Shell, before: tuple[int, int], statements: Sequence[Node], line: int) -> bool:
    """Return whether a branch for unset variables ends a script that is read as started with what it requires.

    `before`: the mark of the unknowns before the condition.
    """
    unknowns = shell.reader.unknowns
    if not unknowns.arguments_are_open or unknowns.mark()[0] == before[0]:
        return False
    trial = shell.fork().with_streams(output=[])
    with suppress(Undecidable):
        trial.run(statements)
    if trial.state.ended != "exit":
        return False
    del unknowns.assumptions[before[1] :]
    unknowns.note(f"line {line} ends the script without what it asks for: read as set")
    return True


def follow_case(shell: Shell, node: Node) -> Status:
    """Follow `case`."""
    expander = shell.expander
    try:
        word = shell.reader.unknowns.as_tested(expander.text(node["Word"]), line_of(node))
    except Undecidable:
        ways = [_way_of(item) for item in node.get("Items", ())]
        return alternatives(shell, node, [*ways, _nothing])
    status, falls = True, False
    for item in node.get("Items", ()):
        if falls or any(fnmatch.fnmatchcase(word, expander.pattern(pattern)) for pattern in item.get("Patterns", ())):
            status, falls = bool(shell.run(item.get("Stmts", ()))), item.get("Op") == ";&"
            if item.get("Op") == ";;":
                break
    return status


def _way_of(item: Node) -> Way:
    return lambda one: one.run(item.get("Stmts", ()))


def follow_while(shell: Shell, node: Node) -> Status:
    """Follow `while` and `until`."""
    if _is_read_loop(node):
        return _follow_read_loop(shell, node)
    while True:
        decision = decided(lambda: shell.without_output().run(node["Cond"]))
        if decision is None:
            return _follow_unknown_turns(shell, node)
        before = _variables_and_files(shell)
        if decision is bool(node.get("Until")) or not _follow_turn(shell, node):
            merge_early_ends(shell, "break", line_of(node))
            return True
        if before == _variables_and_files(shell):  # all turns are alike: it never ends, and in the background others go on beside it
            shell.state.ended = "exit"
            return None
        if shell.state.left:  # a wait for something: whether another turn follows is known only at run time
            merge_early_ends(shell, "break", line_of(node))
            return None


def _variables_and_files(shell: Shell) -> tuple[object, ...]:
    """Return what decides another turn of a loop."""
    state = shell.state
    return dict(state.variables), state.folder, tuple(state.positional), dict(state.left), len(shell.reader.files), len(shell.output or ())


def _is_read_loop(node: Node) -> bool:
    """Return whether a loop is `while read NAME`."""
    words = ((node.get("Cond") or [{}])[0].get("Cmd") or {}).get("Args") or [{}]
    return len(node.get("Cond", ())) == 1 and (words[0].get("Parts") or [{}])[0].get("Value") == "read"


def _follow_read_loop(shell: Shell, node: Node) -> Status:
    """Follow `while read` once for each line that the text provides; otherwise number and values of the turns are unknown."""
    given, turn = shell.given, shell.with_streams(output=shell.output)
    for line in [None] if given is None or OPEN in given else given.splitlines():
        shell.with_streams(line if line is not None else hole("computed", "LINE")).run(node["Cond"])
        if line is None:
            return _follow_unknown_turns(turn, node)
        if not _follow_turn(turn, node):
            break
    return True


def follow_for(shell: Shell, node: Node) -> Status:
    """Follow `for NAME in …` and `for ((…))`."""
    loop, state = node["Loop"], shell.state
    if loop["Type"] == "CStyleLoop":
        return _follow_counting_loop(shell, node)
    name = loop["Name"]["Value"]
    if matched := " ".join(literal(item) for item in loop.get("Items", ()) if _is_pattern(item)):
        shell.reader.unknowns.sources.setdefault(name, f"a file that matches {matched}, line {line_of(node)}")
        state.variables[name] = hole("computed", name)
        return _follow_unknown_turns(shell, node)
    words = shell.expander.words(loop.get("Items", ())) if "InPos" in loop else list(state.positional)
    for word in words:
        state.variables[name] = word
        if not _follow_turn(shell, node):
            break
    merge_early_ends(shell, "break", line_of(node))
    return True


def _is_pattern(word: Node) -> bool:
    """Return whether the shell replaces a word by the files that it matches."""
    return any(part["Type"] == "Lit" and GLOB.search(part.get("Value", "")) for part in word.get("Parts") or ())


def _follow_counting_loop(shell: Shell, node: Node) -> Status:
    loop, expander = node["Loop"], shell.expander
    try:
        if loop.get("Init"):
            expander.number(loop["Init"])
        while not loop.get("Cond") or expander.number(loop["Cond"]):
            if not _follow_turn(shell, node):
                break
            if not loop.get("Cond") and shell.state.left:
                break
            if loop.get("Post"):
                expander.number(loop["Post"])
    except Undecidable:
        return _follow_unknown_turns(shell, node)
    merge_early_ends(shell, "break", line_of(node))
    return True


def _follow_turn(shell: Shell, node: Node) -> bool:
    """Follow one turn of a loop. Return whether another may follow."""
    state = shell.state
    shell.reader.count_step(line_of(node))
    shell.run(node.get("Do", ()))
    if state.ended in ("break", "continue"):
        again, state.ended = state.ended == "continue", ""
        return again
    return not state.ended


def _follow_unknown_turns(shell: Shell, node: Node) -> Status:
    """Follow a loop with an unknown number of turns: once, and not at all."""
    return alternatives(shell, node, [lambda one: _follow_turn(one, node), _nothing])


def alternatives(shell: Shell, node: Node, ways: Sequence[Way]) -> Status:
    """Follow each way from the same state. A variable with different results becomes undecided. The success is unknown.

    Raises Undecidable if the output is used and the ways print different texts.
    """
    state, reader, line = shell.state, shell.reader, line_of(node)
    outer, reader.condition = reader.condition, reader.condition or line
    before = list(shell.output or ())
    ends, printed = [], []
    for way in ways:
        fork, text = shell.fork(), hole("undecided", "OUTPUT")
        with suppress(Undecidable):
            way(fork)
            text = "".join(shell.output or ())
        ends.append(fork.state)
        printed.append(text)
        if shell.output is not None:
            shell.output[:] = before
    reader.condition = outer
    going = [one for one in ends if not one.ended] or ends
    for name in dict.fromkeys(name for one in going for name in one.variables):
        values = [one.variables.get(name) for one in going]
        if any(value != values[0] for value in values):
            reader.undecided.setdefault(name, line)
            state.variables[name] = hole("undecided", name)
        elif values[0] is not None:
            state.variables[name] = values[0]
    for one in going:
        state.exported |= one.exported
        state.functions |= one.functions
    state.folder, state.positional, state.shifted = going[0].folder, going[0].positional, going[0].shifted
    state.ended = going[0].ended if all(one.ended for one in ends) else ""
    for one in () if state.ended else ends:
        state.left = {**one.left, **({one.ended: one.variables} if one.ended else {}), **state.left}
    if shell.output is not None:
        if any(text != printed[0] for text in printed):
            raise Undecidable
        shell.output[:] = [printed[0]]
    return None


def merge_early_ends(shell: Shell, how: str, line: int) -> None:
    """End a loop ("break") or a function ("return") that a branch may have left earlier: variables that differ there become undecided."""
    state = shell.state
    earlier = state.left.pop(how, state.variables)
    state.left.pop("continue", None)
    for name in dict.fromkeys((*earlier, *state.variables)):
        if earlier.get(name) != state.variables.get(name):
            shell.reader.undecided.setdefault(name, line)
            state.variables[name] = hole("undecided", name)


def _nothing(_shell: Shell) -> None:
    """Do nothing, for a branch that is not taken."""


def _breaks(statement: Node) -> bool:
    """Return whether a statement leaves a loop: `break`, `{ …; break; }`."""
    command = statement.get("Cmd") or {}
    if command.get("Type") == "Block" and command.get("Stmts"):
        return _breaks(command["Stmts"][-1])
    parts = ((command.get("Args") or [{}])[0].get("Parts")) or [{}]
    return bool(parts[0].get("Value") == "break")


def _is_test(statement: Node) -> bool:
    command = statement.get("Cmd") or {}
    parts = ((command.get("Args") or [{}])[0].get("Parts")) or [{}]
    return command.get("Type") in TESTS or parts[0].get("Value") in ("[", "test")
