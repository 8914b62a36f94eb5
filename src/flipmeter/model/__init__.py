"""Request -> Reply: serve what is stored, ask for the rest, lose nothing."""

from flipmeter.model.backend import Backend, Retry
from flipmeter.model.budget import Budget, OutOfBudget, Price
from flipmeter.model.cache import (
    explain,
    export,
    open_stored,
    plan_prune,
    prune,
    stored_among,
)
from flipmeter.model.ledger import Ledger
from flipmeter.model.names import (
    World,
    identity_of,
    interface_of,
    is_reproducible,
    local_models,
    open_backend,
    providers,
    request_for,
)
from flipmeter.model.planted import SIMS, Shown, SimSpec, predict_flip_rate, sim_spec
from flipmeter.model.run import Asked, Engine, ask_all
from flipmeter.model.serve import run_forever, serve
from flipmeter.model.sim import latents
from flipmeter.model.store import Store

__all__ = [
    "SIMS",
    "Asked",
    "Backend",
    "Budget",
    "Engine",
    "Ledger",
    "OutOfBudget",
    "Price",
    "Retry",
    "Shown",
    "SimSpec",
    "Store",
    "World",
    "ask_all",
    "explain",
    "export",
    "identity_of",
    "interface_of",
    "is_reproducible",
    "latents",
    "local_models",
    "open_backend",
    "open_stored",
    "plan_prune",
    "predict_flip_rate",
    "providers",
    "prune",
    "request_for",
    "run_forever",
    "serve",
    "sim_spec",
    "stored_among",
]
