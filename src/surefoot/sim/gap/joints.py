"""What sits between a motor and the link it moves, and in the link itself.

    stiction   F = g(v) sign(v) when sliding,  g = Fc + (Fs - Fc) exp(-(v / vs)^2);  holds up to Fs at rest   (LuGre)
    backlash   link = motor + gap,  |gap| <= b / 2               series elasticity   link = motor + F / k
    saturation |F| <= L (1 - v / v0) in the direction of motion  heating             L falls to L / (1 + s)
L is the joint's largest force, in N or N m. Motors' curves and heat are MuJoCo's dcmotor, as is the bristle friction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np

from surefoot.sim.gap.recipe import HINGE, Drive, Ingredient, Making, Motor, Plain
from surefoot.world import Chance, OnAction, State

STATIC, KINETIC = 0.1, 0.6  # breakaway over L at s = 1; sliding over breakaway
BRISTLE = 0.01  # rad or m: how far a joint gives before it breaks away
STRIBECK = 0.05  # rad/s or m/s: speed at which friction has fallen towards the sliding one
GAP = {True: 0.06, False: 0.01}  # rad for a hinge, m for a slide, at s = 1
GIVE = {True: 0.2, False: 0.02}  # deflection of a series spring under L, at s = 1
BEND = 0.1  # rad under L, at s = 1
SPEED = {True: 12.0, False: 2.0}  # rad/s, m/s: no-load speed at s = 1
CABLE = 0.05  # of L a radian or a metre
WARM = 20.0  # s: thermal time constant, or seconds of full use after which a battery has sagged by 63 %
SAG = 0.3  # of the thrust, at s = 1
COPPER = 0.004  # 1/K


def stiction(make: Making, s: float) -> None:
    m = make.plain.model
    for d in _unique(make.plain.drives):
        static = STATIC * s * make.plain.load(m.joint(d.joint).id)
        stiffness = static / BRISTLE
        make.tell(f"breakaway of {d.joint}", static, _units(_hinge(make.plain, d))[0])
        make.tell(f"sliding of {d.joint}", KINETIC * static, _units(_hinge(make.plain, d))[0])
        damping = 0.2 * float(np.sqrt(stiffness * m.dof_M0[d.dof]))
        brush = make.spec.add_actuator(name=f"stiction/{d.joint}", trntype=mujoco.mjtTrn.mjTRN_JOINT, target=d.joint)
        brush.set_to_dcmotor(
            motorconst=[0.0, 0.0],
            resistance=1.0,
            lugre=[stiffness, damping, KINETIC * static, static, STRIBECK],
            ctrlspec=int(mujoco.mjtCtrlInput.mjINPUT_NONE),
        )
        make.springs[d.joint] = 4 * stiffness  # the integrator takes damping for inertia, in proportion to its step
    make.added = True


def backlash(make: Making, s: float) -> None:
    for d in _unique(make.plain.drives):
        half = 0.5 * s * GAP[_hinge(make.plain, d)]
        edge = make.angle(half) if _hinge(make.plain, d) else half
        make.tell(f"gap of {d.joint}", 2 * half, _units(_hinge(make.plain, d))[1])
        make.behind(d.joint, "backlash", limited=True, range=[-edge, edge], solref_limit=[0.01, 1])


def series_elasticity(make: Making, s: float) -> None:
    m = make.plain.model
    for d in _unique(make.plain.drives):
        k = make.plain.load(m.joint(d.joint).id) / (s * GIVE[_hinge(make.plain, d)])
        damping = 0.2 * float(np.sqrt(k * m.dof_M0[d.dof]))
        make.tell(f"stiffness behind {d.joint}", k, "/".join(_units(_hinge(make.plain, d))))
        make.behind(d.joint, "spring", stiffness=[k, 0, 0], damping=[damping, 0, 0])
        make.springs[f"spring/{d.joint}"] = k


def flexible_links(make: Making, s: float) -> None:
    """Each link that turns also bends near its root: about the joint's axis and across it."""
    m = make.plain.model
    for j in _bendable(make.plain):
        d, body, name = m.jnt_dofadr[j], make.spec.body(m.body(m.jnt_bodyid[j]).name), m.joint(j).name
        along = m.body_ipos[m.jnt_bodyid[j]] - m.jnt_pos[j]
        first = m.jnt_axis[j] - along * (m.jnt_axis[j] @ along) / (along @ along)
        first /= np.linalg.norm(first)
        across = np.cross(along, first) / np.linalg.norm(along)
        k = make.plain.load(j) / (s * BEND)
        make.tell(f"bending stiffness of {body.name}", k, "N m/rad")
        damping = 0.1 * float(np.sqrt(k * m.dof_M0[d]))
        make.wheel(name)
        for axis, way in ((first, "in"), (across, "across")):
            body.add_joint(
                name=f"bend_{way}/{name}", type=mujoco.mjtJoint.mjJNT_HINGE, axis=axis, pos=m.jnt_pos[j] + 0.3 * along,
                stiffness=[k, 0, 0], damping=[damping, 0, 0],
            )  # fmt: skip
            make.springs[f"bend_{way}/{name}"] = k
    make.added = True


def cable_drag(make: Making, s: float) -> None:
    """A cable along each driven joint: a weak spring towards where it was laid, and drag."""
    plain, m = make.plain, make.plain.model
    rows = [(j, k) for j in plain.joints if (k := s * CABLE * plain.load(j)) and m.joint(j).name in _driven(plain)]
    rest = make.rng.uniform(-1.0, 1.0, len(rows))
    for (j, k), q in zip(rows, rest):
        force, way = _units(bool(m.jnt_type[j] == HINGE))
        make.tell(f"cable's stiffness at {m.joint(j).name}", k, f"{force}/{way}")
        make.tell(f"where it pulls {m.joint(j).name}", m.qpos0[m.jnt_qposadr[j]] + q, way)

    def tune(m: mujoco.MjModel) -> None:
        for (old, k), q in zip(rows, rest):
            j = m.joint(plain.model.joint(old).name)
            at, own = int(j.qposadr[0]), float(m.jnt_stiffness[j.id])
            m.qpos_spring[at] = (own * m.qpos_spring[at] + k * (m.qpos0[at] + q)) / (own + k)
            m.jnt_stiffness[j.id] += k
            m.dof_damping[j.dofadr[0]] += 0.2 * k

    make.tunes.append(tune)


def saturation(make: Making, s: float) -> None:
    for d in _motors(make.plain):
        make.motor(d.actuator).free_speed = SPEED[_hinge(make.plain, d)] * abs(d.gear) / s
        make.tell(
            f"no-load speed of {d.joint}", SPEED[_hinge(make.plain, d)] / s, f"{_units(_hinge(make.plain, d))[1]}/s"
        )


def heating(make: Making, s: float) -> None:
    """Joints' motors lose torque as they warm; rotors lose thrust as the battery empties."""
    for d in _motors(make.plain):
        make.motor(d.actuator).heat = s
        assert d.limit is not None  # _motors() has seen to it
        make.tell(f"limit of {d.actuator} when warm", d.limit / (1 + s), _units(_hinge(make.plain, d))[0], d.limit)
    if make.plain.rotors:
        make.tell("share of the thrust left in the end", 1 - SAG * s)
        m = make.plain.model
        columns = m.actuator_ctrladr[make.plain.rotors]
        make.terms.append(Sagging(columns, np.abs(m.actuator_ctrlrange[columns]).max(1), SAG * s))


@dataclass
class Sagging(OnAction):
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


def dc_motors(make: Making) -> None:
    """Make DC motors of the actuators that ingredients gave a speed or a heat: K = 1 N m/A, V = K v0, R = K V / L.

    Held at its limit with its voltage V, a motor has R' = R (1 + a T) and T = r V^2 / R', so that for a T = s in the end
    r = s (1 + s) R / (a V^2).
    """
    drives = {d.actuator: d for d in make.plain.drives}
    for actuator in make.spec.actuators:
        how = make.motors.get(actuator.name)
        if how is None:
            continue
        d = drives[actuator.name]
        assert d.limit is not None  # _motors() has seen to it
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
    """Of force and of position."""
    return ("N m", "rad") if hinge else ("N", "m")


def _hinge(plain: Plain, d: Drive) -> bool:
    return bool(plain.model.jnt_type[plain.model.joint(d.joint).id] == HINGE)


def _unique(drives: Sequence[Drive]) -> list[Drive]:
    """One drive of each joint."""
    return list({d.joint: d for d in drives}.values())


def _driven(plain: Plain) -> set[str]:
    return {d.joint for d in plain.drives}


def _motors(plain: Plain) -> list[Drive]:
    """Drives that a DC motor can stand for: servos and plain motors with a limit and no state of their own."""
    m, none = plain.model, int(mujoco.mjtDyn.mjDYN_NONE)
    plain_gain = lambda i: m.actuator_gainprm[i, 0] == 1 and not m.actuator_biasprm[i, :3].any()  # noqa: E731
    return [
        d
        for d in plain.drives
        if d.limit is not None and m.actuator_dyntype[d.number] == none and (d.servo or plain_gain(d.number))
    ]


def _last(plain: Plain) -> bool:
    """There are drives, and each drives the last joint of its body, behind which another can be put."""
    m = plain.model
    lasts = {int(m.body_jntadr[b] + m.body_jntnum[b] - 1) for b in range(m.nbody) if m.body_jntnum[b]}
    return bool(plain.drives) and all(m.joint(d.joint).id in lasts for d in plain.drives)


def _bendable(plain: Plain) -> list[int]:
    """Hinges alone in their body, whose link's centre of mass is off the axis."""
    m, found = plain.model, []
    for j in plain.joints:
        body = m.jnt_bodyid[j]
        lever = np.linalg.norm(np.cross(m.body_ipos[body] - m.jnt_pos[j], m.jnt_axis[j]))
        if m.jnt_type[j] == HINGE and m.body_jntnum[body] == 1 and lever > 0.01:
            found.append(j)
    return found


JOINTS = (
    Ingredient("stiction", "joints stick: up to 10 % of the motor's force to break away, 0.6 of that to slide", "driven hinges or slides", lambda p: bool(p.drives), stiction),
    Ingredient("backlash", "a gap in the gears, up to 0.06 rad or 1 cm", "driven hinges or slides, each the last of its body", _last, backlash),
    Ingredient("series_elasticity", "a spring between motor and link that gives up to 0.2 rad or 2 cm under full force", "driven hinges or slides, each the last of its body", _last, series_elasticity),
    Ingredient("flexible_links", "links bend up to 0.1 rad under full force", "hinged links whose mass is off the axis", lambda p: bool(_bendable(p)), flexible_links),
    Ingredient("cable_drag", "cables pull joints back with up to 5 % of full force a radian", "driven hinges or slides", lambda p: bool(p.drives), cable_drag),
    Ingredient("saturation", "torque falls in proportion to speed, to nothing at 12 rad/s or 2 m/s", "joint motors or servos with a force limit", lambda p: bool(_motors(p)), saturation),
    Ingredient("heating", "motors weaken with use: limits fall by half in the end, or rotors' thrust by 0.3", "joint motors or servos with a force limit, or rotors", lambda p: bool(_motors(p) or p.rotors), heating),
)  # fmt: skip
