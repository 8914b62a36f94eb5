"""Name -> SimSpec: the tilt that is planted in a rater."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from flipmeter.errors import Problem
from flipmeter.registry import Registry, suggestion
from flipmeter.types import Rank, Slot

SPREAD = 0.6
"""Standard deviation of the latent scores around their gold ranks."""


@dataclass(frozen=True)
class SimSpec:
    """The tilt of a simulated rater; everything is in log-odds and 0 switches it off.

    The log-odds of slot s, which stands for rank r, are
    `-sharpness * (latent - r)**2 + first*[s = 1] + last*[s = M] + slope*(s - 1) + recency*[s = d]`,
    where d is the slot that the last demonstration of the prompt shows. The answer is the best slot
    (ties go to the lower class) or, with noise, a draw from their softmax at temperature `noise`,
    which is the argmax under Gumbel noise of that size.
    """

    name: str = "custom"
    sharpness: float = 2.0
    """Slope of log-odds in the squared distance between a class and the latent score."""
    first: float = 0.0
    """Bonus for the first slot."""
    last: float = 0.0
    """Bonus for the last slot."""
    slope: float = 0.0
    """Bonus per slot from the second on: positive prefers late slots, negative early ones."""
    recency: float = 0.0
    """Bonus for the label shown on the last demonstration."""
    joint: float = 0.0
    """Ranks that a text seems higher where exactly one is so: labels are letters, tabs separate.

    Neither factor does anything by itself on average, only both together.
    """
    place: float = 0.0
    """Bonus for the answer or option that is shown first, whatever the order of the labels."""
    length: float = 0.0
    """Bonus for a longer answer, per logarithm of how much longer: a taste, not a position."""
    noise: float = 0.0
    """Temperature of a fresh draw for each prompt, repeat and seed; the request's is ignored."""
    refuse: float = 0.0
    """Share of texts, picked by their hash, that are answered with `REFUSAL`."""
    hidden: int = 0
    """Reasoning tokens that are counted in the usage and against max_tokens, but not shown."""

    def __post_init__(self) -> None:
        numbers = self.numbers()
        bad = [name for name, value in numbers.items() if not math.isfinite(value)]
        bad += [name for name in ("sharpness", "noise", "refuse", "hidden") if numbers[name] < 0]
        bad += ["refuse"] if self.refuse > 1 else []
        if bad:
            raise Problem(
                f"'sim/{self.name}' cannot have {bad[0]}={numbers[bad[0]]:g}; sharpness, noise "
                f"and "
                "hidden are at least 0, refuse is a share, all are finite"
            )

    def numbers(self) -> dict[str, float]:
        """The fields that a name may set."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "name"}

    def tilt(self, n_slots: int, demo_slot: Slot) -> list[float]:
        """The bonus of each slot; a `demo_slot` of 0 says that there is no demonstration."""
        bonus = [self.slope * k for k in range(n_slots)]
        bonus[0] += self.first
        bonus[-1] += self.last
        if demo_slot:
            bonus[demo_slot - 1] += self.recency
        return bonus

    def log_odds(self, latent: float, ranks: Sequence[Rank], demo_slot: Slot) -> list[float]:
        """The log-odds of the slots, up to a constant."""
        tilt = self.tilt(len(ranks), demo_slot)
        pairs = zip(ranks, tilt, strict=True)
        return [bonus - self.sharpness * (latent - rank) ** 2 for rank, bonus in pairs]

    def __str__(self) -> str:
        """The name with every setting that is not off."""
        on = [(key, f"{value!r}") for key, value in self.numbers().items() if value]
        return f"sim/{self.name}?" + "&".join(
            f"{key}={text.removesuffix('.0')}" for key, text in on
        )


@dataclass(frozen=True)
class Preset:
    """A named tilt, and the field that `strength` sets."""

    spec: SimSpec
    strength: str
    about: str


SIMS: Registry[Preset] = Registry("simulated rater")


def _preset(name: str, strength: str, about: str, **numbers: float) -> None:
    SIMS.add(name, Preset(_with_numbers(SimSpec(name), numbers), strength, about))


def _with_numbers(spec: SimSpec, numbers: Mapping[str, float]) -> SimSpec:
    """The specification with some numbers changed; `hidden` is a whole number."""
    whole = {"hidden": int(numbers["hidden"])} if "hidden" in numbers else {}
    return replace(spec, **{**numbers, **whole})  # type: ignore[arg-type]


_preset("honest", "", "no tilt and no noise: any flip is the instrument's error")
_preset("first-slot", "first", "1.5 log-odds for the first label of the list", first=1.5)
_preset("last-slot", "last", "1.5 log-odds for the last label of the list", last=1.5)
_preset("recency", "recency", "2 log-odds for the label of the last demonstration", recency=2.0)
_preset("joint", "joint", "reads one rank too high under letters or tabs, not both", joint=1.0)
_preset("noisy", "noise", "no tilt; every request draws at temperature 1", noise=1.0)
_preset("refusing", "refuse", "no tilt; one text in five is refused, whatever the view", refuse=0.2)
_preset("first-answer", "place", "1.5 log-odds for the answer that is shown first", place=1.5)
_preset("longer-answer", "length", "1.5 log-odds for longer answers, wherever they are", length=1.5)
_preset("biased-noisy", "first", "1.5 log-odds for slot 1, temperature 0.5", first=1.5, noise=0.5)


def sim_spec(name: str) -> SimSpec:
    """Read `sim/NAME?field=number&...`; `strength` sets what the preset is named for."""
    stem, _, query = name.removeprefix("sim/").partition("?")
    preset = SIMS[stem]
    known = list(preset.spec.numbers())
    settings: dict[str, float] = {}
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        field = preset.strength if key == "strength" else key
        if not field:
            raise Problem(f"'sim/{stem}' has no strength; set one of: {', '.join(known)}")
        if field not in known:
            near = suggestion(key, [*known, "strength"])
            raise Problem(f"a simulated rater has no '{key}'{near}")
        if field in settings:
            raise Problem(f"'{name}' sets {field} twice; keep one")
        try:
            settings[field] = float(value)
        except ValueError:
            raise Problem(f"{field}='{value}' in '{name}' is not a number") from None
        if field == "hidden" and not settings[field].is_integer():
            raise Problem(f"hidden={value} in '{name}' is not a whole number of tokens")
    return _with_numbers(preset.spec, settings)
