"""Run the leading fix before and after, and write fixes as code that fits the reader's loader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderscope.errors import LoaderscopeError
from loaderscope.experiments.prove import compare
from loaderscope.loaders import LoaderSpec
from loaderscope.records import Comparison, Finding, Fix


def with_code(findings: tuple[Finding, ...], spec: LoaderSpec) -> tuple[Finding, ...]:
    """The same findings, every configuration change written out for this loader and proposed once."""
    proposed: list[dict[str, Any]] = []
    out = []
    for finding in findings:
        fixes = [_written(x, spec) for x in finding.fixes if not x.changes or x.changes not in proposed]
        proposed += [x.changes for x in fixes if x.changes]
        out.append(replace(finding, fixes=tuple(fixes)))
    return tuple(out)


def _written(fix: Fix, spec: LoaderSpec) -> Fix:
    if not fix.changes or spec.kind == "any":
        return fix
    refusal = spec.refusal(**fix.changes)
    return replace(fix, code=spec.describe_changes(fix.changes), unverified=refusal or fix.unverified)


def prove(findings: tuple[Finding, ...], spec: LoaderSpec, step, budget_s: float, **how: Any) -> tuple[Finding, ...]:
    """Try the leading configuration change of the first finding that has one, interleaved with the loader as it is."""
    findings = with_code(findings, spec)
    leading = _leading(findings, spec)
    if leading is None:
        return findings
    i, k = leading
    tried = _tried(findings[i].fixes[k], spec, step, budget_s, how)
    fixes = (*findings[i].fixes[:k], tried, *findings[i].fixes[k + 1 :])
    return (*findings[:i], replace(findings[i], fixes=fixes), *findings[i + 1 :])


def _leading(findings: tuple[Finding, ...], spec: LoaderSpec) -> tuple[int, int] | None:
    for i, finding in enumerate(findings):
        for k, fix in enumerate(finding.fixes):
            if fix.changes and spec.kind != "any" and not spec.refusal(**fix.changes):
                return i, k
    return None


def _tried(fix: Fix, spec: LoaderSpec, step, budget_s: float, how: dict[str, Any]) -> Fix:
    try:
        result = compare(spec, fix.changes, step, label=fix.title, budget_s=budget_s, **how)
    except LoaderscopeError as error:
        return replace(fix, unverified=f"could not be tried: {error}")
    if isinstance(result, Comparison):
        return replace(fix, verified=result)
    return replace(fix, unverified=f"could not be tried: the loop {result.summary}")
