"""Experiments for the claims about where the time goes: A3, A4, A5, A25, B15, C1 and C2 of the ledger.

Each is short (10 s or less), measures on this machine with the library's own instruments, and returns a Verdict. None
has its answer built in: planted workloads say what is true by construction, and the measurement has to find it.
"""

from __future__ import annotations

from loaderscope.experiments.claims_speed.sides import claim_b15, claim_c2
from loaderscope.experiments.claims_speed.threads import claim_a3, claim_a4
from loaderscope.experiments.claims_speed.waiting import claim_a5, claim_a25, claim_c1

__all__ = ["claim_a3", "claim_a4", "claim_a5", "claim_a25", "claim_b15", "claim_c1", "claim_c2"]
