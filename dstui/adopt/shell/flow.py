"""Follow branches and loops of shell text: one branch if the condition is known, else all of them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from dstui.adopt.shell.expansion import line_of, literal
from dstui.adopt.shell.reader import Reader
from dstui.adopt.shell.shell_state import OPEN, Node, ShellState, Streams, Undecidable, hole

Way = Callable[[ShellState], object]
"""One way to continue from a state."""
TESTS = ("TestClause", "ArithmCmd")
GLOB = re.compile(r"(?<!\\)[*?]")
"""A pattern outside of quotes, which the shell replaces by the files that it finds."""


def follow_list(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    """Follow `a && b`, `a || b`. An unknown command is assumed to succeed, an unknown test is not."""
    before = reader.unknowns.mark()
    status = reader.statement(node["X"], state, streams)
    if state.ended:
        return status
    if status is None and (_is_test(node["X"]) or (node["Op"] == "||" and _breaks(node["Y"]))):
        return alternatives(reader, [lambda one: reader.statement(node["Y"], one, streams), _nothing], state, node, streams)
    goes_on = status is not False if node["Op"] == "&&" else status is False
    if goes_on and _requires(reader, before, [node["Y"]], state, line_of(node)):
        return None
    return reader.statement(node["Y"], state, streams) if goes_on else status


def follow_if(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    """Follow `if`, `elif` and `else`."""
    if not node.get("Cond"):
        return reader.run(node.get("Then", ()), state, streams)
    before = reader.unknowns.mark()
    decision = reader.decided(lambda: reader.run(node["Cond"], state, _without_output(streams)))

    def otherwise(one: ShellState) -> bool | None:
        other = node.get("Else")
        return follow_if(reader, other, one, streams) if other else True

    if decision is None:
        return alternatives(reader, [lambda one: reader.run(node.get("Then", ()), one, streams), otherwise], state, node, streams)
    if decision and _requires(reader, before, node.get("Then", ()), state, line_of(node)):
        decision = False
    return reader.run(node.get("Then", ()), state, streams) if decision else otherwise(state)


def _requires(reader: Reader, before: tuple[int, int], statements: Sequence[Node], state: ShellState, line: int) -> bool:
    """Return whether a branch for unset variables ends a script that is read as started with what it requires.

    `before`: the mark of the unknowns before the condition.
    """
    unknowns = reader.unknowns
    if not unknowns.arguments_are_open or unknowns.mark()[0] == before[0]:
        return False
    trial = state.copy()
    with suppress(Undecidable):
        reader.run(statements, trial, Streams(output=[]))
    if trial.ended != "exit":
        return False
    del unknowns.assumptions[before[1] :]
    unknowns.note(f"line {line} ends the script without what it asks for: read as set")
    return True


def follow_case(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    """Follow `case`."""
    expander = reader.expander(state)
    try:
        word = reader.unknowns.as_tested(expander.text(node["Word"]), line_of(node))
    except Undecidable:
        ways = [_way_of(reader, item, streams) for item in node.get("Items", ())]
        return alternatives(reader, [*ways, _nothing], state, node, streams)
    status, falls = True, False
    for item in node.get("Items", ()):
        if falls or any(fnmatch.fnmatchcase(word, expander.pattern(pattern)) for pattern in item.get("Patterns", ())):
            status, falls = bool(reader.run(item.get("Stmts", ()), state, streams)), item.get("Op") == ";&"
            if item.get("Op") == ";;":
                break
    return status


def _way_of(reader: Reader, item: Node, streams: Streams) -> Way:
    return lambda one: reader.run(item.get("Stmts", ()), one, streams)


def follow_while(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    """Follow `while` and `until`."""
    if _is_read_loop(node):
        return _follow_read_loop(reader, node, state, streams)
    while True:
        decision = reader.decided(lambda: reader.run(node["Cond"], state, _without_output(streams)))
        if decision is None:
            return _follow_unknown_turns(reader, node, state, streams)
        if decision is bool(node.get("Until")) or not _follow_turn(reader, node, state, streams):
            merge_early_ends(reader, state, "break", line_of(node))
            return True
        if state.left:  # a wait for something: whether another turn follows is known only at run time
            merge_early_ends(reader, state, "break", line_of(node))
            return None


def _is_read_loop(node: Node) -> bool:
    """Return whether a loop is `while read NAME`."""
    words = ((node.get("Cond") or [{}])[0].get("Cmd") or {}).get("Args") or [{}]
    return len(node.get("Cond", ())) == 1 and (words[0].get("Parts") or [{}])[0].get("Value") == "read"


def _follow_read_loop(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    """Follow `while read` once for each line that the text provides; otherwise number and values of the turns are unknown."""
    lines = [None] if streams.given is None or OPEN in streams.given else streams.given.splitlines()
    for line in lines:
        reader.run(node["Cond"], state, Streams(line if line is not None else hole("computed", "LINE"), None))
        if line is None:
            return _follow_unknown_turns(reader, node, state, Streams(None, streams.output))
        if not _follow_turn(reader, node, state, Streams(None, streams.output)):
            break
    return True


def follow_for(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    """Follow `for NAME in …` and `for ((…))`."""
    loop = node["Loop"]
    if loop["Type"] == "CStyleLoop":
        return _follow_counting_loop(reader, node, state, streams)
    name = loop["Name"]["Value"]
    if matched := " ".join(literal(item) for item in loop.get("Items", ()) if _is_pattern(item)):
        reader.unknowns.sources.setdefault(name, f"a file that matches {matched}, line {line_of(node)}")
        state.variables[name] = hole("computed", name)
        return _follow_unknown_turns(reader, node, state, streams)
    words = reader.expander(state).words(loop.get("Items", ())) if "InPos" in loop else list(state.positional)
    for word in words:
        state.variables[name] = word
        if not _follow_turn(reader, node, state, streams):
            break
    merge_early_ends(reader, state, "break", line_of(node))
    return True


def _is_pattern(word: Node) -> bool:
    """Return whether the shell replaces a word by the files that it matches."""
    return any(part["Type"] == "Lit" and GLOB.search(part.get("Value", "")) for part in word.get("Parts") or ())


def _follow_counting_loop(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    loop, expander = node["Loop"], reader.expander(state)
    try:
        if loop.get("Init"):
            expander.number(loop["Init"])
        while not loop.get("Cond") or expander.number(loop["Cond"]):
            if not _follow_turn(reader, node, state, streams):
                break
            if not loop.get("Cond") and state.left:
                break
            if loop.get("Post"):
                expander.number(loop["Post"])
    except Undecidable:
        return _follow_unknown_turns(reader, node, state, streams)
    merge_early_ends(reader, state, "break", line_of(node))
    return True


def _follow_turn(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool:
    """Follow one turn of a loop. Return whether another may follow."""
    reader.count_step(line_of(node))
    reader.run(node.get("Do", ()), state, streams)
    if state.ended in ("break", "continue"):
        again, state.ended = state.ended == "continue", ""
        return again
    return not state.ended


def _follow_unknown_turns(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    """Follow a loop with an unknown number of turns: once, and not at all."""
    return alternatives(reader, [lambda one: _follow_turn(reader, node, one, streams), _nothing], state, node, streams)


def alternatives(reader: Reader, ways: Sequence[Way], state: ShellState, node: Node, streams: Streams) -> bool | None:
    """Follow each way from the same state. A variable with different results becomes undecided. The success is unknown.

    Raises Undecidable if the output is used and the ways print different texts.
    """
    line = line_of(node)
    outer, reader.condition = reader.condition, reader.condition or line
    before = list(streams.output or ())
    ends, printed = [], []
    for way in ways:
        one, text = state.copy(), hole("undecided", "OUTPUT")
        with suppress(Undecidable):
            way(one)
            text = "".join(streams.output or ())
        ends.append(one)
        printed.append(text)
        if streams.output is not None:
            streams.output[:] = before
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
    if streams.output is not None:
        if any(text != printed[0] for text in printed):
            raise Undecidable
        streams.output[:] = [printed[0]]
    return None


def merge_early_ends(reader: Reader, state: ShellState, how: str, line: int) -> None:
    """End a loop ("break") or a function ("return") that a branch may have left earlier: variables that differ there become undecided."""
    earlier = state.left.pop(how, state.variables)
    state.left.pop("continue", None)
    for name in dict.fromkeys((*earlier, *state.variables)):
        if earlier.get(name) != state.variables.get(name):
            reader.undecided.setdefault(name, line)
            state.variables[name] = hole("undecided", name)


def _nothing(_state: ShellState) -> None:
    """Do nothing, for a branch that is not taken."""


def _without_output(streams: Streams) -> Streams:
    """Return streams that drop the output of a condition. A program in it decides by its status, known only at run time."""
    return Streams(streams.given, None)


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
