"""What would explain a log: a push on the model, held for a few steps, that lets it follow the machine; and nets of it.

    g_w = argmin_g sum_h |(y(x_w, u, g)_h - y_h) / noise|^2      one push g for each window w of h = 1..H steps

The engine is asked how a window's end moves with g (one simulation more for each component), and one Gauss-Newton step
is taken: the engine is linear in a small push. g is a generalised force (N, N m), or an offset to the controls.

An ensemble of nets then learns g(x, u) from all windows, so that its mean along each is g_w. What counts is not how well it fits the pushes but how well the
model with it inside predicts a log it was not shown.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from surefoot.belief import Belief
from surefoot.errors import LogError, SurefootError
from surefoot.log import Log
from surefoot.real2sim.replay import Windows, encoder_shift, predict, stretches, windows
from surefoot.real2sim.signals import controls, measured, starts
from surefoot.report import Progress, Watch
from surefoot.rng import stream
from surefoot.sim.layout import mass_matrix, model_of
from surefoot.sim.learned import DeltaAction, Ensemble, Layout, MissingForce, doubt
from surefoot.world import Chance, OnAction, OnForce, Start, State, Term, World

Push = Literal["force", "control"]
MOST = 8192  # simulations at once
KNOWN = 0.99  # share of the data that are trusted in full: the rest lie at their edge, where little is known
FAINT = 0.03  # of a push's usual effect: below it a window says nothing of that push, as a motor at its limit does not


@dataclass(frozen=True)
class Fitting:
    """Settings of learning what a model lacks."""

    spans: tuple[float, ...] = (0.02, 0.06, 0.15)
    """s: lengths of window over which a push is held; the one whose nets predict best is kept"""
    rounds: int = 2
    """how often pushes are worked out anew about what was learned so far"""
    horizon: float = 0.5
    """s: predictions this long are what is judged"""
    members: int = 5
    """nets in the ensemble"""
    hidden: tuple[int, ...] = (32, 32)
    """widths of their layers"""
    updates: int = 1500
    """gradient steps of each fit"""
    batch: int = 256
    """windows in each"""
    rate: float = 0.01
    """largest step size"""
    decay: float = 0.01
    """weight decay: of two nets that fit alike, the flatter"""
    prior: float = 0.5
    """size of the random part of each net, against that of the pushes: off the data the members differ by as much"""
    select: float = 0.16
    """share of the log, before its last part, by which a span and a round are chosen"""
    held_out: float = 0.2
    """share of the log, its last part, that nothing is chosen by: it says what was explained"""


@dataclass(frozen=True)
class HeldForce(OnForce):
    force: np.ndarray  # (n, nv)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.force


@dataclass(frozen=True)
class HeldOffset(OnAction):
    offset: np.ndarray  # (n, nu)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return u + self.offset


@dataclass(frozen=True, eq=False)
class Track:
    """A log as states of a model: where it was at each row, with what its slow actuators had reached by then."""

    world: World
    log: Log
    e: np.ndarray  # (ne,)
    q: np.ndarray  # (T, nq)
    v: np.ndarray  # (T, nv)
    u: np.ndarray  # (T, nu)
    act: np.ndarray  # (T, na)

    def pieces(self, seconds: float, stride: int = 1) -> Windows:
        """Windows of so many seconds, that begin with actuators as the model has them there."""
        length = max(1, round(seconds / self.world.dt))
        found = windows(self.world, self.log, length, stride)
        act = self.act[found.rows] if self.world.na else None
        return replace(found, start=replace(found.start, act=act))

    @cached_property
    def noise(self) -> dict[str, float]:
        """Signal -> sd of its noise, from third differences, which leave nothing of what is smooth; over its spread, at
        least a thousandth: a column without noise must not silence the others."""
        found = {}
        for s in windows(self.world, self.log, 1).signals:
            y = measured(self.log, s.name)
            third = s.error(y[3:], y[2:-1]) - 2 * s.error(y[2:-1], y[1:-2]) + s.error(y[1:-2], y[:-3])
            step = np.sqrt(np.nanmean(np.square(s.error(y[1:], y[:-1]))))
            found[s.name] = float(max(np.sqrt(np.nanmean(np.square(third)) / 20), 0.01 * step, 1e-12))
        return found

    def phi(self, rows: np.ndarray) -> np.ndarray:
        return Layout.of(model_of(self.world)).read(self.q[rows], self.v[rows], self.u[rows], self.act[rows])


def track(world: World, belief: Belief, log: Log) -> Track:
    """Walk along a log, set back to what was measured at every row, to find what its slow actuators had reached."""
    _whole(world, log)
    e, rows, one = belief.estimate(), np.arange(len(log)), world.with_(1)
    x, u = starts(world, log, rows), controls(world, log)
    u, at = np.where(np.isfinite(u), u, 0.0), x.q - encoder_shift(world, e[None])
    act = np.zeros((len(log), world.na))
    if world.na or (model_of(world).actuator_history[:, 0] > 0).any():
        q, v = (_filled(a) for a in (at, x.v))
        first = None if x.act is None else _filled(x.act)[:1]
        one.reset(np.arange(1), e[None], Start(q[:1], v[:1], u[:1], first))
        for k in rows:
            one.set_state(q[k : k + 1], v[k : k + 1])
            act[k] = one.state.act[0]
            one.step(u[k : k + 1], Chance(0, int(k), world.dt))
    return Track(world, log, e, at, x.v, u, act)


def _filled(a: np.ndarray) -> np.ndarray:
    """Rows that were not measured hold the last that was: no window begins there, but the walk goes through."""
    good = np.isfinite(a).all(1)
    last = np.maximum.accumulate(np.where(good, np.arange(len(a)), -1))
    return a[np.where(last < 0, np.argmax(good), last)]


def _whole(world: World, log: Log) -> None:
    """Refuse a log that does not say where every part of the model was."""
    Layout.of(model_of(world))
    need = ["base_pos", "base_quat", "base_ang_vel"] if world.layout.base is not None else []
    need += ["joint_pos"] if world.layout.joints else []
    for name in (*need, "control"):
        if name not in log.columns:
            raise LogError(
                f"column {name}: found none among {', '.join(log.columns)}; a force can be found only where "
                "all of the state was measured"
            )


def pushes(at: Track, pieces: Windows, push: Push, terms: tuple[Term, ...]) -> np.ndarray:
    """(w, d) the push of each window, on top of what `terms` already do."""
    size = probe(at, push)
    step = max(1, MOST // (len(size) + 1))
    parts = [_pushes(at, pieces.some(slice(k, k + step)), push, terms, size) for k in range(0, len(pieces), step)]
    return np.concatenate(parts)


def _pushes(at: Track, pieces: Windows, push: Push, terms: tuple[Term, ...], size: np.ndarray) -> np.ndarray:
    d, w = len(size), len(pieces)
    held = np.repeat(np.concatenate([np.zeros((1, d)), np.diag(size)]), w, 0)  # ((d + 1) w, d)
    term: Term = HeldForce(held) if push == "force" else HeldOffset(held)
    world = at.world.with_(len(held), (*terms, term))
    motion = predict(world, pieces, np.tile(at.e, (d + 1, 1)))
    errors = [x.reshape(d + 1, w, -1) / at.noise[name] for name, x in pieces.errors(motion).items()]
    r = np.concatenate(errors, 2)  # (d + 1, w, m)
    J = np.moveaxis(r[1:] - r[0], 0, 2)  # (w, m, d), of one probe each
    JJ, Jr = np.einsum("wmi,wmj->wij", J, J), np.einsum("wmi,wm->wi", J, r[0])
    ridge = 1e-9 * np.trace(JJ, axis1=1, axis2=2)[:, None, None] * np.eye(d) + 1e-30 * np.eye(d)
    inverse = np.linalg.pinv(JJ + ridge, hermitian=True)
    found = -np.einsum("wij,wj->wi", inverse, Jr) * size
    told = 1 / np.sqrt(np.maximum(np.einsum("wii->wi", inverse), 1e-300))  # how much a window tells of each component
    good = np.isfinite(found).all(1) & ~motion.diverged[:w] & (told > FAINT * np.median(told, 0)).all(1)
    return np.where(good[:, None], found, np.nan)


def probe(at: Track, push: Push) -> np.ndarray:
    """(d,) how large a push to ask the engine with: about a tenth of what moved the machine."""
    if push == "control":
        return np.maximum(0.1 * np.nanstd(at.u, 0), 1e-6)
    faster = np.sqrt(np.nanmean(np.square(np.diff(at.v, axis=0)), 0)) / at.world.dt
    return np.maximum(0.1 * faster, 1e-3) * np.diag(mass_matrix(at.world, _filled(at.q)[0]))


def term_of(push: Push, layout: Layout, net: Ensemble) -> MissingForce | DeltaAction:
    return MissingForce(layout, net) if push == "force" else DeltaAction(layout, net)


def fit(phi: np.ndarray, y: np.ndarray, s: Fitting, seed: int) -> Ensemble:
    """An ensemble whose mean along windows phi (n, h, i) is y (n, o): controls may jump within a window, a push does not.

    Members see other blocks of the data, and have other priors.
    """
    import torch

    rows_ = phi.reshape(-1, phi.shape[2])
    mean, sd = rows_.mean(0), np.maximum(rows_.std(0), 1e-6)
    scale = np.maximum(np.sqrt(np.square(y).mean(0)), 1e-12)
    z, K = np.clip((phi - mean) / sd, -10, 10), s.members
    rng, sizes = stream(seed, "ensemble"), [phi.shape[2], *s.hidden, y.shape[1]]
    a: dict[str, np.ndarray] = {}
    for k, (i, o) in enumerate(zip(sizes, sizes[1:])):
        a[f"w{k}"], a[f"b{k}"] = rng.standard_normal((K, o, i)) / np.sqrt(i), np.zeros((K, o))
    wide = 64
    a["p_w0"], a["p_b0"] = rng.standard_normal((K, wide, sizes[0])) / np.sqrt(sizes[0]), rng.standard_normal((K, wide))
    a["p_w1"] = s.prior * rng.standard_normal((K, sizes[-1], wide)) / np.sqrt(wide)
    hidden = np.maximum(z @ a["p_w0"].transpose(0, 2, 1)[:, None] + a["p_b0"][:, None, None], 0)  # (K, n, h, wide)
    prior = (hidden @ a["p_w1"].transpose(0, 2, 1)[:, None]).mean(2)
    f = lambda x: torch.from_numpy(np.asarray(x, np.float32))  # noqa: E731
    inputs, target, weight = f(z), f(y / scale - prior), f(_blocks(len(y), K, rng))
    trained = {k: f(v).requires_grad_() for k, v in a.items() if not k.startswith("p_")}
    adam = torch.optim.AdamW(trained.values(), s.rate, weight_decay=s.decay)
    paces = torch.optim.lr_scheduler.OneCycleLR(adam, s.rate, s.updates)
    for _ in range(s.updates):
        rows = torch.from_numpy(rng.integers(0, len(z), min(s.batch, len(z))))
        x = inputs[rows].flatten(0, 1)[None]
        for k in range(len(sizes) - 1):
            x = x @ trained[f"w{k}"].transpose(1, 2) + trained[f"b{k}"][:, None]
            x = torch.tanh(x) if k < len(sizes) - 2 else x
        x = x.unflatten(1, (-1, phi.shape[1])).mean(2)
        # Huber's loss: a contact that breaks within a window gives a push that explains nothing else
        loss = torch.nn.functional.huber_loss(x, target[:, rows], reduction="none").mean(2) * weight[:, rows]
        adam.zero_grad()
        loss.mean().backward()
        adam.step()
        paces.step()
    a |= {k: v.detach().numpy().astype(float) for k, v in trained.items()}
    net = Ensemble(a | {"mean": mean, "sd": sd, "scale": scale, "doubt": np.zeros(())})
    own = np.quantile(doubt(net.members(rows_)), KNOWN)
    return Ensemble({**net.arrays, "doubt": np.array(own)})


def _blocks(n: int, members: int, rng: np.random.Generator) -> np.ndarray:
    """(K, n) how often each member sees each row: whole stretches drawn with replacement, as neighbours say the same."""
    block = max(1, n // 20)
    count = -(-n // block)
    drawn = rng.multinomial(count, np.full(count, 1 / count), members)
    return np.repeat(drawn, block, 1)[:, :n].astype(float)


@dataclass(frozen=True)
class Explained:
    """What was learned, and what it is worth on the part of the log that nothing was learned or chosen from."""

    term: MissingForce | DeltaAction
    share: float
    """of the squared prediction error over the horizon, that is gone"""
    low: float
    """where the 95 % interval of that share begins, by resampling windows"""
    errors: dict[str, dict[str, Any]]
    """signal -> root mean square error after the horizon, without and with it, and its unit"""
    facts: dict[str, Any]


def explain(
    world: World, belief: Belief, log: Log, push: Push, s: Fitting, seed: int = 0, watch: Watch | None = None
) -> Explained:
    """Learn what the model lacks. Refused where it explains nothing of the held-out part."""
    at = track(world, belief, log)
    judges = judging(at, s)[0]
    ends = [round(f * len(log)) for f in (1 - s.held_out - s.select, 1 - s.held_out)]
    chosen = judges.some((judges.rows >= ends[0]) & (judges.rows + judges.length < ends[1]))
    if len(chosen) < 2:
        raise _too_short(at, s, "choose", ends[0], ends[1])
    best: tuple[float, MissingForce | DeltaAction, float] | None = None
    tried: list[dict[str, float]] = []
    for k, span in [(0, span) for span in s.spans] + [(k, 0.0) for k in range(1, s.rounds)]:
        if watch is not None:
            most = len(s.spans) + s.rounds - 1
            watch(Progress(f"learning, {len(tried) + 1} of {most}", len(tried) / most))
        about = (best[1], best[2]) if k and best is not None else (None, span)
        term = learned(at, push, about[1], about[0], ends, s, seed)
        left = float(_misses(at, chosen, (term,)).mean())
        tried.append({"span": about[1], "round": k, "misses": left})
        if best is None or left < best[0]:
            best = (left, term, about[1])
    assert best is not None
    term = pruned(at, chosen, best[1], best[0])
    return judged(at, term, {"push": push, "span": best[2], "tried": tried}, s, seed)


def judging(at: Track, s: Fitting) -> tuple[Windows, Windows]:
    """All windows as long as the horizon, and those of the held-out part."""
    begin = round((1 - s.held_out) * len(at.log))
    if _longest(at, begin, len(at.log)) < round(s.horizon / at.world.dt):
        raise _too_short(at, s, "judge", begin, len(at.log))
    judges = at.pieces(s.horizon, max(1, round(s.horizon / at.world.dt / 5)))
    final = judges.some(judges.rows >= begin)
    if len(final) < 2:
        raise _too_short(at, s, "judge", begin, len(at.log))
    return judges, final


def _longest(at: Track, begin: int, end: int) -> int:
    """Control periods of the longest stretch without a gap among rows begin..end - 1."""
    seen, told = (np.isfinite(a).all(1) for a in (np.hstack([at.q, at.v]), controls(at.world, at.log)))
    return max(max(0, min(b, end - 1) - max(a, begin)) for a, b in stretches(at.world, at.log, seen, told))


def _too_short(at: Track, s: Fitting, use: str, begin: int, end: int) -> SurefootError:
    """Two horizons in a row hold windows enough. More rows do not help where gaps, as between episodes, are denser."""
    dt, need = at.world.dt, 2 * s.horizon
    rows = int(np.ceil((need / dt + 1) / min(s.select, s.held_out)))
    more = f"a longer log, of {rows} rows or more" if (end - begin - 1) * dt < need else f"episodes of at least {need:g} s: record with --policy"  # fmt: skip
    return LogError(
        f"found {len(at.log)} rows, and in the part to {use} by no stretch without a break longer than "
        f"{_longest(at, begin, end) * dt:.3g} s, for windows of {s.horizon:g} s; expected {more}"
    )


def pruned(at: Track, chosen: Windows, term: MissingForce | DeltaAction, left: float) -> MissingForce | DeltaAction:
    """The Term without the outputs that predictions are no worse without: noise in a sensor is in the pushes and in what
    a net reads, too, and looks like a law between them."""
    for j in range(term.net.outputs):
        scale = np.where(np.arange(term.net.outputs) == j, 0.0, term.net.arrays["scale"])
        less = replace(term, net=Ensemble({**term.net.arrays, "scale": scale}))
        now = float(_misses(at, chosen, (less,)).mean())
        if now <= left:
            term, left = less, now
    return term


def learned(
    at: Track, push: Push, span: float, about: MissingForce | DeltaAction | None, ends: list[int], s: Fitting, seed: int
) -> MissingForce | DeltaAction:
    """A Term fitted to the pushes of windows of `span` seconds, worked out about an earlier one where there is one."""
    layout = Layout.of(model_of(at.world))
    pieces = at.pieces(span, max(1, round(span / at.world.dt / 3)))
    pieces = pieces.some(pieces.rows + pieces.length < ends[1])
    middle = pieces.rows + pieces.length // 2
    y = pushes(at, pieces, push, at.world.terms if about is None else (*at.world.terms, about))
    y = layout.turned(at.q[middle], y, back=True) if push == "force" else y
    rows = pieces.rows[:, None] + np.arange(pieces.length)
    phi = at.phi(rows.ravel()).reshape(*rows.shape, -1)  # (w, h, i)
    y = y if about is None else y + along(about.net, phi)
    good = np.isfinite(y).all(1) & np.isfinite(phi).all((1, 2))
    early, late = (good & mask for mask in (pieces.rows + pieces.length < ends[0], pieces.rows >= ends[0]))
    if min(early.sum(), late.sum()) < 20:
        raise LogError(
            f"found {early.sum()} and {late.sum()} windows of {span:g} s to learn from and to choose by, expected at "
            "least 20 of each"
        )
    net = fit(phi[early], y[early], s, seed)
    return term_of(push, layout, shrunk(net, phi[late], y[late]))


def along(net: Ensemble, phi: np.ndarray) -> np.ndarray:
    """(w, o) the mean of what a net says along windows phi (w, h, i)."""
    return net(phi.reshape(-1, phi.shape[2])).reshape(*phi.shape[:2], -1).mean(1)


def shrunk(net: Ensemble, phi: np.ndarray, y: np.ndarray) -> Ensemble:
    """Each output times b = <g, y> / <g, g> in [0, 1] on pushes it was not fitted to: what is only noise becomes 0."""
    found = along(net, phi)
    b = np.clip((found * y).sum(0) / np.maximum(np.square(found).sum(0), 1e-30), 0.0, 1.0)
    return Ensemble({**net.arrays, "scale": net.arrays["scale"] * b})


def _errors(at: Track, pieces: Windows, terms: tuple[Term, ...]) -> dict[str, np.ndarray]:
    return pieces.errors(predict(at.world.with_(len(pieces), (*at.world.terms, *terms)), pieces, at.e[None]))


def _misses(at: Track, pieces: Windows, terms: tuple[Term, ...]) -> np.ndarray:
    """(w,) mean square error of each window, every signal in units of its noise."""
    with np.errstate(over="ignore", invalid="ignore"):
        each = [np.square(x / at.noise[k]).mean((1, 2)) for k, x in _errors(at, pieces, terms).items()]
    return np.nan_to_num(np.mean(each, 0), nan=np.inf, posinf=np.inf)


def judged(at: Track, term: MissingForce | DeltaAction, facts: dict[str, Any], s: Fitting, seed: int = 0) -> Explained:
    """What a Term explains of the held-out part; refused where that is nothing."""
    final = judging(at, s)[1]
    before, after = (_misses(at, final, terms) for terms in ((), (term,)))
    share = 1 - float(after.mean() / before.mean())
    rows = stream(seed, "resampled windows").integers(0, len(final), (2000, len(final)))
    low = float(np.quantile(1 - after[rows].mean(1) / before[rows].mean(1), 0.025)) if np.isfinite(share) else -np.inf
    if not low > 0:
        raise LogError(
            f"what was learned explains {100 * share:.0f} % of the held-out prediction error, from {100 * low:.0f} %: "
            "nothing. Is the model already right, the log too short, or what it lacks not a function of state and control?"
        )
    unit = {s.name: s.unit for s in final.signals}
    ends = [_ends(final, _errors(at, final, terms)) for terms in ((), (term,))]
    errors: dict[str, dict[str, Any]] = {
        k: {"without": a, "with": ends[1][k], "unit": unit[k]} for k, a in ends[0].items()
    }
    about = facts | {
        "explained": share,
        "low": low,
        "windows": len(final),
        "horizon": s.horizon,
        "rows": len(at.log),
        "errors": errors,
    }
    return Explained(term, share, low, errors, about)


def _ends(pieces: Windows, errors: dict[str, np.ndarray]) -> dict[str, float]:
    """Root mean square error of each signal at the windows' ends."""
    return {s.name: float(np.sqrt(np.square(errors[s.name][:, -1]).mean())) for s in pieces.signals}
