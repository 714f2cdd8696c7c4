"""Physical plausibility of a model: what is impossible, and what looks wrong or is missing.

Some problems disappear when MuJoCo compiles (mass="nan" becomes the mass of the default density, a reversed range no
range), so the XML is checked for them. The others are found in the compiled arrays, also of models edited in code.
"""

import re
from typing import SupportsInt

import mujoco
import numpy as np

from surefoot.sim.model.modelxml import Node

MIN_TIMESTEP, MAX_TIMESTEP = 1e-5, 0.1  # s
MAX_NUMBER = 1e15  # beyond it squares and products overflow; no physical quantity of a robot is as large
LIGHTEST, HEAVIEST = 1e-9, 1e9  # kg of one moving body; from a grain of dust to a ship

NONFINITE = re.compile(r"[+-]?(nan(\(.*\))?|inf(inity)?)", re.IGNORECASE)
TEXT = re.compile(  # attributes with text, where "nan" is a valid name
    r"name|class|childclass|model|prefix|sep|key|value|data|plugin|instance|role|input|user|type|content_type|comment|"
    r"link|file.*|.*dir|.*name|.*type|(joint|body|geom|site|tendon|subtree)\d?|.*site|jointinparent|mesh|flex|frame|"
    r"node|camera|actuator|material|texture|hfield|target|builtin|gridlayout|eulerseq|memory"
)
FIRST_NONNEGATIVE = ("damping", "kp", "kv", "kd", "delay", "mass", "density", "viscosity", "armature", "frictionloss")
RANGES = {
    "range": "limited",
    "ctrlrange": "ctrllimited",
    "forcerange": "forcelimited",
    "actuatorfrcrange": "actuatorfrclimited",
}


def xml_problems(doc: Node) -> list[str]:
    """What is physically impossible in the attributes of one model's XML."""
    checks = (_nonfinite, _huge, _negative, _ranges, _timestep)
    problems = [str(p) for node in doc.walk() for check in checks for p in check(node)]
    return problems + [p for p, mended in _inertias(doc) if not mended]


def xml_warnings(doc: Node) -> list[str]:
    """What MuJoCo interprets differently from what is written, possibly as intended."""
    out = [f"{p}; balanceinertia replaces it by its mean" for p, mended in _inertias(doc) if mended]
    unset = [(node, attr) for node in doc.walk() for attr in RANGES if attr in node.attrs and _unset(node, attr)]
    return out + [str(node.refuse(attr, "means no limit to MuJoCo")) for node, attr in unset[:4]]


def _nonfinite(node: Node) -> list[Exception]:
    if node.tag in ("numeric", "text", "tuple"):
        return []
    bad = [a for a, v in node.attrs.items() if not TEXT.fullmatch(a) and any(NONFINITE.fullmatch(t) for t in v.split())]
    if node.tag == "mass" and NONFINITE.fullmatch(node.attrs.get("value", "").strip()):  # URDF <mass value=...>
        bad.append("value")
    return [node.refuse(a, "is not finite, expected numbers (leave the attribute out for no limit)") for a in bad]


def _huge(node: Node) -> list[Exception]:
    if node.tag in ("numeric", "text", "tuple"):
        return []
    bad = [
        a for a in node.attrs if not TEXT.fullmatch(a) and any(MAX_NUMBER < abs(x) < np.inf for x in node.numbers(a))
    ]
    return [node.refuse(a, f"found, expected numbers within {MAX_NUMBER:g}") for a in bad]


def _negative(node: Node) -> list[Exception]:
    bad = [a for a in FIRST_NONNEGATIVE if any(x < 0 for x in node.numbers(a)[:1])]
    bad += ["friction"] if any(x < 0 for x in node.numbers("friction")) else []
    bad += ["value"] if node.tag == "mass" and any(x < 0 for x in node.numbers("value")) else []
    return [node.refuse(a, "is negative, expected >= 0") for a in bad]


def _ranges(node: Node) -> list[Exception]:
    """MuJoCo treats low >= high as no limit, so a swapped pair removes the limit of a joint or motor."""
    out: list[Exception] = []
    for attr, switch in RANGES.items():
        pair = node.numbers(attr)
        if len(pair) == 2 and pair[0] >= pair[1] and node.attrs.get(switch) != "false" and not _unset(node, attr):
            out.append(node.refuse(attr, f'is empty, expected low < high (or {switch}="false" for no limit)'))
    lower, upper = node.numbers("lower"), node.numbers("upper")
    if node.tag == "limit" and lower and upper and lower[0] >= upper[0]:
        out.append(node.refuse("lower", f'is not below upper="{node.attrs["upper"]}", expected lower < upper'))
    return out


def _unset(node: Node, attr: str) -> bool:
    """An actuator's "0 0", which commonly means no limit; on a joint it is an ineffective lock."""
    return attr != "range" and node.attrs.get(RANGES[attr]) != "true" and node.numbers(attr) == [0.0, 0.0]


def _timestep(node: Node) -> list[Exception]:
    if node.tag != "option" or any(
        MIN_TIMESTEP <= t <= MAX_TIMESTEP for t in node.numbers("timestep") or [MAX_TIMESTEP]
    ):
        return []
    return [node.refuse("timestep", f"found, expected {MIN_TIMESTEP:g} to {MAX_TIMESTEP:g} s")]


def _inertias(doc: Node) -> list[tuple[str, bool]]:
    """Each impossible inertia, and whether balanceinertia corrects it."""
    balance = any(n.tag == "compiler" and n.attrs.get("balanceinertia") == "true" for n in doc.walk())
    found = [(node, *_principal(node)) for node in doc.walk() if node.tag in ("inertia", "inertial")]
    bad = [(node, attr, moments, inertia_problem(moments)) for node, attr, moments in found if len(moments)]
    return [(str(node.refuse(attr, p)), balance and min(moments) >= 0) for node, attr, moments, p in bad if p]


def _principal(node: Node) -> tuple[str, np.ndarray]:
    """The attribute that gives an inertia, and the principal moments; none if they are not all numbers."""
    if node.tag == "inertia":  # URDF
        attr = "ixx"
        six = [x for a in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz") for x in (node.numbers(a) or [0.0])[:1]]
    else:
        attr = "fullinertia" if "fullinertia" in node.attrs else "diaginertia"
        six = node.numbers(attr) + ([0.0] * 3 if attr == "diaginertia" else [])
    if attr not in node.attrs or len(six) != 6 or not np.isfinite(six).all():
        return attr, np.zeros(0)
    xx, yy, zz, xy, xz, yz = six
    return attr, np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def inertia_problem(moments: np.ndarray) -> str:
    """An inertia is that of some mass distribution: principal moments >= 0, and none above the sum of the others."""
    a, b, c = np.sort(moments)
    if a < -1e-9 * abs(c):
        return f"has a negative principal moment {a:.4g}, expected all > 0"
    if a + b < c * (1 - 1e-6):
        return f"has principal moments {a:.4g}, {b:.4g}, {c:.4g}, expected none above the sum of the others"
    return ""


def model_problems(m: mujoco.MjModel) -> list[str]:
    """What is physically impossible in a compiled model, by element name and field."""
    out: list[str] = []
    if not MIN_TIMESTEP <= m.opt.timestep <= MAX_TIMESTEP:
        out.append(_at("option timestep", m.opt.timestep, f"{MIN_TIMESTEP:g} to {MAX_TIMESTEP:g} s"))
    for name in ("gravity", "wind"):
        if not np.isfinite(getattr(m.opt, name)).all():
            out.append(_at(f"option {name}", getattr(m.opt, name), "finite numbers"))
    for table, low, wanted in ((FINITE, -np.inf, "finite numbers"), (NONNEGATIVE, 0.0, "finite and >= 0")):
        for kind, field in ((k, f) for k, fields in table.items() for f in fields):
            values = _rows(getattr(m, field))
            bad = np.flatnonzero(~np.isfinite(values).all(1) | (values < low).any(1))
            out += [_at(f"{_name(m, kind, i)}: {field}", values[i], wanted) for i in bad]
    return out + _body_problems(m) + _range_problems(m) + _muscle_problems(m)


def _body_problems(m: mujoco.MjModel) -> list[str]:
    out = []
    for i in range(1, m.nbody):
        if m.body_dofnum[i] > 0 and m.body_subtreemass[i] <= 0:
            out.append(_at(f"{_name(m, 'body', i)}: mass", m.body_mass[i], "> 0 on a body that moves"))
        elif m.body_dofnum[i] > 0 and not LIGHTEST <= m.body_subtreemass[i] <= HEAVIEST:
            found, wanted = m.body_subtreemass[i], f"{LIGHTEST:g} to {HEAVIEST:g} kg on a body that moves"
            out.append(_at(f"{_name(m, 'body', i)}: mass, with all it carries,", found, wanted))
        elif problem := inertia_problem(m.body_inertia[i]):
            out.append(f"{_name(m, 'body', i)}: inertia {problem}")
    return out


def _range_problems(m: mujoco.MjModel) -> list[str]:
    empty = np.flatnonzero(m.jnt_limited & scalar_joints(m) & (m.jnt_range[:, 0] >= m.jnt_range[:, 1]))
    return [_at(f"{_name(m, 'joint', i)}: range", m.jnt_range[i], "low < high") for i in empty]


def _muscle_problems(m: mujoco.MjModel) -> list[str]:
    """A muscle's force is a function of where its length lies in its range."""
    muscles = (m.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_MUSCLE)) | (
        m.actuator_biastype == int(mujoco.mjtBias.mjBIAS_MUSCLE)
    )
    empty = np.flatnonzero(muscles & ~(m.actuator_lengthrange[:, 0] < m.actuator_lengthrange[:, 1]))
    return [_at(f"{_name(m, 'actuator', i)}: lengthrange", m.actuator_lengthrange[i], "low < high") for i in empty]


FINITE = {
    "body": ("body_pos", "body_quat", "body_ipos", "body_iquat"),
    "joint": ("jnt_pos", "jnt_axis", "jnt_range", "jnt_stiffness", "jnt_solref", "jnt_actfrcrange"),
    "geom": ("geom_pos", "geom_quat", "geom_size", "geom_margin", "geom_solref", "geom_solimp"),
    "actuator": ("actuator_gear", "actuator_gainprm", "actuator_biasprm", "actuator_dynprm", "actuator_forcerange"),
    "key": ("key_qpos", "key_qvel", "key_act", "key_ctrl"),
}
NONNEGATIVE = {
    "body": ("body_mass", "body_inertia"),
    "dof": ("dof_damping", "dof_armature", "dof_frictionloss"),
    "geom": ("geom_friction",),
    "actuator": ("actuator_delay", "actuator_damping", "actuator_armature"),
    "tendon": ("tendon_damping", "tendon_armature", "tendon_frictionloss"),
    "sensor": ("sensor_noise", "sensor_delay"),
}


def _rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), int(np.prod(values.shape[1:])))


def _at(place: str, found: object, wanted: str) -> str:
    return f"{place} is {found}, expected {wanted}"


def _name(m: mujoco.MjModel, kind: str, index: SupportsInt) -> str:
    i = int(index)
    if kind == "dof":
        kind, i = "joint", int(m.dof_jntid[i])
    name = mujoco.mj_id2name(m, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), i)
    return f"{kind} '{name}'" if name else f"{kind} {i}"


def model_warnings(m: mujoco.MjModel) -> list[str]:
    """What looks wrong or is missing, one line each; none of it refuses the model."""
    mass, dt = float(m.body_subtreemass[0]), m.opt.timestep
    looks = (
        (not 1e-3 <= mass <= 1e3, f"total mass is {mass:.4g} kg, expected 0.001 to 1000: check units and densities"),
        (len(m.actuator_trntype) == 0, "no actuators: nothing can be commanded"),
        (dt > 0.01, f"timestep {dt:g} s is long for {integrator(m)}: contacts and servos want 0.005 s or less"),
    )
    return [text for wrong, text in looks if wrong] + scene_warnings(m) + _joint_warnings(m) + _servo_warnings(m)


def scene_warnings(m: mujoco.MjModel) -> list[str]:
    """What a model file lacks before a robot can stand in it; a task says itself how episodes begin and what collides."""
    looks = (
        (m.nkey == 0, "no keyframe: add one with the standing pose and the controls that hold it"),
        (
            not _can_touch(m),
            "no two geoms can touch (contype, conaffinity): add a floor, or nothing ever makes contact",
        ),
    )
    return [text for wrong, text in looks if wrong]


def integrator(m: mujoco.MjModel) -> str:
    return mujoco.mjtIntegrator(m.opt.integrator).name.removeprefix("mjINT_").lower()


def _joint_warnings(m: mujoco.MjModel) -> list[str]:
    scalar, driven = scalar_joints(m), driven_joints(m)
    rotor, dry = m.dof_armature[m.jnt_dofadr] > 0, m.dof_frictionloss[m.jnt_dofadr] > 0
    for i in np.flatnonzero(m.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)):
        rotor[m.actuator_trnid[i, 0]] |= m.actuator_armature[i] > 0
        dry[m.actuator_trnid[i, 0]] |= m.actuator_gaintype[i] == int(mujoco.mjtGain.mjGAIN_DCMOTOR)  # has its own
    looks = (
        (scalar & ~m.jnt_limited, "without a range"),
        (scalar & ~driven & (len(m.actuator_trntype) > 0), "without an actuator"),
        (scalar & driven & ~rotor, "driven without armature (the rotor's inertia, a usual gap)"),
        (scalar & driven & ~dry, "driven without frictionloss (dry friction, a usual gap)"),
    )
    return [f"{joints.sum()} of {m.njnt} joints {what}: {_listed(m, joints)}" for joints, what in looks if joints.any()]


def _listed(m: mujoco.MjModel, joints: np.ndarray) -> str:
    names = [m.joint(i).name or str(i) for i in np.flatnonzero(joints)]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def scalar_joints(m: mujoco.MjModel) -> np.ndarray:
    """Which joints are slides or hinges."""
    return np.isin(m.jnt_type, [int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE)])


def driven_joints(m: mujoco.MjModel) -> np.ndarray:
    """Which joints an actuator acts on, directly or through a tendon of joints."""
    driven = np.zeros(m.njnt, bool)
    for kind, target in zip(map(mujoco.mjtTrn, m.actuator_trntype), m.actuator_trnid[:, 0]):
        if kind in (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT):
            driven[target] = True
        elif kind == mujoco.mjtTrn.mjTRN_TENDON:
            wraps = slice(m.tendon_adr[target], m.tendon_adr[target] + m.tendon_num[target])
            joints = m.wrap_type[wraps] == int(mujoco.mjtWrap.mjWRAP_JOINT)
            driven[m.wrap_objid[wraps][joints]] = True
    return driven


def _servo_warnings(m: mujoco.MjModel) -> list[str]:
    """A servo of gain kp on inertia I is a spring; stepped explicitly it needs kp dt^2 / I < 4, and kv dt / I < 2.

    1/I is dof_invweight0, the diagonal of the inverse inertia matrix: seen by a joint with all others free to move.
    """
    on_joint = m.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)
    servos = np.flatnonzero(on_joint & (m.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE)))
    kind, dt = integrator(m), m.opt.timestep
    if kind == "discrete" or not len(servos):  # discrete is implicit in position and velocity
        return []
    inverse = m.dof_invweight0[m.jnt_dofadr[m.actuator_trnid[servos, 0]]] * m.actuator_gear[servos, 0] ** 2  # (n,) 1/I
    stiff = -m.actuator_biasprm[servos, 1] * dt**2 * inverse
    damped = -m.actuator_biasprm[servos, 2] * dt * inverse * (kind in ("euler", "rk4"))
    looks = (
        (stiff, "kp dt^2 / I", "too stiff for the timestep: add armature, or lower kp or the timestep"),
        (damped, "kv dt / I", "use integrator implicitfast, or lower kv or the timestep"),
    )
    return [
        f"{(x > 1).sum()} of {len(x)} servos with {number} above 1, "
        f"{_name(m, 'actuator', servos[x.argmax()])} {x.max():.2g}: {cure}"
        for x, number, cure in looks
        if x.max() > 1
    ]


def _can_touch(m: mujoco.MjModel) -> bool:
    if m.npair or m.nflex or m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT:
        return True
    keys = np.unique(np.stack([m.geom_contype, m.geom_conaffinity, m.body_weldid[m.geom_bodyid]], 1), axis=0)  # (k, 3)
    touch = (keys[:, None, 0] & keys[None, :, 1]) != 0
    return bool((touch & (keys[:, None, 2] != keys[None, :, 2])).any())
