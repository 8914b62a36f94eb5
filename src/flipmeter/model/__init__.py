"""Request -> Reply: serve what is stored, ask for the rest, lose nothing."""

from flipmeter.model.backends.backend import Backend, Capability, Retry
from flipmeter.model.backends.http import HttpBackend
from flipmeter.model.backends.ray import RayBackend, ray_cluster
from flipmeter.model.backends.sim.sim import latents
from flipmeter.model.backends.sim.tilts import SIMS, Shown, SimSpec, predict_flip_rate, sim_spec
from flipmeter.model.capabilities import (
    CAPABILITIES,
    Examination,
    asked_as,
    check_scored,
    examine,
    needs,
    stated,
)
from flipmeter.model.engine.budget import Budget, OutOfBudget, Price, Spent, worst_case
from flipmeter.model.engine.engine import Asked, Engine, ask_all
from flipmeter.model.engine.ledger import Ledger
from flipmeter.model.engine.pool import Gate
from flipmeter.model.engine.replicas import fleet_of
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
from flipmeter.model.prices import PriceList, Quote, find_prices, read_prices
from flipmeter.model.serve import run_forever, serve
from flipmeter.model.store.explain import explain
from flipmeter.model.store.export import export, open_stored, plan_prune, prune, stored_among
from flipmeter.model.store.merge import Merged, merge
from flipmeter.model.store.observed import Observed, observe
from flipmeter.model.store.store import Store

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
