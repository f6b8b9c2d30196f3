"""Inspection of a script: how it takes its DeepSpeed configuration, and who builds its optimizer."""

from __future__ import annotations

import json

import pytest

from dstui.adopt.script import inspect_script

ADDED = ("--deepspeed_config", "{ds_config}")
TRAINER = ("--deepspeed", "{ds_config}")
ARGUMENTS = "from transformers import TrainingArguments\n"
SCRIPTS = {
    "parser = deepspeed.add_config_arguments(parser)": ("deepspeed", ADDED, True),
    "from transformers import HfArgumentParser, TrainingArguments\n": ("trainer", TRAINER, True),
    "from trl import SFTConfig, TrlParser\nTrlParser(SFTConfig)": ("trainer", TRAINER, True),
    "from transformers import TrainingArguments as T\nT('out', bf16=True)": ("trainer", (), False),
    ARGUMENTS + "TrainingArguments('out', deepspeed='ds.json')": ("trainer", (), False),
    ARGUMENTS + "p.add_argument('--ds')\na = p.parse_args()\nTrainingArguments('out', deepspeed=a.ds)": (
        "trainer",
        ("--ds", "{ds_config}"),
        True,
    ),
    ARGUMENTS + "import os\nTrainingArguments('o', deepspeed=os.environ['DSTUI_DS_CONFIG'])": ("trainer", (), True),
    "from trl import GRPOTrainer, TrlParser\nfrom mine.configs import GRPOConfig\nargs = TrlParser((GRPOConfig,)).parse()\n"
    "GRPOTrainer(model, args=args)": ("trainer", ("--deepspeed", "{ds_config}"), True),
    "from transformers import Trainer\nfrom mine import make_arguments\nclass Mine(Trainer): pass\nMine(model, make_arguments())": (
        "trainer",
        (),
        False,
    ),
    "from transformers import Trainer\np.add_argument('--deepspeed')\nTrainer(model, make(p.parse_args()))": (
        "trainer",
        ("--deepspeed", "{ds_config}"),
        True,
    ),
    "from transformers import Trainer\nfrom accelerate import Accelerator\nAccelerator()": ("accelerate", (), True),
    "from accelerate import Accelerator\n": ("accelerate", (), True),
    "from accelerate import Accelerator, DeepSpeedPlugin\nDeepSpeedPlugin(hf_ds_config='a.json')": ("accelerate", (), False),
    "import torch\nfrom accelerate import dispatch_model\nfrom accelerate.utils import set_seed": (None, (), True),
    "from accelerate import init_empty_weights\nimport deepspeed\ndeepspeed.initialize(config='a.json')": ("deepspeed", (), False),
    'p.add_argument("--deepspeed-config")\nimport deepspeed': ("deepspeed", ("--deepspeed-config", "{ds_config}"), True),
    "p.add_argument('--ds_config')": ("deepspeed", ("--ds_config", "{ds_config}"), True),
    "p.add_argument('-c', '--conf')\na = p.parse_args()\nimport deepspeed as ds\nds.initialize(m, config=a.conf)": (
        "deepspeed",
        ("--conf", "{ds_config}"),
        True,
    ),
    "p.add_argument('--conf')\nwith open(a.conf) as file:\n    found = json.load(file)\ndeepspeed.initialize(config=found)": (
        "deepspeed",
        ("--conf", "{ds_config}"),
        True,
    ),
    "p.add_argument('conf')\ndeepspeed.initialize(config=p.parse_args().conf)": ("deepspeed", ("{ds_config}",), True),
    "@click.option('--ds-config')\ndef main(ds_config): deepspeed.initialize(config=ds_config)": (
        "deepspeed",
        ("--ds-config", "{ds_config}"),
        True,
    ),
    "p.add_argument('--deepspeed', action='store_true')\np.add_argument('--deepspeed_config')": (
        "deepspeed",
        ("--deepspeed", *ADDED),
        True,
    ),
    "deepspeed.initialize(model=m, config=CONFIG)": ("deepspeed", (), False),
    "p.add_argument('--precision')\nc = {'fp16': {'enabled': a.precision == 'fp16'}}\ndeepspeed.initialize(config=c)": (
        "deepspeed",
        (),
        False,
    ),
    "p.add_argument('--zero_stage')\nc = make(offload=a.offload, stage=a.zero_stage)\ndeepspeed.initialize(config=c)": (
        "deepspeed",
        (),
        False,
    ),
    "p.add_argument('--conf')\nc = merged(a.conf, a.batch)\ndeepspeed.initialize(config=c)": ("deepspeed", ("--conf", "{ds_config}"), True),
    "deepspeed.initialize(config=os.environ['DSTUI_DS_CONFIG'])": ("deepspeed", (), True),
    "# from accelerate import Accelerator\nprint('hello')": (None, (), True),
    '"""from accelerate import Accelerator"""': (None, (), True),
    "print 'python 2'": (None, (), True),
    "x = '\\d'": (None, (), True),
    "(" * 40_000: (None, (), True),
    "-" * 40_000 + "1": (None, (), True),
    "\0": (None, (), True),
    "x = x + x + y\ny = x\ndeepspeed.initialize(config=x)": ("deepspeed", (), False),
}


@pytest.mark.parametrize("text", SCRIPTS, ids=range(len(SCRIPTS)))
def test_integration_and_its_argument_are_found(text: str) -> None:
    facts = inspect_script(text)
    assert (facts.integration, facts.suggested_args, facts.finds) == SCRIPTS[text], facts.why


def test_reason_names_the_line() -> None:
    assert inspect_script("import torch\n\nfrom accelerate import Accelerator\n").why.startswith("line 3: ")
    assert inspect_script("import torch\nprint 'x'\n").why.startswith("line 2: it is not Python")


ACCELERATE = "from accelerate import Accelerator\nfrom accelerate.utils import DummyOptim\nimport torch\n"


@pytest.mark.parametrize(
    ("text", "builder"),
    [
        (ACCELERATE + "o = torch.optim.AdamW(p)", "script"),
        (ACCELERATE + "from torch.optim import SGD as S\no = S(p)", "script"),
        (ACCELERATE + "from transformers import Adafactor\no = Adafactor(p)", "script"),
        (ACCELERATE + "import bitsandbytes as bnb\no = bnb.optim.AdamW8bit(p)", "script"),
        (ACCELERATE + "o = DummyOptim(p)", "config"),
        (ACCELERATE + "o = (DummyOptim if x else torch.optim.AdamW)(p)", None),
        (ACCELERATE + "s = torch.optim.lr_scheduler.LambdaLR(o)", None),
        ("import deepspeed\ndeepspeed.initialize(model=m, model_parameters=p, config='x')", "config"),
        ("import deepspeed\ndeepspeed.initialize(a, m, o, config='x')", "script"),
        ("import torch\nfrom transformers import TrainingArguments\ntorch.optim.AdamW", None),
    ],
)
def test_builder_of_the_optimizer_is_found(text: str, builder: str | None) -> None:
    assert inspect_script(text).optimizer == builder


PARSER = "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--ds_config')\n"


@pytest.mark.parametrize(
    ("more", "refuses"),
    [
        ("a = p.parse_args()", True),
        ("a, _ = p.parse_known_args()", False),
        ("p.add_argument('--local-rank')\na = p.parse_args()", False),
        ("p.add_argument('--rank', dest='local_rank')\na = p.parse_args()", False),
    ],
)
def test_parser_that_rejects_local_rank_is_found(more: str, refuses: bool) -> None:
    assert inspect_script(PARSER + more).refuses_local_rank == refuses


def test_script_of_a_megabyte_is_not_inspected() -> None:
    facts = inspect_script("x(y(z(1)))\n" * 100_000)
    assert facts.integration is None and "it is longer than 300,000 characters" in facts.why


LOADS = "from transformers import AutoModelForCausalLM as M, AutoTokenizer\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (LOADS + "AutoTokenizer.from_pretrained('a/tokenizer')\nM.from_pretrained('a/model')", "a/model"),
        (LOADS + "NAME = 'a/model'\nM.from_pretrained(NAME, torch_dtype='auto')", "a/model"),
        (LOADS + "p.add_argument('--model_name', default='a/default')\nM.from_pretrained(p.parse_args().model_name)", "a/default"),
        ("@dataclass\nclass Arguments:\n    base_model: str = field(default='a/default')\n", "a/default"),
        (LOADS + "M.from_pretrained('a/student')\nM.from_pretrained('a/teacher')", ""),
        (LOADS + "M.from_pretrained(sys.argv[1])\nAutoTokenizer.from_pretrained('a/tokenizer')", ""),
        ("p.add_argument('--model_name', default='<your model>')", ""),
    ],
)
def test_only_model_named_by_a_script_is_its_model(text: str, model: str) -> None:
    assert inspect_script(text).model == model


@pytest.mark.parametrize(
    ("given", "placed"),
    [
        ("", ""),
        (", device_map=None", ""),
        (", device_map={'': rank}", "default"),
        (", device_map='auto', torch_dtype=torch.bfloat16", "torch.bfloat16"),
        (", device_map='auto', quantization_config=four_bits", ""),
        (", device_map='cpu'", ""),
        (", device_map=places", "default"),
        (", device_map=places if alone else None", ""),
    ],
)
def test_weights_that_a_script_puts_on_the_gpu_are_found(given: str, placed: str) -> None:
    assert inspect_script(f"{LOADS}places = {{'': rank}}\nM.from_pretrained('a/model'{given})").placed == placed


OWN = """import deepspeed
STAGE, N = 2, 4
ACC = 2
more = {"fp16": {"enabled": False}}
config = {"train_micro_batch_size_per_gpu": args.n, "gradient_accumulation_steps": ACC * 2, "zero_optimization": dict(stage=1 + ACC), **more}
config["bf16"] = {"enabled": True}
deepspeed.initialize(model=m, config=config)
"""


def test_literal_configuration_of_a_script_is_copied_as_far_as_it_is_visible() -> None:
    found = inspect_script(OWN).configuration
    assert json.loads(found.text) == {"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 3}, "fp16": {"enabled": False}}
    assert found.left_out == ("train_micro_batch_size_per_gpu",) and found.changed and not found.complete
    assert inspect_script("import deepspeed\ndeepspeed.initialize(config={'bf16': {}})").configuration.complete
    for other in ("config = load()", "config = {'a': 1}", "config = {'fp16': {}, **x}", "config = {'fp16': 1}\nconfig = {'bf16': 2}"):
        assert not inspect_script(f"import deepspeed\n{other}\ndeepspeed.initialize(config=config)").configuration.text
