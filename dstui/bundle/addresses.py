"""Mask the secret parts of addresses: user, password and query; of a webhook also its path, which is its key."""

from __future__ import annotations

import re

ADDRESS = re.compile(r"://[^\s\"'<>`\\]+")
USER = re.compile(
    r"(?:[^/?#@]*@)+"
    r"|(?![\w-]*\.[\w.-]*:\d{1,5}(?:[/?#]|$)|(?:localhost|\[[\da-f:]*\]):)[^/?#@:]*:.*@",  # a password with a slash, and no port
    re.IGNORECASE,
)
QUERY = re.compile(r"(?<=[\w/)\]}])\?(?=[\w.%\[\]-]{1,60}=)[^\s\"'<>`\\]+")
"""The query of an address without a scheme."""
ENDS = re.compile(r"[),.;:\]}]*$")
"""Punctuation after an address."""
HOOK = re.compile(
    r"[^/]*hook|[^/]*(?:zapier|ifttt|hc-ping|healthchecks|pipedream|ntfy|pushover|opsgenie|pagerduty|logic\.azure)\b"
    r"|[^/]*/(?:[^?#]*/)?(?:web-?hooks?|hooks?|incoming|bot\w*|robot|services/T\w+|spaces|triggers|workflows)(?:/|$)",
    re.IGNORECASE,
)
"""The beginning of a webhook's address: known services, and usual names of others."""
ON_END = re.compile(r"(?P<indent>^[ \t]*)?(?P<key>[\"']?on_end[\"']?[ \t]*[:=])", re.MULTILINE)
BARE = re.compile(r"(?P<host>://[^\s/\"'<>\\]+|(?<![\w./:-])[\w-]+(?:\.[\w-]+)+(?::\d+)?)/(?P<path>[^\s\"'<>\\]*)")
"""An address in a command, with or without a scheme: `curl example.org/a`, not `./notify.sh`."""


def addresses_masked(text: str, mask: str) -> str:
    """Mask the secret parts of every address in a text."""
    if "://" in text:
        text = ADDRESS.sub(lambda match: f"://{_shown(match[0][3:], mask)}", text)
    return QUERY.sub(lambda match: f"?{mask}{_end(match[0])}", text) if "?" in text else text


def _shown(address: str, mask: str) -> str:
    user = USER.match(address)
    place = address[user.end() :] if user else address
    before, sign, query = place.partition("?")
    before, hash_sign, fragment = before.partition("#")
    if HOOK.match(before):
        before = f"{before.partition('/')[0]}/{mask}"
    shown = f"{mask}@{before}" if user else before
    if sign:
        return f"{shown}?{mask}{_end(query)}"
    return f"{shown}#{mask}{_end(fragment)}" if "=" in fragment else f"{shown}{hash_sign}{fragment}"


def _end(text: str) -> str:
    match = ENDS.search(text)
    return match[0] if match else ""


def notified_masked(text: str, mask: str) -> tuple[str, set[str]]:
    """Mask the paths of all addresses in `on_end` (a command or an address). Return the text and the paths, to mask them elsewhere."""
    if "on_end" not in text:
        return text, set()
    chunks, paths, at = [], set[str](), 0
    for found in ON_END.finditer(text):
        if found.end() < at:
            continue
        end = _end_of_value(text, found)
        value = text[found.end() : end]
        paths |= {match["path"] for match in BARE.finditer(value)}
        chunks += [text[at : found.end()], BARE.sub(rf"\g<host>/{mask}", value)]
        at = end
    return "".join(chunks) + text[at:], paths


def _end_of_value(text: str, key: re.Match[str]) -> int:
    """Return where the value of a key ends: with its line, or with the last line that is indented deeper."""
    end = text.find("\n", key.end())
    if end < 0:
        return len(text)
    least = len(key["indent"]) if key["indent"] is not None else -1
    while least >= 0:
        stop = text.find("\n", end + 1)
        line = text[end + 1 : stop if stop >= 0 else len(text)]
        if line.strip() and len(line) - len(line.lstrip(" -")) <= least:
            break
        if stop < 0:
            return len(text)
        end = stop
    return end
