"""Masking of secrets in text: no planted secret survives, and ordinary text is unchanged."""

from __future__ import annotations

import json
import re
import shlex
import string
import time

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dstui.bundle.redact import MASK, mask, secrets

NAMES = (
    *("GITHUB_PAT", "DOCKER_CREDS", "wandb-token", "clientSecret2"),
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "HF_TOKEN_2", "hub_token", "accessToken", "x-auth-token"),
    *("WANDB_API_KEY", "OPENAI_API_KEY", "api_key", "api-key", "apiKey", "KAGGLE_KEY", "private_key", "AZURE_STORAGE_KEY"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "MY_SECRET", "CLIENT_SECRET_FILE", "clientSecret", "secrets"),
    *("MLFLOW_TRACKING_PASSWORD", "DB_PASSWD", "password", "REDIS_PASS", "db_pwd", "SSH_PASSPHRASE", "credentials"),
)
PLACES = (  # how a name and its value appear in files and logs
    "{name}={value}",
    "export {name}={value}; python train.py",
    "+ env {name}={value} deepspeed train.py",
    "{name}: {value}",
    "  {name}:   {value}   # mine",
    "{{{name}: {value}, other: 1}}",
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
OPTIONS = (
    "--wandb-key",
    "--ngc_key",
    "--openaiKey",
    "--hub-token",
    "--access-token",
    "--client-secret",
    "--password",
    "--db-pwd",
    "--api_key",
)
BEHIND_AN_OPTION = (
    "train.py {option} {value} --epochs 1",
    "train.py {option}={value}",
    "['python', '{option}', '{value}', '--epochs', '1']",
    '"{option}",\n  "{value}",\n  "--epochs"',
    "args: [{option}, {value}]",
)
HEX, WORD, ALNUM = "0123456789abcdef", string.ascii_letters + string.digits + "_-", string.ascii_letters + string.digits
CAPITALS = string.ascii_uppercase + string.digits
PUBLISHED: dict[str, tuple[str, str, int]] = {  # formats published by gitleaks and detect-secrets: prefix, alphabet, length
    "age": ("AGE-SECRET-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "airtable": ("pata1b2C3d4E5f6G7.", HEX, 64),
    "alibaba": ("LTAI", ALNUM, 20),
    "anthropic": ("sk-ant-api03-9", WORD, 92),
    "artifactory": ("AKCp", ALNUM, 69),
    "aws": ("AKIA", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16),
    "aws bedrock": ("ABSK", ALNUM + "+/", 109),
    "aws session": ("ASIA", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16),
    "azure": ("abc1Q~", WORD + "~.", 34),
    "clickhouse": ("4b1d", ALNUM, 38),
    "clojars": ("CLOJARS_", string.ascii_lowercase + string.digits, 60),
    "databricks": ("dapi", HEX, 32),
    "digitalocean": ("dop_v1_", HEX, 64),
    "discord": ("MTIzNDU2Nzg5MDEyMzQ1Njc4.abcdef.", WORD, 27),
    "docker hub": ("dckr_pat_", WORD, 27),
    "doppler": ("dp.pt.", string.ascii_lowercase + string.digits, 43),
    "dynatrace": ("dt0c01.ABCDEFGHIJKLMNOPQRSTUVWX.", CAPITALS, 64),
    "easypost": ("EZAK", ALNUM, 54),
    "facebook": ("123456789012345|", WORD, 27),
    "facebook page": ("EAAM", ALNUM, 100),
    "fly.io": ("fm2_", ALNUM + "+/", 100),
    "frame.io": ("fio-u-", WORD + "=", 64),
    "github": ("ghp_", ALNUM, 36),
    "github app": ("ghs_", ALNUM, 36),
    "github fine-grained": ("github_pat_", ALNUM + "_", 82),
    "gitlab": ("glpat-", WORD, 20),
    "gitlab deploy": ("gldt-", WORD, 20),
    "gitlab runner": ("GR1348941", WORD, 20),
    "gitlab session": ("_gitlab_session=", HEX, 32),
    "google": ("AIza", WORD, 35),
    "grafana": ("glsa_", ALNUM, 41),
    "grafana cloud": ("glc_", ALNUM + "+/", 32),
    "groq": ("gsk_", ALNUM, 52),
    "heroku": ("HRKU-AA", WORD, 58),
    "hugging face": ("hf_", string.ascii_letters, 34),
    "hugging face organization": ("api_org_", string.ascii_letters, 34),
    "infracost": ("ico-", ALNUM, 32),
    "langsmith": ("lsv2_pt_", HEX, 32),
    "linear": ("lin_api_", ALNUM, 40),
    "mailchimp": ("0123456789abcdef0123456789abcdef-us", string.digits, 2),
    "mailgun": ("key-", HEX, 32),
    "maxmind": ("abcDEF_0123456789abcdefghijABCDEFGHI_mmk", "", 0),
    "neptune": ("eyJhcGlfYWRkcmVzcyI6", ALNUM, 100),
    "new relic": ("NRAK-1", CAPITALS, 26),
    "notion": ("ntn_01234567890", ALNUM, 35),
    "npm": ("npm_", ALNUM, 36),
    "nvidia": ("nvapi-", WORD, 64),
    "octopus": ("API-1", CAPITALS, 25),
    "openai": ("sk-proj-1", WORD, 150),
    "openshift": ("sha256~", WORD, 43),
    "perplexity": ("pplx-", ALNUM, 48),
    "planetscale": ("pscale_tkn_", WORD, 43),
    "postman": ("PMAK-0123456789abcdef01234567-", HEX, 34),
    "prefect": ("pnu_", ALNUM, 36),
    "pulumi": ("pul-", HEX, 40),
    "pypi": ("pypi-AgEIcHlwaS5vcmc", WORD, 70),
    "replicate": ("r8_", ALNUM, 37),
    "rubygems": ("rubygems_", HEX, 48),
    "sendgrid": ("SG.", WORD, 66),
    "sendinblue": ("xkeysib-", HEX, 64),
    "sentry": ("sntryu_", HEX, 64),
    "shopify": ("shpat_", HEX, 32),
    "slack app": ("xapp-1-", CAPITALS, 30),
    "slack bot": ("xoxb-0123456789-0123456789", ALNUM, 24),
    "slack user": ("xoxp-", string.digits + "-", 60),
    "square": ("sq0csp-", WORD, 43),
    "stripe": ("sk_live_", ALNUM, 24),
    "stripe restricted": ("rk_live_", ALNUM, 24),
    "telegram": ("12345678:", WORD, 35),
    "terraform": ("abcdefghij1234.atlasv1.", WORD, 60),
    "twilio": ("SK1", HEX, 31),
    "typeform": ("tfp_", WORD, 59),
    "vault": ("hvs.", WORD, 90),
    "1password": ("A3-ABC123-ABC123-ABC12-ABC12-ABC12-", CAPITALS, 5),
    "1password service": ("ops_eyJ", ALNUM + "+/", 250),
}
ALPHABET = string.ascii_letters + string.digits + "+/_.-!$%*?^~#@"
values = st.text(ALPHABET, min_size=1, max_size=40).filter(lambda text: text[0].isalnum() and text[-1].isalnum())
texts = st.text(string.ascii_letters + string.digits, min_size=16, max_size=40)


@given(st.sampled_from(NAMES), st.sampled_from(PLACES), values)
@example("HF_TOKEN", "{{{name}: {value}, other: 1}}", "a")
def test_value_with_a_secret_name_is_masked_in_every_place(name: str, place: str, value: str) -> None:
    assume(value.lower() not in ("null", "none", "true", "false"))
    expected = place.format(name=name, value=MASK)
    assert mask(place.format(name=name, value=value)) == expected


@given(
    st.sampled_from(SHAPES),
    texts,
    st.sampled_from(["{}", "[rank3]: 401 for {} (again)", "'{}'", '"{}",', "lr 0.1\n{}\nloss 2"]),
)
def test_value_that_looks_like_a_secret_is_masked_anywhere(shape: str, secret: str, around: str) -> None:
    assert secret not in mask(around.format(shape.format(secret)))


@pytest.mark.parametrize("name", PUBLISHED)
@given(st.data())
@settings(max_examples=10)
def test_every_published_format_is_masked_anywhere(name: str, data: st.DataObject) -> None:
    begin, alphabet, count = PUBLISHED[name]
    secret = begin + (data.draw(st.text(alphabet, min_size=count, max_size=count)) if count else "")
    assume(secret[-1] not in "-.=_~")
    around = data.draw(
        st.sampled_from(["{}", "[rank3]: 401 for {} (again)", "'{}'", '"{}",', "lr 0.1\n{}\nloss 2", '"a\\n{}\\nb"', "x={};"])
    )
    assert secret not in mask(around.format(secret))


@given(st.sampled_from(OPTIONS), st.sampled_from(BEHIND_AN_OPTION), values)
def test_value_after_an_option_for_secrets_is_masked(option: str, place: str, value: str) -> None:
    assume(value.lower() not in ("null", "none", "true", "false"))
    assert mask(place.format(option=option, value=value)) == place.format(option=option, value=MASK)


@given(
    st.sampled_from(
        (
            *(
                "wandb: API key {}",
                "wandb_key {}",
                "wandb: ERROR the key ({}) is refused",
                "your API key is {}",
                "token was {}",
                "secret={}",
            ),
            *("machine api.wandb.ai login user password {}", "machine api.wandb.ai\n  login user\n  password {}\n", "WANDB_API_KEY: {}"),
        )
    ),
    st.text(HEX, min_size=40, max_size=40),
)
def test_forty_digits_of_a_trackers_key_are_masked_after_its_name(place: str, key: str) -> None:
    assert key not in mask(place.format(key))


@given(st.text(min_size=8, max_size=30).filter(lambda text: text.strip() == text), st.sampled_from([str, json.dumps, shlex.quote, ascii]))
def test_known_secret_is_masked_without_its_name(secret: str, spelled: object) -> None:
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
--input_key question --label-key answer_text, "prompt_key": "context_messages_01", cache_key: step_000000000012, missing_key: layers.0.weight_00
HF_TOKEN is not set, no WANDB_API_KEY found, "HF_TOKEN": null, --use_auth_token --bf16, risk-adjusted-optimisation, a password was asked for
"""


@pytest.mark.parametrize("line", ORDINARY.splitlines())
def test_ordinary_lines_are_unchanged(line: str) -> None:
    assert mask(line) == line


# the forty digits of a commit look like a tracker's key, also after `pass: `
words = st.sampled_from([word for word in ORDINARY.replace(",", " ").split() if not re.fullmatch("[0-9a-f]{40}", word)])
words |= st.integers(-(10**12), 10**12).map(str) | st.floats().map(str)  # sixteen digits after `pass: ` may well be a secret


@given(st.lists(words, max_size=30).map(" ".join))
@example("forward_pass: 10000000000000.0 pass: 1.7976931348623157e+308 backward_pass = 12345678901234567890")
def test_words_in_any_order_are_unchanged_except_after_a_secret_name(text: str) -> None:
    if not any(name in text.lower() for name in ("token", "password", "key")):
        assert mask(text) == text


@given(
    st.text() | st.lists(st.sampled_from([*NAMES, "=", ": ", '"', "'", "--", " ", "\n", "\\", "://", "@", "hf_", "x" * 20])).map("".join)
)
def test_masking_never_fails_and_is_idempotent(text: str) -> None:
    once = mask(text)
    assert mask(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "secret_",
        "token=",
        "--",
        "a_",
        "://a:",
        "sk-",
        "eyJ",
        "\\",
        "'",
        "hf_",
        "pat.",
        "SK",
        "s.",
        "api key ",
        "wandb ",
        "login a password ",
        "curl -u ",
        ".atlasv1.",
        "1",
        "a|",
        "_mmk",
        "--token ",
        "-----BEGIN PRIVATE KEY-----",
        "İ",
        "env: {a: 1, ",
        "env:\n  a: b\n",
        "export A=",
        "password is ",
        "://a:a/",
        "?a=",
        "on_end: a.b/c\n",
        "aA1",
        "-p ",
    ],
)
def test_masking_takes_linear_time(piece: str) -> None:
    def seconds_for(characters: int) -> float:
        began = time.process_time()
        mask(piece * (characters // len(piece)))
        return time.process_time() - began

    assert seconds_for(160_000) < 32 * max(seconds_for(10_000), 0.001), "linear in the length of the text"
