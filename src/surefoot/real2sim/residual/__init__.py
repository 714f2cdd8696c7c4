"""residual: the force a model lacks, learned from a log of the machine, and put into the model as a Term.

    M(q) v' + c(q, v) = f(x, u, e) + g(x, u)        g: N and N m, a generalised force held for a control period

f is the engine's, with e as believed. g is an ensemble's mean, times a trust that fades to zero where the log said nothing:
there the model stays as it was. How much of the prediction error it takes away is measured on a part of the log that it
never saw; where that is nothing, it is refused.
"""

from surefoot.belief import Belief
from surefoot.log import Log
from surefoot.real2sim.residual.force_fit import Explained, Fitting, explain
from surefoot.report import Watch
from surefoot.world import World


def residual(world: World, belief: Belief, log: Log, settings: Fitting | None = None, seed: int = 0) -> World:
    """The same world with what it lacked."""
    return world.with_(world.n, (*world.terms, missing(world, belief, log, settings, seed).term))


def missing(
    world: World, belief: Belief, log: Log, settings: Fitting | None = None, seed: int = 0, watch: Watch | None = None
) -> Explained:
    """The force the world lacks, and what it explains."""
    return explain(world, belief, log, "force", settings or Fitting(), seed, watch)
