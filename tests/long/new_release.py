"""Add a release of DeepSpeed, and print what changed for dstui.

    python tests/long/new_release.py 0.20.0                    # against the newest catalogue
    python tests/long/new_release.py 0.20.0 --against 0.18.9   # against any other release
    python tests/long/new_release.py 0.20.0 --write            # write its catalogue too

It installs the release beside the environment (tests/releases.py), reads its keys (dstui/reference/extract.py), compares them with those of
the other release, and gives generated configurations to its parser and to the rules, as if its catalogue were added already. The
status is 1 if the two verdicts differ: each difference is a rule to write or to fix.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "check")]

from differential import EXTRACT, Tally, compare  # noqa: E402
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from configs import configs  # noqa: E402 - the paths come first
from dstui.check.reference import ReferenceChecker  # noqa: E402
from dstui.check.rules.releases import REGRESSIONS  # noqa: E402
from dstui.plan import catalogue  # noqa: E402
from tests.releases import installed  # noqa: E402

COMPARED = ("type", "default", "choices", "ge", "gt", "le", "lt", "strict", "deprecated", "replacement", "carried_over", "python_name")
SHOWN = 10


def facts_text(version: str) -> str:
    """Return the keys that a release declares, as the text of a catalogue."""
    file = catalogue.DATA / f"deepspeed-{version}.json"
    if version in catalogue.RELEASES:
        return file.read_text()
    environment = {"PYTHONPATH": installed(version), "PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "DS_ACCELERATOR": "cpu"}
    done = subprocess.run([sys.executable, str(EXTRACT)], capture_output=True, text=True, check=True, env=environment, timeout=300)
    return done.stdout


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between two catalogues, a line each."""
    before, after = ({key["path"]: key for key in facts["keys"]} for facts in (old, new))
    for path in sorted(after.keys() - before.keys()):
        known = catalogue.release(new["version"]).key(path)
        missing = "" if known and known.help else "  [no line of help yet: curated.json]"
        yield f"new      {path}: {after[path]['type']}, default {after[path].get('default')}{missing}"
    for path in sorted(before.keys() - after.keys()):
        words = new["removed"].get(path)
        yield f"gone     {path}" + (f": refused, {words[:90]!r}" if words else ": now an unknown key")
    for path in sorted(before.keys() & after.keys()):
        for name in COMPARED:
            was, now = before[path].get(name), after[path].get(name)
            if was != now:
                yield f"changed  {path}: {name} {was} -> {now}"
    for path in sorted(new["removed"].keys() - old["removed"].keys() - before.keys()):
        yield f"refused  {path}: {new['removed'][path][:90]!r}"
    for what in ("optimizer_types", "optimizers", "schedulers"):
        was, now = set(old[what]), set(new[what])
        yield from (f"new      {what}: {one}" for one in sorted(now - was))
        yield from (f"gone     {what}: {one}" for one in sorted(was - now))


def differential(version: str, facts: Mapping[str, Any], count: int) -> Tally:
    """Give generated configurations to the parser of a release and to the rules."""
    tally = Tally()

    @seed(1)
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(configs(facts["keys"], list(facts["removed"])), st.integers(1, 16))
    def agree(config: dict[str, object], ranks: int) -> None:
        compare(config, ranks, version, reference, tally)

    with ReferenceChecker(path=installed(version)) as reference:
        agree()
    return tally


def differences(tally: Tally) -> Iterator[str]:
    """Yield each kind of difference once, the most frequent first, with one configuration that shows it."""
    kinds: dict[str, list[str]] = {}
    for who, config, ranks, why in tally.differ:
        kinds.setdefault(f"{who}: {why.splitlines()[0][:150]}", []).append(f"{ranks} ranks, {json.dumps(config, default=str)[:200]}")
    for kind, examples in sorted(kinds.items(), key=lambda item: -len(item[1]))[:SHOWN]:
        yield f"{len(examples)} x {kind}\n      {examples[0]}"


def as_taken_in(version: str, text: str, folder: Path) -> None:
    """Let the rules judge with the new catalogue in this process, whether or not it is written."""
    shutil.copytree(catalogue.DATA, folder / "data")
    (folder / "data" / f"deepspeed-{version}.json").write_text(text)
    catalogue.DATA = folder / "data"
    catalogue.RELEASES = tuple(sorted({*catalogue.RELEASES, version}, key=catalogue.version_tuple))
    catalogue.release.cache_clear()


def main() -> int:
    """Print everything; return 1 if parser and rules differ."""
    parser = argparse.ArgumentParser(description="Take in a release of DeepSpeed, and print what changed.")
    parser.add_argument("version")
    parser.add_argument("--against", default=catalogue.NEWEST, help="the release to compare with (default: the newest catalogue)")
    parser.add_argument("--configs", type=int, default=500, help="generated configurations for the differential run")
    parser.add_argument("--write", action="store_true", help="write dstui/plan/data/deepspeed-VERSION.json")
    args = parser.parse_args()
    data, text, old = catalogue.DATA, facts_text(args.version), json.loads(facts_text(args.against))
    new = json.loads(text)
    with tempfile.TemporaryDirectory() as folder:
        as_taken_in(args.version, text, Path(folder))
        found = list(changes(old, new))
        print(f"DeepSpeed {args.against} -> {args.version}: {len(old['keys'])} -> {len(new['keys'])} keys, {len(found)} changes")
        print(*(f"  {line}" for line in found), sep="\n")
        still = [one.link for one in REGRESSIONS if catalogue.version_tuple(args.version) < catalogue.version_tuple(one.fixed)]
        print(f"known regressions that it still has: {len(still)}", *(f"  {link}" for link in still), sep="\n", flush=True)
        tally = differential(args.version, new, args.configs)
    print(f"its parser against the rules: {tally}")
    print(*(f"  {line}" for line in differences(tally)), sep="\n")
    if args.write:
        (data / f"deepspeed-{args.version}.json").write_text(text)
        print(f"written: {data / f'deepspeed-{args.version}.json'}; add {args.version} to RELEASES in dstui/plan/catalogue.py")
    return 1 if tally.differ else 0


if __name__ == "__main__":
    sys.exit(main())
