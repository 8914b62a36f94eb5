"""flipmeter: does an LLM rater change its mind when nothing but positions change?

The flow, one noun out of every stage; `types.py` defines the nouns, `rate.py` is the one loop:

    data -> probe -> prompt -> plan -> model -> parse -> decide -> measure -> report
    Item    View     Prompt    Request Reply    Answer   Decision  Estimate   page, tables

Above the stages: `rate` (rounds), `study` (the file), `runs` (the folder), `cli` (the verbs).
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from flipmeter.types import Example, Label, Problem, Question

if TYPE_CHECKING:
    from flipmeter.run.perform import Run, perform
    from flipmeter.run.predictions import Predictions, read_predictions
    from flipmeter.ship.classifier import OrdinalClassifier
    from flipmeter.study.file import Study, read_study

try:
    __version__ = version("flipmeter")
except PackageNotFoundError:  # a bare checkout on the path
    __version__ = "0+unknown"

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
    "perform",
    "read_predictions",
    "read_study",
]

_HOMES = {
    "OrdinalClassifier": "ship.classifier",
    "Predictions": "run.predictions",
    "Run": "run.perform",
    "Study": "study.file",
    "perform": "run.perform",
    "read_predictions": "run.predictions",
    "read_study": "study.file",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the pytest plugin must not load polars."""
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
