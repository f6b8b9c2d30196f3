"""Find the cause of an exception that no signature knows: by its type, its subject, and the code that raised it. Pure.

These rules cover whole kinds (whatever an image library raises, the images could not be read), so they also apply to new messages.
Programming errors are excluded: they are about the code, not about what the code processes.
"""

from __future__ import annotations

import re

from dstui.base.dataclass import dataclass
from dstui.diagnosis.recognition.subjects import PROGRAMMING
from dstui.diagnosis.recognition.traces import Raised

NO_FILE = r"FileNotFoundError|NotADirectoryError|IsADirectoryError"
DATA_PATH = r"(?i)data(?:sets?)?[/_'.]|/(?:train|val|valid|test|images?|labels?|annotations?|imagenet|coco)\b"
"""The path of a data file."""
COMPUTING = r"RuntimeError|ValueError|AssertionError|AcceleratorError"
DATA_CODE = (
    r"/(?:PIL|h5py|cv2|librosa|torchaudio|decord|av|lmdb|webdataset|pyarrow|nibabel|pydicom|rasterio|imageio|pycocotools|tensorflow_datasets)/"
    r"|torchvision/(?:datasets|io)/|datasets/(?:load|builder|data_files|table|dataset_dict|features/|packaged_modules/|download/)"
    r"|pandas/io/|numpy/lib/_?(?:npyio|format)|numpy/_?core/memmap|nltk/data|indexed_dataset|soundfile|skimage/io"
    r"|/(?:zipfile|tarfile|gzip|lzma|bz2|csv)(?:\.py|/)|json/decoder"
)
"""Files of libraries that read data."""
NETWORK_CODE = r"/(?:requests|urllib3|httpx|httpcore|aiohttp|botocore|urllib|http|gcsfs|s3fs)/|/(?:ssl|socket)\.py"
MODEL_CODE = (
    r"huggingface_hub/|transformers/(?:configuration|tokenization|feature_extraction|image_processing|processing|dynamic_module|utils/hub)"
)
TRACKER_CODE = r"/(?:wandb|mlflow|comet_ml|clearml|neptune|swanlab)/"
BUILD_CODE = r"torch/utils/cpp_extension|_inductor/(?:cpp_builder|codecache)|triton/(?:compiler|runtime/build|backends)"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of exception: all given conditions must hold."""

    cause: str
    """The id of its signature."""
    words: str = ""
    """A regular expression for its line."""
    names: str = ""
    """The name of its class, without the module."""
    code: str = ""
    """The file and function that raised it, as PATH:FUNCTION."""
    own: str = ""
    """The same for the last frame in the script's own code."""

    def fits(self, raised: Raised, text: str) -> bool:
        """Return whether an exception is of this kind."""
        return (
            (not self.names or re.fullmatch(self.names, raised.name) is not None)
            and (not self.words or re.search(self.words, text) is not None)
            and (not self.code or re.search(self.code, f"{raised.deepest.file}:{raised.deepest.function}") is not None)
            and (not self.own or re.search(self.own, f"{raised.own.file.split('/')[-1]}:{raised.own.function}") is not None)
        )


KINDS = (
    # Missing files, by what they are and who opens them
    Kind("PROGRAM-GONE", r"No such file or directory: '[\w.+-]+'$", NO_FILE, r"subprocess\.py:|concurrent/futures/|_inductor/"),
    Kind("CONFIG-PATH", r"\.(?:ya?ml|toml|cfg|ini|conf)'?$|['\"/]conf(?:ig)?s?/[^'\"]*\.(?:py|json)['\"]", NO_FILE),
    Kind(
        "MODEL-FILES-PART",
        r"\.(?:pt|pth|ckpt|safetensors|gguf|onnx|bin|model|pkl|pdparams|npz)'$|(?i:ckpt|checkpoint|pretrained|weights)",
        NO_FILE,
    ),
    Kind("DATA-FOLDER", DATA_PATH, "IsADirectoryError"),
    Kind("DATA-FILE", names=NO_FILE, code=DATA_CODE),
    Kind("DATA-FILE", r"\.(?:xlsx?|tsv|mat|nii|gz|pickle|feather|hdf5|db|xml|html|bmp|tiff?|gif|mkv|ogg|pt|vocab)'$", NO_FILE),
    Kind("DATA-FILE", DATA_PATH, NO_FILE),
    Kind("DATA-FILE", names=NO_FILE, own=r"(?i)dataset|data_?loader|:\w*(?:__getitem__|read|load)\w*$"),
    # Exhausted resources, in any library's words
    Kind("ALLOC-REFUSED", r"(?i)(?:\bhost|\bCPU|\bRAM|system) (?:is )?(?:ran )?out of memory|out of (?:host|CPU|system) memory"),
    Kind("OOM-GPU", r"(?i)\bout of (?:\w+ )?memory\b|OutOfMemory"),
    # Numerical values that an operation refuses
    Kind("NAN-RAISED", r"(?i)\bloss\b.{0,40}\b(?:nan|inf(?:inite)?|not finite|non-?finite|diverged)\b"),
    Kind("NAN-RAISED", r"(?i)(?:\b(?:nan|infs?)\b|non-?finite).{0,40}\b(?:loss|grad\w*|outputs?|inputs?|logits|weights|activations?)\b"),
    Kind(
        "DEVICE-MIX",
        r"(?:same|different|wrong|mismatched) device|on device .*\bbut\b|device type \w+ but|Expected a '\w+' device type"
        r"|(?:must|should) be (?:on )?(?:a )?(?:CUDA|GPU)\b|associated with device type cpu|\bdevice_ids\b.*single-device"
        r"|is on (?:cpu|cuda\S*),? but",
        COMPUTING,
    ),
    Kind(
        "DTYPE-MIX",
        r"must (?:have|be of) the same type\b"
        r"|\bdtypes?\b.*(?:same|match|equal|\bbut\b|expected|got|different)|scalar types?\b|desired output type"
        r"|[Ee]xpected (?:floating point|integer|\w+) type\b.*\bgot|not implemented for '(?:Half|BFloat16|Float8\w*)'",
        COMPUTING,
    ),
    Kind(
        "USER-SHAPE",
        r"(?i)^(?!.*(?:world|parallel|divisible|vocab|cache|buffer|window|pool|group|chunk|file.?size|data ?set|memory|checkpoint|config))"
        r".*\b(?:shapes?|(?<!batch )(?<!batch_)sizes?|dims|dimensions?|dimensional|\dD|channels|batch_size)\b.*?"
        r"(?:match|expect|\bmust\b|should|\bgot\b|inconsisten|different|same|broadcast|align|into shape|permute|invalid|supported|equal)",
        COMPUTING,
    ),
    Kind(
        "USER-SHAPE",
        r"(?i)(?:expect|\bmust\b|should|mismatch|reshape|broadcast|equal|different|same)"
        r".*\b(?:shapes?|dims|dimensions?|dimensional|\dD|equal size)\b",
        COMPUTING,
    ),
    Kind("USER-SHAPE", r"(?i)\bexpected\b.*\bgot (?:input )?(?:size|shape)|truncation and/or padding", COMPUTING),
    Kind("USER-SHAPE", r"(?i)\b(?:height|width|resolution|image size)\b.*(?:n't|not) match", COMPUTING),
    Kind("USER-SHAPE", r"expected sequence of length \d+ at dim", COMPUTING),
    Kind("USER-SHAPE", code=r"/einops/"),
    # What the machine lacks
    Kind("INVALID-ORDINAL", r"Invalid CUDA '?device"),
    Kind(
        "INVALID-ORDINAL",
        r"(?i)(?:requir|request|need|expect|specified|ask)\w*\b.{0,30}\b\d+ (?:GPU|device)s?\b|\bGPUs?\b.{0,40}\bonly \d"
        r"|\bavailable (?:GPU|device)s? \d+ .{0,20}\bless than\b",
    ),
    Kind("NO-GPU-ASKED", r"(?i)\b(?:accelerator|cuda|gpus?)\b.{0,60}(?:not available|unavailable|not found|might not have a CUDA)"),
    Kind("NO-GPU-ASKED", r"\bcuda\.is_available\(\) should be True"),
    Kind(
        "NO-GPU-ASKED",
        r"(?i)\brequires? (?:an? )?(?:cuda|nvidia|gpu)\b(?! (?:\w+ ){0,2}(?:tensors?|inputs?|compute|version|memory|\d))"
        r"|\bno visible (?:gpu|cuda)|\bno (?:cuda |nvidia )?gpus?\b.{0,20}(?:found|available|detected|visible)",
    ),
    Kind(
        "TRACKER-LOGIN",
        r"(?i)(?:wandb|mlflow|clearml|comet|neptune|swanlab).*(?:not configured|credential|api.?key|log(?:ged)? ?in|unauthori)",
    ),
    Kind("HUB-DOWN", r"(?i)timed? ?out|communicat|connect|unreachable|network|\b50\d\b|Service\w*Error", code=TRACKER_CODE),
    Kind("TRACKER-LOGIN", r"(?i)\bkey\b|log(?:ged)? ?in|permission|\b40[13]\b|entity|unauthori|credential", code=TRACKER_CODE),
    # Settings that cannot be combined
    Kind(
        "PARALLEL-BATCH",
        r"(?i)\b(?:world.?size|[tpsedc]p_(?:size|degree)"
        r"|(?:tensor|pipeline|sequence|context|expert|model|data)[_ -]?(?:model[_ -]?)?parallel\w*)\b"
        r".*(?:divi|multiple|must|should|greater|less|equal|match)",
    ),
    Kind("PARALLEL-BATCH", r"(?i)(?:!=|\b(?:bigger|larger|greater) than|\bexceeds?|not (?:match|equal)).{0,40}\bworld[ _]?size"),
    Kind("PARALLEL-BATCH", r"divisible", code=r"(?i)megatron|parallel|nemo|divisib"),
    Kind(
        "CONFIG-ASSERT",
        r"(?i)(?:incompatible|not (?:supported|compatible)|cannot be used|does not (?:work|support))\b.{0,60}(?:ZeRO|DeepSpeed)",
    ),
    Kind(
        "CONFIG-ASSERT",
        r"(?i)\bzero\b|config",
        r"AssertionError|ValueError",
        r"deepspeed/runtime/engine|s/deepspeed\.py",
    ),
    Kind("CONFIG-ASSERT", code=r"deepspeed/runtime/config|accelerate/(?:commands/config|utils/(?:dataclasses|deepspeed))"),
    # By the code that raised it
    Kind("CKPT-NONE", r"(?i)(?:fail|unable|cannot|can't|could not|no)\w*\b.{0,30}(?:find|found|resume|locate|exist)\w*.{0,40}checkpoint"),
    Kind("MODEL-FILES-PART", r"(?i)is not a (?:valid )?checkpoint"),
    Kind("CKPT-SHAPE", r"(?i)\bfollowing (?:keys|parameters|weights) (?:are|were) (?:missing|unexpected|not found)"),
    Kind("DATA", r"(?i)\b(?:undefined|unknown|unregistered) dataset\b|\bdataset \S+ (?:is )?(?:undefined|not registered|not defined)"),
    Kind(
        "CKPT-SHAPE",
        r"(?i)(?:missing|unexpected(?!ly)|mismatch).*(?:state_?dict|checkpoint)|(?:state_?dict|checkpoint).*(?:missing|unexpected(?!ly)|mismatch)",
    ),
    Kind("CKPT-SHAPE", code=r"torch/distributed/(?:_shard/)?checkpoint/.*:\w*(?:load|read|plan|validate|lookup|find)"),
    Kind("CKPT-SHAPE", names="CheckpointException"),
    Kind("MODEL-LOAD", code=r"torch/serialization\.py:_?(?:legacy_)?load|safetensors/torch\.py:load"),
    Kind("MODEL-LOAD", code=r"transformers/modeling_utils\.py:\w*(?:load|resolve|from_pretrained|state_dict|weights|_find)"),
    Kind("MODEL-LOAD", code=r"accelerate/utils/modeling\.py:(?:set_module_tensor|load_)"),
    Kind("MODEL-LOAD", r"(?i)\bweights\b|\bcheckpoint\b|state_dict|safetensors", code=r"transformers/modeling_utils"),
    Kind("IMPORT-OTHER", code=r"models/auto/configuration_auto"),
    Kind("RDZV-TIMEOUT", names=r"\w*(?:Timeout|Connection|Network|gai)\w*", code=r"torch/distributed/"),
    Kind("HUB-DOWN", names=r"\w*(?:Connect|Timeout|SSL|HTTP|Proxy|URL|Endpoint|gai)\w*", code=NETWORK_CODE),
    Kind("IMPORT-ASKED", r"(?i)(?:not|n't) have \S+ installed|please install|\bpip install\b"),
    Kind("MODEL-FILES-PART", names=r"OSError|\w*(?:HTTP|Repo|Entry|Revision|Validation|Token|Snapshot)\w*", code=MODEL_CODE),
    Kind("RACE-FS", names=NO_FILE, code=r"torch/utils/cpp_extension|file_baton"),
    Kind("BUILD-FAILED", names=r"RuntimeError|\w*(?:Compil|PTXAS|Inductor|CalledProcess)\w*", code=BUILD_CODE),
    Kind("DATA", code=DATA_CODE),
    Kind(
        "DATA",
        r"^cv2\.error: .*(?:empty\(\)|imread|(?:can't|could not) open)"
        r"|^(?:lmdb|av|soundfile|decord|h5py|rasterio|nibabel|pydicom|librosa|webdataset|pyarrow)\.",
    ),
    Kind("DATA", r"^(?:EOFError: Compressed file ended|(?:\w+\.)*Bad(?:Zip|Gzip)File\b|(?:\w+\.)*LZMAError\b|zlib\.error: )"),
    Kind("NCCL-SYSTEM", r"\b(?:NCCL|RCCL|HCCL|oneCCL)\b", code=r"torch/distributed/"),
)
"""The first match wins. `cause_of` has handled programming errors (`PROGRAMMING`) before."""
AGED = re.compile(
    r"(?i)\bha(?:s|ve) been (?:removed|dropped|discontinued)\b|\bwas removed (?:in|from|since)\b"
    r"|\bno longer (?:supports?|supported|available)\b"
    r"|\b(?:requires?|needs?) (?:at least )?[\w.-]+ ?(?:version )?"
    r"(?:[<>]=? ?\d+\.\d|== ?\d+\.\d|v?\d+(?:\.\d+)+\+?,? or (?:newer|higher|above|later|greater))"
    r"|\bplease (?:upgrade|downgrade) "
)
"""A library's message about a call that other releases accept, with any exception type, including NotImplementedError."""
WRONG_CALL = re.compile(r"unexpected keyword argument|takes \d+ positional arguments? but|takes no (?:keyword )?arguments")
"""A call that was written for another release; inside of a library it is not an error of the script."""
PASSES_ON = frozenset(
    {"_call_impl", "_wrapped_call_impl", "__call__", "wrapped_fn", "wrapper", "inner", "decorate_autocast", "decorate_context"}
)
"""Library functions that pass on the arguments they were given."""


OWN_MODULE = re.compile(
    r"cannot import name '\w+' from '(?!(?:transformers|vllm|accelerate|peft|trl)\b)[\w.]+' "
    r"\(/(?!\S*(?:(?:site|dist)-packages|lib/python\d))\S+\)"
)
"""A name that a module of the project itself does not have."""
WRITES = re.compile(r"save(?!d)|write|dump|mkdir|makedirs|rename")
"""Names of functions that create files: if they do not find one, a folder is missing, not an input file."""


def to_be_written(raised: Raised) -> bool:
    """Return whether a missing file was to be written."""
    return raised.place == "SAVE-FOLDER" or (
        re.fullmatch(NO_FILE, raised.name) is not None and any(WRITES.search(one.function) for one in (raised.own, raised.deepest))
    )


PIP_FILES = re.compile(r"[\\/]pip-(?:install|build-env|req-build|modern-metadata)-|<pip-setuptools-caller>|/pip/_vendor/pyproject_hooks/")
"""Files of a package that pip builds, or of what pip builds it with."""


def of_pip(raised: Raised) -> bool:
    """Return whether it was raised while pip built a package."""
    return PIP_FILES.search(raised.deepest.file) is not None


def cause_of(raised: Raised, text: str) -> str:
    """Return the id of the signature for an exception that no other one knows: USER-PY if nothing indicates a cause."""
    if of_pip(raised):
        return "BUILD-FAILED"
    if to_be_written(raised):
        return "SAVE-FOLDER"
    if raised.place and not re.search(DATA_PATH, text):
        return raised.place
    if raised.name in ("ImportError", "ModuleNotFoundError"):
        return "USER-PY" if OWN_MODULE.search(text) else "IMPORT-OTHER"
    if raised.deepest.in_library and AGED.search(text):
        return "IMPORT-AGED"
    if raised.name in PROGRAMMING:
        passed_on = raised.deepest.function in PASSES_ON or "forward()" in text
        library = raised.name == "TypeError" and raised.deepest.in_library and not passed_on
        return "IMPORT-CALL" if library and WRONG_CALL.search(text) else "USER-PY"
    return next((kind.cause for kind in KINDS if kind.fits(raised, text)), "USER-PY")
