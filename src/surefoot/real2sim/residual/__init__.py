"""Residual force: what a model lacks, learned from a log of the machine and put into the model as a Term.

    M(q) v' + c(q, v) = f(x, u, e) + g(x, u)        g: N and N m, a generalised force, constant over a control period

f is the engine's, with e as believed. g is an ensemble's mean, times a trust that falls to zero where the log has no data:
there the model stays as it was. The share of the prediction error that g removes is measured on held-out rows of the log;
where that is nothing, g is refused.
"""

from surefoot.belief import Belief
from surefoot.log import Log
from surefoot.real2sim.residual.ensemble import FitSettings
from surefoot.real2sim.residual.force_fit import FitResult, fit_term
from surefoot.report import Watch
from surefoot.world import World


def residual(world: World, belief: Belief, log: Log, settings: FitSettings | None = None, seed: int = 0) -> World:
    """The same world with the residual force in it."""
    return world.with_(world.n, (*world.terms, residual_force(world, belief, log, settings, seed).term))


def residual_force(
    world: World,
    belief: Belief,
    log: Log,
    settings: FitSettings | None = None,
    seed: int = 0,
    watch: Watch | None = None,
    beside: Log | None = None,
) -> FitResult:
    """The force the world lacks, and what it explains. `beside`: a log that is learned from, too, such as a simulation's, which lacks
    nothing; `settings.share` says how much."""
    return fit_term(world, belief, log, "force", settings or FitSettings(), seed, watch, beside)
