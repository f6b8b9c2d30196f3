"""Malicious checkpoints: inspected without calling anything, in limited time and memory, and converted without running what they name."""

from __future__ import annotations

import ast
import io
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dstui.checkpoints import torch_file
from dstui.checkpoints.checkpoint import read_checkpoint
from dstui.checkpoints.convert import SAFE
from dstui.checkpoints.torch_file import TorchFileProblem, count_elements, read_torch_file
from dstui.cli import main

Made = Callable[[int], Path]
SHARD = "mp_rank_00_model_states.pt"


def write(path: Path, data: bytes, *more: tuple[str, bytes]) -> Path:
    """Write a file as torch.save does."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (("archive/data.pkl", data), *more):
            archive.writestr(name, text)
    return path


def calls(module: str, name: str, argument: str) -> bytes:
    """Return a pickle that calls a function of a module, or of what a module has imported."""
    words = "".join(f"\x8c{chr(len(word))}{word}" for word in (module, name)).encode("latin-1")
    return b"\x80\x04" + words + b"\x93" + b"\x8c" + bytes([len(argument)]) + argument.encode() + b"\x85R."


def folder_with(tmp_path: Path, data: bytes, name: str = SHARD) -> Path:
    (tmp_path / "ck" / "step1").mkdir(parents=True)
    (tmp_path / "ck" / "latest").write_text("step1")
    write(tmp_path / "ck" / "step1" / SHARD, pickle.dumps({"module": {}, "global_steps": 1}, 2))
    write(tmp_path / "ck" / "step1" / name, data)
    return tmp_path / "ck"


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("deepspeed.runtime.engine", "os.system"), ("torch._utils", "_rebuild_x.os"), ("torch.float16", "os.system")],
)
def test_unusual_globals_of_a_pickle_are_reported(module: str, name: str, tmp_path: Path) -> None:
    found = read_checkpoint(folder_with(tmp_path, calls(module, name, "x")))
    assert found.strange == (f"{module}.{name}",)


ENUM = "deepspeed.runtime.zero.config\nZeroStageEnum"


def named(number: int, module_and_name: str) -> bytes:
    """Return the opcodes GLOBAL and BINPUT."""
    return f"c{module_and_name}\nq".encode() + bytes([number])


def word(text: str) -> bytes:
    """Return the opcode BINUNICODE."""
    return b"X" + struct.pack("<I", len(text)) + text.encode()


GETATTR, STAGE = named(0, "__builtin__\ngetattr"), named(1, ENUM)
MEMBER = GETATTR + STAGE + word("gradients") + b"\x86R"
"""`getattr(ZeroStageEnum, 'gradients')`, as Python 3.11.0 to 3.11.3 pickle a member in protocol 2."""


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(STAGE + b"K\x02\x85R", id="Class(value)"),
        pytest.param(MEMBER, id="getattr(Class, 'name')"),
        pytest.param(MEMBER + b"0h\x00h\x01" + word("gradients") + b"\x86R", id="again, from the memo"),
    ],
)
def test_stage_is_read_in_each_pickled_form_of_an_enum(stage: bytes, tmp_path: Path) -> None:
    state = b"\x80\x02}" + word("optimizer_state_dict") + b"}" + word("zero_stage") + stage + b"ss."
    found = read_checkpoint(folder_with(tmp_path, state, "zero_pp_rank_0_mp_rank_00_optim_states.pt"))
    assert (found.stage, found.strange) == (2, ())


@pytest.mark.parametrize(
    "pickled",
    [
        pytest.param(GETATTR + named(2, "collections\nOrderedDict") + word("update") + b"\x86R", id="another class"),
        pytest.param(GETATTR + STAGE + word("__class__") + b"\x86R", id="no member"),
        pytest.param(GETATTR + STAGE + word("gradients.real") + b"\x86R", id="dotted"),
        pytest.param(GETATTR + MEMBER + word("__class__") + b"\x86R", id="nested"),
        pytest.param(GETATTR, id="the function itself"),
        pytest.param(MEMBER + b"h\x00\x86", id="the function itself, from the memo"),
        pytest.param(b"(" + GETATTR + b"2" + STAGE + word("gradients") + b"\x86Rl", id="the function itself, from DUP"),
        pytest.param(b"(" + STAGE + word("gradients") + b"i__builtin__\ngetattr\n", id="INST"),
    ],
)
def test_getattr_of_anything_else_may_be_code(pickled: bytes, tmp_path: Path) -> None:
    assert read_checkpoint(folder_with(tmp_path, b"\x80\x02" + pickled + b".")).strange == ("builtins.getattr",)


def test_enum_members_are_deepspeeds() -> None:
    """DeepSpeed's source is read instead of imported, since torch takes seconds."""
    from importlib.metadata import distribution

    for qualified, members in torch_file.ENUMS.items():
        module, _, name = qualified.rpartition(".")
        source = Path(str(distribution("deepspeed").locate_file(module.replace(".", "/") + ".py")))
        (found,) = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.ClassDef) and node.name == name)
        assert {ast.unparse(one.targets[0]): ast.literal_eval(one.value) for one in found.body if isinstance(one, ast.Assign)} == members


def test_sets_of_a_script_are_no_code(tmp_path: Path) -> None:
    """torch.save writes protocol 2, in which Python names its own types as Python 2 did."""
    assert read_checkpoint(folder_with(tmp_path, pickle.dumps({"seen": {1, 2}, "phase": 1j}, 2))).strange == ()


@pytest.mark.parametrize("name", ["extra_optim_states.pt", "layer_0_expert_0_mp_rank_00_model_states.pt", "deeper/zero_pp_rank_0_x.pt"])
def test_unlisted_files_are_inspected(name: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, pickle.dumps({}, 2))
    (folder / "step1" / name).parent.mkdir(exist_ok=True)
    write(folder / "step1" / name, calls("os", "system", "true"))
    assert read_checkpoint(folder).strange == ("os.system",)


def test_conversion_executes_nothing(checkpoint: Made, tmp_path: Path) -> None:
    """It must not rely on an earlier inspection: a file may change in between."""
    folder, proof = checkpoint(3), tmp_path / "executed"
    for shard in (folder / "global_step3").glob("*.pt"):
        write(shard, calls("os", "system", f"touch {proof}"))
    made = subprocess.run(
        [sys.executable, str(SAFE), "deepspeed.utils.zero_to_fp32", str(folder), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode and not proof.exists()
    assert "weights only" in made.stderr.lower() or "weights_only" in made.stderr, made.stderr[-1500:]


def test_file_that_torch_would_read_differently_is_refused(tmp_path: Path) -> None:
    good, evil = pickle.dumps({}, 2), calls("os", "system", "true")
    for more in (("archive/DATA.PKL", evil), ("other/data.pkl", evil), ("archive/constants.pkl", good)):
        with pytest.raises(TorchFileProblem):
            read_torch_file(write(tmp_path / "one.pt", good, more))


NESTED = b"".join([b"\x80\x02)", *(b"q%c" % i + b"h%c" % i + b"\x86" for i in range(60))])
"""A tuple that holds a tuple twice, which holds another twice, 60 times: 2**60 elements when hashed or printed."""

HOSTILE = {
    "an object without its __init__": b"\x80\x02cx\ny\n)\x81.",
    "an index of 4 billion": b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b".",
    "8 GB announced": b"\x80\x05\x96" + struct.pack("<Q", 8 << 30) + b".",
    "lists within lists": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "a key without end": b"\x80\x02}" + NESTED[2:] + b"Ns.",
    "a million classes": b"\x80\x02" + b"".join(b"cx\nn%d\n0" % number for number in range(200_000)) + b"N.",
    "nothing": b"",
    "an end in the middle": b"\x80\x02}(X\xff\xff\xff\x00abc",
    "an extension": b"\x80\x02\x82\x01.",
    "a call of a text": b"\x80\x02U\x01x)R.",
    "a state for a class": b"\x80\x02cx\ny\n}b.",
}


LOOK = """
import resource, sys
from dstui.cli import main
resource.setrlimit(resource.RLIMIT_AS, (2 << 30,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for folder in sys.argv[1:]:
    print("ENDED", main(["checkpoint", folder]), flush=True)
"""


def test_malicious_pickle_is_cheap_and_gives_at_most_a_message(tmp_path: Path) -> None:
    folders = [str(folder_with(tmp_path / str(number), data)) for number, data in enumerate(HOSTILE.values())]
    done = subprocess.run([sys.executable, "-c", LOOK, *folders], capture_output=True, text=True, check=False)
    ended = [line for line in done.stdout.splitlines() if line.startswith("ENDED")]
    assert len(ended) == len(HOSTILE) and set(ended) <= {"ENDED 0", "ENDED 1"}, (list(HOSTILE)[len(ended) :], done.stdout, done.stderr)
    assert "Traceback" not in done.stderr


def shape(*sizes: object) -> object:
    """Return torch.Size as the pickle reader represents it."""
    data = io.BytesIO(b"\x80\x02ctorch\nSize\n" + pickle.dumps(sizes, 2)[2:-1] + b"\x85R.")
    return torch_file._read(data).value


@pytest.mark.parametrize(
    ("sizes", "count"), [((4, 5), 20), ((), 1), ((2**40, 2**40), 0), ((-4, -5), 0), (("a", 2), 0), ((1,) * 100, 0), ((2.5,), 0)]
)
def test_impossible_shape_counts_as_nothing(sizes: tuple[object, ...], count: int) -> None:
    assert count_elements(shape(*sizes)) == count


@pytest.mark.parametrize("ranks", [10**30, -5, 10**7, "many"])
def test_invalid_number_of_ranks_is_reported_cheaply(ranks: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with(tmp_path, pickle.dumps({"module": {}, "dp_world_size": ranks, "mp_world_size": 10**6, ("a", 1): 2}, 2))
    assert main(["checkpoint", str(folder)]) in (0, 1)
    assert len(capsys.readouterr().out) < 2000
