"""flipmeter: does an LLM rater change its mind when nothing but positions change?

The flow, one noun out of every stage; `types.py` defines the nouns, `rate.py` is the one loop:

    data -> probe -> prompt -> plan -> model -> parse -> decide -> measure -> report
    Item    View     Prompt    Request Reply    Answer   Decision  Estimate   page, tables

Above the stages: `rate` (rounds), `study` (the file), `runs` (the folder), `cli` (the verbs).
"""

from importlib.metadata import PackageNotFoundError, version

from flipmeter.predictions import Predictions, read_predictions
from flipmeter.runs import Run, perform
from flipmeter.study import Study, read_study
from flipmeter.types import Example, Label, Problem, Question

try:
    __version__ = version("flipmeter")
except PackageNotFoundError:  # a bare checkout on the path
    __version__ = "0+unknown"

__all__ = [
    "Example",
    "Label",
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
