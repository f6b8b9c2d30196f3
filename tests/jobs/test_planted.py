"""Secrets planted everywhere in a job folder: no part of one is in its bundle, and the rest of the logs is."""

from __future__ import annotations

import json
import random
import string
import zipfile
from pathlib import Path

import pytest

from dstui.bundle.bundle import bundle
from dstui.bundle.redact import mask
from dstui.jobs.store.folder import JobFolder
from tests.jobs.made import PLAN, make_job

ALPHABETS = (string.ascii_letters + string.digits, string.ascii_letters + string.digits + "_-", string.hexdigits[:16])
LENGTHS = (9, 12, 16, 20, 24, 32, 40, 51, 64, 70)
PART = 8
"""The longest part of a secret that may remain."""

VARIABLES = (
    *(
        "HF_TOKEN",
        "FOO_AUTH",
        "XAUTHKEY",
        "SSHPASS",
        "USERPASS",
        "MY_JWT",
        "SESSION",
        "SESSION_X",
        "WEBHOOK",
        "WEBHOOK_ADDRESS",
        "HOOK_URL",
    ),
    *(
        "NPM_CONFIG__AUTH",
        "DOCKER_AUTH_CONFIG",
        "LICENSE",
        "LICENSE_SERVER",
        "PIN",
        "PIN_CODE",
        "FOO",
        "https_proxy",
        "my_setting",
        "DB",
        "SLURM_JWT",
    ),
)
"""In the job's environment: in the Plan, launch.json, .deepspeed_env and launch.sh."""
ARGUMENTS = (
    *(("--auth",), ("--pw",), ("-p",), ("--password",), ("--api-key",), ("--token",), ("--license-key",), ("--pin",), ("--session-id",)),
    *(("--header", "Authorization: {}"), ("--url", "postgres://bob:a/{}@db.example.org/x"), ("--hook", "https://example.org/hooks/{}")),
    *(("--url", "https://{}@example.org/x"), ("--url", "https://example.org/x?auth={}&y=1"), ("--wandb-key",), ("-e", "ANY_NAME={}")),
)
LOGGED = (
    "GET /login?auth={} HTTP/1.1",
    "requests.get('https://example.org/a?x=1&auth={}')",
    "login(token='{}')",
    'login(token="{}", add_to_git_credential=True)',
    "wandb_api='{}'",
    "password for the db is {}",
    "The password is: {}",
    "the api key for wandb is {} today",
    "export FOO_AUTH={}; python train.py",
    "+ export MY_JWT='{}'",
    "SSHPASS={} sshpass -e ssh worker-1",
    "sshpass -p {} ssh worker-1",
    "sshpass -p{} ssh worker-1",
    "mysql -u root -p{} db",
    "curl -u bob:{} https://example.org",
    "curl -H 'Authorization: {}' https://example.org",
    "> Authorization: Basic {}",
    '{{"headers": {{"Authorization": "Token {}"}}}}',
    "Cookie: a=1; sid={}",
    "Set-Cookie: session={}; Path=/",
    "git clone https://bob:{}@github.com/a/b",
    "git clone https://{}@github.com/a/b",
    "ConnectionError: amqp://bob:x/{}@queue:5672/v",
    "psql: postgres://bob:{}@db/x?sslmode=off",
    "POST https://hooks.slack.com/services/T1/B2/{}",
    "POST https://discord.com/api/webhooks/1/{} 401",
    "POST https://example.webhook.office.com/webhookb2/{}",
    "notify https://example.org/hook/{}",
    "notify https://hooks.zapier.com/hooks/catch/1/{}/",
    "environ({{'PATH': '/bin', 'WHATEVER': '{}'}})",
    'env: {{"A": "{}"}}',
    '"{{\\"password\\": \\"{}\\"}}"',
    "train.py --auth {} --epochs 1",
    "train.py --pw={}",
    "['train.py', '-p', '{}', '--epochs', '1']",
    "mount -o username=bob,password={} //nas/x",
    "redis-cli -a x AUTH={}",
    "connection_string = 'Server=x;Password={};'",
    "_authToken={}",
    "//registry.npmjs.org/:_authToken={}",
    "npm_config__auth={}",
    "LICENSE={}",
    "PIN={}",
    "session_id: {}",
    "jwt: {}",
    "webhook_url = {}",
    "machine api.wandb.ai login user password {}",
    "HUGGINGFACE_TOKEN: {}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
)
LONG = (
    "{}",
    "    {}",
    "wandb: Paste an API key from your profile and hit enter, or press ctrl+c to quit:\nwandb: {}",
    "using {} for the hub",
    "[rank3]: 401 for {} (again)",
    "key: {}",
    "my api key {}",
)
"""Recognised by length alone: values of 40 characters."""


def job_with_secrets(folder: Path, seed: int) -> tuple[Path, dict[str, str]]:
    """Write a job folder with a secret of every format; return it and the secrets with their formats."""
    chance, planted = random.Random(seed), dict[str, str]()

    def secret(shape: str, length: int = 0, alphabet: str = "") -> str:
        while True:
            made_up = "".join(chance.choices(alphabet or chance.choice(ALPHABETS), k=length or chance.choice(LENGTHS)))
            if made_up[0].isalnum() and made_up[-1].isalnum() and made_up not in planted and any(map(str.isalpha, made_up)):
                planted[made_up] = shape
                return made_up

    env = {name: secret(f"env {name}") for name in VARIABLES}
    env["https_proxy"] = f"http://bob:{secret('a proxy')}@proxy:3128"
    args: list[str] = []
    for option, *forms in ARGUMENTS:
        args += [option, (forms[0] if forms else "{}").format(secret(f"argument {option} {forms}"))]
    hook = f"curl -d done https://example.org/{secret('on_end')}/x -H 'X-Auth: {secret('on_end header')}'"
    block = "".join(f"    {name}: '{value}'\n" for name, value in env.items())
    flow = "".join(f", {name}: '{value}'" for name, value in env.items())
    cluster = f"cluster:\n  hosts: {{localhost: 2}}\n  env:\n    OMP_NUM_THREADS: 1\n{block}" if seed % 2 else None
    plan = PLAN.replace("OMP_NUM_THREADS: 1", f"OMP_NUM_THREADS: 1{flow}")
    if cluster:
        plan = PLAN.replace("cluster: {hosts: {localhost: 2}, env: {OMP_NUM_THREADS: 1}}\n", cluster)
    plan += f"run:\n  on_end: >-\n    {hook}\n"
    assert env["FOO"] in plan
    ordinary = ALPHABETS[0]
    lines = [shape.format(secret(shape)) for shape in LOGGED]
    lines += [shape.format(secret(shape, 40, ordinary)) for shape in LONG] + [LONG[2].format(secret(LONG[2], 40, ALPHABETS[2]))]
    key = "\n".join(secret("a key without its first line", 64, ordinary + "+/") for _ in range(6))
    tail = f"{key}\n{secret('the last line of a key', 20, ordinary)}=\n-----END OPENSSH PRIVATE KEY-----\n"
    name = secret("the name of a file", 40, ordinary)
    job = make_job(
        folder, plan, {0: "\n".join(lines) + "\n", 1: tail, 2: "\n".join(ORDINARY) + "\n"}, command=["deepspeed", "train.py", *args]
    )
    job.launch_file.write_text(json.dumps({"env": env, "args": args, "on_end": hook}, indent=1))
    (job.path / ".deepspeed_env").write_text("".join(f"{name}={value}\n" for name, value in env.items()))
    (job.path / "launch.sh").write_text("".join(f"export {name}='{value}'\n" for name, value in env.items()) + "exec deepspeed train.py\n")
    (job.path / f"{name}.txt").write_text("")
    job.launcher_log.write_text(f"cmd = {args}\n" + "".join(f"[INFO] cmd: export {name}={value}; cd /x\n" for name, value in env.items()))
    job.append_event(1.0, "notice", text=f"run.on_end: {hook} failed")
    return job.path, planted


ORDINARY = """\
[2026-01-01 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]
HEAD is now at 2c12f0d6a1b3c4d5e6f708192a3b4c5d6e7f8091 Merge pull request #12 from me/keys
commit 2c12f0d6a1b3c4d5e6f708192a3b4c5d6e7f8091
{'loss': 2.3011, 'grad_norm': 1.25, 'learning_rate': 2e-05, 'epoch': 0.01, 'num_tokens': 4096.0}
  3%|▎         | 31/1000 [00:12<06:21,  2.54it/s, loss=2.31]
Loading checkpoint shards: 100%|██████████| 2/2 [00:03<00:00,  1.61s/it]
worker-1:123:456 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)
worker-1:123:456 [0] NCCL INFO comm 0x55d0c7a0 rank 0 nranks 8 cudaDev 0 busId 1a000 commId 0x4f1c0ffee - Init COMPLETE
[rank0]:   File "/opt/venv/lib/python3.11/site-packages/transformers/models/wav2vec2/modeling_wav2vec2.py", line 12, in forward
#2 _ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferE () from libtorch_cpu.so
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.2 GiB is free
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-68d0f80e-e2f6-7717-ce0c-ea5f17b6a180)
Some weights of LlamaForSequenceClassification were not initialized from the model checkpoint at meta-llama/Llama-2-7b-hf
cmd = python -u -m deepspeed.launcher.launch --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMV19 --master_addr=127.0.0.1 --master_port=29500
[launch.py:145:main] 0 NCCL_DEBUG=WARN
OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 4 train.py -p 29500
wandb: Syncing run glorious-dawn-12 at https://wandb.ai/me/llama/runs/3k2j1x9q
ssh -p 2222 worker-1 mkdir -p outputs/llama2-7b
saving to outputs/checkpoint-500/global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt
events.out.tfevents.1700000000.worker-1.1234.0, sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
tokenizer: author=mistralai, license: apache-2.0, pin_memory: True, session: 3, the author is Anna
Map: 100%|██████████| 52002/52002 [00:08<00:00, 6123.11 examples/s]
a password was asked for, and the token is invalid; the key is missing
http://localhost:6006/ and https://huggingface.co/gpt2/resolve/main/config.json
pip install git+https://github.com/huggingface/transformers.git@v4.57.1
MODEL=meta-llama/Llama-2-7b-hf LR=2e-5 BATCH=16 OUT=/scratch/me/out""".splitlines()


def leaks(archive: Path, planted: dict[str, str]) -> dict[str, str]:
    """Return the secrets that leak, even partly, in a member's name or text, with their formats."""
    with zipfile.ZipFile(archive) as opened:
        everything = "\n".join([*opened.namelist(), *(opened.read(name).decode() for name in opened.namelist())])
    parts = {secret: [secret[at : at + PART] for at in range(len(secret) - PART + 1)] for secret in planted}
    return {secret: planted[secret] for secret, found in parts.items() if any(part in everything for part in found)}


def test_many_secrets_are_planted(tmp_path: Path) -> None:
    _, planted = job_with_secrets(tmp_path / "job", 1)
    assert len(set(planted.values())) >= 60
    assert {len(secret) for secret in planted} >= {9, 70}


@pytest.mark.parametrize("seed", range(3))
def test_no_planted_secret_is_in_a_bundle(tmp_path: Path, seed: int) -> None:
    folder, planted = job_with_secrets(tmp_path / "job", seed)
    assert leaks(bundle(JobFolder(folder), tmp_path / "b.zip"), planted) == {}


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_line_is_unchanged(line: str) -> None:
    assert mask(line) == line
