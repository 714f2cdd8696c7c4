"""track: a robot with legs follows a reference motion in its own joints, as BeyondMimic does.

Each joint servo holds its target: torque = kp (target - q) - kd v, target = default pose + scale a. PPO learns what to add to
the motion's joints q* and their speeds v*:

    a = (q* + (kd / kp) v* - default pose) / scale + f(o)          the law below, and a net that begins at 0

so that torque = kp (q* - q) + kd (v* - v) before anything is learned. The actor observes q* at its phase, how the base is turned from the motion's, and what the robot measures; neither its place nor its velocity. Six rewards follow base and bodies (terms/tracking.py). Training begins anywhere in the motion, more often where
it fails; evaluation runs the whole of it.

Lengths are BeyondMimic's for legs of L0 = 0.7 m; other robots have them with L / L0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import mujoco
import numpy as np

from surefoot.contract import Action
from surefoot.errors import SurefootError, unknown
from surefoot.files import sha256
from surefoot.log import Log
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.rotation import angular_velocity, slerp, to_world, turned, unit
from surefoot.sim.anatomy.links import posed
from surefoot.sim.events import Push
from surefoot.sim.layout import layout_of
from surefoot.sim.model import edits
from surefoot.sim.model.edits import Timing
from surefoot.sim.model.load import load_robot
from surefoot.task import Clip, Episode, Reward, Symmetry, Task
from surefoot.tasks.build import unknowns, velocity
from surefoot.tasks.build.ground import FLAT
from surefoot.tasks.build.legged import Body, Legged, changes, mirrored_joints, read_legged
from surefoot.tasks.terms import observations as obs
from surefoot.tasks.terms import rewards, tracking
from surefoot.tasks.terms.tracking import Reference
from surefoot.world import Start

L0 = 0.7  # m
NEAR = 0.1  # of the robot's extent: bodies nearer than this to the one before them are left out
PART = 1.0  # s
LIMIT = 10.0  # of an action, upon what takes the joints as far from the default pose as the motion goes
LONGEST = 600.0  # s
OFF = np.array([0.05, 0.05, 0.01, 0.05, 0.05, 0.2])  # m, rad: how far from the reference the base begins
EXPLORE = (0.05, 0.6, 1.0)  # of PPO: more than a biped that walks needs, because a law keeps its joints near the motion
# Batches of 2048 steps and a KL of 0.05: how far the policy may go in a batch is what limits its learning, so that it takes many
# batches and far ones. With a KL of 0.1 its noise is gone before it has learned.
LEARN = {"envs": 128, "horizon": 16, "kl": 0.05, "steps": 20_000_000, "hidden": (256, 128), "spread": EXPLORE}
SPEED = np.array([0.3, 0.3, 0.1, 0.3, 0.3, 0.5])  # m/s, rad/s
JOINT = 0.05  # rad


def track(
    robot: Robot,
    motion: Log | Sequence[Log],
    legs: Legged | None = None,
    bodies: tuple[str, ...] = (),
    timing: Timing = Timing(steps=4),  # noqa: B008
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> Task:
    """The task of following a motion (motion.read), or several. `bodies`: those that are tracked, the base first; none: found in the model."""
    motions = (motion,) if isinstance(motion, Log) else tuple(motion)
    legs = moved(legs or read_legged(robot, "free")[0], motions)
    robot = prepared(robot, legs, timing, bodies or tracked(robot, legs))
    body = Body(robot, legs)
    each = [reference(body, m, timing.period) for m in motions]
    ref, ends = joined(each)
    names = family(body.model, "body_pos")
    mass, size = float(body.model.body_mass.sum()), legs.length / L0
    belief = unknowns.belief(velocity.unknown_rows(body, mass, timing), ranges or {})
    actor, critic = _observations(body, ref, len(names), len(belief.params))
    starts, scale, law = Starts(body, ref, ends), _scale(legs), _law(legs)
    asked = np.concatenate([ref.q[:, body.joints.q] - body.joints.home, ref.v[:, body.joints.v]], 1) @ law.T
    limit = LIMIT + float(np.ceil(np.abs(asked / scale).max()))
    return Task(
        name=f"{robot.name}-track",
        about=f"{robot.name} follows {'a motion' if len(each) == 1 else f'{len(each)} motions'} of {ref.seconds:.3g} s",
        robot=robot,
        params=belief.params,
        belief=belief,
        substeps=timing.steps,
        seconds=ref.seconds,
        action=Action(body.actuators, body.joints.home, scale, "rad", limit=limit),
        observations={"actor": ObsGroup(actor), "critic": ObsGroup(critic)},
        rewards=_rewards(body, ref, size),
        ended={
            "base height": partial(tracking.anchor_height, ref=ref, most=0.25 * size),
            "base tilt": partial(tracking.anchor_tilt, ref=ref),
            "hand or foot height": partial(tracking.ends_height, ref=ref, ends=_ends(body.model, names), most=0.25 * size),
        },
        episode=starts.first,
        error=lambda s: tracking.body_error(s, ref),
        error_unit="m",
        tolerance=round(0.1 * size, 3),
        window=ref.seconds,
        measure="mean",
        clip=Clip(_about(ref), ref.seconds, max(1, round(ref.seconds / PART)), starts, tuple(e * ref.period for e in ends[:-1])),
        reward_floor=0.0,
        law={"reference_joints": law.tolist()},
        terms=(Push(slice(body.base[1], body.base[1] + 2), unknowns.SHOVE * mass, unknowns.SHOVED, velocity.SHOVES, belief.params),),
        settings=dict(velocity.LEARN) | LEARN,
        ranges="ramp",
        symmetry=_symmetry(legs),
        kind="legged",
    )  # fmt: skip


def _law(legs: Legged) -> np.ndarray:
    """(joints, 2 joints) from q* and v* to targets under which the servo's damping acts on v - v*: q* + (kd / kp) v*."""
    return np.concatenate([np.eye(len(legs.joints)), np.diag([j.kd / j.kp for j in legs.joints.values()])], 1)


def _symmetry(legs: Legged) -> Symmetry | None:
    """Left-right: the mirror image of what the actor observes is that of the mirrored robot and motion."""
    joints = mirrored_joints(legs.joints)
    if joints is None:
        return None
    order, sign = joints
    twice = np.concatenate([order, order + len(order)]), np.tile(sign, 2)
    signs = {"reference_rotation": [1, -1, -1, 1, 1, -1], "base_ang_vel": [-1, 1, -1], "projected_gravity": [1, -1, 1]}
    terms = {name: (np.arange(len(s)), np.array(s, float)) for name, s in signs.items()}
    return Symmetry({"reference_joints": twice, **dict.fromkeys(("joint_pos", "joint_vel", "last_action"), joints), **terms}, joints)  # fmt: skip


def _scale(legs: Legged) -> np.ndarray:
    """rad for each unit of action: a quarter of what takes a servo to its limit, 0.05 to 0.5."""
    reach = np.array([j.limit / j.kp if np.isfinite(j.limit) else 1.0 for j in legs.joints.values()])
    return np.clip(0.25 * reach, 0.05, 0.5).round(3)


def moved(legs: Legged, motions: Sequence[Log]) -> Legged:
    """The robot whose policy moves the joints of the motions; others stay in the default pose."""
    every = {**legs.joints, **legs.held}
    if not motions:
        raise SurefootError("motion: found none, expected at least one")
    named = motions[0].meta["names"]["joint_pos"]
    for k, motion in enumerate(motions[1:], 2):
        if set(motion.meta["names"]["joint_pos"]) != set(named):
            raise SurefootError(f"motion {k}: found joints {', '.join(motion.meta['names']['joint_pos'])}, expected those of the first: {', '.join(named)}")  # fmt: skip
    for name in named:
        if name not in every:
            raise unknown("driven joint", name, every, "motion")
    own = {j: r for j, r in every.items() if j in named}
    return replace(legs, joints=own, held={j: r for j, r in every.items() if j not in named})


def tracked(robot: Robot, legs: Legged) -> tuple[str, ...]:
    """The base, and outwards from it each body that is not close to the one before it, or is the last of its limb."""
    spec = load_robot(robot).spec
    edits.name_parts(spec)
    edits.free_base(spec)
    m = spec.compile()
    q = m.qpos0.copy()
    for name, j in {**legs.joints, **legs.held}.items():
        q[m.joint(name).qposadr[0]] = j.home
    d, base = posed(m, q), m.body(legs.base).id
    inside = [b for b in range(1, m.nbody) if m.body_rootid[b] == m.body_rootid[base] and m.body_weldid[b] == b]
    least = NEAR * max(np.linalg.norm(d.xpos[b] - d.xpos[base]) for b in inside)
    before, kept = {base: base}, [base]
    for b in inside:  # parents come before their children
        if b == base:
            continue
        near = before.get(int(m.body_weldid[m.body_parentid[b]]), base)
        far = np.linalg.norm(d.xpos[b] - d.xpos[near]) > least
        leaf = not any(int(m.body_weldid[m.body_parentid[c]]) == b for c in inside)
        before[b] = b if far else near
        kept += [b] if far or leaf else []
    return tuple(str(m.body(b).name) for b in kept)


def prepared(robot: Robot, legs: Legged, timing: Timing, bodies: tuple[str, ...]) -> Robot:
    """The robot with what training needs; its file stays as it is."""

    def edit(spec: mujoco.MjSpec) -> None:
        ready(spec, legs, timing, bodies)

    return robot.edited(edit)


def ready(spec: mujoco.MjSpec, legs: Legged, timing: Timing, bodies: tuple[str, ...]) -> list[str]:
    """Makes a model ready for training, in place; says what was changed."""
    return [*changes(spec, legs, timing, FLAT), edits.add_body_sensors(spec, bodies)]


def family(m: mujoco.MjModel, name: str) -> tuple[str, ...]:
    """Parts of a family of sensors: torso of body_pos/torso."""
    found = [str(m.sensor(i).name).partition("/") for i in range(m.nsensor)]
    return tuple(part for first, _, part in found if first == name)


def reference(body: Body, motion: Log, period: float) -> Reference:
    """The motion a row each control period, from its first to its last."""
    m, span = body.model, float(motion.time[-1] - motion.time[0])
    if not 3 * period <= span <= LONGEST:
        raise SurefootError(f"motion: found {span:.3g} s, expected {3 * period:g} to {LONGEST:g} s")
    t = motion.time[0] + np.arange(int(span / period + 1e-6) + 1) * period
    q = np.tile(body.q, (len(t), 1))
    at = body.base[0]
    q[:, at : at + 3] = _at(motion, "base_pos", t).round(5)
    q[:, at + 3 : at + 7] = _turned(motion, t).round(6)
    order = [motion.meta["names"]["joint_pos"].index(j) for j in body.joints.names]
    q[:, body.joints.q] = _at(motion, "joint_pos", t)[:, order].round(5)
    layout = layout_of(m)
    v = np.zeros((len(t), m.nv))
    v[1:-1] = layout.difference(q[:-2], q[2:]) / (2 * period)
    v[0], v[-1] = v[1], v[-2]
    ids = [m.body(name).id for name in family(m, "body_pos")]
    pos, quat = np.zeros((len(t), len(ids), 3)), np.zeros((len(t), len(ids), 4))
    d = mujoco.MjData(m)
    for k, row in enumerate(q):
        d.qpos[:] = row
        mujoco.mj_kinematics(m, d)
        pos[k], quat[k] = d.xpos[ids], d.xquat[ids]
    speed = np.asarray(np.gradient(pos, period, axis=0))
    return Reference(period, q, v, pos, quat, speed, _spin(t, quat))


def joined(each: Sequence[Reference]) -> tuple[Reference, tuple[int, ...]]:
    """Motions one after the other, and the last row of each."""
    rows = [np.concatenate([getattr(r, k) for r in each]) for k in ("q", "v", "pos", "quat", "lin_vel", "ang_vel")]
    ends = np.cumsum([len(r.q) for r in each]) - 1
    return Reference(each[0].period, *rows), tuple(ends.tolist())


def _at(motion: Log, name: str, t: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(t, motion.time, column) for column in motion[name].T], 1)


def _turned(motion: Log, t: np.ndarray) -> np.ndarray:
    i = np.clip(np.searchsorted(motion.time, t, "right") - 1, 0, len(motion) - 2)
    s = (t - motion.time[i]) / (motion.time[i + 1] - motion.time[i])
    quat = unit(motion["base_quat"])
    return slerp(quat[i], quat[i + 1], s)


def _spin(t: np.ndarray, quat: np.ndarray) -> np.ndarray:
    """(T, bodies, 3) rad/s in the world frame."""
    out = np.stack([to_world(q, angular_velocity(t, q)) for q in quat.transpose(1, 0, 2)], 1)
    out[0], out[-1] = out[1], out[-2]
    return out


def _about(ref: Reference) -> str:
    return f"{ref.seconds:.3g} s, sha256 {sha256(ref.q.tobytes())[:16]}"


def _ends(m: mujoco.MjModel, names: tuple[str, ...]) -> np.ndarray:
    """Which of the tracked bodies have none of them further out: hands and feet."""
    ids = [m.body(name).id for name in names]
    inner = {b for i in ids for b in _ancestors(m, i)}
    return np.array([k for k, i in enumerate(ids) if i not in inner])


def _ancestors(m: mujoco.MjModel, b: int) -> list[int]:
    out = []
    while b:
        b = int(m.body_parentid[b])
        out.append(b)
    return out


def _observations(body: Body, ref: Reference, bodies: int, unknown_count: int) -> tuple[tuple[ObsTerm, ...], ...]:
    joints, n, rate = body.joints, len(body.joints.names), 1 / ref.period
    at = body.base[0]
    home = tuple(joints.home.tolist())
    follow = Formula("reference_joints", joints.names, home, frequency=rate, table=_flat(ref.q[:, joints.q]))
    attitude = Formula("reference_rotation", frame=body.imu, frequency=rate, table=_flat(ref.q[:, at + 3 : at + 7]))
    actor = (
        ObsTerm("reference_joints", follow, 2 * n, "rad from the default pose, rad/s", scale=(1.0,) * n + (0.1,) * n, sensed=False),
        ObsTerm("reference_rotation", attitude, 6, "two columns of a rotation matrix", 0.03),
        obs.base_ang_vel(body.imu), obs.projected_gravity(body.imu), obs.joint_pos(joints), obs.joint_vel(joints), obs.last_action(n),
    )  # fmt: skip
    more = (
        obs.base_lin_vel(), ObsTerm("anchor_off", tracking.anchor_off(ref), 3, "m, base frame", clip=1.0),
        ObsTerm("body_places", tracking.body_places, 3 * bodies, "m, base frame"), obs.unknowns(unknown_count),
    )  # fmt: skip
    return actor, (*actor, *more)


def _flat(rows: np.ndarray) -> tuple[float, ...]:
    return tuple(rows.ravel().tolist())


def _rewards(body: Body, ref: Reference, size: float) -> dict[str, Reward]:
    """Weights and widths of BeyondMimic; only soles and trunk collide, so that no other contact can be penalised."""
    kinds: dict[str, tuple[float, Callable[..., np.ndarray], float, str]] = {
        "anchor_pos": (0.5, tracking.anchor_pos, 0.3 * size, "base where the motion's is"),
        "anchor_ori": (0.5, tracking.anchor_ori, 0.4, "base turned as the motion's"),
        "body_pos": (1.0, tracking.body_pos, 0.3 * size, "bodies where the motion's are, seen from the base"),
        "body_ori": (1.0, tracking.body_ori, 0.4, "bodies turned as the motion's, seen from the base"),
        "body_lin_vel": (1.0, tracking.body_lin_vel, 1.0, "bodies as fast as the motion's"),
        "body_ang_vel": (1.0, tracking.body_ang_vel, 3.14, "bodies turning as fast as the motion's"),
    }
    found = {
        k: Reward(w, partial(f, ref=ref, sigma=s), f"{about}: exp(-mean error^2 / {s:.3g}^2)")
        for k, (w, f, s, about) in kinds.items()
    }
    return found | {
        "action_rate": Reward(-0.1, rewards.action_rate, "change of action squared"),
        "joint_pos_limits": Reward(-10.0, partial(rewards.joint_pos_limits, joints=body.joints), "joints beyond their range, rad"),
    }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Starts:
    """A state of the motion, base and joints a little off it; in training its base moves otherwise, too.

    An evaluation begins as a robot does that waits for its policy on a stand or a gantry: off the motion's place, attitude and joints, and
    as fast as the motion. A base that stands and is thrown at 0.4 m/s would have to step out of a motion that has no step."""

    body: Body
    ref: Reference
    ends: tuple[int, ...] = ()
    """the last row of each motion"""

    def first(self, rng: Draw, n: int) -> Episode:
        """At the motion's beginning; of several motions, at that of one of them."""
        return self._at(rng, n, self._begins(rng, n), 0.0)

    def thrown(self, rng: Draw, n: int) -> Episode:
        """There, too, with the base's speed as far off as in training."""
        return self._at(rng, n, self._begins(rng, n), 1.0)

    def _begins(self, rng: Draw, n: int) -> np.ndarray:
        begins = np.array([0, *(e + 1 for e in self.ends[:-1])])
        if len(begins) == 1:
            return np.zeros(n, int)
        return np.asarray(begins[(rng.uniform(0.0, 1.0, (n, 1))[:, 0] * len(begins)).astype(int)])

    def __call__(self, rng: Draw, n: int, chances: np.ndarray) -> Episode:
        """In a part of the motion drawn with these probabilities, anywhere in it."""
        last = len(self.ref.q) - 2
        u = rng.uniform(0.0, 1.0, (n, 2))
        part = np.minimum(np.searchsorted(np.cumsum(chances), u[:, 0], "right"), len(chances) - 1)
        row = np.minimum(((part + u[:, 1]) / len(chances) * last).astype(int), last)
        return self._at(rng, n, row - np.isin(row, self.ends), 1.0)  # nobody begins where a motion ends

    def _at(self, rng: Draw, n: int, row: np.ndarray, thrown: float) -> Episode:
        (at, dof), joints = self.body.base, self.body.joints
        off = rng.uniform(-1.0, 1.0, (n, 12 + len(joints.names)))
        q, v = self.ref.q[row].copy(), self.ref.v[row].copy()
        q[:, at : at + 3] += OFF[:3] * off[:, :3]
        q[:, at + 3 : at + 7] = turned(q[:, at + 3 : at + 7], OFF[3:] * off[:, 3:6])
        v[:, dof : dof + 6] += thrown * SPEED * off[:, 6:12]
        q[:, joints.q] = np.clip(q[:, joints.q] + JOINT * off[:, 12:], joints.low, joints.high)
        u = np.tile(self.body.u, (n, 1))
        u[:, self.body.controls] = q[:, joints.q]
        return Episode(Start(q, v, u), phase=row * self.ref.period)
