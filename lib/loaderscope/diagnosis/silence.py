"""How long a loader may be silent before that is called a hang."""

from __future__ import annotations

from loaderscope import thresholds as t
from loaderscope.records import LoaderFacts


def hang_deadline_s(facts: LoaderFacts, budget_s: float) -> float:
    """Seconds without a batch; more for workers that are not forked, as far as the budget allows."""
    forked = facts.start_method == "fork" or not facts.workers
    least = t.HANG_MIN_S if forked else max(t.HANG_MIN_S, min(t.HANG_FRESH_S, budget_s + t.HANG_OVERRUN_S))
    return min(max(t.HANG_SHARE_OF_BUDGET * budget_s, least), t.HANG_MAX_S)
