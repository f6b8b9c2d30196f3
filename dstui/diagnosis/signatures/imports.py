"""Signatures of Python packages that are missing or incompatible."""

from __future__ import annotations

from dstui.diagnosis.signature import Signature, rx

SIGNATURES = (
    Signature(
        "IMPORT-MISSING",
        "root",
        "A Python package is missing where the ranks run",
        "The interpreter of the ranks does not have it; on other hosts that is often the system's Python.",
        (
            rx("No module named", r"^(?!.*Failed to import Triton kernels).*No module named '(?!mpi4py)\w+'"),
            rx(
                "ImportError",
                r"ImportError: (?!.*(?:version \d|[<>=]= ?\d)).*(?:[Pp]lease install|library but it was not found|is not installed)",
            ),
            rx(": No module named", r"python[\d.]*: No module named [\w.]+$"),
            rx("library but it was not found", r"requires the [\w.-]+ library but it was not found"),
            rx("distribution was not found", r"distribution was not found and is required by"),
            "importlib.metadata.PackageNotFoundError",
        ),
        ("Install it for the interpreter of the ranks (job.python), on every host",),
        "job.python -c 'import NAME' on the host that failed.",
        explains=("IMPORT-WRAPPED",),
        alike=("IMPORT-VERSION", "REMOTE-ENV"),
    ),
    Signature(
        "IMPORT-PART",
        "root",
        "A package that is there has no module of this name",
        "Python has imported the first part of the name: it is another release than the code was written for, or a file or folder of the "
        "same name hides it.",
        (
            rx(
                "No module named",
                r"^(?!.*Failed to import Triton kernels).*No module named '(?!mpi4py|torch\._six|deepspeed\.)\w+\.[\w.]+'",
            ),
        ),
        (
            "Install the release that has the module, for the interpreter of the ranks (job.python), on every host",
            "Rename your own file or folder if it has the package's name",
        ),
        "job.python -c 'import NAME; print(NAME.__file__)' with the first part of the name, on the host that failed.",
        explains=("IMPORT-WRAPPED",),
        sure=False,
        alike=("IMPORT-VERSION", "REMOTE-ENV"),
        answer="IMPORT-MISSING",
    ),
    Signature(
        "IMPORT-ASKED",
        "root",
        "A library asks for a Python package that is missing, or too old",
        "What was asked for (a quantized model, an attention kernel, a Trainer) needs a further package, or a newer release of one.",
        (
            rx("pip install", r"(?:Error|Exception): .*(?:[Ii]nstall|[Rr]un|requires?|[Uu]se|try|with):? .*pip3? install"),
            rx("not supported. Currently supported versions", r"Error: \S+ version \S+ not supported\. Currently supported versions"),
            rx("were not found in your environment", r"packages that were not found in your environment"),
            rx("Missing optional dependency", r"ImportError: Missing optional dependency"),
            rx("seems to be not installed", r"the package \S+ seems to be not installed"),
            rx("is not installed", r"(?:Error|Exception): (?:\S+ ){0,3}is not installed"),
            rx("package is not installed", r"(?:Error|Exception): .*\b[Ee]ither the package is not installed"),
            rx("is not available", r"ImportError: cannot import name '\w+' because \w+ is not available"),
            rx(
                "is not defined",
                r"NameError: name '(?:flash_attn\w*|deepspeed|init_empty_weights|bnb|apex|amp|xformers|wandb"
                r"|index_first_axis|unpad_input)' is not def",
            ),
            rx(
                "No such file or directory",
                r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?:ffmpeg|ffprobe|java|git|git-lfs|sox)'",
            ),
            rx("requires", r"ImportError: .*\brequires (?:the )?(?:`[\w.-]+`|[\w.-]+)(?: (?:library|package))?\.?$"),
            rx("ImportError", r"ImportError: .*(?:(?:is|are) required(?! for a normal)|(?:needs to|must) be installed|not installed)"),
        ),
        ("Install what the message names, in the release that it names, for the interpreter of the ranks, on every host",),
        "pip show NAME, in the environment of the ranks.",
        sure=False,
        alike=("IMPORT-VERSION",),
        answer="IMPORT-MISSING",
    ),
    Signature(
        "DEVICE-PLUGIN",
        "root",
        "PyTorch does not know this kind of device, since the package that adds it is not imported",
        "NPUs, Gaudi, MUSA and MLU come with a package of their own, which must be installed and imported before the device is named.",
        (rx("at start of device string: ", r"device type at start of device string: (?:npu|hpu|musa|mlu|xpu|gcu|sdaa)\b"),),
        ("Import it before the first use: torch_npu, habana_frameworks.torch, torch_musa, torch_mlu, intel_extension_for_pytorch",),
        "python -c 'import torch, torch_npu' (or the package of that device), in the environment of the ranks.",
        sure=False,
        alike=("IMPORT-VERSION",),
        answer="IMPORT-MISSING",
    ),
    Signature(
        "IMPORT-NAME",
        "root",
        "The installed release of a library has no such name",
        "The name was moved, renamed or removed, or came in a newer release; a part of a library may also have to be imported by itself.",
        (
            rx("has no attribute", r"module '(?:pkgutil|collections|distutils|inspect|asyncio|ast|fractions|time)' has no attribute"),
            rx(
                "has no attribute",
                r"AttributeError: (?:partially initialized )?module '(?:numpy|torch|torchvision|transformers|accelerate|peft|trl|datasets"
                r"|triton|flash_attn|xformers|huggingface_hub|tokenizers|pyarrow|wandb|deepspeed|PIL|scipy|pandas|sklearn|matplotlib|tensorflow|keras|jax"
                r"|flax|lightning|pytorch_lightning|torchaudio|torchmetrics|timm|diffusers|bitsandbytes|vllm|sentence_transformers|gym|gymnasium"
                r"|networkx|nltk|onnx|openai|gradio|mlflow|ray|sqlalchemy|setuptools|pkg_resources|google)(?:\.[\w.]+)?' has no attribute",
            ),
        ),
        (
            "Look for the name in the library's changelog: use what replaced it, or install a release that has it",
            "Import the part by its whole name (import PIL.ImageOps) if the library does not do so itself",
            "Rename your own file if it has the library's name",
        ),
        "python -c 'import NAME; print(NAME.__version__, NAME.__file__)', in the environment of the ranks.",
        sure=False,
        alike=("USER-PY",),
        answer="IMPORT-VERSION",
    ),
    Signature(
        "IMPORT-VERSION",
        "root",
        "Two packages are incompatible",
        "A name or an argument that the program uses has moved in the installed version of a library, or that library asks for another "
        "release of a package.",
        (
            rx(
                "cannot import name",
                r"cannot import name (?!.* from '(?:torch|deepspeed)[.'])"
                r"(?!.* from '(?!(?:transformers|vllm|accelerate|peft|trl)\b)[\w.]+' "
                r"\(/(?!\S*(?:(?:site|dist)-packages|lib/python\d))\S+\))",
            ),
            "is required for a normal functioning of this module, but found",
            rx("requires the latest version of", r"ImportError: .*requires the latest version of"),
            rx(
                "got an unexpected keyword",
                r"TypeError: .*(?:(?:Trainer|TrainingArguments|Accelerator|Config)(?:\.__init__)?|from_pretrained)\(\) "
                r"got an unexpected keyword",
            ),
            rx("but got unexpected keyword", r"but got unexpected keyword"),
            rx("Loading a dataset cached in a", r"Loading a dataset cached in a \w+ is not supported"),
            rx("but Transformers does not recognize", r"but Transformers does not recognize this architecture"),
            rx("did not match any variant of untagged enum", r"data did not match any variant of untagged enum"),
            rx("operator torch", r"operator torch(?:vision|audio)::\w+ does not exist"),
            rx("compiled with different CUDA", r"compiled with different CUDA (?:major )?versions"),
            "Numpy is not available",
            rx("failed to be inspected", r"Model architectures \[.*\] failed to be inspected"),  # vLLM could not import its own model
            "StrictDataclassFieldValidationError: Validation error for field",  # an older model's config.json, a newer huggingface_hub
            "load() missing 1 required positional argument: 'Loader'",  # PyYAML 6, and a script for an older one
            rx("Descriptors cannot", r"Descriptors cannot (?:not )?be created directly"),
            "'MessageFactory' object has no attribute 'GetPrototype'",  # protobuf 5 and an older TensorFlow
            rx("was removed in the NumPy", r"was removed in the NumPy 2\.0 release"),
            rx("does not exist or is not currently imported", r"Tokenizer class \w+ does not exist or is not currently imported"),
            rx("object has no attribute", r"'\w*(?:Cache|(?<=\w)Tokenizer\w*|TrainingArguments|Accelerator\w*)' object has no attribute"),
            rx("`rope_scaling` must be a dictionary", r"`rope_scaling` must be a dictionary (?:with two fields|of with two)"),
            rx("require users to upgrade torch", r"we now require users to upgrade torch"),
            rx("requires a version of", r"(?:Error|Exception): .*requires? a (?:newer |recent )?version of"),
            rx("OMP: Error #15", r"^OMP: Error #15: Initializing \S+, but found \S+ already initialized"),
            rx("Found an incompatible version of", r"Found an incompatible version of"),
            rx("Please upgrade", r"(?:Import|Runtime|Value|Attribute)Error: .*[Pp]lease up(?:grade|date) (?:your )?(?:the )?[\w.-]+"),
            rx("pydantic.errors.", r"^pydantic\.errors\.Pydantic\w*Error"),
            rx("numpy.", r"numpy\.(?:dtype|ndarray) size changed, may indicate binary incompatibility"),
            rx("A module that was compiled using NumPy", r"A module that was compiled using NumPy 1\.x cannot be run in\s*NumPy 2"),
            "VersionConflict",
            rx("No matching distribution found", r"ERROR: No matching distribution found for"),
            rx("conflicting dependencies", r"because these package versions have conflicting dependencies"),
            "No solution found when resolving dependencies",  # uv's
        ),
        (
            "Install the release that the message names; else that of the package in `from …` that the other one was written for, as its "
            "requirements.txt or setup.py says",
            "Upgrade both, if neither is pinned: pip install -U",
        ),
        "pip check, and the versions that the script's authors name.",
        sure=False,
        alike=("IMPORT-MISSING", "IMPORT-TORCH"),
    ),
    Signature(
        "IMPORT-OTHER",
        "root",
        "An installed package could not be imported",
        "The importing code expects another release, or a part of the package is broken.",
        remedies=(
            "Import it alone: python -c 'import NAME' shows the first error",
            "Install the set of versions that the program was written for",
        ),
        sure=False,
        alike=("IMPORT-MISSING", "LIB-MISSING"),
        answer="IMPORT-VERSION",
    ),
    Signature(
        "IMPORT-CIRCULAR",
        "root",
        "Modules of the program import each other circularly",
        "One of them is asked for a name before it has reached the line that defines it.",
        (
            rx(
                "most likely due to a circular import",
                r"partially initialized module '(?!(?:torch|deepspeed|transformers|accelerate|peft|trl|datasets|numpy)\b)"
                r"(?!.*(?:site|dist)-packages)",
            ),
        ),
        (
            "Move one of the two imports into the function that needs it, or move what both need into a separate module",
            "A file of yours that is named like a package hides that package: rename it",
        ),
        "python -X importtime -c 'import NAME' 2>&1 | tail -20, in the folder of the script: the order of the imports.",
        explains=("IMPORT-VERSION",),
        sure=False,
        alike=("IMPORT-VERSION",),
        answer="IMPORT-VERSION",
    ),
    Signature(
        "IMPORT-CALL",
        "root",
        "One library calls another with arguments that the installed release does not accept",
        "The two releases do not belong together: one of them was upgraded, or pinned, without the other.",
        remedies=("Install the set of versions that the program was written for; pip install -U of the library that calls often does",),
        sure=False,
        alike=("DS-INTERNAL-VERSION", "IMPORT-TORCH"),
        answer="IMPORT-VERSION",
    ),
    Signature(
        "IMPORT-AGED",
        "root",
        "A library refuses what another release of it accepts",
        "The code was written for an older or a newer release than the one that is installed; the message says since when.",
        remedies=("Install the release that the code was written for, or change the call as the message says",),
        confirm="pip show of the library, against the release in the message.",
        sure=False,
        alike=("USER-PY", "IMPORT-MISSING"),
        answer="IMPORT-VERSION",
    ),
    Signature(
        "IMPORT-WRAPPED",
        "root",
        "A part of transformers could not be imported",
        "Transformers imports its modules lazily and reports a failed import itself: the next line is the reason.",
        (rx("Failed to import", r"Failed to import \S+ because of the following error"),),
        ("Read the line after it, and the traceback above: the package that it names is missing, or of another release",),
        sure=False,
        alike=("IMPORT-MISSING", "OP-ABI"),
        answer="IMPORT-VERSION",
    ),
    Signature(
        "IMPORT-TORCH",
        "root",
        "DeepSpeed (or another library) is older than PyTorch",
        "A name inside torch that it imports is gone in the installed PyTorch.",
        (
            "No module named 'torch._six'",
            rx("cannot import name", r"cannot import name '\w+' from (?:partially initialized module )?'torch[.\w]*'"),
        ),
        ("Upgrade deepspeed (0.14.3 or newer for PyTorch 2.4), or pin an older PyTorch",),
        "pip show torch deepspeed.",
        explains=("IMPORT-WRAPPED", "IMPORT-VERSION"),
        alike=("IMPORT-VERSION", "OP-ABI"),
    ),
    Signature(
        "DS-INTERNAL-VERSION",
        "root",
        "The DeepSpeed installation is broken or mixed",
        "One part of DeepSpeed asks another for something that it does not have: files of two versions, or a development tree.",
        (
            rx(
                "object has no attribute",
                r"'DeepSpeed(?:\w*Config|ZeRO\w+|ZeroOptimizer\w*)' object has no attribute",
            ),
            rx("No module named 'deepspeed.", r"No module named 'deepspeed\.[\w.]+'"),
            rx("cannot import name", r"cannot import name '\w+' from (?:partially initialized module )?'deepspeed[.\w]*'"),
        ),
        ("Reinstall one release: pip install --force-reinstall --no-cache-dir deepspeed",),
        "python -c 'import deepspeed; print(deepspeed.__version__, deepspeed.__file__)'",
        explains=("IMPORT-VERSION",),
        alike=("IMPORT-VERSION", "IMPORT-TORCH"),
    ),
)
