"""A robot model and another's contract, as a Task: follow a commanded velocity, with the contract's observation.

    control_j = offset_j + scale_j a_j at the servo of joint j;  error = |(vx, vy, ARM w) - commanded|, in the base's frame
An episode succeeds when it lasts and its mean error, after the first SETTLE seconds, stays within TOLERANCE.
Fallen: tilted by more than 60 degrees, or the base below 40 % of its standing height.
"""

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import mujoco
import numpy as np

from surefoot.belief import Box
from surefoot.contract import COMMANDS, Action, Contract
from surefoot.errors import SurefootError, unknown
from surefoot.observation import ObsTerm
from surefoot.params import Param, Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.rotation import norm2, to_body
from surefoot.sim.events import Push
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.model.load import load_robot
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Start

SECONDS, SETTLE = 10.0, 1.0
TOLERANCE = 0.25  # m/s
ARM = 0.25  # m: a turn rate counts as the speed of a point this far from the axis
LOWEST, TILT = 0.4, 0.5  # of the standing height; cosine
SHOVE = 4.7  # m/s^2 for 0.1 s, of the whole robot: a push of strength 1
NOISE = {"base_lin_vel": 0.05, "base_ang_vel": 0.1, "projected_gravity": 0.02, "joint_pos": 0.01, "joint_vel": 0.5}
SENSORS = (("gyro", mujoco.mjtSensor.mjSENS_GYRO), ("velocimeter", mujoco.mjtSensor.mjSENS_VELOCIMETER), ("framequat", mujoco.mjtSensor.mjSENS_FRAMEQUAT))  # fmt: skip


@dataclass(frozen=True)
class Fitted:
    """A model that a contract is wired to: where in it everything is."""

    robot: Robot
    contract: Contract
    where: str
    substeps: int

    @cached_property
    def model(self) -> mujoco.MjModel:
        return load_robot(self.robot).model

    @cached_property
    def free(self) -> int:
        found = Plain(self.model).free
        if found is None:
            raise SurefootError(f"{self.where}: found no free joint, expected a robot whose base is free to move")
        return found

    @property
    def base(self) -> tuple[int, int]:
        """Where the base is in q and in v."""
        return int(self.model.jnt_qposadr[self.free]), int(self.model.jnt_dofadr[self.free])

    def joints(self, names: tuple[str, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Where joints, in the order of the contract, are in q and in v."""
        ids = [self.model.joint(name).id for name in names or self.contract.joints]
        return self.model.jnt_qposadr[ids].astype(int), self.model.jnt_dofadr[ids].astype(int)

    @cached_property
    def actuators(self) -> np.ndarray:
        """The control that drives each joint of the contract."""
        number = {d.joint: int(self.model.actuator_ctrladr[d.number]) for d in Plain(self.model).drives}
        return np.array([number[name] for name in self.contract.joints])

    @cached_property
    def standing(self) -> tuple[np.ndarray, np.ndarray]:
        """q and u at home: of the keyframe with the joints nearest to it, or as the model begins."""
        m = self.model
        k = nearest_key(m, self.contract)
        q, u = (m.qpos0.copy(), np.zeros(m.nu)) if k is None else (m.key_qpos[k].copy(), m.key_ctrl[k].copy())
        q[self.joints()[0]] = self.contract.home
        u[self.actuators] = self.contract.action.offset
        if not m.nkey:
            q[self.base[0] + 2] += _lift(m, q)
        return q, u


def nearest_key(m: mujoco.MjModel, contract: Contract) -> int | None:
    """The keyframe whose joints are nearest to the contract's home; of equal ones that called home, or the first."""
    if not m.nkey:
        return None
    at = [int(m.jnt_qposadr[m.joint(j).id]) for j in contract.joints]
    off = np.abs(m.key_qpos[:, at] - contract.home).max(1).round(6)
    return min(range(m.nkey), key=lambda k: (off[k], m.key(k).name != "home"))


def motors(path: Path) -> list[str]:
    """The driven joints of a model, in the order of its actuators; of one without actuators, all hinges and slides."""
    plain = Plain(load_robot(Robot.file(path)).model)
    return [d.joint for d in plain.drives] or [plain.model.joint(j).name for j in plain.joints]


def differences(path: Path, contract: Contract) -> list[str]:
    """Where the contract and the model disagree about the robot, in words; the contract is obeyed."""
    model = load_robot(Robot.file(path)).model
    drives = {d.joint: d.number for d in Plain(model).drives}
    ids = [drives[j] for j in contract.joints if j in drives]
    bare = [j for j in contract.joints if j not in drives]
    found = (
        [f"actuators: the model has none on {', '.join(bare)}; servos with the contract's gains are added"]
        if bare
        else []
    )
    for name, column in (("kp", 1), ("kd", 2)):
        own = -model.actuator_biasprm[ids, column]
        if getattr(contract, name) and len(own) == len(contract.joints) and (own > 0).all():
            ratio = np.array(getattr(contract, name)) / own
            if not np.allclose(ratio, 1, atol=0.02):
                found.append(f"{name}: the contract's are {_span(ratio)} times the model's; the contract's are used")
    k = nearest_key(model, contract) if len(ids) == len(contract.joints) else None
    if k is not None:
        at = [int(model.jnt_qposadr[model.joint(j).id]) for j in contract.joints]
        off, name = float(np.abs(model.key_qpos[k][at] - contract.home).max()), model.key(k).name or str(k)
        if off > 0.01:
            found.append(f"home: the contract's is up to {off:.2f} rad from the model's keyframe {name}")
    return found


def _said_of_bare(model: mujoco.MjModel, joints: list[str]) -> str:
    free = sum(not model.jnt_actfrclimited[model.joint(j).id] for j in joints)
    which = joints[0] if len(joints) == 1 else f"{joints[0]} and {len(joints) - 1} more joints"
    limits = f", {free} of them without a torque limit" if free else ""
    return f"actuators: the model has none on {which}; servos with the contract's gains are added{limits}"


def _span(x: np.ndarray) -> str:
    low, high = float(x.min()), float(x.max())
    return f"{low:.3g}" if high - low < 0.01 else f"{low:.3g} to {high:.3g}"


def task_of(path: Path, contract: Contract, command: tuple[float, ...] | None = None, seconds: float = SECONDS) -> tuple[Task, Fitted]:  # fmt: skip
    """The task of a contract on a model; a `command` (vx, vy, yaw_rate) in place of the contract's ranges."""
    robot = fitted(path, contract)
    params, ranges = unknowns(robot)
    low, high = _commands(contract, command)
    q, u = robot.standing
    nq, nv = robot.base
    drives = {d.joint: d.actuator for d in Plain(robot.model).drives}
    names, law = tuple(drives[j] for j in contract.joints), contract.action
    terms = tuple(_noisy(t, drives) for t in contract.terms)

    def episode(rng: Draw, n: int) -> Episode:
        """At home, joints up to 0.05 rad off, speeds up to 0.1."""
        rest = rng.uniform(-1.0, 1.0, (n, robot.model.nv + len(contract.joints)))
        begun = np.tile(q, (n, 1))
        begun[:, robot.joints()[0]] += 0.05 * rest[:, robot.model.nv :]
        return Episode(Start(begun, 0.1 * rest[:, : robot.model.nv], np.tile(u, (n, 1))))

    def velocity(s: Moment) -> np.ndarray:
        """(n, 3) vx, vy, yaw rate of the base in its own frame."""
        v = to_body(s.q[:, nq + 3 : nq + 7], s.v[:, nv : nv + 3])
        return np.concatenate([v[:, :2], s.v[:, nv + 5 : nv + 6]], 1)

    task = Task(
        name=Path(path).stem,
        about="follow a commanded velocity, driven by a policy of others",
        robot=robot.robot,
        params=params,
        belief=Box.ranges(params, ranges),
        substeps=robot.substeps,
        seconds=seconds,
        action=Action(names, law.offset, law.scale, "rad", law.limit),
        observations={"actor": replace(contract.observation, terms=terms)},
        rewards={"up": Reward(1.0, lambda s: np.ones(len(s.q)), "for each second on its feet")},
        ended={
            "fell": lambda s: 1 - 2 * (s.q[:, nq + 4] ** 2 + s.q[:, nq + 5] ** 2) < TILT,
            "base on the ground": lambda s: s.q[:, nq + 2] < LOWEST * q[nq + 2],
        },
        episode=episode,
        error=lambda s: np.sqrt(norm2((velocity(s) - s.command) * (1.0, 1.0, ARM))),
        error_unit="m/s",
        tolerance=TOLERANCE,
        window=seconds - min(SETTLE, seconds / 2),
        measure="mean",
        command=lambda rng, n: rng.uniform(low, high, (n, 3)),
        command_names=COMMANDS,
        terms=(Push(slice(nv, nv + 2), SHOVE * float(robot.model.body_mass.sum()), 0.1, 4.0, params),),
        kind="legged",
    )
    return task, robot


def _commands(contract: Contract, command: tuple[float, ...] | None) -> tuple[np.ndarray, np.ndarray]:
    if command is not None:
        if len(command) != len(COMMANDS) or not np.isfinite(command).all():
            raise SurefootError(f"command: expected {', '.join(COMMANDS)}: three numbers, found {list(command)}")
        return np.array(command, float), np.array(command, float)
    ends = np.array(contract.command_ranges or len(COMMANDS) * [(0.0, 0.0)], float)
    return ends[:, 0], ends[:, 1]


def fitted(path: Path, contract: Contract) -> Fitted:
    """The model with the contract's rate, gains, delay and IMU; every other number as it is."""
    robot = Robot.file(path)
    timestep = load_robot(robot).spec.option.timestep
    substeps = max(1, math.ceil(1 / (contract.rate * timestep) - 1e-6))
    return Fitted(robot.edited(partial(_fit, contract, substeps, str(path))), contract, str(path), substeps)


def _fit(contract: Contract, substeps: int, where: str, spec: mujoco.MjSpec) -> None:
    for kind in (spec.bodies, spec.joints, spec.geoms, spec.actuators, spec.sensors):
        for i, thing in enumerate(kind):
            thing.name = thing.name or f"unnamed {i}"
    model = spec.compile()
    names = [model.joint(j).name for j in range(model.njnt)]
    drives = {d.joint: d for d in Plain(model).drives}
    for name in contract.joints:
        if name not in names:
            raise unknown("joint", name, names, f"{where}: joints of the contract")
    spec.option.timestep = 1 / (contract.rate * substeps)
    driven = {k: d.actuator for k, d in drives.items()}
    _servos(spec, contract, driven | _added(spec, contract, set(drives), where), where)
    for actuator in spec.actuators if contract.latency else ():
        actuator.delay = contract.latency
        actuator.nsample = max(actuator.nsample, math.ceil(contract.latency / spec.option.timestep - 1e-9) + 1)
    _imu(spec, contract, where)
    if not len(Plain(spec.compile()).touching):
        spec.worldbody.add_geom(name="ground of surefoot", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05])


def _added(spec: mujoco.MjSpec, contract: Contract, driven: set[str], where: str) -> dict[str, str]:
    """Motors on the contract's joints that have none, as models have whose actuators a framework adds: joint -> its name."""
    bare = [j for j in contract.joints if j not in driven]
    if bare and not contract.kp:
        raise SurefootError(
            f"{where}: joint {bare[0]}: found no actuator that drives it: give kp and kd in the contract"
        )
    for joint in bare:
        spec.add_actuator(name=f"servo of {joint}", target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    return {joint: f"servo of {joint}" for joint in bare}


def _servos(spec: mujoco.MjSpec, contract: Contract, drives: dict[str, str], where: str) -> None:
    """The contract's gains on its joints' servos; bare motors become servos, within their own limits."""
    kp, kd = (getattr(contract, k) or None for k in ("kp", "kd"))
    for i, joint in enumerate(contract.joints):
        a = spec.actuator(drives[joint])
        servo = a.biasprm[1] < 0
        if not servo and kp is None:
            raise SurefootError(f"{where}: joint {joint}: driven by a motor, no servo: give kp and kd in the contract")
        if kp is not None:
            limit = np.array(a.ctrlrange if not servo and not a.forcelimited == 1 else a.forcerange)
            a.gainprm[0], a.biasprm[1] = kp[i], -kp[i]
            a.gaintype, a.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
            if not servo:
                a.ctrllimited = 0
                if limit[1] > limit[0]:
                    a.forcerange, a.forcelimited = limit, 1
        if kd is not None:
            a.biasprm[2] = -kd[i]


def _imu(spec: mujoco.MjSpec, contract: Contract, where: str) -> None:
    """A gyro, a velocimeter and an attitude at the contract's sites, where the model has none there."""
    sites = [s.name for s in spec.sites if s.name]
    for frame in {t.formula.frame for t in contract.terms if t.formula is not None} - {"", "base", "world"}:
        if frame not in sites:
            raise unknown("site", frame, sites, f"{where}: frame of the contract")
        for word, kind in SENSORS:
            if not any(s.type == kind and s.objname == frame and not s.refname for s in spec.sensors):
                spec.add_sensor(name=f"{word} at {frame}", type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=frame)


def _lift(m: mujoco.MjModel, q: np.ndarray) -> float:
    """How far up the base has to go for the lowest shape that touches things to be just above the ground."""
    data = mujoco.MjData(m)
    data.qpos[:] = q
    mujoco.mj_kinematics(m, data)
    low = []
    for g in (int(g) for g in Plain(m).touching if m.body_weldid[m.geom_bodyid[g]]):
        down = data.geom_xmat[g].reshape(3, 3)[2]  # height of a point of the shape's own frame
        low.append(data.geom_xpos[g][2] + down @ m.geom_aabb[g, :3] - np.abs(down) @ m.geom_aabb[g, 3:])
    return -min(low, default=0.0)


def _noisy(t: ObsTerm, actuators: dict[str, str]) -> ObsTerm:
    """A term of the contract with an ordinary sensor's noise; the last action by the names that the task has for it."""
    t = replace(t, noise=NOISE.get(t.name, 0.0), sensed=t.name in NOISE)
    f = t.formula
    if f is None or f.kind != "last_action":
        return t
    return replace(t, source=replace(f, joints=tuple(actuators[j] for j in f.joints)))


def unknowns(robot: Fitted) -> tuple[Params, dict[str, tuple[float, float]]]:
    """What may be wrong of a legged robot, as far as this model has it, and by how much it is believed to be."""
    m, plain, latency = robot.model, Plain(robot.model), robot.contract.latency
    mass, base = float(m.body_mass.sum()), m.body(m.jnt_bodyid[robot.free]).name
    _, dofs = robot.joints()
    any_of = lambda names: "|".join(re.escape(n) for n in names)  # noqa: E731
    own, joints = any_of([base]), any_of(robot.contract.joints)
    driven = [m.actuator(int(np.flatnonzero(m.actuator_ctrladr == i)[0])).id for i in robot.actuators]
    servos = any_of([m.actuator(i).name for i in driven])
    ground = any_of([m.geom(g).name for g in plain.touching])
    lightest = -0.8 * float(m.body_mass[m.body(base).id])
    rows = [
        (Param("payload", "mass", 0.0, max(-0.3 * mass, lightest), 0.5 * mass, own, "add", "kg", about="mass carried by the base"), (max(-0.04 * mass, lightest), 0.15 * mass), True),
        (Param("com_x", "com_x", 0.0, -0.1, 0.1, own, "add", "m", about="base's centre of mass, forward"), (-0.03, 0.03), True),
        (Param("com_y", "com_y", 0.0, -0.05, 0.05, own, "add", "m", about="base's centre of mass, left"), (-0.02, 0.02), True),
        (Param("friction", "friction", 1.0, 0.1, 3.0, ground, log=True, about="ground and what touches it, as a multiple"), (0.6, 1.5), True),
        (Param("strength", "strength", 1.0, 0.5, 1.4, servos, about="servos' whole torque law, as a multiple"), (0.9, 1.1), True),
        (Param("kp", "kp", 1.0, 0.4, 2.0, servos, about="servos' stiffness, as a multiple"), (0.9, 1.1), True),
        (Param("kd", "kd", 1.0, 0.3, 3.0, servos, about="servos' damping, as a multiple"), (0.8, 1.2), (m.actuator_biasprm[driven, 2] < 0).all()),
        (Param("joint_damping", "damping", 1.0, 0.3, 3.0, joints, about="joints' damping, as a multiple"), (0.8, 1.2), (m.dof_damping[dofs] > 0).any()),
        (Param("torque_limit", "force_limit", 1.0, 0.4, 1.2, servos, about="largest torque, as a multiple"), (0.9, 1.0), all(d.limit is not None for d in plain.drives if d.number in driven)),
        (Param("armature", "armature", 1.0, 0.4, 2.5, joints, log=True, about="rotor inertia, as a multiple"), (0.7, 1.4), (m.dof_armature[dofs] > 0).any()),
        (Param("joint_friction", "frictionloss", 1.0, 0.0, 4.0, joints, about="dry joint friction, as a multiple"), (0.5, 1.5), (m.dof_frictionloss[dofs] > 0).any()),
        (Param("latency", "action_delay", latency, 0.0, 0.1 + latency, op="set", unit="s", about="from action to motor"), (latency, latency + 0.01), True),
        (Param("noise", "noise", 0.0, 0.0, 5.0, about="sensor noise, as a multiple of an ordinary sensor's; a contract names none"), (0.0, 1.0), any(t.name in NOISE for t in robot.contract.terms)),
        (Param("push", "push", 0.0, 0.0, 3.0, op="set", about=f"sideways pushes, as a multiple of {SHOVE * mass:.3g} N for 0.1 s"), (0.0, 1.0), True),
    ]  # fmt: skip
    kept = [(p, ends) for p, ends, there in rows if there]
    return Params(tuple(p for p, _ in kept)), {p.name: ends for p, ends in kept}
