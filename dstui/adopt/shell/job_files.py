"""Turn the description of a job, or a debug configuration of VS Code, into the shell text that it runs. Nothing is executed.

Supported are manifests of Kubernetes, services of docker compose, workflows of GitHub, jobs of GitLab, Azure ML, dstack, SkyPilot,
Determined, MosaicML, VESSL and Ray. Templates are not filled in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

import yaml

from dstui.adopt.shell.recognise import SHELLS
from dstui.base.dataclass import dataclass
from dstui.plan.document import DocumentError, Loader, walk_nodes

SIGN = re.compile(r"""(?mi)^[ \t-]*["']?(?:command|commands|args|run|entrypoint|script|module|program)["']?[ \t]*:""")
"""A key with a command. Texts without one are not parsed."""
KEY = re.compile(r"""[ \t]*(?:-[ \t]+)?["']?[\w$.-]+["']?[ \t]*:(?:\s|$)|[{\[]""")
TEMPLATE = re.compile(r"\$?\{\{([^{}\n]{1,200})\}\}")
"""A value that a templating engine fills in: Argo, Helm, Azure ML, dstack, GitHub."""
OPTIONAL = re.compile(r"\$\[\[([^\n]*?)\]\]")
"""Words of Azure ML that are there if the inputs that they name are."""
QUOTED_TEMPLATE = re.compile(r"'((?:[^'\"`\\$\n]|\$?\{\{[^{}'\"`\\$\n]{1,200}\}\})*)'")
"""A text in single quotes, in which a shell would leave the variable that stands for a template."""
KUBERNETES_VARIABLE = re.compile(r"\$\(([A-Za-z_]\w*)\)")
VS_CODE_FOLDER = re.compile(r"\$\{(?:workspaceFolder|workspaceRoot|fileWorkspaceFolder)\}/?")
VS_CODE_VARIABLE = re.compile(r"\$\{(?:env|input|config|command):([^{}\n]{1,100})\}")
JSON_PART = re.compile(r'"(?:\\.|[^"\\\n])*"?|(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|\t', re.DOTALL)
BEFORE_THE_FIRST_KEY = re.compile(r"(?:[ \t,-]*(?:(?:#|//|---)[^\n]*)?\n)*[ \t]*")
PYTHON = re.compile(r"(?P<before>^|[;&|(\n][ \t]*)python3?(?=[ \t]+\S+\.py\b)")
DETERMINED = re.compile(r"python3?\s+-m\s+determined\.launch\.(deepspeed|torch_distributed)\s+(?:--\s+)?(?:python3?\s+)?(?=\S+\.py\b)")
"""Determined's own start of a launcher, on the slots of the trial."""
VARIABLES = ("env", "envs", "environment", "environment_variables", "variables")
"""Keys of the variables of a command, and of all commands below them."""
FOLDERS = ("workingDir", "working_dir", "workdir", "cwd")
"""Keys of the folder in which a command runs."""
COMMANDS = ("run", "entrypoint", "commands", "command", "script")
LISTS = ("commands", "script")
"""Those of them whose list has a command in each item, not a word."""
MAX_OF_A_HOST = 8
"""Slots of a trial of Determined that one host surely has."""
MAX_NODES = 20_000
MAX_TEXT = 400_000
LEFT_OUT = "the text describes a job: the Plan has its command, variables and folder; image, resources, volumes and replicas are left out"


@dataclass(frozen=True, slots=True)
class Piece:
    """The shell text of one command, and the line at which it stands."""

    line: int
    text: str


def job_as_shell(text: str) -> str | None:
    """Return the shell text of a job's description; None for other texts. Lines of commands keep their numbers if they can."""
    if text.startswith("#!") or len(text) > MAX_TEXT or not SIGN.search(text):
        return None
    start = BEFORE_THE_FIRST_KEY.match(text)
    if not KEY.match(text, start.end() if start else 0):
        return None
    pieces = sorted((piece for root in documents(text) for piece in _pieces(root)), key=lambda piece: piece.line)
    if not pieces:
        return None
    lines: list[str] = []
    for piece in pieces:
        lines += [""] * (piece.line - 1 - len(lines))
        lines += piece.text.split("\n")
    return "\n".join(lines) + "\n"


def documents(text: str) -> Iterator[yaml.Node]:
    """Yield the documents of YAML or JSON; none of a text that is neither."""
    body = text if not text.lstrip().startswith(("{", "[")) else JSON_PART.sub(_blank, text).rstrip().removesuffix(",")
    try:
        loader = Loader(body)
        while loader.check_node():
            root = loader.get_node()
            for _ in walk_nodes(root):
                pass
            yield root
    except (yaml.YAMLError, DocumentError, RecursionError, ValueError):
        return


def _blank(found: re.Match[str]) -> str:
    """Return a part of JSON with comments; blanks for a comment, which YAML does not know."""
    return re.sub(r"[^\n]", " ", found[0]) if found["comment"] or found[0] == "\t" else found[0]


def _pieces(root: yaml.Node) -> Iterator[Piece]:
    """Yield the commands of all mappings below a node."""
    seen, waiting = set[int](), [(root, dict[str, str]())]
    while waiting and len(seen) < MAX_NODES:
        node, above = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(value, above) for value in reversed(node.value)]
        elif isinstance(node, yaml.MappingNode):
            keys = {_key(key.value): value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            variables = {**above, **dict(_variables(keys))}
            if piece := _piece(keys, variables):
                yield piece
            waiting += [(value, variables) for _, value in reversed(node.value)]


def _key(name: str) -> str:
    """Return a key as most write it: `Entrypoint` is `entrypoint`."""
    return name.lower() if name.istitle() else name


def _piece(keys: Mapping[str, yaml.Node], variables: Mapping[str, str]) -> Piece | None:
    """Return the command of a mapping, with the variables of its job."""
    if _text(keys.get("request")) in ("launch", "attach") and ("module" in keys or "program" in keys):
        return _debugger_command(keys, variables)
    name = next((name for name in COMMANDS if name in keys), "args" if "args" in keys else "")
    node = keys.get(name)
    if isinstance(node, yaml.ScalarNode) and node.value.strip():
        command = _plain(node.value.strip("\n"), variables)
        more = keys.get("args") if name == "entrypoint" else None
        command = f"{command.rstrip()} {_plain(_text(more), variables)}" if _text(more) else command
        command = command if node.style in ("|", ">") or name != "command" or "\n" not in command else " ".join(command.split())
        line = node.start_mark.line + (2 if node.style in ("|", ">") else 1)
        return _wrapped(line, _distributed(command, keys), variables, keys)
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return None
    if name in LISTS:
        texts = [_plain(item.value.rstrip("\n"), variables) for item in node.value if isinstance(item, yaml.ScalarNode)]
        first = node.value[0]
        return _wrapped(first.start_mark.line + 1, _spread(node.value, texts), variables, keys)
    first = node.value[0]
    words = [*_words(node), *(_words(keys["args"]) if name != "args" and "args" in keys else ())]
    if not words:
        return None
    if words[0].rpartition("/")[2] in SHELLS and (text := _script(words)) is not None:
        holder = next((item for item in _items(keys, name) if item.value == text), first)
        line = holder.start_mark.line + (2 if holder.style in ("|", ">") else 1)
        return _wrapped(line, _plain(text.strip("\n"), variables), variables, keys)
    return _wrapped(first.start_mark.line + 1, " ".join(_word(word) for word in words), variables, keys)


def _spread(items: list[yaml.Node], texts: list[str]) -> str:
    """Return commands one below the other, each at its own line if there is room."""
    start, lines = items[0].start_mark.line, list[str]()
    for item, text in zip(items, texts, strict=False):
        at = item.start_mark.line - start + (1 if getattr(item, "style", None) in ("|", ">") else 0)
        lines += [""] * (at - len(lines))
        lines += text.split("\n")
    return "\n".join(lines)


def _items(keys: Mapping[str, yaml.Node], name: str) -> Iterator[yaml.ScalarNode]:
    for node in (keys.get(name), keys.get("args")):
        if isinstance(node, yaml.SequenceNode):
            yield from (item for item in node.value if isinstance(item, yaml.ScalarNode))


def _words(node: yaml.Node) -> list[str]:
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return [item.value for item in items if isinstance(item, yaml.ScalarNode)]


def _script(words: list[str]) -> str | None:
    """Return the text of `bash -c TEXT`, also with options before it."""
    for at, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-z]*c", word):
            return next(iter(words[at + 1 + (words[at + 1 : at + 2] == ["--"]) :]), None)
        if not word.startswith("-"):
            return None
    return None


def _wrapped(line: int, command: str, variables: Mapping[str, str], keys: Mapping[str, yaml.Node]) -> Piece:
    """Return a command in a shell of its own, with its variables and its folder before it on the same line."""
    exports = "".join(f"export {name}={_value(value)}; " for name, value in variables.items())
    folder = next((text for name in FOLDERS if (text := _text(keys.get(name))) and not text.startswith(("http", "git"))), "")
    folder = VS_CODE_FOLDER.sub("", folder).rstrip("/")
    cd = f"cd {shlex.quote(folder)}; " if folder not in ("", ".") and "$" not in folder else ""
    code = _text(keys.get("code")).strip("/")
    if re.fullmatch(r"[\w./-]+", code) and code != ".":
        cd = f'cd "$(dirname "$0")/{code}"; '
    return Piece(line, f"( {exports}{cd}{command}\n)")


def _value(value: str) -> str:
    return _quoted(value) if "$" in value else shlex.quote(value)


def _variables(keys: Mapping[str, yaml.Node]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a command; those that a program such as envsubst fills in with their own value are left to it."""
    yield from ((name, value) for name, value in _pairs(keys) if not re.search(rf"\$\{{?{name}\b", value))


def _pairs(keys: Mapping[str, yaml.Node]) -> Iterator[tuple[str, str]]:
    """Yield variables: of a mapping, of a list of `NAME=value`, or of a list of names with values."""
    for name in VARIABLES:
        node = keys.get(name)
        pairs = list(node.value) if isinstance(node, yaml.MappingNode) else []
        inner = next((value for key, value in pairs if getattr(key, "value", "") in VARIABLES), None)
        if inner is not None:
            yield from _pairs({"env": inner})
            continue
        for key, value in pairs:
            text = value if isinstance(value, yaml.ScalarNode) else value_at(value, "value")
            if isinstance(key, yaml.ScalarNode) and isinstance(text, yaml.ScalarNode) and _is_name(key.value):
                yield key.value, _holes(text.value)
        for item in node.value if isinstance(node, yaml.SequenceNode) else ():
            if isinstance(item, yaml.ScalarNode):
                one, equals, text = item.value.partition("=")
                if equals and _is_name(one):
                    yield one, _holes(text)
            elif isinstance(item, yaml.MappingNode):
                given = scalars(item)
                if _is_name(given.get("name", "")) and "value" in given:
                    yield given["name"], _holes(given["value"])


def _is_name(text: str) -> bool:
    return text.isidentifier() and text.isascii()


def _debugger_command(keys: Mapping[str, yaml.Node], variables: Mapping[str, str]) -> Piece | None:
    """Return the command of a debug configuration of VS Code."""
    module, program = (_text(keys.get(name)) for name in ("module", "program"))
    args = keys.get("args")
    given = [args.value] if isinstance(args, yaml.ScalarNode) else [_word(word) for word in (_words(args) if args is not None else ())]
    start = f"python -m {shlex.quote(module)}" if module else _word(program)
    start = f"python {start}" if not module and program.endswith(".py") else start
    command = " ".join([start, *given])
    node = keys["module" if module else "program"]
    if not (module or program):
        return None
    return _wrapped(node.start_mark.line + 1, command.replace("\n", " "), variables, keys)


def _distributed(command: str, keys: Mapping[str, yaml.Node]) -> str:
    """Return a command with the launcher that the service starts: of Azure ML by its `distribution:`, of Determined by a module."""
    slots = scalars(keys.get("resources")).get("slots_per_trial", "1")
    if slots.isdecimal() and int(slots) <= MAX_OF_A_HOST and (own := DETERMINED.search(command)):
        launcher = f"deepspeed --num_gpus={slots}" if own[1] == "deepspeed" else f"torchrun --nproc_per_node={slots}"
        return f"{command[: own.start()]}{launcher} {command[own.end() :]}"
    given = scalars(keys.get("distribution")) | {"nodes": scalars(keys.get("resources")).get("instance_count", "1")}
    if given.get("type") != "pytorch":
        return command
    nodes, ranks = given["nodes"], given.get("process_count_per_instance", "1")
    if not (nodes.isdecimal() and ranks.isdecimal()):
        return command
    return PYTHON.sub(lambda found: f"{found['before']}torchrun --nnodes={nodes} --nproc_per_node={ranks}", command)


def scalars(node: yaml.Node | None) -> dict[str, str]:
    """Return the keys of a mapping that have a single value."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {_key(key.value): value.value for key, value in pairs if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)}


def value_at(node: yaml.Node | None, *path: str) -> yaml.Node | None:
    """Return the node at the keys below a mapping; None if there is none."""
    for name in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for key, value in pairs if getattr(key, "value", None) == name), None)
    return node


def _text(node: yaml.Node | None) -> str:
    return str(node.value).strip() if isinstance(node, yaml.ScalarNode) else ""


def _plain(text: str, variables: Mapping[str, str]) -> str:
    """Return a text that a shell runs, with its templates as variables. Kubernetes fills in $(NAME) of its own variables."""
    return KUBERNETES_VARIABLE.sub(lambda found: f"${{{found[1]}}}" if found[1] in variables else found[0], _holes(text))


def _word(word: str) -> str:
    """Return a word of a list in quotes; variables stay, also those that a program such as envsubst fills in."""
    word = KUBERNETES_VARIABLE.sub(lambda found: f"${{{found[1]}}}", _holes(word))
    return _quoted(word) if re.search(r"\$(?:\w|\{\w+\})", word) else shlex.quote(word)


def _quoted(text: str) -> str:
    """Return a text in double quotes in which only variables have a meaning."""
    text = re.sub(r'([\\"`])', r"\\\1", text)
    return '"' + re.sub(r"\$(?!\w|\{\w+\})", r"\\$", text) + '"'


def _holes(text: str) -> str:
    """Return a text with a variable for each template, and without VS Code's own folder."""
    text = VS_CODE_VARIABLE.sub(lambda found: f"${{{_name(found[1])}}}", VS_CODE_FOLDER.sub("", text))
    return TEMPLATE.sub(lambda found: f"${{{_name(found[1])}}}", QUOTED_TEMPLATE.sub(_double_quoted, OPTIONAL.sub(r"\1", text)))


def _double_quoted(quoted: re.Match[str]) -> str:
    return f'"{quoted[1]}"' if TEMPLATE.search(quoted[1]) else quoted[0]


def _name(template: str) -> str:
    """Return a variable's name for a template: its last name."""
    names = re.findall(r"[A-Za-z_]\w*", template.partition("|")[0])
    return (names[-1] if names else "TEMPLATE").upper()
