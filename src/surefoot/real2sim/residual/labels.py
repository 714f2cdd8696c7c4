"""Labels for a residual: the constant force, or offset to the controls, under which the model follows a short window of the log.

    g_w = argmin_g sum_h |(y(x_w, u, g)_h - y_h) / noise|^2      one g for each window w of h = 1..H control periods

One Gauss-Newton step from the model's own prediction, with the engine's response to each component of g by differences: the
engine is linear in a small g.
"""

from typing import Literal

import numpy as np

from surefoot.real2sim.log_env import AppliedForce, AppliedOffset
from surefoot.real2sim.replay import Windows, predict
from surefoot.real2sim.residual.log_states import LogStates, filled
from surefoot.sim.layout import mass_matrix
from surefoot.world import Term

Target = Literal["force", "action"]
"""what is learned: a residual force (N, N m), or a delta to the action"""
MOST = 8192  # simulations at once
FAINT = 0.03  # of a component's usual effect: below it a window determines nothing, as that of a motor at its limit


def labels(at: LogStates, pieces: Windows, target: Target, terms: tuple[Term, ...]) -> np.ndarray:
    """(w, d) g of each window, on top of the world's `terms`; nan where a window does not determine it."""
    size = probe_size(at, target)
    step = max(1, MOST // (len(size) + 1))
    parts = [_labels(at, pieces.some(slice(k, k + step)), target, terms, size) for k in range(0, len(pieces), step)]
    return np.concatenate(parts)


def _labels(at: LogStates, pieces: Windows, target: Target, terms: tuple[Term, ...], size: np.ndarray) -> np.ndarray:
    d, w = len(size), len(pieces)
    probes = np.repeat(np.concatenate([np.zeros((1, d)), np.diag(size)]), w, 0)  # ((d + 1) w, d)
    term: Term = AppliedForce(probes) if target == "force" else AppliedOffset(probes)
    motion = predict(at.world.with_(len(probes), (*terms, term)), pieces, np.tile(at.e, (d + 1, 1)))
    errors = [x.reshape(d + 1, w, -1) / at.noise[name] for name, x in pieces.errors(motion).items()]
    r = np.concatenate(errors, 2)  # (d + 1, w, m)
    J = np.moveaxis(r[1:] - r[0], 0, 2)  # (w, m, d), of one probe each
    JJ, Jr = np.einsum("wmi,wmj->wij", J, J), np.einsum("wmi,wm->wi", J, r[0])
    ridge = 1e-9 * np.trace(JJ, axis1=1, axis2=2)[:, None, None] * np.eye(d) + 1e-30 * np.eye(d)
    inverse = np.linalg.pinv(JJ + ridge, hermitian=True)
    g = -np.einsum("wij,wj->wi", inverse, Jr) * size
    precision = 1 / np.sqrt(np.maximum(np.einsum("wii->wi", inverse), 1e-300))  # of each component, in a window
    good = np.isfinite(g).all(1) & ~motion.diverged[:w] & (precision > FAINT * np.median(precision, 0)).all(1)
    return np.where(good[:, None], g, np.nan)


def probe_size(at: LogStates, target: Target) -> np.ndarray:
    """(d,) size of the differences: about a tenth of what moved the machine."""
    if target == "action":
        return np.maximum(0.1 * np.nanstd(at.u, 0), 1e-6)
    acceleration = np.sqrt(np.nanmean(np.square(np.diff(at.v, axis=0)), 0)) / at.world.dt
    return np.maximum(0.1 * acceleration, 1e-3) * np.diag(mass_matrix(at.world, filled(at.q)[0]))
