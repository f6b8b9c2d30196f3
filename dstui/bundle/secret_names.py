"""Names of secrets, and names of environment variables that hold none."""

from __future__ import annotations

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
