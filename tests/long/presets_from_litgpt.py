"""Print models of litgpt's table as entries of dstui/forecast/data/presets.json: `python presets_from_litgpt.py FOLDER`.

FOLDER holds an unpacked wheel of litgpt (`pip download --no-deps litgpt`), Apache-2.0. Its table is written from the config.json files
of the hub; only families whose sizes it gives completely are used.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

TAKEN = re.compile(
    r"EleutherAI/pythia-[\d.]+[mb]|tiiuae/Falcon3-\d+B-Base|openlm-research/open_llama_\w+|codellama/CodeLlama-\d+b-hf|"
    r"meta-llama/Meta-Llama-3(\.1)?-\d+B|allenai/OLMo-2-1124-13B|mistralai/Mistral-Large-Instruct-2407|Qwen/Qwen3-235B-A22B|"
    r"microsoft/Phi-3\.5-mini-instruct|BSC-LT/salamandra-\d+b|microsoft/phi-1_5"
)
KINDS = {"GptNeoxMLP": "gpt_neox", "LLaMAMLP": "llama", "LLaMAMoE": "qwen3_moe"}


def entry(row: Any, version: str) -> dict[str, Any]:
    """Return a row of litgpt's table with the keys of a config.json."""
    name = row.hf_config["name"].lower()
    special = {"olmo-2": "olmo2", "phi-3.5": "phi3", "phi-1_5": "phi", "mistral": "mistral"}
    kind = next((kind for word, kind in special.items() if word in name), KINDS[row.mlp_class_name])
    found = {
        "model_type": kind,
        "hidden_size": row.n_embd,
        "intermediate_size": row.intermediate_size,
        "num_hidden_layers": row.n_layer,
        "num_attention_heads": row.n_head,
        "num_key_value_heads": row.n_query_groups,
        "vocab_size": row.padded_vocab_size,
        "max_position_embeddings": row.block_size,
        "tie_word_embeddings": False,
    }
    if row.head_size != row.n_embd // row.n_head:
        found["head_dim"] = row.head_size
    if row.mlp_class_name == "LLaMAMoE":
        found |= {"num_experts": row.n_expert, "num_experts_per_tok": row.n_expert_per_token}
        found["moe_intermediate_size"] = row.moe_intermediate_size
    return found | {"_source": f"litgpt {version}, config.py"}


def main() -> None:
    """Print the entries."""
    folder = Path(sys.argv[1])
    spec = importlib.util.spec_from_file_location("litgpt_table", folder / "litgpt" / "config.py")
    assert spec is not None and spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    sys.modules["litgpt_table"] = table
    spec.loader.exec_module(table)
    version = next(folder.glob("litgpt-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    seen = set[str]()
    for given in table.configs:
        name = f"{given['hf_config']['org']}/{given['hf_config']['name']}"
        if TAKEN.fullmatch(name) and name not in seen:
            print(f" {json.dumps(name)}: {json.dumps(entry(table.Config(**given), version))},")
            seen.add(name)


if __name__ == "__main__":
    main()
