"""Launch scripts are read as bash would run them, values known only at run time stay open, and nothing is executed."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from dstui.adopt.shell.read import Unparsed, undecided_in
from dstui.adopt.shell.shell_state import ShellLimit, hole, to_display_text, to_plan_text
from dstui.adopt.signs import kind_of
from tests.adopt.shell_launches import launches_read, launches_run, needs_bash, read

SAME_AS_BASH = {
    "a variable of several lines": 'ARGS="\n  --a 1\n  --b \'2\'\n"\ntorchrun --nproc_per_node 2 train.py $ARGS "$ARGS"',
    "an unset number": '[[ $X_UNKNOWN -eq 0 ]] && A=1; [[ $X_UNKNOWN -gt 0 ]] || B=2; [ "$X_UNKNOWN" -eq 0 ] 2>/dev/null || C=3; deepspeed t.py $A $B $C',
    "standard input": "N=2\nbash -s <<EOF\ntorchrun --nproc_per_node $N t.py --x 1\nEOF\ndeepspeed u.py",
    "defaults": 'A=${X_UNKNOWN:-8}; : ${B:=4}; C=${A:+set}; deepspeed --num_gpus=$A t.py $B $C ${D-none} "${E:-}" ${F:-two words}',
    "arithmetic": "N=3; ((N+=2)); M=$((N * (2 + 1) % 7 ** 2)); let K=1; deepspeed t.py $N $M $((M > 3 ? 1 : 0)) $((-7 / 2)) $(( N << 2 | 1 ))",
    "arrays": 'A=(a "b c" d); A+=(e); A[1]=x; deepspeed t.py "${A[@]}" ${#A[@]} ${A[0]} "${A[@]:1:2}" "${A[*]}" ${A[-1]}',
    "appending": 'A="--x 1"; A+=" --y"; export X_P=src; X_P+=":lib"; deepspeed t.py $A',
    "strings that are run": 'L=\'deepspeed --num_gpus 2\'; C="t.py --name \'a b\'"; eval "$L $C"; eval X_A=1 $L t.py; bash -c "$L u.py --q \\"x y\\""',
    "words of a here-document": "read -r -d '' CMD <<EOF\nt.py \\\n  --a 1 \\\n  --b $((1+1))\nEOF\ndeepspeed --module $CMD",
    "cases and patterns": "M=qwen-7b; case $M in llama*) S=1;; qwen-*|x) S=2;; *) S=3;; esac; deepspeed t.py $S ${M%%-*} ${M#*-} ${M/qwen/Q} ${M^^} ${M:0:4}",
    "branches that are known": 'Z=3; if [ "$Z" == "" ]; then Z=0; elif [[ $Z -ge 2 && $Z != 4 ]]; then Z="$Z"x; else Z=9; fi; deepspeed t.py $Z; [ -z "$Q" ] && Q=1 || Q=2; deepspeed t.py $Q',
    "arguments of a script without any": 'while [[ $# -ge 1 ]]; do shift; done; OUT=$1; if [ "$OUT" == "" ]; then OUT=./out; fi; deepspeed t.py "$@" --out $OUT ${2:-two} $#',
    "loops": "for a in 1 {2..3} x{y,z}; do X_A=$a torchrun t.py $a; done; for ((i=0;i<2;i++)); do deepspeed t.py $i; done; n=2; while [ $n -gt 0 ]; do n=$((n-1)); accelerate launch t.py $n; done",
    "loops that end": "N=0; while true; do N=$((N+1)); [ $N -ge 3 ] && { X=$N; break; }; done && deepspeed t.py $X; until [ $N -le 1 ]; do N=$((N-1)); done && torchrun t.py $N",
    "functions": 'go() { local m=$1; shift; deepspeed t.py --m "$m" "$@"; return; deepspeed never.py; }; go a "b c"; go d',
    "folders": "mkdir -p sub/deep; cd sub && deepspeed t.py; (cd deep; torchrun t.py $(pwd)); cd ..; deepspeed t.py $(basename $PWD/x.y .q) $(dirname a/b/c.py)",
    "pipes, ends and redirections": "deepspeed a.py > log 2>&1 | tee -a x.log & wait; nohup torchrun b.py &> o; X_V=1 deepspeed c.py </dev/null || true; exit 0; deepspeed never.py",
    "command substitution": "A=$(echo one two | tr ' ' ','); B=`seq 2 3`; deepspeed t.py $A $B $(printf '%s-' x y) $(echo 'a,b' | tr ',' '\\n' | wc -l)",
    "quotes": "deepspeed t.py 'a $b' \"c\\\"d \\$e \\x\" f\\ g $'h\\ti' --j='k l' '' \"\" '<|im_end|>' \"{\\\"a\\\": 1}\"",
    "wrappers": "env X_A=1 nohup deepspeed a.py; timeout 10 torchrun b.py; CUDA_VISIBLE_DEVICES=0 time deepspeed c.py",
    "exports": "X_A=1; export X_B=2 X_C; X_C=3; export X_A; unset X_B; declare -x X_D=4; export 'X_Q=a b' \"X_R=$X_A\"; O='X_S=5 X_A'; export $O; deepspeed t.py; X_E=$X_A deepspeed t.py",
    "fields": 'L=0,1; IFS=\',\' read -r -a A <<< "$L"; O=$IFS; IFS=,; P=($L); S="${P[*]}"; IFS=$O; deepspeed t.py ${#A[@]} ${P[1]} $S; while IFS=: read -r k v; do torchrun t.py $k "$v"; done < <(printf \'a:b c\\nd:e\\n\')',
    "text programs": "M=org/name.x; deepspeed t.py $(echo $M | cut -d/ -f2) $(echo $M | sed 's/\\//-/g') $(echo 1,2 | awk -F',' '{print NF}') $(echo '4*8' | bc) $(expr 16 / 2) $(seq -s, 0 2) $(echo Ab | tr '[:lower:]' '[:upper:]') $(printf '%02d-%.2f' 7 0.5)",
    "folders that are left again": "mkdir -p q; cd q; cd - > /dev/null; pushd q > /dev/null; popd > /dev/null; cd q && cd ..; deepspeed t.py",
    "arrays with words for indices": 'declare -A M=([a]=\'x y\' [b]=z); M[c]=q; k=a; deepspeed t.py "${M[$k]}" ${M[c]}; A=(u v); for i in "${!A[@]}"; do torchrun t.py $i ${A[i]}; done; deepspeed t.py "${NONE[@]}" end',
    "numbers": "let 'i = 3' k=2; printf -v P '%d' 29501; declare -i N=3+4; deepspeed t.py $((i * k)) $P $N $((10#08 + 0x10)) ${P: -2} ${P::-1}",
    "scripts that the text writes and runs": "X_H=here; export X_E=1; cat > in.sh <<'E'\n#!/bin/bash\ncd sub; X_Z=$2 torchrun t.py $1 $# \"$3\" $(basename $0)\nE\nmkdir sub; bash in.sh a b; chmod +x in.sh; X_H=y ./in.sh 'c d' e f; deepspeed t.py \"$X_H\" $(pwd)",
    "functions with fewer arguments than they read": 'go() { deepspeed t.py $1 "$2" ${3:-three}; shift; torchrun t.py $1; }; go a; set -- p q; shift; deepspeed t.py $1 "$2"',
    "what a test guards": 'X=1; [ "$X" = 2 ] && X=3; [ -n "$X" ] && Y=y || Y=n; deepspeed t.py $X $Y',
    "the folder of the script": 'D=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd ); set -- deepspeed "$D/t.py" --a; exec "$@" --b',
    "groups of a pattern": "M=llama-7b-x; [[ $M =~ ^([a-z]+)-([0-9]+)b ]] && deepspeed t.py ${BASH_REMATCH[2]} ${BASH_REMATCH[1]}; R='([[:digit:]]+)'; [[ $M =~ $R ]] && torchrun t.py ${BASH_REMATCH[0]}",
    "files that the text writes and reads": "printf '{\"a\": AA, \"b\": BB}' > t.json; sed 's/AA/8/' t.json | sed 's/BB/2/' > c.json; echo 7 > n; deepspeed t.py $(cat n) \"$(cat c.json)\" $(head -n 1 n)",
    "redirections that look like placeholders": "echo 3 > a.txt; sort <a.txt > b.txt; N=$(cat <a.txt); deepspeed t.py $N",
    "lines one after another": "printf 'a\\nb\\n' | while read l; do deepspeed t.py $l; done; mapfile -t L < <(seq 2); torchrun t.py ${L[1]}; case a in a) X=1;;& *) Y=2;; esac; deepspeed t.py $X $Y",
}


@needs_bash
@pytest.mark.parametrize("name", SAME_AS_BASH)
def test_launches_read_equal_launches_run_by_bash(name: str, tmp_path: Path) -> None:
    text = SAME_AS_BASH[name]
    run = launches_run(text, tmp_path)
    assert run and launches_read(text, tmp_path) == run


@pytest.mark.parametrize(
    ("text", "words", "source"),
    [
        ("M=${M:?set M}; deepspeed t.py --m $M ${1:?}", "t.py --m ${M} ${ARG_1}", "$M, which nothing"),
        ("D=$(dirname $(which nvcc)); deepspeed t.py $D", "t.py ${D_2}", "$(dirname $(which nvcc)), line 1"),
        ("N=$(basename $1); deepspeed t.py $N", "t.py ${N}", "$(basename $1), line 1"),
        ("for f in $D/*.json; do deepspeed t.py $f; done", "t.py ${f}", "a file that matches $D/*.json, line 1"),
        ("$(which python) -m torch.distributed.run --nproc_per_node 2 t.py; `command -v deepspeed` t.py", "--nproc_per_node 2 t.py", ""),
        ("deepspeed t.py --data <your_data_path> --x 1", "t.py --data ${YOUR_DATA_PATH} --x 1", "<your_data_path>"),
        ("deepspeed t.py ~/x $1", "t.py ${HOME}/x ${ARG_1}", "$1"),
        ("deepspeed t.py --host $(hostname -s) --m $MODEL", "t.py --host ${HOSTNAME} --m ${MODEL}", "$(hostname -s)"),
        ("A=$(scontrol show hostnames $L | head -n 1)\ntorchrun --master_addr $A t.py", "--master_addr ${A} t.py", "scontrol"),
        ("A='--data <your_data_path>'; deepspeed t.py $A", "t.py --data ${YOUR_DATA_PATH}", "<your_data_path>"),
        ("deepspeed t.py '${literal}' '<here>'", "t.py $${literal} <here>", ""),
    ],
)
def test_values_of_user_or_cluster_are_holes_with_their_source(text: str, words: str, source: str) -> None:
    shell = read(text)
    assert " ".join(map(to_plan_text, shell.launches[0].words)) == words
    assert source in " ".join(shell.sources.values())


def test_branch_decided_at_run_time_is_not_guessed() -> None:
    shell = read("if grep -q x f; then\n  Z=3\nelse\n  Z=2\nfi\ndeepspeed t.py --stage $Z")
    assert undecided_in(shell.launches[0], shell) == [("Z", 1)]
    either = read("if nvidia-smi; then deepspeed a.py; else torchrun b.py; fi")
    assert {(one.launcher, one.condition) for one in either.launches} == {("deepspeed", 1), ("torchrun", 1)}
    assert not undecided_in(read("if grep -q x f; then D=1; fi; deepspeed t.py").launches[0], shell)


@pytest.mark.parametrize(
    "text",
    [
        "X=$(if grep -q a f; then echo A; else echo B; fi)",
        "X=$(case $(uname) in Linux) echo a;; *) echo b;; esac)",
        "X=$(f() { while true; do p=$(shuf -n 1); if grep -q $p x; then echo $p; break; fi; done; }; f)",
        "for p in 1 2; do if nc -z h $p; then X=$p; break; fi; done",
        "while true; do if nc -z h 1; then break; fi; X=3; done",
        "f() { if grep -q a f; then X=2; return; fi; X=1; }; f",
    ],
)
def test_output_or_early_exit_of_a_branch_is_not_guessed(text: str) -> None:
    words = read(f"{text}\ndeepspeed t.py $X").launches[0].words
    assert len(words) == 2 and to_plan_text(words[1]).startswith("${")


def test_hole_of_a_sourced_function_has_its_own_description() -> None:
    text = 'pad() { echo a; }\ninit() {\n  export X_P=$(find_port 1 2)\n}\nexport -f init\nsrun bash -c "\ninit\ndeepspeed t.py --port \\$X_P\n"'
    shell = read(text)
    assert [to_plan_text(word) for word in shell.launches[0].words] == ["t.py", "--port", "${X_P}"]
    assert shell.sources["X_P"] == "$(find_port 1 2), line 3"


def test_patterns_of_the_text_match_in_linear_time() -> None:
    assert read(f"[[ {'a' * 5000}! =~ ^(a+)+$ ]] && X=1\ndeepspeed t.py $X").launches
    assert undecided_in((shell := read("R='(a'; if [[ ab =~ $R ]]; then X=1; fi; deepspeed t.py $X")).launches[0], shell) == [("X", 1)]


def test_loop_that_waits_for_a_free_port_ends() -> None:
    for wait in ("if ! lsof -i :$P; then break; fi", 'ss -l | grep -q ":$P " || break', "nc -z h $P || { echo free; break; }"):
        shell = read(f"while :; do\n  P=$((29500 + 1))\n  {wait}\ndone\ndeepspeed --master_port $P t.py")
        assert shell.launches[0].words == ("--master_port", "29501", "t.py")


def test_script_that_requires_a_variable_is_read_as_if_it_were_set() -> None:
    shell = read('if [ -z "$ROOT" ]; then echo "set ROOT"; exit 1; fi\n[ -z "$Y" ] && Y=4\ndeepspeed t.py $ROOT $Y')
    assert [to_plan_text(word) for word in shell.launches[0].words] == ["t.py", "${ROOT}", "4"]
    assert "line 1 ends the script without what it asks for: read as set" in shell.notes
    assert not any("$ROOT" in note for note in shell.notes)


IMAGE = """\
# syntax=docker/dockerfile:1
ARG BASE=nothing
FROM $BASE
RUN pip install deepspeed && \\
    python setup.py build
ENV X_A=1 X_B="two words" \\
    X_C=3
ENV X_D a b
CMD ["deepspeed", "old.py"]
ENTRYPOINT ["torchrun", "--nproc_per_node=2"]
CMD ["train.py", \\
     "--name", "a b"]
"""
MAKE = """\
.DEFAULT_GOAL := train
N ?= 4
CONFIG := conf/a.json  # the small one
OPTIONS = --config $(CONFIG) \\
          --lr 1 --out $(notdir $(CONFIG))
ifeq ($(DEBUG),1)
OPTIONS += --short
else ifdef LONGER
OPTIONS += --long
else
OPTIONS += --usual
endif
.PHONY: train
all: train

train: data
\t@echo "deepspeed never.py"
\tcd sub && deepspeed --num_gpus=$(N) train.py $(OPTIONS) \\
\t\t--tag $$(echo x)

other:
\t-torchrun --nproc_per_node=${N} other.py
"""


def test_command_of_an_image_is_its_launch() -> None:
    (launch,) = read(IMAGE).launches
    assert (launch.launcher, launch.words, launch.line) == ("torchrun", ("--nproc_per_node=2", "train.py", "--name", "a b"), 10)
    assert launch.env == {"X_A": "1", "X_B": "two words", "X_C": "3", "X_D": "a b"}
    (alone,) = read('CMD ["accelerate", "launch", "t.py"]').launches
    assert (alone.launcher, alone.words) == ("accelerate", ("t.py",))
    (in_shell,) = read("FROM x\nCMD deepspeed a.py --x 1 \\\n  --y 2\n").launches
    assert in_shell.words == ("a.py", "--x", "1", "--y", "2")


CELLS = [
    "import os\nn = 2\nos.environ['X_A'] = 'a b'\n!pip install deepspeed\n",
    "%%writefile ds.json\n{}\n",
    "%cd work\n%env X_B=2\n!deepspeed --num_gpus={n} t.py \\\n  --out {out}",
    'n = count()\nCMD = f"""torchrun \\\n  u.py {n} {f(x)}\n"""\n!{CMD}',
    "%%bash\nfor i in 1 2; do torchrun --nproc_per_node $n t.py $i; done",
]


@pytest.mark.parametrize(
    "text",
    ["\n".join(CELLS[:4]) + "\n" + CELLS[4], json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": c} for c in CELLS]})],
)
def test_cells_of_a_notebook_are_their_shell_commands(text: str) -> None:
    shell = read(text)
    words = [" ".join((one.launcher, *map(to_plan_text, one.words))) for one in shell.launches]
    assert words == [
        "deepspeed --num_gpus=2 t.py --out ${out}",
        "torchrun u.py ${n} ${F}",
        *(f"torchrun --nproc_per_node ${{n}} t.py {i}" for i in (1, 2)),
    ]
    assert dict(shell.launches[0].env) == {"X_A": "a b", "X_B": "2"} and dict(shell.launches[0].written) == {"/project/ds.json": "{}\n"}


def test_commands_in_the_prose_of_a_notebook_are_read_where_no_cell_starts_any() -> None:
    cells = [
        {"cell_type": "code", "source": "import x"},
        {"cell_type": "markdown", "source": ["```shell\n", "torchrun t.py\n", "```\n", "```\nf(\n```"]},
    ]
    (launch,) = read(json.dumps({"nbformat": 4, "cells": cells})).launches
    assert (launch.launcher, launch.words) == ("torchrun", ("t.py",))


BATCH_FILE = r"""@echo off
REM deepspeed x.py
set CUDA_VISIBLE_DEVICES=0,1
set "DATA=C:\data dir"
set N=%1
if "%N%"=="" set N=4
if %N%==7 set N=8
if not exist here\there (
  mkdir here
) else (
  call activate x
)
cd /d src & deepspeed --num_gpus=%N% ^
  --master_port 1 ^
  t.py --data "%DATA%" --at 100%%
pause
"""


def test_batch_file_of_windows_is_read_as_shell_text() -> None:
    (launch,) = read(BATCH_FILE.replace("\n", "\r\n"), script="train.bat").launches
    assert launch.words == ("--num_gpus=4", "--master_port", "1", "t.py", "--data", "C:/data dir", "--at", "100%")
    assert launch.line == 13 and dict(launch.env) == {"CUDA_VISIBLE_DEVICES": "0,1"}


@pytest.mark.parametrize(
    ("text", "script", "said"),
    [
        ("param(\n[int]$N = 2\n)\ntorchrun t.py", "", "PowerShell"),
        ("torchrun t.py `\n --x", "t.ps1", "PowerShell"),
        ("# a\nset -gx N 2\ntorchrun t.py", "", "fish"),
        ("deepspeed t.py", "t.fish", "fish"),
    ],
)
def test_text_of_another_shell_is_named(text: str, script: str, said: str) -> None:
    with pytest.raises(Unparsed, match=said):
        read(text, script=script)


@pytest.mark.parametrize(
    "text",
    ['{"nbformat": 4, "cells": 1}', '{"nbformat": 4, "cells": [{"cell_type": "code"}, 3]}', '{"cells": ', "{" * 100_000 + '"nbformat"'],
)
def test_broken_notebook_starts_nothing(text: str) -> None:
    with suppress(Unparsed, ShellLimit):
        assert not read(text).launches


def test_launch_in_a_list_of_yaml_is_found() -> None:
    text = "type: task\nenv:\n  - HF_TOKEN\ncommands:\n  - pip install x\n  - X_A=1 accelerate launch -m pkg.train c.yaml\nresources:\n  gpu: 24GB..\n"
    (launch,) = read(text).launches
    assert (launch.line, launch.words, dict(launch.env)) == (6, ("-m", "pkg.train", "c.yaml"), {"X_A": "1"})


def test_negation_of_a_script_is_no_cell() -> None:
    assert len(read("! grep -q x y && deepspeed t.py\ndeepspeed u.py").launches) == 2


def test_recipes_of_a_makefile_are_launches_with_its_variables() -> None:
    first, second = read(MAKE).launches
    assert (first.words, first.line) == (
        ("--num_gpus=4", "train.py", "--config", "conf/a.json", "--lr", "1", "--out", hole("computed", "OPTIONS"), "--usual", "--tag", "x"),
        18,
    )
    assert (second.words, second.line) == (("--nproc_per_node=4", "other.py"), 22)
    assert second.folder == read("torchrun t.py").launches[0].folder, "each line of a recipe has a shell of its own"


@pytest.mark.parametrize(
    "text",
    ["Usage:\n\tdeepspeed a.py\ndeepspeed b.py", "cat > Dockerfile <<E\nFROM x\nE\ndeepspeed b.py", "torchrun --at localhost:0 \\\n\tb.py"],
)
def test_shell_text_beside_such_lines_stays_shell_text(text: str) -> None:
    assert any("b.py" in one.words for one in read(text).launches)


@pytest.mark.parametrize(
    "text", ["FROM x\nENV\nCMD []", "FROM x\nCMD [1, {}]", "CMD [" + "[" * 5000, "FROM x\nENV A", "a:\n\t\\\n\t@", "a:\n\t x \\"]
)
def test_broken_build_files_start_nothing(text: str) -> None:
    assert read(text).launches == ()


BATCH = '#SBATCH -N 2\n#SBATCH --gres=gpu:a100:8\nif [ $SLURM_NNODES -gt 1 ] && [ -n "$SLURM_JOB_ID" ]; then A=two; else A=one; fi\ndeepspeed t.py $A'


def test_conditions_of_a_batch_script_have_the_numbers_of_its_own_directives() -> None:
    assert read(BATCH).launches[0].words == ("t.py", "two")
    assert any("$SLURM_NNODES is 2" in note for note in read(BATCH).notes)
    assert read(BATCH.replace("-N 2", "--nodes=1")).launches[0].words == ("t.py", "one")
    assert read(BATCH.replace("SBATCH", "")).launches[0].words == ("t.py", "one"), "no batch script: unset"
    counts = "deepspeed t.py ${SLURM_NNODES:-1} ${SLURM_GPUS_ON_NODE:-2}"
    for gpus, words in (("gpu:a100:8,lscratch:100", ("2", "8")), ("lscratch:100", ("2", "2"))):
        assert read(f"#SBATCH -N 2\n#SBATCH --gres={gpus}\n{counts}").launches[0].words == ("t.py", *words)
    unknown = read(BATCH.replace("SLURM_NNODES", "SLURM_RESTART_COUNT"))
    assert undecided_in(unknown.launches[0], unknown) == [("A", 3)]


def test_launch_of_a_stage_that_is_off_is_named_instead_of_its_preparation() -> None:
    text = "stage=0\nif [ $stage -le 0 ]; then\n  python prepare_data.py --out x\nfi\nif [ $stage -ge 4 ]; then\n  torchrun t.py\nfi"
    assert read(text).unreached == "torchrun in line 6, under the condition in line 5,"
    assert read(text.replace("prepare_data", "train")).unreached == ""


def test_launch_wrapped_by_a_submitter_is_found() -> None:
    for text in (
        "uv run python submit.py --gpus 8 -- torchrun t.py --a",
        r"python submit.py -- source env.sh \&\& torchrun t.py --a \&\& echo",
    ):
        assert [(one.launcher, one.words) for one in read(text).launches] == [("torchrun", ("t.py", "--a"))]
    assert read("python t.py --x -- --y").launches[0].words == ("t.py", "--x", "--", "--y")


@pytest.mark.parametrize(
    "wrapper",
    [
        "uv run --with deepspeed --python 3.11 --",
        "conda run -n ds --no-capture-output",
        "pixi run -e deepspeed",
        "srun -J torchrun -u",
        "micromamba run -n accelerate",
        "sudo -E",
    ],
)
def test_name_in_an_option_of_a_wrapper_is_no_launcher(wrapper: str) -> None:
    assert [(one.launcher, one.words) for one in read(f"{wrapper} torchrun t.py --a").launches] == [("torchrun", ("t.py", "--a"))]


def test_text_that_sbatch_wraps_is_followed() -> None:
    for text in ("sbatch -N1 --wrap='cd x && deepspeed t.py $A'", 'A=; sbatch --wrap "deepspeed t.py" -J x'):
        assert [(one.launcher, one.words[0]) for one in read(text).launches] == [("deepspeed", "t.py")]


def test_time_in_a_launch_is_reported_as_that_of_reading() -> None:
    assert any("$(date)" in note for note in read("N=run-$(date +%s); deepspeed t.py $N").notes)
    assert not read("echo $(date); deepspeed t.py").notes


def test_options_after_the_end_of_a_launch_are_reported() -> None:
    shell = read("accelerate launch t.py\n  --a=1\n  --b 2")
    assert shell.launches[0].words == ("t.py",) and any("line 2 (--a …)" in note for note in shell.notes)


def test_pasted_terminal_only_has_commands_after_prompts() -> None:
    shell = read("$ X=1 torchrun \\\n   t.py  # hangs\nW0516 (run.py:766]\n[rank0]: <x> (y\n")
    assert [(one.launcher, one.words) for one in shell.launches] == [("torchrun", ("t.py",))]


def test_placeholders_in_any_script_are_holes() -> None:
    shell = read("deepspeed t.py --a <データ> --b=<学習 2> --c <0 or 1>")
    assert [to_plan_text(word) for word in shell.launches[0].words] == [
        *("t.py", "--a", "${PLACEHOLDER}"),
        *("--b=${_2}", "--c", "${_0_OR_1}"),
    ]


def test_script_that_branches_on_its_arguments_has_all_its_launches() -> None:
    text = 'case $1 in sft) deepspeed sft.py;; dpo) deepspeed dpo.py;; *) echo "usage"; exit 1;; esac'
    assert [one.words for one in read(text).launches] == [("sft.py",), ("dpo.py",)]


def test_required_arguments_are_numbered_holes() -> None:
    shell = read(
        'if [ "$#" -lt 2 ]; then echo usage; exit 1; fi\nN=$1; shift\nO=$1; shift 2\ndeepspeed --num_gpus $N t.py --out $O $1 "$@"'
    )
    assert " ".join(map(to_plan_text, shell.launches[0].words)) == "--num_gpus ${ARG_1} t.py --out ${ARG_2} ${ARG_4}"
    assert not undecided_in(shell.launches[0], shell)


def test_condition_decided_at_run_time_keeps_both_branches() -> None:
    shell = read("S=1\n[ -f big ] && S=3\n[ -f stop ] && exit\ndeepspeed t.py --stage $S")
    assert undecided_in(shell.launches[0], shell) == [("S", 2)]


def test_value_proposed_by_a_comment_is_shown_with_its_hole() -> None:
    shell = read("# uncomment one:\n# MODEL=vicuna-v1\n# MODEL=llama-2\ndeepspeed t.py --m $MODEL\n")
    assert shell.sources["MODEL"] == "$MODEL, which nothing in the text sets; the comment in line 2 has MODEL=vicuna-v1"


@pytest.mark.parametrize(
    ("text", "unseen"),
    [
        ("bash gone.sh 8", "line 1 runs gone.sh, which does not exist here"),
        ("srun -N 2 ./gone.sh", "line 1 runs ./gone.sh, which does not exist here"),
        ("ssh host1 deepspeed t.py", "line 1: what ssh starts cannot be followed"),
        ("ssh host 'cd x && torchrun t.py'", "line 1: what ssh starts cannot be followed"),
    ],
)
def test_unreadable_launch_is_named(text: str, unseen: str) -> None:
    shell = read(text)
    assert not shell.launches and shell.unseen[0].startswith(unseen)


@pytest.mark.parametrize(
    "pasted",
    [
        "$ deepspeed \\\n>   train.py --a 1\n",
        "```bash\ndeepspeed train.py --a 1\n```\n",
        "  1  deepspeed \\\n  2    train.py --a 1\n",
        "(venv) me@host:~/x$ deepspeed train.py --a 1 \\\n",
        "python -m venv v\npip install deepspeed\npython prepare.py\ndeepspeed train.py --a 1\n",
    ],
)
def test_page_decoration_around_a_paste_is_removed(pasted: str) -> None:
    assert read(pasted).launches[0].words == ("train.py", "--a", "1")


@pytest.mark.parametrize(
    "text",
    [
        "echo {1..999999999}",
        "N=0; while true; do N=$((N + 1)); done",
        "f() { f; }; f; deepspeed t.py",
        "for a in {1..9999}; do for b in {1..9999}; do :; done; done",
        "A=x; for i in {1..60}; do A=$A$A; done; deepspeed t.py",
        "for ((;;)); do eval x=1; done",
        "while read x; do :; done < <(seq 9999; seq 9999; seq 9999)",
    ],
)
def test_endless_text_gives_a_message(text: str) -> None:
    with pytest.raises(ShellLimit):
        read(text)


@pytest.mark.parametrize(
    ("text", "launches"),
    [
        ("(while true; do nvidia-smi; sleep 9; done) & M=$!; deepspeed t.py; kill $M", ["t.py"]),
        ("while :; do date >> log; sleep 1; done &\ndeepspeed t.py", ["t.py"]),
        ("while true; do deepspeed t.py; sleep 1; done; deepspeed u.py", ["t.py"]),
    ],
)
def test_endless_loop_is_followed_once_and_what_runs_beside_it_goes_on(text: str, launches: list[str]) -> None:
    assert [launch.words[-1] for launch in read(text).launches] == launches


@pytest.mark.parametrize(
    "text", ['deepspeed "t.py', "if true; then", "deepspeed t.py <<EOF\n", "$(" * 2000, "x=" + "(" * 100_000, "a\ue000b", "x" * 300_000]
)
def test_invalid_shell_text_gives_a_message(text: str) -> None:
    with pytest.raises((Unparsed, ShellLimit)) as found:
        shell = read(text)
        if not shell.launches:
            raise ShellLimit("no launch")
    assert str(found.value)


def test_nothing_in_a_text_is_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    ways = (
        "touch {}",
        "$(touch {})",
        "`touch {}`",
        "eval touch {}",
        "bash -c 'touch {}'",
        "echo x > {}",
        "cat <<< x | tee {}",
        "trap 'touch {}' EXIT",
    )
    text = (
        "\n".join(way.format(canary) for way in ways) + f"\n: ${{X:=$(touch {canary})}}\ndeepspeed t.py $(touch {canary}) <(touch {canary})"
    )
    assert read(text).launches and not canary.exists()


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("uv add deepspeed bitsandbytes\nuv pip install torchrun x\nuv run torchrun t.py", "torchrun t.py"),
        ("docker run --name deepspeed -e A=1 x/y:1 bash -c 'cd /w; deepspeed t.py'", "deepspeed t.py"),
        ("submit job create X 'deepspeed --num_gpus 4 t.py'\necho 'torchrun u.py'", "deepspeed --num_gpus 4 t.py"),
        ("N=( $(names) )\nif (( ${#N[@]} - 1 < 1 )); then exit; fi\ntorchrun --nnodes ${#N[@]} t.py", "torchrun --nnodes $N t.py"),
        (".PHONY: a.py\na.py: b.py\n\tdeepspeed $@ --x $<\n", "deepspeed a.py --x b.py"),
        ("any_wrapper --x 1 X_A=1 python -m torch.distributed.run t.py\npkill torchrun t.py", "torchrun t.py"),
        ("bash -c -- 'deepspeed t.py'", "deepspeed t.py"),
        ("#!/bin/sh\njsrun -n {{ n }} torchrun --nnodes {{ job.nodes }} t.py '{{ kept }}'", "torchrun --nnodes $JOB_NODES t.py {{ kept }}"),
        ("A page\n```angular2html\ndeepspeed t.py\n```\nand\n```python\ntorchrun x.py <\n```\n", "deepspeed t.py"),
    ],
)
def test_words_around_a_launch_are_told_from_it(text: str, command: str) -> None:
    launches = read(text, script="").launches
    assert [" ".join(map(to_display_text, (one.launcher, *one.words))) for one in launches] == [command]


def test_folder_that_is_not_here_is_left_again(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    shell = read("cd a\ncd gone/b && x\ncd ../..\ndeepspeed t.py", str(tmp_path))
    assert shell.launches[0].folder == str(tmp_path / "a")


def test_launch_that_converts_or_evaluates_is_not_taken_before_the_training() -> None:
    found = read("torchrun --nproc_per_node 1 tools/convert.py\ntorchrun t.py --x 1\ntorchrun run_eval.py\n").launches
    assert [launch.words[-1] for launch in found] == ["1", "tools/convert.py", "run_eval.py"]
    assert read("deepspeed evaluate.py").launches[0].words == ("evaluate.py",)


def test_text_that_sbatch_reads_is_followed() -> None:
    text = "{\n\tN=2\n\tsbatch -N 2 <<- EOF\n\t#!/bin/bash\n\tsrun torchrun --nproc_per_node=$N t.py\n\tEOF\n\tsbatch\n}\n"
    assert kind_of(text, "run.sh") == "command"
    assert read(text).launches[0].words == ("--nproc_per_node=2", "t.py")
