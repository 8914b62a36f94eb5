"""flipmeter: does an LLM rater change its mind when nothing but positions change?

The flow, one noun out of every stage; `types.py` defines the nouns, `rate.py` is the one loop:

    data -> probe -> prompt -> plan -> model -> parse -> decide -> measure -> report
    Item    View     Prompt    Request Reply    Answer   Decision  Estimate   page, tables

Above the stages: `rate` (rounds), `study` (the file), `runs` (the folder), `cli` (the verbs).
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from flipmeter.runs import Run, perform
from flipmeter.study import Study, read_study
from flipmeter.types import Problem

if TYPE_CHECKING:
    from flipmeter.classifier import OrdinalClassifier

try:
    __version__ = version("flipmeter")
except PackageNotFoundError:  # a bare checkout on the path
    __version__ = "0+unknown"

__all__ = [
    "OrdinalClassifier",
    "Problem",
    "Run",
    "Study",
    "__version__",
    "perform",
    "read_study",
]


def __getattr__(name: str) -> Any:
    """Import the classifier when it is used first: scikit-learn is large, and an extra."""
    if name != "OrdinalClassifier":
        raise AttributeError(f"module 'flipmeter' has no attribute '{name}'")
    try:
        from flipmeter.classifier import OrdinalClassifier
    except ModuleNotFoundError as error:
        if error.name != "sklearn":
            raise
        raise ImportError(
            "OrdinalClassifier needs scikit-learn; install it: pip install 'flipmeter[sklearn]'"
        ) from error
    return OrdinalClassifier
