"""Edits of a model for training, as functions on an MjSpec: the user's file stays as it is.

Each function changes the spec in place and returns a sentence that says what it changed, or nothing where there was
nothing to do. Only what a policy needs collides: balls at the soles and a box around the base, with the floor alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.errors import unknown
from surefoot.sim.anatomy.feet import Foot

SITE, GEOM, S = mujoco.mjtObj.mjOBJ_SITE, mujoco.mjtGeom, mujoco.mjtSensor
FLOOR, IMU = "floor", "imu"
GROUND, ROBOT = 1, 0  # contype; what has conaffinity 1 collides with the ground alone
ARENA = 1 << 20  # bytes of each simulation; MuJoCo would reserve 15 MB
TOUCH = 1.3  # radius of the zone in which a touch counts, as a multiple of the sole's


@dataclass(frozen=True)
class Servo:
    """A joint that holds its target: torque = clip(kp (target - q) - kd v, +-limit)."""

    kp: float
    kd: float
    limit: float
    """N m; inf: none"""
    armature: float = 0.0
    """kg m^2; 0: the model's own"""


@dataclass(frozen=True)
class Timing:
    """How finely the engine steps: timestep = period / steps."""

    period: float = 0.02
    """s, from one action to the next"""
    steps: int = 4
    iterations: int = 5
    """of the Newton solver"""
    line_search: int = 8

    @property
    def timestep(self) -> float:
        return self.period / self.steps


def name_parts(spec: mujoco.MjSpec) -> str:
    """A name for every body, joint and actuator that has none, by its number: parts are addressed by name."""
    for kind, things in (("body", spec.bodies), ("joint", spec.joints), ("actuator", spec.actuators)):
        for i, thing in enumerate(things):
            thing.name = thing.name or f"{kind}_{i}"
    return ""


def free_base(spec: mujoco.MjSpec) -> str:
    """A free joint for the body that carries the robot, where none has one: a URDF's base is bolted to the world."""
    if any(j.type == mujoco.mjtJoint.mjJNT_FREE for j in spec.joints):
        return ""
    roots = [b for b in spec.worldbody.bodies if not b.joints and b.bodies]
    if not roots:
        return ""
    base = max(roots, key=lambda b: len(list(b.find_all("body"))))
    base.add_freejoint()
    return f"{base.name}: a free joint, as the model bolts it to the world"


def without_extras(spec: mujoco.MjSpec) -> str:
    """No keyframes, contact pairs or sensors of the model's own: their sizes and names would not fit what is added."""
    gone = {"keyframe": spec.keys, "contact pair": spec.pairs, "sensor": spec.sensors}
    said = [f"{len(things)} {what}{'s' if len(things) > 1 else ''}" for what, things in gone.items() if len(things)]
    for things in gone.values():
        for thing in list(things):
            spec.delete(thing)
    return f"left out of the model: {', '.join(said)}" if said else ""


def only_drawn(spec: mujoco.MjSpec) -> str:
    """Every shape is drawn; none collides."""
    hard = [g for g in spec.geoms if g.contype or g.conaffinity]
    for g in hard:
        g.contype = g.conaffinity = 0
    spec.compiler.discardvisual = False  # a URDF's would be: nothing would be left to draw
    return f"{len(hard)} shapes are drawn and no longer collide" if hard else ""


def add_floor(spec: mujoco.MjSpec) -> str:
    """The model's plane, or a new one, for the robot to stand on."""
    planes = [g for g in spec.worldbody.geoms if g.type == GEOM.mjGEOM_PLANE]
    floor = planes[0] if planes else spec.worldbody.add_geom(type=GEOM.mjGEOM_PLANE, size=[0, 0, 0.05], rgba=[0.6, 0.66, 0.6, 1])  # fmt: skip
    floor.name, floor.contype, floor.conaffinity, floor.condim = FLOOR, GROUND, 0, 3
    floor.friction, floor.priority, floor.margin = [1.0, 0.02, 0.01], 0, 0.0
    return "" if planes else "floor: a plane at z = 0"


def add_scenery(spec: mujoco.MjSpec) -> str:
    """For pictures: a sky and a light where the model has none, and squares on a floor of one colour."""
    if not any(t.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX for t in spec.textures):
        sky = {"rgb1": [0.92, 0.95, 1.0], "rgb2": [0.62, 0.74, 0.88], "width": 64, "height": 384}
        spec.add_texture(name="surefoot/sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT, **sky)  # fmt: skip
    if not len(spec.lights):
        spec.worldbody.add_light(pos=[0, 0, 4], dir=[0.2, 0.1, -1], type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, diffuse=[0.7, 0.7, 0.7])  # fmt: skip
    for g in spec.worldbody.geoms:
        if g.name == FLOOR and g.type == GEOM.mjGEOM_PLANE and not g.material:
            grid = {"rgb1": [0.62, 0.68, 0.62], "rgb2": [0.52, 0.58, 0.52], "width": 256, "height": 256}
            spec.add_texture(name="surefoot/grid", type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER, **grid)  # fmt: skip
            made = spec.add_material(name="surefoot/grid", texrepeat=[1, 1], texuniform=True)
            made.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "surefoot/grid"
            g.material, g.rgba = "surefoot/grid", [1, 1, 1, 1]
    return ""


def add_imu(spec: mujoco.MjSpec, base: str, site: str = "") -> str:
    """A gyro and an attitude at the model's site, or at one that is added in the base's origin."""
    said = "" if site else f"imu: a site in the origin of {base}"
    if not site:
        site = IMU if not any(s.name == IMU for s in spec.sites) else f"{IMU}_of_base"
        body(spec, base).add_site(name=site, size=[0.005, 0.005, 0.005], group=5)
    for name, kind in (("gyro", S.mjSENS_GYRO), ("attitude", S.mjSENS_FRAMEQUAT)):
        spec.add_sensor(name=name, type=kind, objtype=SITE, objname=site)
    return said


def add_accelerometer(spec: mujoco.MjSpec, base: str = "") -> str:
    """An accelerometer where the gyro is, or in the origin of the base; the engine then works out accelerations at every step."""
    site = next((s.objname for s in spec.sensors if s.name == "gyro"), "")
    if not site:
        site = IMU if not any(s.name == IMU for s in spec.sites) else f"{IMU}_of_base"
        body(spec, base).add_site(name=site, size=[0.005, 0.005, 0.005], group=5)
    spec.add_sensor(name="accelerometer", type=S.mjSENS_ACCELEROMETER, objtype=SITE, objname=site)
    return f"accelerometer: a sensor at {site}"


def add_torque_sensors(spec: mujoco.MjSpec) -> str:
    """The torque of each actuator at a joint, as motors report it."""
    for a in spec.actuators:
        if a.trntype == mujoco.mjtTrn.mjTRN_JOINT:
            sensor = spec.add_sensor(name=f"joint_torque/{a.target}", type=S.mjSENS_ACTUATORFRC)
            sensor.objtype, sensor.objname = mujoco.mjtObj.mjOBJ_ACTUATOR, a.name
    return "joint_torque: a sensor of each motor"


def add_tip(spec: mujoco.MjSpec, on: str, point: tuple[float, ...], name: str) -> str:
    """A site at the end effector, with its place and attitude as sensors."""
    body(spec, on).add_site(name=name, pos=point, size=[0.005, 0.005, 0.005], group=5)
    for family, kind in (("pos", S.mjSENS_FRAMEPOS), ("quat", S.mjSENS_FRAMEQUAT)):
        spec.add_sensor(name=f"{name}_{family}", type=kind, objtype=SITE, objname=name)
    return f"{name}: a site on {on}"


def add_body_sensors(spec: mujoco.MjSpec, bodies: Iterable[str]) -> str:
    """Place, attitude and velocities of bodies in the world, which only rewards and critics may use."""
    kinds = {"pos": S.mjSENS_FRAMEPOS, "quat": S.mjSENS_FRAMEQUAT, "lin_vel": S.mjSENS_FRAMELINVEL, "ang_vel": S.mjSENS_FRAMEANGVEL}  # fmt: skip
    bodies = tuple(bodies)
    for family, kind in kinds.items():
        for name in bodies:
            body(spec, name)
            spec.add_sensor(name=f"body_{family}/{name}", type=kind, objtype=mujoco.mjtObj.mjOBJ_XBODY, objname=name)
    return f"{len(bodies)} bodies are tracked"


def add_joint_sensors(spec: mujoco.MjSpec) -> str:
    """Encoders: position and speed of every hinge and slide."""
    kinds = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    for family, kind in (("joint_pos", S.mjSENS_JOINTPOS), ("joint_vel", S.mjSENS_JOINTVEL)):
        for j in spec.joints:
            if j.type in kinds:
                spec.add_sensor(name=f"{family}/{j.name}", type=kind, objtype=mujoco.mjtObj.mjOBJ_JOINT, objname=j.name)
    return ""


def add_soles(spec: mujoco.MjSpec, feet: Iterable[Foot]) -> str:
    """Balls that collide with the floor, and a site with place, velocity and touch, at each foot."""
    feet = tuple(feet)
    for f in feet:
        at = body(spec, f.body)
        for k, p in enumerate(f.points):
            at.add_geom(
                name=sole(f, k), type=GEOM.mjGEOM_SPHERE, size=[f.radius, 0, 0], pos=p, mass=0, group=3, rgba=[0.1, 0.1, 0.1, 1],
                contype=ROBOT, conaffinity=GROUND, priority=1, condim=3, friction=[0.8, 0.02, 0.01],
            )  # fmt: skip
        half = np.ptp(f.points, axis=0) / 2 + TOUCH * f.radius
        one = len(f.points) == 1
        shape = {"type": GEOM.mjGEOM_SPHERE if one else GEOM.mjGEOM_BOX, "size": [half[0], 0, 0] if one else half}
        at.add_site(name=sole(f), pos=f.centre, group=5, rgba=[0, 0, 0, 0], **shape)
    families = {"foot_pos": S.mjSENS_FRAMEPOS, "foot_vel": S.mjSENS_FRAMELINVEL, "touch": S.mjSENS_TOUCH}
    if any(f.normal is not None for f in feet):
        families["foot_quat"] = S.mjSENS_FRAMEQUAT
    for family, kind in families.items():
        for f in feet:
            spec.add_sensor(name=f"{family}/{f.name}", type=kind, objtype=SITE, objname=sole(f))
    balls = sum(len(f.points) for f in feet)
    return f"{balls} balls at the soles of {len(feet)} feet collide with the floor"


def sole(f: Foot, k: int | None = None) -> str:
    """Name of a foot's site, or of its k-th ball."""
    return f"sole/{f.name}" if k is None else f"sole/{f.name}/{k}"


def add_trunk(spec: mujoco.MjSpec, base: str, box: tuple[tuple[float, ...], tuple[float, ...]]) -> str:
    """A box around the base's shapes (centre, half sizes) that collides with the floor."""
    centre, half = box
    body(spec, base).add_geom(
        name=f"trunk/{base}", type=GEOM.mjGEOM_BOX, size=half, pos=centre, mass=0, group=3, rgba=[0, 0, 0, 0],
        contype=ROBOT, conaffinity=GROUND, condim=3,
    )  # fmt: skip
    return f"a box around {base} collides with the floor"


def add_servos(spec: mujoco.MjSpec, servos: Mapping[str, Servo]) -> str:
    """A position servo on each joint: the model's actuator there, changed where it is none, or a new one."""
    joints = {j.name: j for j in spec.joints}
    own = {a.target: a for a in spec.actuators if a.trntype == mujoco.mjtTrn.mjTRN_JOINT}
    made, changed = [], []
    for name, s in servos.items():
        if name not in joints:
            raise unknown("joint", name, joints, "servo")
        if s.armature:
            joints[name].armature = s.armature
        if name not in own:
            own[name] = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            made.append(name)
        elif not _holds(own[name]):
            own[name].ctrllimited = own[name].actlimited = 0
            changed.append(name)
        _gains(own[name], s)
        own[name].name = own[name].name or name
    said = [f"{len(made)} servos added"] if made else []
    said += [f"{len(changed)} motors made position servos"] if changed else []
    return "; ".join(said)


def _holds(a: mujoco.MjsActuator) -> bool:
    """Already a position servo at the joint itself."""
    plain = a.gaintype == mujoco.mjtGain.mjGAIN_FIXED and a.biastype == mujoco.mjtBias.mjBIAS_AFFINE
    return bool(plain and a.biasprm[1] < 0 and a.dyntype == mujoco.mjtDyn.mjDYN_NONE and a.gear[0] == 1)


def _gains(a: mujoco.MjsActuator, s: Servo) -> None:
    a.gaintype, a.biastype, a.dyntype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE, mujoco.mjtDyn.mjDYN_NONE  # fmt: skip
    a.gear = [1, 0, 0, 0, 0, 0]
    a.gainprm[0], a.biasprm[:3] = s.kp, [0, -s.kp, -s.kd]
    if np.isfinite(s.limit):
        a.forcelimited, a.forcerange = 1, [-s.limit, s.limit]


def step(spec: mujoco.MjSpec, timing: Timing) -> str:
    """The engine's timestep, solver and integrator."""
    o = spec.option
    was = f"timestep {o.timestep:g} s, {o.iterations} iterations"
    o.timestep, o.iterations, o.ls_iterations = timing.timestep, timing.iterations, timing.line_search
    o.integrator, o.solver = mujoco.mjtIntegrator.mjINT_IMPLICITFAST, mujoco.mjtSolver.mjSOL_NEWTON
    o.cone, o.impratio, o.noslip_iterations = mujoco.mjtCone.mjCONE_PYRAMIDAL, 1, 0
    spec.memory = ARENA
    o.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP)
    return f"timestep {timing.timestep:g} s, {timing.iterations} Newton iterations, implicitfast, pyramidal cone (was {was})"  # fmt: skip


def body(spec: mujoco.MjSpec, name: str) -> mujoco.MjsBody:
    names = [b.name for b in spec.bodies if b.name]
    if name not in names:
        raise unknown("body", name, names, "edit")
    return spec.body(name)
