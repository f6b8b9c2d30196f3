"""What an exception speaks of, where no signature knows its words: causes by its message, by the functions above it, by who raised it. Pure.

None of that proves a cause. Each is a vote, and the causes with the most are what a careful reader would look at next.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from dstui.run.diagnosis.traces import Raised

MESSAGE, FRAMES, RAISER, KIND = 3.0, 2.0, 1.5, 1.0
"""How much each says: the words of the message more than the functions that led to it, those more than the library and the type."""
SECOND = 0.6
"""The share of a vote that the second cause of an entry gets, and its square the third."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Words, and the causes that such words are met with, the likeliest first."""

    words: re.Pattern[str]
    causes: tuple[str, ...]


def _about(words: str, *causes: str) -> Subject:
    return Subject(re.compile(words, re.IGNORECASE), causes)


MESSAGES = (
    _about(r"out of memory|cuda.{0,20}alloc", "OOM-GPU"),
    _about(r"cannot allocate|\balloc(?:ate|ation)\b|not enough memory|\bRAM\b", "ALLOC-REFUSED", "OOM-HOST"),
    _about(r"\bshapes?\b|\bdim(?:ension)?s?\b|\bmismatch|broadcast|\bnumel|elements|same (?:size|length)|expected size|got size|_size\b", "USER-SHAPE"),
    _about(r"dtype|\bhalf\b|bfloat16|float(?:16|32|64)?\b|\bfp16|\bbf16|\blong\b|precision|type \w*tensor", "DTYPE-MIX", "DTYPE-UNSUPPORTED"),
    _about(r"same device|cuda:\d|on (?:the )?(?:cpu|gpu|cuda)\b|\bcpu\b.*\bcuda\b|device type|is_cuda|CUDA tensor", "DEVICE-MIX", "NO-GPU"),
    _about(r"\bGPUs?\b.*(?:avail|found|requir|request|visible)|(?:requir|request|need)\w*\b.*\bGPUs?\b|device_count|ordinal", "INVALID-ORDINAL", "NO-GPU"),
    _about(
        r"data ?(?:set|loader|frame|file)s?\b|_data\b|\bcsv\b|jsonl?\b|parquet|\bimages?\b|\bvideos?\b|\bsamples?\b|\bcolumns?\b|\bsplits?\b"
        r"|\brows?\b|\blabels?\b|decode|corrupt|truncated|\btokens?\b|\bannotations?\b|\barchive\b",
        "DATA",
    ),
    _about(r"tokenizer|pre-?trained|\bmodel_(?:name|path|id)|config\.json|\bweights?\b.*(?:load|find|found|file|missing)|\bhub\b", "MODEL-FILES", "MODEL-LOAD"),
    _about(r"checkpoint|\bckpt|state[_ ]?dict|resum|\.pth?\b|\.ckpt\b|\.safetensors\b", "CKPT-SHAPE", "CKPT-FOLDER", "MODEL-FILES"),
    _about(
        r"config|\barg(?:ument|s)?\b|\boptions?\b|\bsetting|--\w|must be (?:set|specified|given|one of|positive|between)|should be (?:set|one of)"
        r"|not supported|unsupported|incompatible|cannot be used (?:with|together)|\bexclusive|invalid (?:value|choice)|zero.?stage|deepspeed",
        "CONFIG-ASSERT",
        "PARALLEL-SIZE",
    ),
    _about(r"divisible|divide|parallel|world.?size|\bn?ranks?\b|num_(?:gpus|processes|nodes)", "PARALLEL-SIZE", "CONFIG-ASSERT"),
    _about(r"\bversions?\b|upgrade|downgrade|deprecat|has been (?:removed|renamed)|no longer|keyword argument|has no attribute", "IMPORT-VERSION"),
    _about(r"install|\bmodule\b.*not|not available|\bpackage", "IMPORT-MISSING", "IMPORT-VERSION"),
    _about(r"\.so\b|\.dll\b|shared (?:object|library)|symbol", "LIB-MISSING", "OP-ABI"),
    _about(r"compil|nvcc|ninja|extension|\.cu\b|\bkernels?\b|triton|ptxas|\bgcc\b", "OP-BUILD", "OP-ABI"),
    _about(r"connect|timed? ?out|unreachable|\bsocket|rendezvous|\bTCPStore|\bhost(?:name)?\b", "RDZV-TIMEOUT", "NO-INTERNET"),
    _about(r"https?://|\burl\b|download|\bproxy|\bssl\b|certificate|\bHTTP", "NO-INTERNET", "HUB-RATE"),
    _about(r"api.?key|log(?:ged)? ?in|wandb|mlflow|comet|unauthori[sz]ed|credential", "TRACKER-LOGIN", "NO-INTERNET"),
    _about(r"\bnccl|\brccl|oneccl|communicator", "NCCL-SYSTEM", "NCCL-CUDA", "IB"),
    _about(r"collective|\bbarrier|all_?reduce|all_?gather|watchdog", "NCCL-WATCHDOG", "HANG-DESYNC"),
    _about(r"permission|read-only|not writ(?:e|)able|access denied", "CKPT-PERM"),
    _about(r"exists?\b.*already|already exists|\block(?:ed)?\b|\bstale\b|\bbusy\b", "RACE-FS"),
    _about(r"no space|quota|disk|\bwrit(?:e|ing|ten)\b", "CKPT-DISK", "CKPT-PERM"),
    _about(r"\bnan\b|\binf(?:inite|inity)?\b|non-?finite|diverg|overflow|ill-conditioned|singular", "NAN", "LOSS-SCALE-MIN"),
    _about(r"\bgrad(?:ient)?s?\b|backward|autograd|requires_grad", "NO-GRAD", "DDP-UNUSED"),
    _about(r"index .*out of|out of (?:range|bounds)|assert", "CUDA-ASSERT", "DATA"),
    _about(r"no such file|not (?:be )?(?:found|exist)|(?:not|n't) (?:find|exist)|missing", "DATA", "MODEL-FILES"),
    _about(r"CUDA error|CUDNN|CUBLAS|\bdriver\b", "CUDA-ILLEGAL", "DRIVER-OLD"),
    _about(r"partition|zero.?3|ds_status|ds_id", "Z3-PARTITIONED", "Z3-INFLIGHT"),
)
"""What the words of a message are about."""
FUNCTIONS = (
    _about(r"from_pretrained|cached_file|snapshot_download|hf_hub|_repo|tokeniz", "MODEL-FILES", "MODEL-LOAD"),
    _about(r"load_(?:state_dict|checkpoint|ckpt|model|weights|params)|torch/serialization|resume|restore", "CKPT-SHAPE", "MODEL-LOAD", "MODEL-FILES"),
    _about(r"save|checkpoint.*write|dump\b", "CKPT-DISK", "CKPT-PERM"),
    _about(r"data|__getitem__|collat|loader|\bfetch|read_(?:csv|json|parquet)|preproc|image|sampler|batch", "DATA"),
    _about(r"init_process_group|init_distributed|rendezvous|setup_ddp|init_dist", "RDZV-TIMEOUT", "NCCL-SYSTEM", "NO-GPU"),
    _about(r"barrier|all_?reduce|all_?gather|broadcast|distributed_c10d", "NCCL-SYSTEM", "NCCL-WATCHDOG"),
    _about(r"arg|config|validate|__post_init__|setup|initialize", "CONFIG-ASSERT"),
    _about(r"backward|autograd", "NO-GRAD", "OOM-GPU"),
    _about(r"forward|nn/|functional|loss|attention|attn|encod|metric", "USER-SHAPE", "DTYPE-MIX"),
    _about(r"optim|\bstep\b|scaler|adam", "DTYPE-MIX", "NO-GRAD"),
    _about(r"jit|compile|build|cpp_extension|triton|kernel", "OP-BUILD", "OP-ABI"),
    _about(r"<module>|import", "IMPORT-VERSION"),
    _about(r"wandb|mlflow|tracker|log(?:ger)?\b", "TRACKER-LOGIN"),
    _about(r"\.to\b|cuda", "NO-GPU", "DEVICE-MIX"),
)
"""What the functions, and the files that they stand in, are there for: of the script's own frame and of the one that raised it."""
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
"""Part of the path of what raised an exception -> causes that are met there; the first that fits."""
KINDS: dict[str, tuple[str, ...]] = {
    "AttributeError": ("IMPORT-VERSION",),
    "TypeError": ("IMPORT-VERSION", "DATA"),
    "ImportError": ("IMPORT-VERSION", "IMPORT-MISSING"),
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
"""Type of an exception -> causes that it is met with."""

PROGRAMMING = frozenset(
    "NameError UnboundLocalError AttributeError TypeError IndexError ZeroDivisionError NotImplementedError RecursionError SyntaxError"
    " IndentationError TabError StopIteration".split()
)
"""Types whose exceptions tell of the code that raised them, whatever their message names."""


def likely(raised: Raised, text: str) -> tuple[str, ...]:
    """Causes that an exception like it comes from, the likeliest first."""
    votes = _votes(MESSAGES, text, MESSAGE)
    for frame, share in ((raised.own, 1.0), (raised.deepest, 0.5)):
        if frame.file:
            votes.update(_votes(FUNCTIONS, f"{'/'.join(frame.file.split('/')[-2:])}:{frame.function}", FRAMES * share))
    place = next((causes for path, causes in RAISERS.items() if path in raised.deepest.file), ())
    votes.update(_shares(place, RAISER))
    votes.update(_shares(KINDS.get(raised.name, ()), KIND))
    return tuple(cause for cause, _ in votes.most_common())


def said(text: str) -> tuple[str, ...]:
    """Causes that the words of a message alone speak of, the likeliest first."""
    return tuple(cause for cause, _ in _votes(MESSAGES, text, MESSAGE).most_common())


def _votes(subjects: tuple[Subject, ...], text: str, weight: float) -> Counter[str]:
    votes: Counter[str] = Counter()
    for subject in subjects:
        if subject.words.search(text):
            votes.update(_shares(subject.causes, weight))
    return votes


def _shares(causes: tuple[str, ...], weight: float) -> Counter[str]:
    return Counter({cause: weight * SECOND**place for place, cause in enumerate(causes)})
