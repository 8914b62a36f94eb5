"""The paper's main claims, each with the study that measures it and the rule that decides it."""

from flipmeter.paper.claims import (  # noqa: F401 - each adds its claims
    factor_claims,
    pipeline_claims,
    prevalence_claims,
    transfer_claims,
)
from flipmeter.paper.claims.paper_claim import Decided, PaperClaim, decide_claim, paper_claims

__all__ = ["Decided", "PaperClaim", "decide_claim", "paper_claims"]
