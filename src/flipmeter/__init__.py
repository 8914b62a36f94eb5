"""flipmeter: does an LLM rater change its mind when nothing but positions change?

The flow, one noun out of every stage; `types.py` defines the nouns, `run/rate.py` is the one loop:

    data -> prompt -> ask -> pipelines -> stats -> show
    Item    Prompt    Reply  Decision     Estimate page, tables

Above the stages: `study` (the file), `run` (the loop and the folder), `choose` (a rater in use),
`api` (the public `Study` and `Run`), and at the top `paper`, `bridge` and `cli`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flipmeter.errors import Problem

if TYPE_CHECKING:
    from flipmeter import stats
    from flipmeter.api import Run, Study, read_study
    from flipmeter.choose.classifier import OrdinalClassifier
    from flipmeter.run.predictions import Predictions, read_predictions
    from flipmeter.stats.conclude import verdict
    from flipmeter.types import Example, Label, Question

    __version__: str

__all__ = [
    "Example",
    "Label",
    "OrdinalClassifier",
    "Predictions",
    "Problem",
    "Question",
    "Run",
    "Study",
    "__version__",
    "read_predictions",
    "read_study",
    "stats",
    "verdict",
]

_HOMES = {
    "Example": "types",
    "Label": "types",
    "Question": "types",
    "OrdinalClassifier": "choose.classifier",
    "Predictions": "run.predictions",
    "Run": "api",
    "Study": "api",
    "read_predictions": "run.predictions",
    "read_study": "api",
    "verdict": "stats.conclude",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the pytest plugin must not load polars."""
    if name == "__version__":
        return _version()
    if name == "stats":
        return import_module("flipmeter.stats")
    if name not in _HOMES:
        raise AttributeError(f"module 'flipmeter' has no attribute '{name}'")
    try:
        return getattr(import_module(f"flipmeter.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "sklearn":
            raise
        raise ImportError(
            f"{name} needs scikit-learn; install it: pip install 'flipmeter[sklearn]'"
        ) from error


def __dir__() -> list[str]:
    return __all__


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("flipmeter")
    except PackageNotFoundError:  # a bare checkout on the path
        return "0+unknown"
