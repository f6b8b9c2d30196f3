"""The snapshot equals `nvidia-smi`: on a real GPU if there is one, and the comparison itself on the fake library."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import pytest
from fakenvml import Look
from nvidia_smi import disagreements

from dstui.machine.paste import machine_from_text
from dstui.machine.probe import probe

XML = """\
<nvidia_smi_log><gpu id="00000000:10:00.0">
<product_name>NVIDIA H100 80GB HBM3</product_name><uuid>GPU-00000000-1111-2222-3333-444444444444</uuid><serial>1650900000000</serial>
<persistence_mode>Enabled</persistence_mode><mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode><compute_mode>Default</compute_mode>
<fb_memory_usage><total>81559 MiB</total><reserved>480 MiB</reserved></fb_memory_usage><c2c_mode>N/A</c2c_mode>
<pci><pci_bus_id>00000000:10:00.0</pci_bus_id><pci_gpu_link_info><pcie_gen><max_link_gen>5</max_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info></pci>
<platformInfo><module_id>0</module_id></platformInfo>
</gpu></nvidia_smi_log>
"""


def test_comparison_finds_agreement_and_each_difference(probe_system: Look) -> None:
    gpus = probe_system("dgx-h100", serials=True).gpus[:1]
    assert disagreements(XML, gpus) == []
    changed = (replace(gpus[0], pcie_width=8, name="NVIDIA H200", memory_total=1 << 30),)
    assert [sentence.split(" is ")[0] for sentence in disagreements(XML, changed)] == [
        "GPU 0: name",
        "GPU 0: memory_total",
        "GPU 0: pcie_width",
    ]
    assert disagreements(XML, ()) == ["nvidia-smi lists 1 GPUs, the snapshot 0"]


@pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="no nvidia-smi: there is no NVIDIA GPU here")
def test_snapshot_agrees_with_nvidia_smi() -> None:
    told = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=True).stdout
    machine = probe(30.0, serials=True)
    assert disagreements(told, machine.gpus) == []
    assert f"<driver_version>{machine.driver.version}<" in told and f"<cuda_version>{machine.driver.cuda}<" in told


@pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="no nvidia-smi: there is no NVIDIA GPU here")
def test_matrix_agrees_with_nvidia_smi() -> None:
    told = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=True).stdout
    recorded, machine = machine_from_text(told, "nvidia-smi"), probe(30.0)
    assert machine.links == recorded.links
    assert [island.gpus for island in machine.islands] == [island.gpus for island in recorded.islands]
