"""What in a motion a robot may not be able to do: joints beyond their range, fast joints, feet off the floor, and where it presses on it."""

import numpy as np

from surefoot.motion.retarget.pressure import Pressure, pressure
from surefoot.sim.anatomy.links import posed
from surefoot.sim.model import edits
from surefoot.tasks.build.legged import Body
from surefoot.tasks.terms.tracking import Reference

FAR = 0.02  # m outside of the feet that are worth a word
EDGE = 0.03  # m within the feet: a payload of 15 % moves the centre of mass as far


def doubts(body: Body, ref: Reference) -> list[str]:
    """What in a motion a robot may not be able to do, in words."""
    found: list[str] = []
    joints, off = body.joints, np.array([ref.q[:, body.joints.q] - e for e in (body.joints.low, body.joints.high)])
    beyond = np.maximum(-off[0], off[1]).max(0)
    if (beyond > 0.01).any():
        worst = int(beyond.argmax())
        found.append(
            f"{int((beyond > 0.01).sum())} joints beyond their range, {joints.names[worst]} by {beyond[worst]:.2f} rad"
        )
    fast = np.abs(ref.v[:, joints.v])
    k, j = np.unravel_index(int(fast.argmax()), fast.shape)
    found.append(
        f"{ref.seconds:.3g} s; fastest joint {joints.names[j]}, {fast[k, j]:.3g} rad/s at {k * ref.period:.2f} s"
    )
    soles = np.array([_lowest(body, q) for q in ref.q[:: max(1, len(ref.q) // 200)]])
    found.append(
        f"lowest point under the feet {100 * soles.min() + 0.0:.0f} to {100 * soles.max() + 0.0:.0f} cm above the floor"
    )
    found += _presses(pressed(body, ref))
    return found


def _lowest(body: Body, q: np.ndarray) -> float:
    """m above the floor: the lowest ball of a foot."""
    d = posed(body.model, q)
    return min(float(d.geom(edits.sole(f, k)).xpos[2]) - f.radius for f in body.legs.feet for k in range(len(f.points)))


def pressed(body: Body, ref: Reference) -> Pressure:
    """Where the motion presses on the floor."""
    return pressure(body.model, body.model.body(body.legs.base).id, body.legs.feet, ref.q, ref.period)


def _presses(found: Pressure) -> list[str]:
    """What is to be said of it."""
    off, rows = found.off(), np.flatnonzero(found.used)
    if (off > FAR).any():
        share, most = 100 * (off > FAR).mean(), 100 * off.max()
        return [f"it presses on the floor outside of the feet that stand for {share:.0f} % of its time, by up to {most:.0f} cm: physics needs another motion there"]  # fmt: skip
    if len(off) and off.max() > -EDGE:
        at, within = rows[off.argmax()] * found.period, -100 * off.max()
        return [f"at {at:.2f} s it presses on the floor {within:.1f} cm from the edge of its feet: a slope, a payload or a push tips it"]  # fmt: skip
    return []
