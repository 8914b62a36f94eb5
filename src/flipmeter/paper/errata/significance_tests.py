"""McNemar's test against noise: how it was halved, and ten tests that pass for one."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from scipy import special

from flipmeter.measure import mcnemar
from flipmeter.measure.inference.significance import is_shown
from flipmeter.measure.statistics.formulas import Method, holm, mcnemar_statistic
from flipmeter.paper.bench import Bench
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import published

DISCORDANT = (10, 20, 36)
"""Number of discordant items; the paper's models have 18 to 36."""
N_RATERS = 10
METHODS: tuple[Method, Method] = ("paper", "mid-p")


@erratum(
    "halved-mcnemar",
    title="McNemar's corrected test is halved, and ten models are ten tests",
    where="Phase 0 table, panel (b): six of ten models are significant",
    rule="The two-sided p of the continuity-corrected chi-square is cut in half. The correction "
    "makes the test miss effects, halving alone ignores the direction, and ten tests at "
    "5 % each are read as one.",
    remedy="Mid-p, one-sided, with Holm over the models; repeat both orders, so that a quieter "
    "reversed run does not hide an effect.",
)
def halved_mcnemar(bench: Bench) -> Rows:
    """The paper's own counts by both rules, and the exact error of each on honest raters."""
    return [*_own_counts(), *_errors()]


def _own_counts() -> Iterator[ErratumRow]:
    table, counts = published("phase0"), list(_discordant())
    halved, mid = ([mcnemar(b, c, method) for b, c in counts] for method in METHODS)
    n_printed = table["sig"].to_list().count("1")
    yield ErratumRow(
        "models above their noise",
        f"{n_printed} of {len(table)}",
        f"{sum(map(is_shown, halved))} of {len(counts)} (the paper's p, recomputed)",
        f"{sum(map(is_shown, holm(mid)))} of {len(counts)}",
    )
    pro = table["model"].to_list().index("DeepSeek V4 Pro")
    b, c = counts[pro]
    what = f"p of DeepSeek V4 Pro, b = {b}, c = {c}"
    yield ErratumRow(what, table["p"][pro], halved[pro], mid[pro], unit="p")


def _errors() -> Iterator[ErratumRow]:
    """Results for raters without a preference; the tests are exact, so nothing is sampled."""
    b, c = 5, 15
    yield ErratumRow(
        f"p of a rater with fewer flips than noise, b = {b}, c = {c}",
        "",
        float(special.chdtrc(1, mcnemar_statistic(b, c)) / 2),
        mcnemar(b, c, "mid-p"),
        unit="p",
    )
    for n in DISCORDANT:
        what = f"honest raters called biased, {n} discordant items (5 % allowed)"
        wrong = (_error(n, method) for method in METHODS)
        yield ErratumRow(what, "", *wrong, unit="share")
    some = f"one or more of {N_RATERS} honest raters called biased, {n} discordant items each"
    alone = (_error(n, "paper"), _error(n, "mid-p", N_RATERS))
    yield ErratumRow(some, "", *(1 - (1 - error) ** N_RATERS for error in alone), unit="share")


def _discordant() -> Iterator[tuple[int, int]]:
    """b and c of every model; where the paper's numbers leave them open, the least favourable."""
    for row in published("derived_phase0_counts").to_dicts():
        b, c = row["mcnemar_b_total_only"], row["mcnemar_c_noise_only"]
        if b is not None:
            yield int(b), int(c)
        else:
            total, noise = int(row["total_k"]), int(row["noise_k"])
            most = min(noise, total)
            open_c = 5 if "22/5" in row["note"] else most
            yield total - noise + open_c, open_c


def _error(n: int, method: Method, n_tests: int = 1) -> float:
    """Probability that an honest rater with n discordant items is called biased.

    Holm holds the smallest p of several tests to the level divided by their number.
    """
    found = (b for b in range(n + 1) if is_shown(n_tests * mcnemar(b, n - b, method)))
    return float(sum(comb(n, b) / 2**n for b in found))
