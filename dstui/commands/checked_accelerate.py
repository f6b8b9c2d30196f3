"""Judge an accelerate YAML together with the files that it names: its hostfile and its ds_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dstui.adopt.accelerate import ESCAPE, AccelerateConfig, read_accelerate, repaired
from dstui.base.files import FileProblem, is_file, read_text, typed_path
from dstui.check.accelerate import check_accelerate
from dstui.plan.accelerate_keys import FILE, SECTION
from dstui.plan.finding import Finding, Fix, sort_findings
from dstui.plan.hostfile import HostfileError, parse_hostfile, select


def accelerate_findings(path: Path, text: str) -> tuple[AccelerateConfig, list[Finding]]:
    """Return the file's values and findings. Raises ConfigError."""
    meant, sentences = repaired(text)
    if meant.count("\n") != text.count("\n"):
        meant, sentences = text, []  # a newline was lost: the reader reports where
    found = read_accelerate(meant)
    findings = check_accelerate(found.config, found.line_of)
    findings += [_published(text, meant, sentence) for sentence in sentences]
    findings += [_again(key, line) for key, line in found.again]
    findings += _named(path, found)
    return found, sort_findings(findings)


def named_config(path: Path, config: Mapping[str, Any]) -> Path | None:
    """Return the ds_config.json that an accelerate YAML names, if it is on this machine."""
    inner = config.get(SECTION)
    name = inner.get(FILE) if isinstance(inner, Mapping) else None
    return place_of(path, name) if isinstance(name, str) and name != "none" else None


def place_of(path: Path, name: str) -> Path | None:
    """Return the path of a file that a YAML names: relative to the current folder, as ranks read it, else to the YAML's folder."""
    return next((place for place in (typed_path(name), path.parent / typed_path(name)) if is_file(place)), None)


def _named(path: Path, found: AccelerateConfig) -> list[Finding]:
    inner = found.config.get(SECTION)
    if not isinstance(inner, Mapping) or found.config.get("distributed_type") != "DEEPSPEED":
        return []
    findings = []
    name = inner.get(FILE)
    if isinstance(name, str) and name != "none" and place_of(path, name) is None:
        at = f"{SECTION}.{FILE}"
        why = "accelerate: Expected a string path to an existing deepspeed config (relative paths start where the job is started)"
        findings.append(Finding("AC026", "error", at, f"there is no {name} here", why, "initialize", found.line_of(at)))
    machines = found.config.get("num_machines")
    if isinstance(machines, int) and machines > 1 and isinstance(inner.get("deepspeed_hostfile"), str):
        findings += _hosts(path, found, inner)
    return findings


def _hosts(path: Path, found: AccelerateConfig, inner: Mapping[str, Any]) -> list[Finding]:
    """Return the findings about the hostfile and the filters on it."""
    at = f"{SECTION}.deepspeed_hostfile"
    place = place_of(path, inner["deepspeed_hostfile"])
    if place is None:
        why = "DeepSpeed warns, trains on this machine alone, and ends with 0"
        return [Finding("AC027", "warning", at, f"there is no {inner['deepspeed_hostfile']} here", why, line=found.line_of(at))]
    for name, key in (("exclude", "deepspeed_exclusion_filter"), ("include", "deepspeed_inclusion_filter")):
        if isinstance(inner.get(key), str):
            at = f"{SECTION}.{key}"
            try:
                select(parse_hostfile(read_text(place)), **{name: inner[key]})
            except HostfileError as error:
                return [Finding("AC030", "error", at, f"{place}: {error}", "DeepSpeed refuses it", "launch", found.line_of(at))]
            except FileProblem as error:
                return [Finding("AC030", "error", at, str(error), "DeepSpeed cannot read it", "launch", found.line_of(at))]
    return []


def _published(text: str, meant: str, sentence: str) -> Finding:
    number = next((n for n, (a, b) in enumerate(zip(text.splitlines(), meant.splitlines(), strict=False), 1) if a != b), 1)
    fix = Fix("remove the backslashes", rewrite=meant)
    if ESCAPE.search(text):
        why = "a page that shows Markdown put them there; accelerate takes compute\\_environment for another key"
        return Finding("AC002", "error", "", f"copied from a web page: {sentence}", why, "parse", number, fix=fix)
    return Finding(
        "AC002", "warning", "", f"copied from a web page: {sentence}", "to YAML they are part of the value", line=number, fix=fix
    )


def _again(key: str, line: int) -> Finding:
    why = "accelerate silently uses the last one"
    return Finding("AC003", "warning", key, f"{key} is given a second time", why, line=line)
