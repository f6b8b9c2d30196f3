"""Secrets in text: a planted one never survives, ordinary text is untouched."""

from __future__ import annotations

import json
import shlex
import string
import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dstui.run.mask import MASK, mask, secrets

NAMES = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "HF_TOKEN_2", "hub_token", "accessToken", "x-auth-token"),
    *("WANDB_API_KEY", "OPENAI_API_KEY", "api_key", "api-key", "apiKey", "KAGGLE_KEY", "private_key", "AZURE_STORAGE_KEY"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "MY_SECRET", "CLIENT_SECRET_FILE", "clientSecret", "secrets"),
    *("MLFLOW_TRACKING_PASSWORD", "DB_PASSWD", "password", "REDIS_PASS", "db_pwd", "SSH_PASSPHRASE", "credentials"),
)
PLACES = (  # how a name and its value stand in files and logs
    "{name}={value}",
    "export {name}={value}; python train.py",
    "+ env {name}={value} deepspeed train.py",
    "{name}: {value}",
    "  {name}:   {value}   # mine",
    "{{{name}: {value}, other: 1}}",
    "https://host/path?x=1&{name}={value}&y=2",
    '{{"{name}": "{value}", "other": 1}}',
    "environ({{'PATH': '/bin', '{name}': '{value}'}})",
    '"{{\\"{name}\\": \\"{value}\\"}}"',
    "[rank0]: ValueError: {name} = '{value}' is refused",
    "train.py --{name} {value} --epochs 1",
    "train.py --{name}={value}",
    "['python', '--{name}', '{value}', '--epochs', '1']",
    '"--{name}",\n  "{value}",\n  "--epochs"',
    "- --{name}\n- {value}\n- --epochs",
)
SHAPES = (
    *("hf_{}", "ghp_{}", "gho_{}", "github_pat_{}", "glpat-{}", "sk-{}1", "sk-proj-{}1", "sk-ant-api03-{}", "xoxb-1-{}", "wandb_v1_{}"),
    *("Authorization: Bearer {}", "wandb login {}", "https://bob:{}@host/x", "https://{}@github.com/a/b", "token=1{}", "--token {}"),
    *("https://hooks.slack.com/services/T1/B1/{}", "https://discord.com/api/webhooks/1/{}", "on_end: https://example.org/{}"),
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
)
ALPHABET = string.ascii_letters + string.digits + "+/_.-!$%*?^~#@"
values = st.text(ALPHABET, min_size=1, max_size=40).filter(lambda text: text[0].isalnum() and text[-1].isalnum())
texts = st.text(string.ascii_letters + string.digits, min_size=16, max_size=40)


@given(st.sampled_from(NAMES), st.sampled_from(PLACES), values)
@example("HF_TOKEN", "{{{name}: {value}, other: 1}}", "a")
def test_what_is_given_a_secret_name_is_masked_in_every_place(name: str, place: str, value: str) -> None:
    assume(value.lower() not in ("null", "none", "true", "false"))
    expected = place.format(name=name, value=MASK)
    assert mask(place.format(name=name, value=value)) == expected


@given(
    st.sampled_from(SHAPES),
    texts,
    st.sampled_from(["{}", "[rank3]: 401 for {} (again)", "'{}'", '"{}",', "lr 0.1\n{}\nloss 2"]),
)
def test_what_looks_like_a_secret_is_masked_wherever_it_stands(shape: str, secret: str, around: str) -> None:
    assert secret not in mask(around.format(shape.format(secret)))


@given(st.text(min_size=8, max_size=30).filter(lambda text: text.strip() == text), st.sampled_from([str, json.dumps, shlex.quote, ascii]))
def test_a_value_that_is_known_to_be_secret_is_masked_without_its_name(secret: str, spelled: object) -> None:
    assert callable(spelled)
    assume("'" not in secret and "\\" not in secret and MASK not in secret)
    assume(spelled is not ascii or secret.isascii())
    known = secrets({"MY_TOKEN": secret, "PATH": "/usr/bin:/bin", "SHORT_TOKEN": "abc"})
    assert known == {secret}
    assert secret not in mask(f"the server said {spelled(secret)} is wrong", known)


ORDINARY = """\
[2026-01-01 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]
max_new_tokens: 128, num_tokens=4096, tokens/s: 41.2k, 3.1 tokens per second, tokenizer: gpt2, --tokenizer gpt2 --max_tokens 5
pad_token: <pad>, eos_token='</s>', "bos_token": "<s>", image_token_index: 32000, pad_token_id = 0, special_tokens_map.json
DEFAULT_IMAGE_TOKEN = "<image>", token: 17, the token: generation ends, key: value, keys: 4, past_key_values=None, query_key_value: ok
forward_pass: 3.1 ms, backward_pass = 7 ms, passed: 12, pass: 1, compass=north, secretary: Anna, keyboard=de, monkey = 1
cmd = ['/opt/bin/python', '-u', '-m', 'torch.distributed.run', '--local_rank=1', '--deepspeed_config', 'ds_config.json']
ssh -o BatchMode=yes -o PasswordAuthentication=no -o StrictHostKeyChecking=yes worker-1, publickey: ok, rank keyboard: 0
tcp://10.0.0.1:29500, file:///data/a@b, git@github.com:org/repo.git, https://huggingface.co/gpt2/resolve/main/config.json
commit 2c12f0d6a1b3c4d5e6f708192a3b4c5d6e7f8091, --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMV19, sha256:9f86d081884c7d659a2feaa0c55ad015
HF_TOKEN is not set, no WANDB_API_KEY found, "HF_TOKEN": null, --use_auth_token --bf16, risk-adjusted-optimisation, a password was asked for
"""


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_lines_are_untouched(line: str) -> None:
    assert mask(line) == line


words = st.sampled_from(ORDINARY.replace(",", " ").split()) | st.integers().map(str) | st.floats().map(str)


@given(st.lists(words, max_size=30).map(" ".join))
def test_their_words_in_any_order_are_untouched_but_behind_a_secret_name(text: str) -> None:
    if not any(name in text for name in ("HF_TOKEN", "WANDB_API_KEY", "auth_token", "password", "key", "token", "_TOKEN")):
        assert mask(text) == text


@given(
    st.text() | st.lists(st.sampled_from([*NAMES, "=", ": ", '"', "'", "--", " ", "\n", "\\", "://", "@", "hf_", "x" * 20])).map("".join)
)
def test_masking_never_fails_and_twice_is_once(text: str) -> None:
    once = mask(text)
    assert mask(once) == once


@pytest.mark.parametrize(
    "piece", ["secret_", "token=", "--", "a_", "://a:", "sk-", "eyJ", "\\", "'", "--token ", "-----BEGIN PRIVATE KEY-----", "İ"]
)
def test_no_text_can_make_it_slow(piece: str) -> None:
    def spent(characters: int) -> float:
        began = time.process_time()
        mask(piece * (characters // len(piece)))
        return time.process_time() - began

    assert spent(320_000) < 32 * max(spent(20_000), 0.002), "16 times the text, and not its square"
