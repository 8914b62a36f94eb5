"""The paper's main claims, each with the study that measures it and the rule that decides it."""

from flipmeter.paper.claims.paper_claim import Decided, PaperClaim, decide_claim, paper_claims

__all__ = ["Decided", "PaperClaim", "decide_claim", "paper_claims"]
