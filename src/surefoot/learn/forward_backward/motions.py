"""A motion as what is asked for: z_t = mean of B(s_{t+1}) ... B(s_{t+k}), for each control period t of a motion s.

The policy observes z_t by its phase, as a term of its contract: a table that a robot's runtime reads, too.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from surefoot import tasks
from surefoot.env import Env
from surefoot.errors import SurefootError, unknown
from surefoot.learn.forward_backward.losses import on_sphere
from surefoot.learn.forward_backward.prompts import Asked, Promptable
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.forward_backward.style import Motions
from surefoot.log import Log
from surefoot.policy import Driver, Policy
from surefoot.rng import stream
from surefoot.rotation import unit
from surefoot.task import Episode, Task
from surefoot.tasks.rollout import contract
from surefoot.world import Start

FOLLOWERS = 16  # simulations of which each has a random z, to compare with


Poses = tuple[np.ndarray, np.ndarray, np.ndarray]
"""q, v, u (T, .)"""


@dataclass(frozen=True)
class Asking:
    """What a motion asks for, and the task of following it, which begins and ends with the motion."""

    z: Tensor  # (T, d)
    joints: np.ndarray  # (T, joints) their positions, in the order of the layout
    task: Task


def critic_states(task: Task, motion: Log) -> Tensor:
    """(T, .) what the critic observes along a motion, a row each control period."""
    env = tasks.env(task, 1)
    env.reset()
    return _observed(task, env, _poses(env, motion))


def motions_of(task: Task, s: FBSettings) -> Motions | None:
    """The motions that a run is to be near to."""
    each = [critic_states(task, Log.read(path)) for path in s.motions]
    return Motions(each, s.window) if each else None


def _observed(task: Task, env: Env, poses: Poses) -> Tensor:
    here = lambda rng, n: Episode(Start(*(x[:n] for x in poses)))  # noqa: E731
    still = replace(task, episode=here, clip=None, terms=(), symmetry=None)
    found = Env(still, env.world.with_(len(poses[0])), tasks.nominal(task)).reset()
    return torch.from_numpy(found["critic"].copy())


def for_motion(p: Promptable, motion: Log, ahead: int) -> Asking:
    """z of a motion of the robot's joints, and of its base where it has a free one."""
    env = tasks.env(p.task, 1)
    env.reset()
    poses, layout = _poses(env, motion), env.world.layout
    B = p.maps.meaning(_observed(p.task, env, poses))
    rows = [B[min(t + 1, len(B) - 1) : t + 1 + ahead].mean(0) for t in range(len(B))]
    first = lambda rng, n: Episode(Start(*(np.repeat(x[:1], n, 0) for x in poses)))  # noqa: E731
    follow = replace(p.task, episode=first, seconds=len(B) * env.world.dt, ended={}, clip=None, terms=(), symmetry=None)
    return Asking(on_sphere(torch.stack(rows)), poses[0][:, list(layout.places)], follow)


def _poses(env: Env, motion: Log) -> Poses:
    """q, v, u (T, .) of a motion, a row each control period; joints that it does not name stay where the episode began."""
    x, layout, dt = env.world.state, env.world.layout, env.world.dt
    joints, span = motion["joint_pos"].reshape(len(motion), -1), float(motion.time[-1] - motion.time[0])
    names = list(motion.meta.get("names", {}).get("joint_pos", layout.joints))
    if span < 3 * dt or joints.shape[1] != len(names):
        words = f"at least 3 periods of {dt:g} s, and a name for each column of joint_pos"
        raise SurefootError(
            f"--track: found {span:.3g} s, {joints.shape[1]} columns and {len(names)} names, expected {words}"
        )
    t = motion.time[0] + np.arange(int(span / dt + 1e-6) + 1) * dt
    q, at = np.repeat(x.q[:1], len(t), 0), dict(zip(layout.joints, layout.places))
    for j, column in zip(names, joints.T):
        if j not in at:
            raise unknown("joint", j, at, "--track")
        q[:, at[j]] = np.interp(t, motion.time, column)
    if layout.base is not None and {"base_pos", "base_quat"} <= set(motion.columns):
        rows = np.concatenate([motion["base_pos"], motion["base_quat"]], 1)
        place = np.stack([np.interp(t, motion.time, c) for c in rows.T], 1)
        q[:, layout.base[0] : layout.base[0] + 7] = np.concatenate([place[:, :3], unit(place[:, 3:])], 1)
    v = np.zeros((len(t), x.v.shape[1]))
    v[1:-1] = layout.difference(q[:-2], q[2:]) / (2 * dt)
    v[0], v[-1] = v[1], v[-2]
    return q, v, np.repeat(x.u[:1], len(t), 0)


def followed(p: Promptable, policy: Policy, asking: Asking) -> dict[str, float]:
    """Root mean square distance of the joints from the motion: of a policy that follows it, and of random z."""
    z = on_sphere(torch.from_numpy(stream(0, "random z").standard_normal((FOLLOWERS, p.maps.settings.z))).float())
    other = Asked(contract(asking.task, tasks.env(asking.task, 1).world), p.maps, z)
    own = tasks.for_contract(asking.task, policy.contract)
    return {
        "policy": _joint_error(policy, own, asking, 1),
        "random": _joint_error(other, asking.task, asking, FOLLOWERS),
    }


def _joint_error(policy: Policy, task: Task, asking: Asking, n: int) -> float:
    env, drive = tasks.env(task, n), Driver(policy, n)
    obs, places, square = env.reset(), list(env.world.layout.places), list[float]()
    for wanted in asking.joints[1:]:
        obs = env.step(drive(obs["actor"])).obs
        square.append(float(((env.world.state.q[:, places] - wanted) ** 2).mean()))
    return float(np.sqrt(np.mean(square)))
