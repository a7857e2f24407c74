# SPDX-License-Identifier: Apache-2.0
"""The JSON document of the GPU checks: made, kept in a file while they run, and merged from those of the parts."""

import datetime
import json
import os
import pathlib

import judging

HERE = pathlib.Path(__file__).resolve().parent
FORMAT = 1


def what_is_not_there(results):
    """A sentence for each check that was skipped, and for each part of one that was."""
    told = [f"{name}: {one['reason']}" for name, one in results.items() if one["status"] == "skipped"]
    for name, one in results.items():
        tests = (one.get("figures") or one.get("rehearsed") or {}).get("skipped_because", {})
        told += [f"{name}, {part}: {why}" for part, why in {**one.get("missing", {}), **tests}.items()]
    return told


def device_of(machine):
    return machine["gpus"][0]["name"] if machine.get("gpus") else None


def document(rehearsal, quick, machine, bundle, results, **more):
    expectations = judging.judge_all(json.loads((HERE / "expectations.json").read_text()), results, device_of(machine))
    return {
        "format": FORMAT,
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "rehearsal": rehearsal,
        "quick": quick,
        "machine": machine,
        "bundle": bundle,
        **more,
        "checks": results,
        "expectations": expectations,
        "skipped": what_is_not_there(results),
    }


def write(path, told):
    """All of it or nothing: a program that is killed leaves the document before."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with open(part, "w") as file:
        file.write(json.dumps(told, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read_all(folder):
    """[(path, document)] of a folder, the oldest first. Throws OSError or ValueError with one sentence."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            told = json.loads(path.read_text())
        except ValueError:
            raise ValueError(f"{path} is not JSON; remove it") from None
        if isinstance(told, dict) and told.get("format") == FORMAT and "checks" in told:
            found.append((path, told))
    return sorted(found, key=lambda pair: pair[1]["time"])


def recorded():
    """What was measured last (measured.json beside this), judged by today's expectations."""
    told = json.loads((HERE / "measured.json").read_text())
    judged = judging.judge_all(json.loads((HERE / "expectations.json").read_text()), told["checks"], device_of(told["machine"]))
    return {**told, "expectations": judged}


def number(value):
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.3g}"


def table(told):
    """A Markdown table of the document's expectations: what was seen, on which card."""
    card = device_of(told["machine"])
    lines = ["| what | asked for | seen | card |", "|---|---|---|---|"]
    for one in told["expectations"]:
        sign = {">=": "at least", "<=": "at most"}[one["compare"]]
        seen = number(one["measured"]) if "measured" in one else "not yet measured"
        missed = "measured" in one and not judging.COMPARE[one["compare"]](one["measured"], one["target"])
        cells = [one["name"], f"{sign} {number(one['target'])} {one['unit']}", f"**{seen}**" if missed else seen]
        lines.append(f"| {' | '.join([*cells, card if 'measured' in one else ''])} |")
    return "\n".join(lines) + "\n"


def weight(result):
    """Which of a check's results counts: what was made, else what was begun, else anything."""
    if result["status"] != "skipped":
        return 2
    return 1 if result.get("figures") or result.get("rehearsed") else 0


def merge(documents):
    """One document of [(path, document)]: of each check the newest result that says most. Throws ValueError."""
    if not documents:
        raise ValueError("there is no document of tests/gpu/run.sh; make them with --output")
    devices = {device_of(told["machine"]) for _, told in documents}
    if len(devices) > 1:
        raise ValueError(f"the documents are of different GPUs ({', '.join(sorted(map(str, devices)))}); merge those of one")
    results = {}
    for _, told in documents:
        for name, result in told["checks"].items():
            if name not in results or weight(result) >= weight(results[name]):
                results[name] = result
    _, newest = documents[-1]
    parts = [{"file": path.name, "time": told["time"], "commit": (told["bundle"] or {}).get("commit")} for path, told in documents]
    rehearsal, quick = (any(told[key] for _, told in documents) for key in ("rehearsal", "quick"))
    return document(rehearsal, quick, newest["machine"], newest["bundle"], results, parts=parts)
