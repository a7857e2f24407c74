# SPDX-License-Identifier: Apache-2.0
"""Whether figures are what was expected of them (expectations.json). Nothing here runs anything."""

COMPARE = {">=": lambda value, target: value >= target, "<=": lambda value, target: value <= target}
NOT_MEASURED = "not yet measured"


def figure_at(figures, path):
    """The number at `a.b` in nested dictionaries; None if there is none."""
    for part in path.split("."):
        figures = figures.get(part) if isinstance(figures, dict) else None
    return figures if isinstance(figures, (int, float)) else None


def reason_without_figure(expectation, check):
    if check is None:
        return f"the check {expectation['check']} was not asked for"
    if "rehearsed" in check:
        return "a rehearsal on the CPU measures nothing"
    if check["status"] == "skipped":
        return check["reason"]
    if check["status"] == "failed":
        return f"the check {expectation['check']} failed: {check['reason']}"
    parts = expectation["figure"].split(".")
    missing = check.get("missing", {})
    return missing.get(expectation["figure"]) or missing.get(parts[-1]) or f"the check gave no {expectation['figure']}"


def judge(expectation, checks, device):
    """The expectation with `status` (met, missed, not yet measured), the `measured` value and, without one, the `reason`.

    checks: {name: its result}. device: the GPU's name, or None; a target that was set for one kind of GPU is judged on that
    kind alone, and shown on others.
    """
    check = checks.get(expectation["check"])
    command = f"tests/gpu/run.sh --only {expectation['check']}"
    value = figure_at(check.get("figures", {}), expectation["figure"]) if check else None
    if value is None:
        return {**expectation, "command": command, "status": NOT_MEASURED, "reason": reason_without_figure(expectation, check)}
    judged = {**expectation, "command": command, "measured": value}
    wanted = expectation.get("device")
    if wanted and wanted not in (device or ""):
        return {**judged, "status": NOT_MEASURED, "reason": f"the target is for {wanted}, and this is {device}"}
    met = COMPARE[expectation["compare"]](value, expectation["target"])
    return {**judged, "status": "met" if met else "missed"}


def judge_all(expectations, checks, device):
    return [judge(expectation, checks, device) for expectation in expectations]


def exit_code(checks, expectations):
    """1 if a check failed or a hard expectation was missed; 0 otherwise, also if nothing could run."""
    failed = any(check["status"] == "failed" for check in checks.values())
    missed = any(one["hard"] and one["status"] == "missed" for one in expectations)
    return 1 if failed or missed else 0
