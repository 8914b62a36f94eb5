"""Study -> Condition: the grid, with as many repeats as what is known of its engines calls for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flipmeter.model import Capability, Store, is_tested, learn_reproducible, recall_reproducible
from flipmeter.run.interim import Listener
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions, is_settled
from flipmeter.types import Condition, Dataset, Model, Rater

Tested = Mapping[Model, Capability]
"""The known reproducibility of the engines in this process."""


@dataclass(frozen=True)
class LaidOut:
    """A grid, and what is known of the engines that answer it."""

    grid: Sequence[Condition]
    tested: Tested

    @property
    def reproducible(self) -> list[str]:
        """The names of the raters whose replies are shown, or stated, to be reproducible."""
        shown = _shown(self.tested)
        return sorted({one.rater.name for one in self.grid if is_settled(one.rater, shown)})

    @property
    def warnings(self) -> dict[str, list[str]]:
        """By rater, that its engine failed the self-test."""
        return {
            one.rater.name: [f"replies are not reproducible ({self.tested[one.rater.model].how})"]
            for one in self.grid
            if one.rater.model in self.tested and not self.tested[one.rater.model].is_there
        }


def lay_out(
    study: Study, datasets: Sequence[Dataset], tested: Tested, given: Sequence[Condition] = ()
) -> LaidOut:
    """The grid of a study, or one that is given, beside what is known of its engines."""
    return LaidOut(given or conditions(study, datasets, _shown(tested)), tested)


def recall_settled(raters: Sequence[Rater], store: Store) -> dict[Model, Capability]:
    """The known reproducibility of some raters' engines; no weights are loaded."""
    return {model: recall_reproducible(model, store) for model in _engines(raters)}


async def learn_settled(
    raters: Sequence[Rater], store: Store, listener: Listener
) -> dict[Model, Capability]:
    """The reproducibility of some raters' engines; those not tested yet are tested now."""
    return {
        model: await learn_reproducible(
            model, store, progress=listener.on_fetch, on_test=listener.on_test
        )
        for model in _engines(raters)
    }


def _engines(raters: Sequence[Rater]) -> Iterator[Model]:
    """The models that may be reproducible as they are asked, each once."""
    asked = (r.model for r in raters if r.decoding.is_greedy and not r.n_draws)
    return filter(is_tested, dict.fromkeys(asked))


def _shown(tested: Tested) -> set[Model]:
    return {model for model, found in tested.items() if found.is_there}
