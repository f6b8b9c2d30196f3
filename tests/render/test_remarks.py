"""Remarks in the generated files about themselves and about what they leave out."""

from __future__ import annotations

from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.render.accelerate import accelerate_data
from dstui.render.artifacts import ds_configs
from dstui.render.sbatch import render_sbatch

TRAINS = "train_micro_batch_size_per_gpu: 1"


def test_each_configuration_names_its_part_of_the_plan() -> None:
    one = ds_configs(load(f"version: 1\ndeepspeed: {{{TRAINS}}}\n"))
    several = ds_configs(load(f"version: 1\njob: {{script: t.py}}\nmodels: {{actor: {{deepspeed: {{{TRAINS}}}}}}}\n"))
    assert ["the deepspeed section" in str(artifact) for artifact in (*one, *several)] == [True, False]
    assert "models.actor.deepspeed of the Plan" in str(several[0])


def test_binding_that_only_dstui_does_is_omitted_from_a_batch_script_and_reported() -> None:
    text = f"version: 1\njob: {{script: t.py}}\ncluster: {{num_nodes: 2, num_gpus: 2, cpu_binding: BINDING}}\ndeepspeed: {{{TRAINS}}}\n"
    notes = {
        binding: [
            note for note in render_sbatch(load(text.replace("BINDING", binding)), Machine.unprobed(), None, {}).notes if "bind" in note
        ]
        for binding in ("numactl", "deepspeed")
    }
    assert len(notes["numactl"]) == 1 and notes["deepspeed"] == []


def test_launcher_of_a_complete_accelerate_section_is_the_plans() -> None:
    text = f"version: 1\nLAUNCHERaccelerate: {{distributed_type: DEEPSPEED, num_machines: 2}}\ndeepspeed: {{{TRAINS}}}\n"

    def launcher(cluster: str) -> object:
        data, _ = accelerate_data(load(text.replace("LAUNCHER", cluster)), {"h1": [0], "h2": [0]})
        return data.get("deepspeed_config", {}).get("deepspeed_multinode_launcher")

    assert launcher("") is None
    assert launcher("cluster: {launcher: pdsh}\n") == "pdsh"
