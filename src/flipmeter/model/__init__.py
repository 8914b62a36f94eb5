"""Request -> Reply: serve what is stored, ask for the rest, lose nothing."""

from flipmeter.model.backend import Backend, Capability, Retry
from flipmeter.model.budget import Budget, OutOfBudget, Price, Spent, worst_case
from flipmeter.model.cache import export, open_stored, plan_prune, prune, stored_among
from flipmeter.model.capabilities import (
    CAPABILITIES,
    Examination,
    asked_as,
    check_scored,
    examine,
    needs,
    stated,
)
from flipmeter.model.explain import explain
from flipmeter.model.http import HttpBackend
from flipmeter.model.ledger import Ledger
from flipmeter.model.merge import Merged, merge
from flipmeter.model.names import (
    World,
    hf_models,
    identity_of,
    interface_of,
    is_callable,
    is_in_process,
    is_reproducible,
    local_models,
    open_backend,
    providers,
    request_for,
    without_logprobs,
)
from flipmeter.model.observed import Observed, observe
from flipmeter.model.on_ray import RayBackend, ray_cluster
from flipmeter.model.planted import SIMS, Shown, SimSpec, predict_flip_rate, sim_spec
from flipmeter.model.pool import Gate
from flipmeter.model.prices import PriceList, Quote, find_prices, read_prices
from flipmeter.model.replicas import fleet_of
from flipmeter.model.run import Asked, Engine, ask_all
from flipmeter.model.serve import run_forever, serve
from flipmeter.model.sim import latents
from flipmeter.model.store import Store

__all__ = [
    "CAPABILITIES",
    "SIMS",
    "Asked",
    "Backend",
    "Budget",
    "Capability",
    "Engine",
    "Examination",
    "Gate",
    "HttpBackend",
    "Ledger",
    "Merged",
    "Observed",
    "OutOfBudget",
    "Price",
    "PriceList",
    "Quote",
    "RayBackend",
    "Retry",
    "Shown",
    "SimSpec",
    "Spent",
    "Store",
    "World",
    "ask_all",
    "asked_as",
    "check_scored",
    "examine",
    "explain",
    "export",
    "find_prices",
    "fleet_of",
    "hf_models",
    "identity_of",
    "interface_of",
    "is_callable",
    "is_in_process",
    "is_reproducible",
    "latents",
    "local_models",
    "merge",
    "needs",
    "observe",
    "open_backend",
    "open_stored",
    "plan_prune",
    "predict_flip_rate",
    "providers",
    "prune",
    "ray_cluster",
    "read_prices",
    "request_for",
    "run_forever",
    "serve",
    "sim_spec",
    "stated",
    "stored_among",
    "without_logprobs",
    "worst_case",
]
