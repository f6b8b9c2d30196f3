"""Write a first site file from facts about a machine, with all entries except the version commented out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from dstui.base.dataclass import dataclass
from dstui.plan.scalars import yaml_scalar

KEPT = ("NCCL_", "UCX_", "GLOO_", "FI_", "HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""Prefixes of variables that belong to a site rather than to a shell."""
MAX_NAMES = 8


@dataclass(frozen=True)
class SiteFacts:
    """The facts of a machine for a first site file."""

    host: str = ""
    gpus: Sequence[str] = ()
    partitions: Sequence[str] = ()
    """SLURM's partitions, the default one first."""
    ssh_hosts: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def first_site(facts: SiteFacts) -> str:
    """Return the text of a first site file."""
    gpus = ", ".join(f"{facts.gpus.count(name)} x {name}" for name in dict.fromkeys(facts.gpus)) or "no GPU"
    launcher = "sbatch" if facts.partitions else "ssh" if facts.ssh_hosts else "local"
    kept = {name: value for name, value in sorted(facts.environment.items()) if name.startswith(KEPT)}
    lines = [
        f"# dstui's site file: settings for everybody on {facts.host or 'this machine'} ({gpus}).",
        "# Made by `dstui site init`. Remove a # to set something; then: dstui site check FILE",
        "# It is read from /etc/dstui/site.yaml, or from $DSTUI_SITE; only its owner and root may be able to write it.",
        "version: 1",
        "# name: our cluster",
        "# welcome: Begin with `dstui new`.",
        '# contact: "#gpu-help"',
        "",
        "# Values of a Plan's keys, which apply if the Plan, the file that it extends and the user's settings do not set them.",
        "# defaults:",
        "#   cluster:",
        f"#     launcher: {launcher}    # " + ("a launch is queued" if launcher == "sbatch" else "if a Plan does not set it"),
    ]
    if facts.partitions:
        lines += [f"#     slurm: {{partition: {yaml_scalar(facts.partitions[0])}}}    # sinfo: {', '.join(facts.partitions[:MAX_NAMES])}"]
    if facts.ssh_hosts:
        slots = max(len(facts.gpus), 1)
        lines += [f"#     hosts: {{{', '.join(f'{host}: {slots}' for host in facts.ssh_hosts[:MAX_NAMES])}}}    # from ~/.ssh/config"]
    if kept:
        lines += ["#     env:    # as they are set here now", *(f"#       {name}: {yaml_scalar(value)}" for name, value in kept.items())]
    lines += [
        "",
        "# What is allowed here, with the reason that users see. Other Plans are refused.",
        "# locked:",
        "#   deepspeed.bf16.enabled: true",
        "#   cluster.num_nodes: {max: 4, reason: we have four nodes}",
        f"# launchers: [local, {launcher}]" if launcher != "local" else "# launchers: [local]",
        "",
        "# A folder of Plans for `dstui new`, recorded machines to plan for (dstui machine --save FILE), notes on causes of failures.",
        "# templates: templates",
        "# machines: {ours: machine.json}",
        '# causes: {NCCL-SYSTEM: "ask #gpu-help"}',
        "# bundle: {include: [/etc/nccl.conf]}    # files for bug reports",
    ]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"
