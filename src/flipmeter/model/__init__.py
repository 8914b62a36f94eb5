"""Request -> Reply: serve what is stored, ask for the rest, lose nothing."""

from flipmeter.model.backends.backend import Backend, Capability
from flipmeter.model.backends.family import Family, World, backends
from flipmeter.model.backends.http import HttpBackend
from flipmeter.model.backends.ray import RayBackend, ray_cluster
from flipmeter.model.backends.sim.sim import latent_scores, latents, worth_of
from flipmeter.model.capabilities import (
    CAPABILITIES,
    Examination,
    asked_as,
    check_scored,
    examine,
    needs,
    note_dialect,
    recall_dialect,
    stated,
    unsent,
)
from flipmeter.model.endpoints import add_provider, has_endpoint
from flipmeter.model.engine.budget import Budget, Price, Spent, worst_case
from flipmeter.model.engine.engine import Engine
from flipmeter.model.engine.ledger import Ledger
from flipmeter.model.engine.pool import ServerGate
from flipmeter.model.engine.replicas import fleet_of
from flipmeter.model.names import (
    caching_of,
    can_be_reproducible,
    former_identity_of,
    identity_of,
    interface_of,
    is_callable,
    is_in_process,
    is_on_cluster,
    is_simulated,
    is_tested,
    open_backend,
    requests_for,
    without_logprobs,
    without_world,
)
from flipmeter.model.prices import PriceList, Quote, find_prices, read_prices
from flipmeter.model.self_test import learn_reproducible, recall_reproducible
from flipmeter.model.store.convert import convert
from flipmeter.model.store.export import export, open_stored, plan_prune, prune
from flipmeter.model.store.merge import merge
from flipmeter.model.store.observed import Observed, observe
from flipmeter.model.store.store import Store

__all__ = [
    "CAPABILITIES",
    "Backend",
    "Budget",
    "Capability",
    "Engine",
    "Examination",
    "Family",
    "HttpBackend",
    "Ledger",
    "Observed",
    "Price",
    "PriceList",
    "Quote",
    "RayBackend",
    "ServerGate",
    "Spent",
    "Store",
    "World",
    "add_provider",
    "asked_as",
    "backends",
    "caching_of",
    "can_be_reproducible",
    "check_scored",
    "convert",
    "examine",
    "export",
    "find_prices",
    "fleet_of",
    "former_identity_of",
    "has_endpoint",
    "identity_of",
    "interface_of",
    "is_callable",
    "is_in_process",
    "is_on_cluster",
    "is_simulated",
    "is_tested",
    "latent_scores",
    "latents",
    "learn_reproducible",
    "merge",
    "needs",
    "note_dialect",
    "observe",
    "open_backend",
    "open_stored",
    "plan_prune",
    "prune",
    "ray_cluster",
    "read_prices",
    "recall_dialect",
    "recall_reproducible",
    "requests_for",
    "stated",
    "unsent",
    "without_logprobs",
    "without_world",
    "worst_case",
    "worth_of",
]
