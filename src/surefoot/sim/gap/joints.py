"""Imperfections of the drive train between motor and link, and of the link itself.

    stiction   F = g(v) sign(v) when sliding,  g = Fc + (Fs - Fc) exp(-(v / vs)^2);  up to Fs at rest   (LuGre)
    backlash   link = motor + gap,  |gap| <= b / 2               series elasticity   link = motor + F / k
    saturation |F| <= L (1 - v / v0) in the direction of motion  heating             L falls to L / (1 + s)
L is the joint's largest force, in N or N m. Torque-speed curve, heating and bristle friction are MuJoCo's dcmotor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np

from surefoot.sim.gap.recipe import Drive, Ingredient, Motor, Plain, Recipe
from surefoot.sim.layout import HINGE
from surefoot.world import Chance, OnAction, State

STATIC, KINETIC = 0.1, 0.6  # breakaway / L at s = 1; sliding / breakaway
BRISTLE = 0.01  # rad or m: deflection at which a joint breaks away
STRIBECK = 0.05  # rad/s or m/s: Stribeck speed
GAP = {True: 0.06, False: 0.01}  # rad for a hinge, m for a slide, at s = 1
GIVE = {True: 0.2, False: 0.02}  # deflection of a series spring under L, at s = 1
BEND = 0.1  # rad under L, at s = 1
SPEED = {True: 12.0, False: 2.0}  # rad/s, m/s: no-load speed at s = 1
CABLE = 0.05  # of L per radian or metre
WARM = 20.0  # s: thermal time constant, or time of full use after which a battery has sagged by 63 %
SAG = 0.3  # of the thrust, at s = 1
COPPER = 0.004  # 1/K


def stiction(recipe: Recipe, s: float) -> None:
    m = recipe.plain.model
    for d in _unique(recipe.plain.drives):
        static = STATIC * s * recipe.plain.load(m.joint(d.joint).id)
        stiffness = static / BRISTLE
        recipe.record(f"breakaway of {d.joint}", static, _units(_hinge(recipe.plain, d))[0])
        recipe.record(f"sliding of {d.joint}", KINETIC * static, _units(_hinge(recipe.plain, d))[0])
        damping = 0.2 * float(np.sqrt(stiffness * m.dof_M0[d.dof]))
        brush = recipe.spec.add_actuator(name=f"stiction/{d.joint}", trntype=mujoco.mjtTrn.mjTRN_JOINT, target=d.joint)
        brush.set_to_dcmotor(
            motorconst=[0.0, 0.0],
            resistance=1.0,
            lugre=[stiffness, damping, KINETIC * static, static, STRIBECK],
            ctrlspec=int(mujoco.mjtCtrlInput.mjINPUT_NONE),
        )
        recipe.springs[d.joint] = 4 * stiffness  # implicit damping acts as inertia in proportion to the step
    recipe.added = True


def backlash(recipe: Recipe, s: float) -> None:
    for d in _unique(recipe.plain.drives):
        half = 0.5 * s * GAP[_hinge(recipe.plain, d)]
        edge = recipe.angle(half) if _hinge(recipe.plain, d) else half
        recipe.record(f"gap of {d.joint}", 2 * half, _units(_hinge(recipe.plain, d))[1])
        recipe.add_joint_behind(d.joint, "backlash", limited=True, range=[-edge, edge], solref_limit=[0.01, 1])


def series_elasticity(recipe: Recipe, s: float) -> None:
    m = recipe.plain.model
    for d in _unique(recipe.plain.drives):
        k = recipe.plain.load(m.joint(d.joint).id) / (s * GIVE[_hinge(recipe.plain, d)])
        damping = 0.2 * float(np.sqrt(k * m.dof_M0[d.dof]))
        recipe.record(f"stiffness behind {d.joint}", k, "/".join(_units(_hinge(recipe.plain, d))))
        recipe.add_joint_behind(d.joint, "spring", stiffness=[k, 0, 0], damping=[damping, 0, 0])
        recipe.springs[f"spring/{d.joint}"] = k


def flexible_links(recipe: Recipe, s: float) -> None:
    """Each hinged link also bends near its root: about the joint's axis and across it."""
    m = recipe.plain.model
    for j in _bendable(recipe.plain):
        d, body, name = m.jnt_dofadr[j], recipe.spec.body(m.body(m.jnt_bodyid[j]).name), m.joint(j).name
        along = m.body_ipos[m.jnt_bodyid[j]] - m.jnt_pos[j]
        first = m.jnt_axis[j] - along * (m.jnt_axis[j] @ along) / (along @ along)
        first /= np.linalg.norm(first)
        across = np.cross(along, first) / np.linalg.norm(along)
        k = recipe.plain.load(j) / (s * BEND)
        recipe.record(f"bending stiffness of {body.name}", k, "N m/rad")
        damping = 0.1 * float(np.sqrt(k * m.dof_M0[d]))
        recipe.add_rotor(name)
        for axis, way in ((first, "in"), (across, "across")):
            body.add_joint(
                name=f"bend_{way}/{name}", type=mujoco.mjtJoint.mjJNT_HINGE, axis=axis, pos=m.jnt_pos[j] + 0.3 * along,
                stiffness=[k, 0, 0], damping=[damping, 0, 0],
            )  # fmt: skip
            recipe.springs[f"bend_{way}/{name}"] = k
    recipe.added = True


def cable_drag(recipe: Recipe, s: float) -> None:
    """A cable along each driven joint: a weak spring towards a random position, and damping."""
    plain, m = recipe.plain, recipe.plain.model
    rows = [(j, k) for j in plain.joints if (k := s * CABLE * plain.load(j)) and m.joint(j).name in _driven(plain)]
    rest = recipe.rng.uniform(-1.0, 1.0, len(rows))
    for (j, k), q in zip(rows, rest):
        force, way = _units(bool(m.jnt_type[j] == HINGE))
        recipe.record(f"cable stiffness at {m.joint(j).name}", k, f"{force}/{way}")
        recipe.record(f"cable's rest position at {m.joint(j).name}", m.qpos0[m.jnt_qposadr[j]] + q, way)

    def tune(m: mujoco.MjModel) -> None:
        for (old, k), q in zip(rows, rest):
            j = m.joint(plain.model.joint(old).name)
            at, own = int(j.qposadr[0]), float(m.jnt_stiffness[j.id])
            m.qpos_spring[at] = (own * m.qpos_spring[at] + k * (m.qpos0[at] + q)) / (own + k)
            m.jnt_stiffness[j.id] += k
            m.dof_damping[j.dofadr[0]] += 0.2 * k

    recipe.tunes.append(tune)


def saturation(recipe: Recipe, s: float) -> None:
    for d in _motors(recipe.plain):
        recipe.motor(d.actuator).free_speed = SPEED[_hinge(recipe.plain, d)] * abs(d.gear) / s
        recipe.record(
            f"no-load speed of {d.joint}", SPEED[_hinge(recipe.plain, d)] / s, f"{_units(_hinge(recipe.plain, d))[1]}/s"
        )


def heating(recipe: Recipe, s: float) -> None:
    """Joint motors lose torque as they heat up; rotors lose thrust as the battery empties."""
    for d in _motors(recipe.plain):
        recipe.motor(d.actuator).heat = s
        assert d.limit is not None  # _motors() selects those with a limit
        recipe.record(
            f"limit of {d.actuator} when warm", d.limit / (1 + s), _units(_hinge(recipe.plain, d))[0], d.limit
        )
    if recipe.plain.rotors:
        recipe.record("fraction of the thrust left in the end", 1 - SAG * s)
        m = recipe.plain.model
        columns = m.actuator_ctrladr[recipe.plain.rotors]
        recipe.terms.append(BatterySag(columns, np.abs(m.actuator_ctrlrange[columns]).max(1), SAG * s))


@dataclass
class BatterySag(OnAction):
    """Thrust falls with use: u' = u (1 - most (1 - exp(-w / T))),  w: integral of the mean of |u| / largest, in s."""

    columns: np.ndarray
    largest: np.ndarray
    most: float
    used: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        used = self.used if len(self.used) == len(u) else np.zeros(len(u))
        used = np.where(x.time == 0.0, 0.0, used)
        u = u.copy()
        asked = np.clip(np.abs(u[:, self.columns]) / self.largest, 0.0, 1.0).mean(1)
        u[:, self.columns] *= 1.0 - self.most * (1.0 - np.exp(-used / WARM))[:, None]
        self.used = used + chance.dt * asked
        return u


def dc_motors(recipe: Recipe) -> None:
    """Turn actuators with a no-load speed or heating into DC motors: K = 1 N m/A, V = K v0, R = K V / L.

    At its limit with voltage V, a motor has R' = R (1 + a T) and T = r V^2 / R', so a T = s in the end for
    r = s (1 + s) R / (a V^2).
    """
    drives = {d.actuator: d for d in recipe.plain.drives}
    for actuator in recipe.spec.actuators:
        how = recipe.motors.get(actuator.name)
        if how is None:
            continue
        d = drives[actuator.name]
        assert d.limit is not None  # _motors() selects those with a limit
        volts, kp, kd = how.free_speed, 0.0, 0.0
        ohms = volts / d.limit
        if d.servo:
            kp, kd = float(actuator.gainprm[0]), float(-actuator.biasprm[2])
        token = mujoco.mjtCtrlInput.mjINPUT_POS if d.servo else mujoco.mjtCtrlInput.mjINPUT_FF
        actuator.set_to_dcmotor(
            motorconst=[1.0, 1.0], resistance=ohms, saturation=[d.limit, 0, 0], controller=[kp, 0, kd, 0, 0, volts],
            thermal=_thermal(how, ohms, volts), ctrlspec=int(token),
        )  # fmt: skip


def _thermal(how: Motor, ohms: float, volts: float) -> list[float]:
    if not how.heat:
        return [0.0] * 6
    return [how.heat * (1 + how.heat) * ohms / (COPPER * volts**2), 0.0, WARM, COPPER, 25.0, 25.0]


def _units(hinge: bool) -> tuple[str, str]:
    """Units of force and of position."""
    return ("N m", "rad") if hinge else ("N", "m")


def _hinge(plain: Plain, d: Drive) -> bool:
    return bool(plain.model.jnt_type[plain.model.joint(d.joint).id] == HINGE)


def _unique(drives: Sequence[Drive]) -> list[Drive]:
    """One drive of each joint."""
    return list({d.joint: d for d in drives}.values())


def _driven(plain: Plain) -> set[str]:
    return {d.joint for d in plain.drives}


def _motors(plain: Plain) -> list[Drive]:
    """Drives that a DC motor can replace: servos and plain motors with a limit and without a state."""
    m, none = plain.model, int(mujoco.mjtDyn.mjDYN_NONE)
    plain_gain = lambda i: m.actuator_gainprm[i, 0] == 1 and not m.actuator_biasprm[i, :3].any()  # noqa: E731
    return [
        d
        for d in plain.drives
        if d.limit is not None and m.actuator_dyntype[d.number] == none and (d.servo or plain_gain(d.number))
    ]


def _last(plain: Plain) -> bool:
    """Whether there are drives, each on the last joint of its body, behind which another can be added."""
    m = plain.model
    lasts = {int(m.body_jntadr[b] + m.body_jntnum[b] - 1) for b in range(m.nbody) if m.body_jntnum[b]}
    return bool(plain.drives) and all(m.joint(d.joint).id in lasts for d in plain.drives)


def _bendable(plain: Plain) -> list[int]:
    """Hinges that are the only joint of their body, with the link's centre of mass off the axis."""
    m, found = plain.model, []
    for j in plain.joints:
        body = m.jnt_bodyid[j]
        lever = np.linalg.norm(np.cross(m.body_ipos[body] - m.jnt_pos[j], m.jnt_axis[j]))
        if m.jnt_type[j] == HINGE and m.body_jntnum[body] == 1 and lever > 0.01:
            found.append(j)
    return found


JOINTS = (
    Ingredient("stiction", "stiction: up to 10 % of the motor's force to break away, 0.6 of that to slide", "driven hinges or slides", lambda p: bool(p.drives), stiction),
    Ingredient("backlash", "a gap in the gears, up to 0.06 rad or 1 cm", "driven hinges or slides, each the last of its body", _last, backlash),
    Ingredient("series_elasticity", "a spring between motor and link, up to 0.2 rad or 2 cm under full force", "driven hinges or slides, each the last of its body", _last, series_elasticity),
    Ingredient("flexible_links", "links bend up to 0.1 rad under full force", "hinged links whose mass is off the axis", lambda p: bool(_bendable(p)), flexible_links),
    Ingredient("cable_drag", "cables pull joints with up to 5 % of full force per radian", "driven hinges or slides", lambda p: bool(p.drives), cable_drag),
    Ingredient("saturation", "torque falls linearly with speed, to zero at 12 rad/s or 2 m/s", "joint motors or servos with a force limit", lambda p: bool(_motors(p)), saturation),
    Ingredient("heating", "motors heat up: limits fall by half in the end, or rotors' thrust by 0.3", "joint motors or servos with a force limit, or rotors", lambda p: bool(_motors(p) or p.rotors), heating),
)  # fmt: skip
