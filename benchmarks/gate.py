"""Whether the gate's statistics hold what they say: errors under peeking, cover of intervals, episodes saved, rare failures.

    python -m benchmarks.gate [--only calibration|worst|ranking|lacking|flown|go1] [--quick] [--json] [--record]

In `calibration` and `worst` everything is drawn from laws whose truth is known. Where a row names several limits or rates its value is the worst of
them; over laws of training seeds it is the mean, with the worst and the best beside it.
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy import special, stats

from benchmarks import measure
from benchmarks.measure import Row, row
from benchmarks.rank import flown, lacking, ranking
from benchmarks.stranger import go1
from surefoot.belief import Box
from surefoot.gate import statistics
from surefoot.gate.statistics.rare_failures import Search, search
from surefoot.gate.statistics.sequential import RateTest, anytime, compare, log_evidence, threshold
from surefoot.params import Param, Params
from surefoot.rng import stream
from surefoot.verdict import clopper_pearson

BETTER, WORSE = 0.85, 0.70  # success rates of two policies to be told apart
ALPHA = 0.05


def calibration(quick: bool) -> Iterator[Row]:
    yield from peeking(20 if quick else 2000)
    yield from covers(20 if quick else 2000)
    yield from trials(20 if quick else 1000)
    yield from seeds(20 if quick else 2000)


def peeking(runs: int) -> Iterator[Row]:
    """A policy exactly at its limit, and two equal ones, looked at after every episode: how often is it called wrongly?"""
    rng, most = stream(0, "peeking"), 500
    x = rng.random((runs, most)) < 0.8
    n, k = np.arange(1, most + 1), np.cumsum(x, 1)
    z = (k / n - 0.8) / np.sqrt(0.16 / n)
    wald = (z[:, 9:] > stats.norm.ppf(1 - ALPHA)).any(1).mean()  # not before the tenth, where it means nothing
    yield row(
        "z-test, p at the limit of 0.8, peeked at 500 times: called above", wald, "of runs", note="what not to do"
    )
    found = []
    for p in (0.5, 0.8, 0.95):
        test = RateTest(p)
        found.append(np.mean([test.decide(r).answer == "holds" for r in rng.random((runs, most)) < p]))
    yield row("RateTest, p at limits of 0.5, 0.8, 0.95: called above", np.max(found), "of runs", at_most=ALPHA)
    for p in (0.7, 0.95):
        a, b = rng.random((2, runs, most)) < p
        called = np.mean([compare(r, s).better != "undecided" for r, s in zip(a, b)])
        yield row(f"compare, both at {p:g}: one called better", called, "of runs", at_most=ALPHA)
    note = "exact, all outcomes of 500 episodes: so near to 5 % that a simulation cannot tell"
    ends = [ever(p, ALPHA, most, sides=1)[-1] for p in (0.5, 0.8, 0.95)]
    yield row("RateTest with a planned end, the same limits", np.max(ends), "of runs", at_most=ALPHA, note=note)
    differ = stats.binom.pmf(np.arange(most + 1), most, np.array([[2 * p * (1 - p)] for p in (0.7, 0.95)]))
    both = differ @ ever(0.5, ALPHA / 2, most, sides=2)
    yield row("compare with a planned end, both at 0.7, 0.95", np.max(both), "of runs", at_most=ALPHA, note=note)


def ever(p: float, alpha: float, most: int, sides: int) -> np.ndarray:
    """(most + 1,) the probability that evidence against p is called within n episodes of success rate p."""
    going, c, found = np.zeros(most + 1), threshold(p, alpha, most), [0.0]
    going[0] = 1.0
    for n in range(1, most + 1):
        going = going * (1 - p) + p * np.r_[0.0, going[:-1]]
        k = np.arange(n + 1)
        stop = log_evidence(k, np.array(n), p) >= c
        stop |= (sides == 2) & (log_evidence(n - k, np.array(n), 1 - p) >= c)
        found.append(found[-1] + going[: n + 1][stop].sum())
        going[: n + 1][stop] = 0.0
    return np.array(found)


def covers(runs: int) -> Iterator[Row]:
    """Exact intervals at their worst p, summed over all outcomes; anytime ones over all times at once."""
    worst = []
    for n in (10, 50, 200):
        ends = np.array([clopper_pearson(k, n) for k in range(n + 1)])
        p = np.linspace(0.001, 0.999, 500)
        inside = (ends[:, :1] <= p) & (p <= ends[:, 1:])
        worst.append((stats.binom.pmf(np.arange(n + 1)[:, None], n, p) * inside).sum(0).min())
    yield row(
        "success interval, 10, 50, 200 episodes: cover at the worst p", np.min(worst), "of evaluations", at_least=0.95
    )
    most, rng = 200, stream(1, "covers")
    ends = np.zeros((most + 1, most + 1, 2))
    for n in range(1, most + 1):
        ends[n, : n + 1] = [anytime(k, n) for k in range(n + 1)]
    found = []
    for p in (0.5, 0.9, 0.99):
        n, k = np.arange(1, most + 1), np.cumsum(rng.random((runs, most)) < p, 1)
        low, high = np.moveaxis(ends[n, k], -1, 0)
        found.append(((low <= p) & (p <= high)).all(1).mean())
    yield row(
        "anytime interval, 0.5, 0.9, 0.99: covers after every one of 200", np.min(found), "of runs", at_least=0.95
    )


def barnard(power: float) -> int:
    """Episodes of each policy for Barnard's one-sided exact test (pooled z) to tell the two apart that often."""
    return next(n for n in range(60, 400) if _power(n) >= power)


def _power(n: int) -> float:
    k = np.arange(n + 1)
    pooled = (k[:, None] + k) / (2 * n)
    z = (k[:, None] - k) / n / np.sqrt(np.maximum(pooled * (1 - pooled), 1e-12) * 2 / n)
    null = stats.binom.pmf(k, n, np.linspace(0.01, 0.99, 99)[:, None])  # (99, n + 1)
    size = lambda c: np.einsum("ij,jk,ik->i", null, (z >= c).astype(float), null, optimize=True).max()  # noqa: E731
    steps = np.unique(np.round(z[z > 1.2], 9)) - 1e-9
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if size(steps[middle]) <= ALPHA else (middle + 1, high)
    return float(stats.binom.pmf(k, n, BETTER) @ (z >= steps[low]) @ stats.binom.pmf(k, n, WORSE))


def trials(runs: int) -> Iterator[Row]:
    """Episodes of each policy until 0.85 is told from 0.70, against the fixed sample of a Barnard test."""
    rng, most = stream(2, "trials"), 300
    fixed = {power: barnard(power) for power in (0.8, 0.9, 0.95)}
    for power, n in fixed.items():
        yield row(f"Barnard, {BETTER} against {WORSE}: for {100 * power:g} % power", n, "episodes each")
    luck, other = rng.random((2, runs, 3 * most))
    for name, b, end in (
        ("no end planned", other, None),
        ("at most 300", other, most),
        ("at most 300, same luck for both", luck, most),
    ):
        found = [compare(x[:end] < BETTER, y[:end] < WORSE, sides=1, most=end) for x, y in zip(luck, b)]
        n, power = np.array([f.episodes for f in found]), np.mean([f.better == "a" for f in found])
        said = (
            f"says so in {100 * power:.1f} % of runs; quartiles {np.quantile(n, 0.25):.0f}, {np.quantile(n, 0.75):.0f}"
        )
        yield row(f"compare, {name}: median", np.median(n), "episodes each", note=said)
        for p in (0.95, 0.9) if b is other else (0.95,):
            goal = {"at_most": 0.6} if p == 0.95 else {}
            yield row(f"compare, {name} / Barnard of {100 * p:g} % power", np.median(n) / fixed[p], "ratio", **goal)


LAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda g, s: g.standard_normal(s),
    "uniform": lambda g, s: g.random(s),
    "log-normal": lambda g, s: np.exp(0.5 * g.standard_normal(s)),
    "near its top": lambda g, s: g.beta(8, 2, s),
    "heavy tails": lambda g, s: g.standard_t(3, s),
    "exponential": lambda g, s: g.standard_exponential(s),
    "a fifth fail": lambda g, s: (g.random(s) < 0.8) + 0.1 * g.standard_normal(s),
}


def seeds(runs: int) -> Iterator[Row]:
    """Over seven laws of what a training seed brings: how often does a 95 % interval cover?"""
    rng, note = stream(3, "seeds"), "the mean of seven laws, the worst and the best"
    truth = {name: law(rng, (1_000_000,)) for name, law in LAWS.items()}
    for n in (5, 10, 20):
        found: dict[str, list[float]] = {"median": [], "student": [], "bootstrap": []}
        for name, law in LAWS.items():
            x = law(rng, (runs, n))
            middle, mean = float(np.median(truth[name])), float(truth[name].mean())
            found["median"].append(_cover([statistics.seeds(r) for r in x], middle))
            found["student"].append(_cover([statistics.mean(r) for r in x], mean))
            some = x[:1000]
            low, high = np.quantile(some[:, rng.integers(0, n, (500, n))].mean(2), [0.025, 0.975], axis=1)
            found["bootstrap"].append(float(((low <= mean) & (mean <= high)).mean()))
        spread = {k: [min(v), float(np.mean(v)), max(v)] for k, v in found.items()}
        yield row(
            f"{n} seeds, median by order statistics: covers", spread["median"], "of runs", at_least=0.93, note=note
        )
        yield row(f"{n} seeds, mean by Student: covers", spread["student"], "of runs", note=note)
        yield row(f"{n} seeds, mean by plain bootstrap: covers", spread["bootstrap"], "of runs", note=note)
    for n, m in ((5, 1), (5, 4), (10, 4)):
        cover = []
        for name, law in LAWS.items():
            level = np.arange(m) * truth[name].std()
            goal = statistics.iqm(law(rng, (200_000, m)) + level)
            tables = law(rng, (max(runs // 4, 5), n, m)) + level
            cover.append(_cover([statistics.iqm_interval(t, rng, draws=1000) for t in tables], goal))
        all_laws = [min(cover), float(np.mean(cover)), max(cover)]
        yield row(f"IQM of {n} runs on {m} tasks: covers", all_laws, "of tables", at_least=0.93, note=note)


def _cover(found: list[statistics.Estimate], truth: float) -> float:
    return float(np.mean([f.low is not None and f.high is not None and f.low <= truth <= f.high for f in found]))


RARE = 1e-3


def regions(d: int) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Margins on a unit cube that are below 0 with probability RARE."""
    corner, each = 1 - RARE ** (1 / d), 1 - (RARE / 2) ** (1 / d)
    radius = (RARE * special.gamma(d / 2 + 1) / np.pi ** (d / 2)) ** (1 / d)
    return {
        "corner": lambda e: (corner - e).max(1),
        "ball in the middle": lambda e: np.linalg.norm(e - np.linspace(0.4, 0.6, d), axis=1) - radius,
        "thin slab": lambda e: np.abs(e[:, 0] - 0.37) - RARE / 2,
        "two corners": lambda e: np.minimum((each - e).max(1), (e - (1 - each)).max(1)),
        "corner, coarse margin": lambda e: np.floor(8 * (corner - e).max(1)) / 8,
        "corner, margin of noise": lambda e: np.where((corner - e).max(1) < 0, -1.0, np.sin(1e4 * e.sum(1)) ** 2),
    }


def worst(quick: bool) -> Iterator[Row]:
    """A failure of one world in a thousand, in several shapes: random search expects 1000 episodes to the first."""
    inside: list[bool] = []
    for d in (3, 6):
        params = Params(tuple(Param(f"e{i}", "mass", 0.5, 0.0, 1.0, op="set") for i in range(d)))
        for name, margin in regions(d).items():
            promised = d == 3 and "," not in name
            if promised or d == 3 or "," not in name:
                runs = 1 if quick else 20 if promised else 5
                found = [search(lambda e: ((m := margin(e)) >= 0, m), Box.full(params), s) for s in range(runs)]  # noqa: B023
                yield _first(f"{name}, {d} unknowns", found, promised)
                yield _rated(f"{name}, {d} unknowns", found)
                inside += [f.rate.low <= RARE <= f.rate.high for f in found if promised]
    yield row("the four shapes in 3 unknowns: 95 % interval covers", np.mean(inside), "of searches", at_least=0.9)


def _first(name: str, found: list[Search], promised: bool) -> Row:
    first = np.array([f.first if f.first is not None and f.first <= 100 else np.inf for f in found])
    note = f"the first after {np.min(first):.0f} .. {np.max(first):.0f} episodes" if np.isfinite(first).all() else ""
    goal = {"at_least": 0.9} if promised else {}
    return row(f"{name}: found in 100 episodes", np.mean(first <= 100), "of searches", note=note, **goal)


def _rated(name: str, found: list[Search]) -> Row:
    low, high = (np.array([getattr(f.rate, end) for f in found]) for end in ("low", "high"))
    covers = int(((low <= RARE) & (high >= RARE)).sum())
    note = (
        f"median high end {np.median(high):.2g}, low {np.median(low):.2g}; {covers} of {len(found)} hold the true 0.001"
    )
    return row(f"{name}: failure rate found", [f.rate.value for f in found], "of worlds", note=note)


PARTS = {"calibration": calibration, "worst": worst, "ranking": ranking, "lacking": lacking, "flown": flown, "go1": go1}

if __name__ == "__main__":
    measure.main("gate", __doc__.split("\n")[0], PARTS)
