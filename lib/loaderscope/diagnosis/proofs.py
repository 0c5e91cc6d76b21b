"""Run the leading fix before and after, and write fixes as code that fits the reader's loader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderscope.errors import LoaderscopeError
from loaderscope.experiments.prove import compare
from loaderscope.loaders import LoaderSpec
from loaderscope.records import Comparison, Finding, Fix


def with_code(findings: tuple[Finding, ...], spec: LoaderSpec) -> tuple[Finding, ...]:
    """The same findings, every configuration change written out for this loader."""
    return tuple(replace(f, fixes=tuple(_written(x, spec) for x in f.fixes)) for f in findings)


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
    verified = _tried(findings[leading[0]].fixes[leading[1]], spec, step, budget_s, how)
    changes = verified.changes
    # The same change may be proposed under several findings: it is tried once.
    return tuple(
        replace(
            f,
            fixes=tuple(
                replace(x, verified=verified.verified, unverified=verified.unverified)
                if x.changes and x.changes == changes
                else x
                for x in f.fixes
            ),
        )
        for f in findings
    )


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
