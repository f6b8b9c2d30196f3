"""Guess the subject of an exception that no signature knows: from its message, the functions above it, and the code that raised it. Pure.

None of that proves a cause. Each is a vote, and the causes with the most votes are the ones to examine next.
"""

from __future__ import annotations

import re
from collections import Counter

from dstui.base.dataclass import dataclass
from dstui.diagnosis.recognition.traces import Raised

MESSAGE, FRAMES, RAISER, KIND = 4.0, 2.0, 2.0, 0.7
"""The weights of votes: the words of the message, the functions in the traceback, the raising library, the exception type."""
SECOND = 0.45
"""The share of a vote for the second cause of an entry; its square is the share of the third."""
ENOUGH = MESSAGE * SECOND
"""Votes without which a cause is far-fetched: the type of an exception, and the second cause of a library or a function, are less."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Words, and the causes for which such words are typical, the likeliest first."""

    words: re.Pattern[str]
    causes: tuple[str, ...]


def _about(causes: str, *words: str) -> Subject:
    return Subject(re.compile("|".join(words), re.IGNORECASE), tuple(causes.split()))


MESSAGES = (
    _about("PORT-IN-USE RDZV-TIMEOUT", r"already in use|EADDRINUSE|fail\w* to (?:listen|bind)|\bport\b.*(?:taken|busy|use)"),
    _about("DL-WORKER OOM-HOST SIGBUS-SHM", r"DataLoader worker|worker.{0,40}(?:killed|died|exited|terminated)|pin_?memory thread"),
    _about("DRIVER-OLD OP-ABI", r"kernel image|compute capability|unsupported toolchain|\bPTX\b|driver version"),
    _about("TOO-MANY-FILES", r"too many open|\bancdata\b|file descriptors?\b"),
    _about("DDP-UNUSED", r"(?:not|un)_?(?:were )?used in producing|unused_?param|finished reduction|ready only once"),
    _about("LOSS-SCALE-MIN NAN", r"loss.?scale"),
    _about("MODEL-LOAD MODEL-FILES", r"deserializ|unpickl|\bpickle|zip archive|\bmagic (?:number|bytes)|corrupt(?:ed)? file|header"),
    _about("CKPT-DISK CKPT-PERM", r"unexpected pos|inline_container|write_record|serializ(?:e|ing|ation)\b.*\bfail|fail\w*\b.*\bserializ"),
    _about("ENV-RANK-MISSING PARALLEL-SIZE", r"(?:LOCAL_|^'?)RANK\b|WORLD_SIZE|MASTER_(?:ADDR|PORT)|process group has not been"),
    _about("HYDRA-CONFIG CONFIG-PATH", r"hydra|omegaconf|\boverrides?\b|\bin struct\b"),
    _about("NCCL-DUP-GPU NCCL-SYSTEM", r"invalid usage|duplicate GPU"),
    _about("GPU-ECC XID CUDA-ILLEGAL", r"\bECC\b|hardware|fallen off|\bXid\b|NVLink"),
    _about("CUDA-UNKNOWN CUDA-ILLEGAL", r"CUDA error: unknown"),
    _about("OOM-GPU QUANT-SPILL", r"enough GPU|GPU RAM|dispatched on the CPU"),
    _about("KILLED-UNKNOWN OOM-HOST", r"\bkilled\b|SIGKILL|exit(?: ?code| status)?:? -?(?:9|137)\b"),
    _about("OOM-GPU", r"out of memory|cuda.{0,20}alloc"),
    _about("ALLOC-REFUSED OOM-HOST", r"cannot allocate|\balloc(?:ate|ation)\b|not enough memory|\bRAM\b"),
    _about(
        "USER-SHAPE",
        r"\bshapes?\b|\bdim(?:ension)?s?\b|\bmismatch|broadcast|\bnumel|elements|same (?:size|length)|expected size",
        r"got size|_size\b",
    ),
    _about(
        "DTYPE-MIX DTYPE-UNSUPPORTED",
        r"dtype|\bhalf\b|bfloat16|float(?:16|32|64)?\b|\bfp16|\bbf16|\blong\b|precision|type \w*tensor",
    ),
    _about("DEVICE-MIX NO-GPU", r"same device|cuda:\d|on (?:the )?(?:cpu|gpu|cuda)\b|\bcpu\b.*\bcuda\b|device type|is_cuda|CUDA tensor"),
    _about(
        "INVALID-ORDINAL NO-GPU",
        r"\bGPUs?\b.*(?:avail|found|requir|request|visible)|(?:requir|request|need)\w*\b.*\bGPUs?\b|device_count",
        r"ordinal",
    ),
    _about(
        "DATA",
        r"data ?(?:set|loader|frame|file)s?\b|_data\b|\bcsv\b|jsonl?\b|parquet|\bimages?\b|\bvideos?\b|\bsamples?\b",
        r"\bcolumns?\b|\bsplits?\b|\brows?\b|\blabels?\b|decode|corrupt|truncated|\btokens?\b|\bannotations?\b",
        r"\barchive\b",
    ),
    _about(
        "MODEL-FILES MODEL-LOAD",
        r"tokenizer|pre-?trained|\bmodel_(?:name|path|id)|config\.json",
        r"\bweights?\b.*(?:load|find|found|file|missing)|\bhub\b",
    ),
    _about("CKPT-SHAPE CKPT-FOLDER MODEL-FILES", r"checkpoint|\bckpt|state[_ ]?dict|resum|\.pth?\b|\.ckpt\b|\.safetensors\b"),
    _about(
        "CONFIG-ASSERT PARALLEL-SIZE",
        r"config|(?<!keyword )(?<!positional )\barg(?:ument|s)?\b|\boptions?\b|\bsetting|--\w",
        r"must be (?:set|specified|given|one of|positive|between)|should be (?:set|one of)|not supported|unsupported",
        r"incompatible|cannot be used (?:with|together)|\bexclusive|invalid (?:value|choice)|zero.?stage|deepspeed",
    ),
    _about("PARALLEL-SIZE CONFIG-ASSERT", r"divisible|divide|parallel|world.?size|\bn?ranks?\b|num_(?:gpus|processes|nodes)"),
    _about(
        "IMPORT-VERSION",
        r"\bversions?\b|upgrade|downgrade|deprecat|has been (?:removed|renamed)|no longer|keyword argument",
        r"has no attribute",
    ),
    _about("IMPORT-MISSING IMPORT-VERSION", r"install|\bmodule\b.*not|not available|\bpackage"),
    _about("LIB-MISSING OP-ABI", r"\.so\b|\.dll\b|shared (?:object|library)|symbol"),
    _about("OP-BUILD OP-ABI", r"compil|nvcc|ninja|extension|\.cu\b|\bkernels?\b|triton|ptxas|\bgcc\b"),
    _about("RDZV-TIMEOUT NO-INTERNET", r"connect|timed? ?out|unreachable|\bsocket|rendezvous|\bTCPStore|\bhost(?:name)?\b"),
    _about("NO-INTERNET HUB-RATE", r"https?://|\burl\b|download|\bproxy|\bssl\b|certificate|\bHTTP"),
    _about("TRACKER-LOGIN NO-INTERNET", r"api.?key|log(?:ged)? ?in|wandb|mlflow|comet|unauthori[sz]ed|credential"),
    _about("NCCL-SYSTEM NCCL-CUDA IB", r"\bnccl|\brccl|oneccl|communicator"),
    _about("NCCL-WATCHDOG HANG-DESYNC", r"collective|\bbarrier|all_?reduce|all_?gather|watchdog"),
    _about("CKPT-PERM", r"permission|read-only|not writ(?:e|)able|access denied"),
    _about("RACE-FS", r"exists?\b.*already|already exists|\block(?:ed)?\b|\bstale\b|\bbusy\b"),
    _about("CKPT-DISK CKPT-PERM", r"no space|quota|disk|\bwrit(?:e|ing|ten)\b"),
    _about("NAN LOSS-SCALE-MIN", r"\bnan\b|\binf(?:inite|inity)?\b|non-?finite|diverg|overflow|ill-conditioned|singular"),
    _about("NO-GRAD DDP-UNUSED", r"\bgrad(?:ient)?s?\b|backward|autograd|requires_grad"),
    _about("CUDA-ASSERT DATA", r"index .*out of|out of (?:range|bounds)|assert"),
    _about("DATA MODEL-FILES", r"no such file|not (?:be )?(?:found|exist)|(?:not|n't) (?:find|exist)|missing"),
    _about("CUDA-ILLEGAL DRIVER-OLD", r"CUDA error|CUDNN|CUBLAS|\bdriver\b"),
    _about("Z3-PARTITIONED Z3-INFLIGHT", r"partition|zero.?3|ds_status|ds_id"),
)
"""Subjects by the words of a message."""
FUNCTIONS = (
    _about("MODEL-FILES MODEL-LOAD", r"from_pretrained|cached_file|snapshot_download|hf_hub|_repo|tokeniz"),
    _about(
        "CKPT-SHAPE MODEL-LOAD MODEL-FILES",
        r"load_(?:state_dict|checkpoint|ckpt|model|weights|params)|torch/serialization|resume|restore",
    ),
    _about("CKPT-DISK CKPT-PERM", r"save|checkpoint.*write|dump\b"),
    _about("DATA", r"data|__getitem__|collat|loader|\bfetch|read_(?:csv|json|parquet)|preproc|image|sampler|batch"),
    _about("RDZV-TIMEOUT NCCL-SYSTEM NO-GPU", r"init_process_group|init_distributed|rendezvous|setup_ddp|init_dist"),
    _about("NCCL-SYSTEM NCCL-WATCHDOG", r"barrier|all_?reduce|all_?gather|broadcast|distributed_c10d"),
    _about("CONFIG-ASSERT", r"arg|config|validate|__post_init__|setup|initialize"),
    _about("NO-GRAD OOM-GPU", r"backward|autograd"),
    _about("USER-SHAPE DTYPE-MIX", r"forward|nn/|functional|loss|attention|attn|encod|metric"),
    _about("DTYPE-MIX NO-GRAD", r"optim|\bstep\b|scaler|adam"),
    _about("OP-BUILD OP-ABI", r"jit|compile|build|cpp_extension|triton|(?<!ipy)kernel"),
    _about("IMPORT-VERSION", r"import"),
    _about("TRACKER-LOGIN", r"wandb|mlflow|tracker|log(?:ger)?\b"),
    _about("NO-GPU DEVICE-MIX", r"\.to\b|cuda"),
)
"""Subjects by the names of functions and files: those of the script's own frame and of the raising frame."""
RAISERS: dict[str, tuple[str, ...]] = {
    "accelerate/": ("IMPORT-VERSION", "DEVICE-MIX"),
    "apex/": ("OP-BUILD", "OP-ABI"),
    "bitsandbytes/": ("BNB-CUDA", "OP-ABI"),
    "datasets/": ("DATA", "RACE-FS"),
    "flash_attn/": ("DTYPE-MIX", "DTYPE-UNSUPPORTED"),
    "h5py/": ("DATA", "RACE-FS"),
    "lightning": ("IMPORT-VERSION", "DATA"),
    "numpy/lib/": ("DATA", "USER-SHAPE"),
    "pandas/": ("DATA", "IMPORT-VERSION"),
    "peft/": ("IMPORT-VERSION", "MODEL-FILES"),
    "sentencepiece/": ("MODEL-FILES", "MODEL-LOAD"),
    "torch/cuda/": ("NO-GPU", "DRIVER-OLD"),
    "torch/optim/": ("NO-GRAD", "DTYPE-MIX"),
    "trl/": ("IMPORT-VERSION", "DATA"),
    "vllm/": ("OOM-GPU", "IMPORT-VERSION"),
    "xformers/": ("OP-ABI", "DTYPE-MIX"),
    "deepspeed/ops/": ("OP-BUILD", "CUDA-MISMATCH"),
    "deepspeed/runtime/config": ("CONFIG-ASSERT", "BATCH-ASSERT"),
    "deepspeed/runtime/zero/": ("Z3-PARTITIONED", "Z3-INFLIGHT"),
    "deepspeed/runtime/": ("CONFIG-ASSERT", "DS-INTERNAL-VERSION"),
    "huggingface_hub/": ("MODEL-FILES", "NO-INTERNET"),
    "safetensors/": ("MODEL-LOAD", "CKPT-DISK"),
    "tokenizers/": ("MODEL-FILES", "IMPORT-VERSION"),
    "torch/distributed/checkpoint": ("CKPT-SHAPE", "MODEL-LOAD"),
    "torch/distributed/": ("RDZV-TIMEOUT", "NCCL-SYSTEM"),
    "torch/nn/": ("USER-SHAPE", "DTYPE-MIX"),
    "torch/serialization": ("MODEL-LOAD", "CKPT-DISK"),
    "torch/utils/cpp_extension": ("OP-BUILD", "NO-NVCC"),
    "torch/utils/data/": ("DATA", "DL-WORKER"),
    "transformers/tokenization": ("MODEL-FILES", "IMPORT-VERSION"),
    "transformers/configuration": ("MODEL-FILES", "IMPORT-VERSION"),
    "transformers/": ("IMPORT-VERSION", "DATA"),
    "triton/": ("OP-BUILD", "OP-ABI"),
    "wandb/": ("TRACKER-LOGIN", "NO-INTERNET"),
}
"""A part of the path of the raising file -> its typical causes; the first match wins."""
KINDS: dict[str, tuple[str, ...]] = {
    "AttributeError": ("IMPORT-VERSION",),
    "TypeError": ("IMPORT-VERSION", "DATA"),
    "ImportError": ("IMPORT-VERSION", "IMPORT-MISSING"),
    "ModuleNotFoundError": ("IMPORT-MISSING", "IMPORT-VERSION"),
    "KeyError": ("DATA", "CKPT-SHAPE"),
    "IndexError": ("DATA",),
    "FileNotFoundError": ("DATA", "MODEL-FILES", "CONFIG-PATH"),
    "NotADirectoryError": ("DATA", "MODEL-FILES", "CONFIG-PATH"),
    "IsADirectoryError": ("DATA", "MODEL-FILES", "CONFIG-PATH"),
    "AssertionError": ("CONFIG-ASSERT", "USER-SHAPE"),
    "ValueError": ("DATA", "CONFIG-ASSERT"),
    "RuntimeError": ("USER-SHAPE", "DTYPE-MIX"),
    "ZeroDivisionError": ("DATA",),
    "StopIteration": ("DATA",),
    "NotImplementedError": ("IMPORT-VERSION", "CONFIG-ASSERT"),
    "OSError": ("DATA", "CKPT-DISK"),
    "FileExistsError": ("RACE-FS",),
    "PermissionError": ("CKPT-PERM",),
    "EOFError": ("DATA", "MODEL-LOAD"),
    "TimeoutError": ("NO-INTERNET", "RDZV-TIMEOUT"),
    "TimeoutExpired": ("NO-INTERNET", "RDZV-TIMEOUT"),
    "ConnectionError": ("NO-INTERNET", "RDZV-TIMEOUT"),
    "ConnectionRefusedError": ("RDZV-TIMEOUT", "NO-INTERNET"),
    "ConnectionResetError": ("NO-INTERNET", "RDZV-TIMEOUT"),
}
"""The type of an exception -> its typical causes."""

CLASS = re.compile(r"[A-Za-z_][\w.]*(?::\s|\s*$)")
"""The beginning of an exception's line."""
PROGRAMMING = frozenset({
    "NameError", "UnboundLocalError", "AttributeError", "TypeError", "IndexError", "ZeroDivisionError", "NotImplementedError",
    "RecursionError", "SyntaxError", "IndentationError", "TabError", "StopIteration",
})  # fmt: skip
"""Types whose exceptions are about the code that raised them, whatever their message names. They may still have other causes: for a
NotImplementedError, `KINDS` above has an older release and a setting that a library refuses."""


def likely_causes(raised: Raised, text: str, enough: float = 0.0) -> tuple[str, ...]:
    """Return the probable causes of an exception that have enough votes, the likeliest first."""
    votes = _votes(MESSAGES, message(text), MESSAGE)
    for frame, share in ((raised.own, 1.0), (raised.deepest, 0.5)):
        if frame.file:
            votes.update(_votes(FUNCTIONS, f"{'/'.join(frame.file.split('/')[-2:])}:{frame.function}", FRAMES * share))
    place = next((causes for path, causes in RAISERS.items() if path in raised.deepest.file), ())
    votes.update(_shares(place, RAISER))
    votes.update(_shares(KINDS.get(raised.name, ()), KIND))
    return tuple(cause for cause, weight in votes.most_common() if weight >= enough)


def subjects_of(text: str) -> tuple[str, ...]:
    """Return the causes that the words of a message suggest, the likeliest first."""
    return tuple(cause for cause, _ in _votes(MESSAGES, message(text), MESSAGE).most_common())


def message(text: str) -> str:
    """Return an exception's line without the name of its class."""
    return text[found.end() :] if (found := CLASS.match(text.lstrip())) else text


def _votes(subjects: tuple[Subject, ...], text: str, weight: float) -> Counter[str]:
    votes: Counter[str] = Counter()
    for subject in subjects:
        if subject.words.search(text):
            votes.update(_shares(subject.causes, weight))
    return votes


def _shares(causes: tuple[str, ...], weight: float) -> Counter[str]:
    return Counter({cause: weight * SECOND**place for place, cause in enumerate(causes)})
