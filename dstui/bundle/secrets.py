"""Recognise secrets by the name of their variable and by their form: published formats of keys, and text too random for a word."""

from __future__ import annotations

import base64
import json
import re

HINT = re.compile(
    "secret|pass|pwd|credential|creds|cookie|token|key|aws_|wandb|_pat(?![a-z])|auth|jwt|hook|session|license|(?<![a-z])pin"
    "|_api(?![a-z])|dsn(?![a-z])|(?<![a-z])(?:pw|otp|sas|sig)(?![a-z])|bearer|connection|mnemonic|signature|_sas(?![a-z])"
)
"""A quick test: the name of every secret, in small letters, contains one of these."""
NAMES = re.compile(
    r"secret(?!ar)|passwo?r?d(?!auth)|passphrase|passcode|credential|cookies?$"
    r"|(?:api|access|private|auth|account|storage|signing|encryption|license)[_-]?key"
    r"|[_-]p?wd?$|^--p(?:w|ass)$|^aws_"
    r"|auth$|auth[_-]?(?:config|header|data|string|code)$|jwt|webhook|hook[_-]?url|session[_-]?(?:id|cookie)$|dsn$|connection[_-]?string"
    r"|mnemonic|[_-](?:otp|sas)$|^--(?:otp|pin)$"
    r"|(?-i:AUTH(?!ORS?(?:_|$))|SESSION|LICENSE|(?:^|_)PIN(?!_MEM|N))"  # in capitals only: `license: apache-2.0`, `pin_memory: true`
    r"|(?-i:(?:_KEY|PASS|_PAT|_CREDS)$)"  # in capitals only, because of `forward_pass: 3 ms`
    r"|(?:[_-]|(?-i:(?<=[a-z])(?=T)))token(?:_?\d{1,2})?$",
    re.IGNORECASE,
)
KEYS = re.compile(r"(?:[_-]|(?-i:(?<=[a-z])(?=K)))key$|^(?:key|license|pin|sig|signature|sas)$", re.IGNORECASE)
"""Names of a secret or of a column: a secret as an option, and elsewhere if the value is not a word."""
TOKENS = re.compile(r"(?:^|[_-])(?:token|api|session|pwd?|pass|passwd|bearer|otp)$", re.IGNORECASE)
"""The same, for names where even a value of several words with numbers is a secret."""
VOCABULARY = re.compile(
    r"(?:pad|eos|bos|unk|sep|cls|mask|image|video|audio|vision|special|stop|end|next|last|first|new|per|max|min)[_-]token"
    r"|(?:input|output|label|target|prompt|response|answer|question|query|chosen|rejected|text|image|audio|video|reward|score|value|data"
    r"|dataset|feature|column|sort|group|primary|foreign|cache|partition|index|id|dict|state|param|layer|attention|mask|missing|message"
    r"|messages|rng|random|public|model|metric|batch|time|unexpected)[_-]key"
    r"|(?:forward|backward|first|second|single)[_-]pass",
    re.IGNORECASE,
)
"""`pad_token`, `input_key` and similar names are not secrets."""

HARMLESS = re.compile(
    r"(?:NCCL|RCCL|CCL|GLOO|UCX|UCC|FI|IB|OMPI|PMIX?|MPICH|MPI|MV2|I_MPI|HYDRA|SLURM|CUDA|CUDNN|CUBLAS|NVIDIA|HIP|HSA|ROCR|ROCM|OMP|KMP|GOMP|MKL"
    r"|OPENBLAS|NUMEXPR|TORCH|PYTORCH|TORCHELASTIC|TORCHINDUCTOR|TORCHDYNAMO|TRITON|XLA|DS|DEEPSPEED|ACCELERATE|TOKENIZERS|DSTUI|LC)_\w*"
    r"|(?:LOCAL_|GROUP_|ROLE_|NODE_|CROSS_)?(?:RANK|WORLD_SIZE|SIZE)|MASTER_(?:ADDR|PORT)|NNODES|NPROC_PER_NODE"
    r"|(?:LD_LIBRARY_|LIBRARY_|C_INCLUDE_|CPLUS_INCLUDE_)?PATH|LD_PRELOAD|PYTHON(?:PATH|HOME|UNBUFFERED|HASHSEED|FAULTHANDLER|WARNINGS)"
    r"|PYTHON(?:DONTWRITEBYTECODE|NOUSERSITE|IOENCODING|UTF8|OPTIMIZE|MALLOC)|VIRTUAL_ENV|CONDA_(?:PREFIX|DEFAULT_ENV|EXE)|MALLOC_\w*"
    r"|HF_(?:HOME|HUB_CACHE|HUB_OFFLINE|DATASETS_\w+|EVALUATE_\w+|HUB_ENABLE_HF_TRANSFER|HUB_DISABLE_\w+)"
    r"|TRANSFORMERS_(?:CACHE|OFFLINE|VERBOSITY|NO_ADVISORY_WARNINGS)|WANDB_(?:MODE|PROJECT|DISABLED|SILENT|DIR|NAME|ENTITY|RUN_GROUP)"
    r"|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TERM|TZ|PWD|OLDPWD|SHLVL|TMPDIR|TMP|TEMP|HOSTNAME|EDITOR|CC|CXX|MAX_JOBS|XDG_\w+_(?:HOME|DIR)",
    re.IGNORECASE,
)
"""Environment variables whose values are settings of a training run or of every shell."""


def is_secret(name: str) -> bool:
    """Return whether the name is that of a secret."""
    return NAMES.search(name) is not None and VOCABULARY.search(name) is None


def may_be_secret(name: str) -> bool:
    """Return whether the name is that of a secret if its value looks like one."""
    return (KEYS.search(name) or TOKENS.search(name)) is not None and VOCABULARY.search(name) is None


def is_harmless(variable: str) -> bool:
    """Return whether an environment variable is known to hold no secret."""
    return HARMLESS.fullmatch(variable) is not None and not is_secret(variable)


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
"""Prefixes that only secrets have (from the lists of gitleaks and detect-secrets), with what follows them."""
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
"""Prefixes that may also end another word: they count only at the start of a word, or after a newline that JSON has escaped."""

FREE = r"(?:(?<![\w~])|(?<=\\[nrt]))"
"""The start of a word, also after a newline that JSON has escaped."""
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
"""Secrets in the middle of a text: a substring of each, with its expression. None has a blank, or fewer than SHORTEST_SHAPE characters."""
SHORTEST_SHAPE = 16
SHAPES = [
    re.compile(shape)
    for shape in (
        r"(?P<head>wandb login )[^\s-]\S*",
        r"eyJ(?<!\weyJ)[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?",  # a JSON web token
        r"(?P<head>Bearer )[\w.~+/=-]{8,}",
        r"(?P<head>uthorization\\?[\"']?[ \t]{0,3}[:=][ \t]{0,3}\\?[\"']?(?:[A-Za-z]\w{2,20} (?=[\w+/=.~-]{8}))?)[^\s\"'\\]+",
        r"(?P<head>ookie: )[^\n\"'\\]+",
        r"(?P<head>sshpass -p ?)[^\s\"']+",
        r"(?P<head>mysql[^\n]{0,100}? -p)[^\s\"']+",
        r"(?P<head>curl [^\n]{0,200}?(?:-u|--user)[ =]{0,3}[\"']?[^\s:\"']{0,100}:)[^\s\"']+",
        r"(?P<head>assword\"\s{0,9}value=\")[^\"\n]+",
        r"(?P<head>api\.softlayer\.com/soap/v3(?:\.1)?/)[a-z0-9]{64}",
        r"(?P<head>hooks\.slack\.com/(?:services|workflows|triggers)/)[^\s\"'<>]+",
        r"(?P<head>\.webhook\.office\.com/)[^\s\"'<>]+",
        r"(?P<head>/api/webhooks/)[^\s\"'<>]+",
        r"(?P<head>api\.telegram\.org/bot)[^\s\"'<>]+",
        r"(?P<head>[?&]sig=)[^\s\"'<>&]{16,}",
        r"(?P<head>X-Amz-Signature=)[0-9a-f]{16,}",
        r"(?P<head>login \S{1,80}\s{1,9}password )\S+",  # .netrc
        r"(?P<head>(?:[Kk]ey|KEY|[Tt]oken|[Ss]ecret|[Pp]assword)[^\n]{0,160}[:?>][ \t]*\n(?:wandb:)?[ \t]*)"
        r"\b[0-9a-f]{32,64}(?=[ \t]*(?:\n|\Z))",  # the answer to a tracker's question for a key
        r"(?P<head>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)[\s\S]*?(?=-----END|\Z)",
    )
]
"""Forms of secrets, with what precedes them. Each begins with literal letters: such a search runs at 1 GB/s, others at 30 MB/s."""


KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY")
KEY_LINE = re.compile(r"(?P<before>.*?)(?P<body>[A-Za-z0-9+/]+={0,2})[\"',\\nr]*$")
"""A line of a private key, with what a log puts in front (a rank, a time)."""
FULL_KEY_LINE = 40
"""Characters of a line of a key, except the last; 64 or 70 in practice."""
RUNS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
"""The parts of a word. In an identifier each has a few letters (`ForCausalLM`), in a random text one or two."""
LONG = re.compile(r"(?:(?<=\\[nrt])|(?<![\w+/\\-]))[A-Za-z0-9+/][\w+/-]{19,}={0,2}")
"""Texts long enough to be a key of an unknown form."""
KNOWN_FORMS = re.compile(r"_Z\w+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32,64}(?![0-9a-f])")
"""Symbols of C++, UUIDs, commits and checksums are not secrets."""
HEX = re.compile("[0-9a-f]+")
SEPARATORS = re.compile(r"[\W_]+")
RANDOM = ((20, 2.5), (32, 3.3))
"""Characters without a separator -> the mean length of parts below which they are random.
Measured: of random texts of 40 characters one in a thousand is above; of 50 MB of logs and sources two names (`MobileViTV2DeepLabV3`) are
below."""
RANDOM_WHOLE = (40, 2.9)
"""The same for a text with separators, as base64 has them."""
LONG_SMALL = 33
"""Characters of a key of only small letters and digits; hashes of packages in paths have 32."""
WORD_AT_MOST, MIN_RUN = 4, 3.0
"""A part counts as a word if it has at most 4 characters, or if its runs have this mean length."""


def private_keys_masked(text: str, mask: str) -> str:
    """Mask the lines before the end of a private key whose first line is cut off, as in the tail of a log."""
    if "-----END" not in text:
        return text
    lines = text.split("\n")
    for end in [number for number, line in enumerate(lines) if KEY_END.search(line)]:
        for number in range(end - 1, -1, -1):
            match = KEY_LINE.match(lines[number])
            if not match or (len(match["body"]) < FULL_KEY_LINE and number != end - 1):
                break
            lines[number] = f"{match['before']}{mask}"
    return "\n".join(lines)


def random_texts_masked(text: str, mask: str) -> str:
    """Mask texts that can only be keys, whatever precedes them: long, of mixed letters and digits, without words."""
    return LONG.sub(lambda match: mask if _is_random(match[0]) else match[0], text)


def is_plain(value: str) -> bool:
    """Return whether a value is a number, or one or more words: an unlikely secret."""
    return all(len(part) <= WORD_AT_MOST or part.isdigit() or _mean_run(part) >= MIN_RUN for part in SEPARATORS.split(value) if part)


def are_words(value: str) -> bool:
    """Return whether a value consists of words and numbers with separators: `end_of_turn`, but not `gpt2` or `ForCausalLM`."""
    return all(RUNS.fullmatch(part) for part in SEPARATORS.split(value) if part)


def _is_random(token: str) -> bool:
    if _is_world_info(token):
        return False
    parts = SEPARATORS.split(KNOWN_FORMS.sub("-", token))
    if any(_is_mixed(part) and any(len(part) >= least and _mean_run(part) < mean for least, mean in RANDOM) for part in parts):
        return True
    whole = "".join(parts)
    return len(whole) >= RANDOM_WHOLE[0] and _is_mixed(whole) and _mean_run(whole) < RANDOM_WHOLE[1]


def _is_mixed(text: str) -> bool:
    """Return whether a text mixes small letters, capitals and digits, or has more small letters and digits than a checksum."""
    kinds = {character.isdigit() * 2 + character.isupper() for character in text}
    small = len(text) >= LONG_SMALL and kinds == {0, 2} and len(RUNS.findall(text)) > len(text) / 4
    return kinds == {0, 1, 2} or (small and not HEX.fullmatch(text))


def _mean_run(text: str) -> float:
    return len(text) / max(len(RUNS.findall(text)), 1)


def _is_world_info(token: str) -> bool:
    """Return whether a text is the world info of DeepSpeed's launcher: hosts and slots, as JSON in base64."""
    if not token.startswith("eyJ"):
        return False
    try:
        found = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError:
        return False
    return isinstance(found, dict) and all(
        isinstance(slots, list) and all(isinstance(slot, int) for slot in slots) for slots in found.values()
    )
