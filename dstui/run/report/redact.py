"""Secrets taken out of text that leaves the machine: configurations, command lines, environments, logs.

Three ways to know one, each a table here: by the name that it is given (`HF_TOKEN=…`, `--api-key …`, `"password": "…"`), by its shape
(`hf_…`, `ghp_…`, `sk-…`, `https://user:…@host`), and by its value, where another place has named it. When in doubt it is masked: a setting
too many costs a question, a key too few costs a cluster. Names are looked for only around a few words, and no pattern can be made to
scan a text twice: logs pass at 13 MB/s, those of long words only at 7.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

MASK = "***"
"""What stands where a secret stood."""
SHORTEST = 8
"""Characters of a value that is masked wherever it stands; a shorter one could be any word."""

HINT = re.compile("secret|pass|pwd|credential|creds|cookie|token|key|aws_|wandb|_pat(?![a-z])")
"""One of these, in small letters, is in the name of every secret."""
NAMES = re.compile(
    r"secret(?!ar)|passwo?r?d(?!auth)|passphrase|credential|cookies?$"
    r"|(?:api|access|private|auth|account|storage|signing|encryption|license)[_-]?key"
    r"|[_-]pwd$|^aws_"
    r"|(?-i:_(?:KEY|PASS|PAT|CREDS)$)"  # in capitals only: `forward_pass: 3 ms`
    r"|(?:[_-]|(?-i:(?<=[a-z])(?=T)))token(?:_?\d{1,2})?$",
    re.IGNORECASE,
)
KEYS = re.compile(r"(?:[_-]|(?-i:(?<=[a-z])(?=K)))key$", re.IGNORECASE)
"""What may be a secret, and may be the name of a column: it is one as an option, and elsewhere where its value is no word."""
VOCABULARY = re.compile(
    r"(?:pad|eos|bos|unk|sep|cls|mask|image|video|audio|vision|special|stop|end|next|last|first|new|per|max|min)[_-]token"
    r"|(?:input|output|label|target|prompt|response|answer|question|query|chosen|rejected|text|image|audio|video|reward|score|value|data"
    r"|dataset|feature|column|sort|group|primary|foreign|cache|partition|index|id|dict|state|param|layer|attention|mask|missing|message"
    r"|messages|rng|random|public|model|metric|batch|time|unexpected)[_-]key",
    re.IGNORECASE,
)
"""`pad_token`, `input_key` and their like are no secrets."""
LONGEST_NAME = 60
WORDS = re.compile(r"[A-Za-z_. -]*|[\d.,:/ -]*")
"""What a log may well say behind `password: `, and say again elsewhere."""
WORD = re.compile(rf"[\w-]{{0,{LONGEST_NAME}}}")

VALUE = (
    r"(?P<value>\\+[\"'](?:(?!\\+[\"']).)*(?:\\+[\"']|$)"  # in quotes within quotes: JSON in a JSON string
    r"|\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'(?:[^'\\\n]|\\.|'')*(?:'|$)"
    r"|(?!(?:null|none|true|false)\b)(?:[^\s\"',;)}\]&]|[,;)}\]](?=[^\s\"'])|&(?![\w.-]{1,60}=))+)"
)
ASSIGNED = re.compile(r"(?:\\*[\"'])?[ \t]*(?:=>?|:=|:(?!//))[ \t]*" + VALUE, re.IGNORECASE | re.MULTILINE)
"""What follows a name where it is given a value: in a shell, YAML, JSON, Python, a URL."""
OPTION = re.compile(r"(?:=|\\*[\"']?(?:[ \t]*,\s*|\s+)(?:- +)?)(?!-)" + VALUE, re.IGNORECASE | re.MULTILINE)
"""What follows an option: its value behind `=` or a space, or the next item of a list."""
OPAQUE = re.compile(r"[\"']?[ \t]*[:=][ \t]*[\"']?(?=[\w.~+/=-]{0,200}\d)[\w.~+/=-]{16}")
"""What follows a mere `token` where its value is no word of any language."""
HEXED = re.compile(r"[^\n]{0,40}?(?<![0-9A-Za-z])(?P<value>[0-9a-f]{32,64})(?![0-9A-Za-z])")
"""A key in hexadecimal digits, as of trackers, in the words behind `key` and its like."""

DISTINCT = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hf_"), r"[A-Za-z0-9]{16,}"),
    **dict.fromkeys(("github_pat_", "wandb_v1_", "api_org_", "dckr_pat_", "dckr_oat_"), r"[\w-]{16,}"),
    **dict.fromkeys(("glpat-", "gldt-", "glft-", "glffct-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "gloas-"), r"[\w.-]{16,}"),
    **dict.fromkeys(("glagent-", "GR1348941", "nvapi-", "CLOJARS_", "lsv2_pt_", "lsv2_sk_", "pcsk_"), r"[\w-]{16,}"),
    **dict.fromkeys(("sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_", "rk_prod_", "whsec_"), r"\w{10,}"),
    **dict.fromkeys(("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xoxe.xox", "xapp-"), r"[\w.-]{10,}"),
    **dict.fromkeys(("AKIA", "ASIA", "ABIA", "ACCA"), r"[0-9A-Z]{16}"),
    **dict.fromkeys(("ABSK", "ops_eyJ", "cmVmd", "AKCp", "eyJrIjoi", "eyJhcGlf", "sntrys_eyJ", "ZXlK"), r"[\w+/=-]{40,}"),
    **dict.fromkeys(("doo_v1_", "dop_v1_", "dor_v1_", "rubygems_", "sntryu_", "lin_api_", "pscale_tkn_"), r"[\w.=-]{30,}"),
    **dict.fromkeys(("pscale_oauth_", "pscale_pw_", "duffel_test_", "duffel_live_", "bedrock-api-key-"), r"[\w.=-]{20,}"),
    **dict.fromkeys(("sm_aat_", "sm_pat_", "sm_sat_", "shippo_live_", "shippo_test_"), r"\w{16,}"),
    **dict.fromkeys(("shpat_", "shpca_", "shppa_", "shpss_", "FLWSECK_TEST-", "FLWPUBK_TEST-"), r"[\w-]{12,}"),
    **dict.fromkeys(("hvs.", "hvb.", "hvr.", "dt0c01.", "ya29.", "dp.pt.", "dp.st."), r"[\w.-]{24,}"),
    **dict.fromkeys(("s-s4t2ud-", "s-s4t2af-", "sq0atp-", "sq0csp-", "xkeysib-", "GOCSPX-", "HRKU-AA"), r"[\w-]{20,}"),
    "AGE-SECRET-KEY-": r"[0-9A-Z]{20,}",
    "AIza": r"[\w-]{35}",
    "npm_": r"[A-Za-z0-9]{36}",
    "pypi-": r"[\w-]{32,}",
    "_gitlab_session=": r"[0-9a-z]{32}",
    "sha256~": r"[\w-]{43}",
    "PMAK-": r"[\w-]{32,}",
    "SG.": r"[\w=.-]{40,}",
    "A3-": r"[0-9A-Z]{6}-[0-9A-Z-]{20,}",
}
"""What nothing but a secret begins with, in all lists of such (gitleaks, detect-secrets), and what follows."""
BOUNDED = {
    **dict.fromkeys(("gsk_", "glsa_", "pnu_", "rdme_", "ntn_", "sgp_", "tfp_", "rpa_"), r"[\w.=-]{30,}"),
    **dict.fromkeys(("glc_", "fo1_", "fm1r_", "fm1a_", "fm2_"), r"[\w+/=-]{32,}"),
    **dict.fromkeys(("sgp_local_", "r8_", "tgp_v1_", "jina_"), r"[\w-]{30,}"),
    **dict.fromkeys(("xai-", "pplx-", "ico-", "pul-", "p8e-", "tvly-", "tk-us-", "fio-u-", "dnkey-", "pubkey-"), r"[\w=-]{24,}"),
    **dict.fromkeys(("EZAK", "EZTK", "EAAM", "EAAC", "EAAA", "AQVN", "LTAI"), r"[\w-]{20,}"),
    **dict.fromkeys(("NRAK-", "NRII-", "NRJS-", "API-"), r"(?=[\w-]{0,40}\d)[\w-]{19,}"),
    **dict.fromkeys(("SK", "AC"), r"(?=[A-Za-z]{0,31}\d)[0-9A-Za-z]{32}(?![0-9A-Za-z])"),
    "s.": r"(?=[A-Za-z]{0,23}\d)[A-Za-z0-9]{24}(?![\w.])",
    "4b1d": r"[A-Za-z0-9]{38}(?![A-Za-z0-9])",
    **dict.fromkeys(("sc_", "ext_", "scauth_", "authress_"), r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][\w.+/=-]{20,}"),
    **dict.fromkeys(("pat.", "sat."), r"[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    "sk-": r"(?=[\w-]{0,200}\d)[\w-]{16,}",
    "key-": r"[0-9a-f]{32}",
    "dapi": r"[0-9a-f]{32}",
    "pat": r"[A-Za-z0-9]{14}\.[0-9a-f]{64}",
    "v1.0-": r"[0-9a-f]{24}-[0-9a-f]{100,}",
    "A3T": r"[0-9A-Z]{17}",
    "AKC": r"(?=\w{0,100}\d)[A-Za-z0-9]{50,}",
    "sl.": r"[\w=-]{100,}",
    "t1.": r"[\w-]+={0,2}\.[\w-]{86}",
}
"""The same of what may be the end of another word: only where none comes before it, or a newline as JSON spells it."""

FREE = r"(?:(?<![\w~])|(?<=\\[nrt]))"
"""Where no word goes on, but for a newline as JSON spells it."""
MARKED = {
    **{begin: re.compile(re.escape(begin) + rest) for begin, rest in DISTINCT.items()},
    **{
        begin: re.compile(rf"{re.escape(begin)}(?:(?<!\w{re.escape(begin)})|(?<=\\[nrt]{re.escape(begin)})){rest}")
        for begin, rest in BOUNDED.items()
    },
    "Q~": re.compile(FREE + r"[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    ".atlasv1.": re.compile(FREE + r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}"),
    ":": re.compile(FREE + r"\d{8,10}:[\w-]{35}(?![\w-])"),  # Telegram
    ".": re.compile(FREE + r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}"),  # Discord
    "|": re.compile(FREE + r"\d{15,16}\|[\w-]{27,40}"),
    "_mmk": re.compile(FREE + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    "-us": re.compile(FREE + r"[0-9a-z]{32}-us\d{1,2}(?!\w)"),
}
"""What is in a secret of each shape, and the shape. None has a blank in it, or less than SHORTEST_SHAPE characters."""
SHORTEST_SHAPE = 16
SHAPES = [
    re.compile(shape)
    for shape in (
        r"(?P<head>wandb login )[^\s-]\S*",
        r"eyJ(?<!\weyJ)[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?",  # a JSON web token
        r"(?P<head>Bearer )[\w.~+/=-]{8,}",
        r"(?P<head>Authorization: ?(?:Basic|Token|token) )[\w+/=-]+",
        r"(?P<head>curl [^\n]{0,200}?(?:-u|--user)[ =]{0,3}[\"']?[^\s:\"']{0,100}:)[^\s\"']+",
        r"(?P<head>assword\"\s{0,9}value=\")[^\"\n]+",
        r"(?P<head>api\.softlayer\.com/soap/v3(?:\.1)?/)[a-z0-9]{64}",
        r"(?P<head>://[^\s/:@\"'<>]*:)[^\s/\"'<>]+(?=@)",
        r"(?P<head>://)[^\s/:@\"'<>]{8,}(?=@)",  # https://TOKEN@host
        r"(?P<head>hooks\.slack\.com/(?:services|workflows|triggers)/)[^\s\"'<>]+",
        r"(?P<head>\.webhook\.office\.com/)[^\s\"'<>]+",
        r"(?P<head>/api/webhooks/)[^\s\"'<>]+",
        r"(?P<head>api\.telegram\.org/bot)[^\s\"'<>]+",
        r"(?P<head>[?&]sig=)[^\s\"'<>&]{16,}",
        r"(?P<head>X-Amz-Signature=)[0-9a-f]{16,}",
        r"(?P<head>login \S{1,80}\s{1,9}password )\S+",  # .netrc
        r"(?P<head>on_end[\"']?[ \t]{0,9}[:=][ \t]{0,9}[\"']?https?://[^\s/\"'<>]+/)[^\s\"'<>]+",
        r"(?P<head>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)[\s\S]*?(?=-----END|\Z)",
    )
]
"""What secrets look like, and what stands before them. Each begins with plain letters: such a search runs at 1 GB/s, others at 30 MB/s."""


def mask(text: str, known: Iterable[str] = ()) -> str:
    """The text without its secrets. `known`: values that are secret wherever they stand."""
    for spelling in sorted({spelling for value in known for spelling in _spellings(value)}, key=len, reverse=True):
        text = text.replace(spelling, MASK)
    long = "\n".join(word for word in text.split() if len(word) >= SHORTEST_SHAPE)
    for mark, shape in MARKED.items():
        if mark in long and shape.search(long):
            text = shape.sub(MASK, text)
    for shape in SHAPES:
        text = shape.sub(rf"\g<head>{MASK}" if "head" in shape.groupindex else MASK, text)
    return _without_named(text)


def secrets(named: Mapping[str, str]) -> set[str]:
    """Of names and their values (an environment), the values that are secret and long enough to be known again."""
    return {value for name, value in named.items() if len(value) >= SHORTEST and is_secret(name)}


def secrets_in(text: str, *, prose: bool = False) -> set[str]:
    """The same of what a text names: a Plan, a command line, an env file. `prose`: words in it are taken for words, as in a log."""
    values = {found["value"].strip("\\\"'") for found in _named(text)}
    return {value for value in values if len(value) >= SHORTEST and value != MASK and not (prose and WORDS.fullmatch(value))}


def is_secret(name: str) -> bool:
    """Whether what is called so is not for others."""
    return NAMES.search(name) is not None and VOCABULARY.search(name) is None


def _without_named(text: str) -> str:
    chunks, at = [], 0
    for found in _named(text):
        chunks += [text[at : found.start("value")], _hidden(found["value"])]
        at = found.end()
    return "".join(chunks) + text[at:]


def _named(text: str) -> Iterator[re.Match[str]]:
    """What secret names are given, in the group `value`."""
    lower = text.lower()
    if len(lower) != len(text):  # two letters of Unicode are longer in small
        lower = "".join(character.lower() if character.isascii() else character for character in text)
    done = 0
    for hit in HINT.finditer(lower):
        if hit.start() < done:
            continue
        before, rest = text[max(hit.start() - LONGEST_NAME, done) : hit.start()], _word(text, hit.start())
        done = hit.start() + len(rest)
        if found := _value_of(_word(before[::-1])[::-1] + rest, text, done):
            done = found.end()
            yield found


def _word(text: str, start: int = 0) -> str:
    match = WORD.match(text, start)
    return match[0] if match else ""


def _value_of(name: str, text: str, end: int) -> re.Match[str] | None:
    """The secret that a name, which ends there, is given; None where it is none."""
    may_be = name.lstrip("-") == "token" or (KEYS.search(name) is not None and VOCABULARY.search(name) is None)
    found = None
    if name.startswith("--") and (may_be or is_secret(name)):
        found = OPTION.match(text, end)
    elif is_secret(name) or (may_be and OPAQUE.match(text, end)):
        found = ASSIGNED.match(text, end)
    return found or HEXED.match(text, end)


def _hidden(value: str) -> str:
    """The mask in the quotes of the value."""
    mark = re.match(r"\\*[\"']", value)
    quotes = mark[0] if mark else ""
    return f"{quotes}{MASK}{quotes if len(value) > len(quotes) and value.endswith(quotes) else ''}"


def _spellings(value: str) -> set[str]:
    """A value as it may stand in JSON, in a URL, and as it is."""
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, safe="")}
