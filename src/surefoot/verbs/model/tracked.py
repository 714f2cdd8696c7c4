"""What a tracking policy makes of the motion that it was trained on: its film, how far it is off, and how often it lasts.

joint RMSE      of the robot's joints from the motion's at the same time, in the nominal world, until it ends
tracking error  mean distance of the tracked bodies from their targets, those anchored to the robot (tasks/terms/tracking.py)
survival        share of worlds drawn from the task's belief in which the robot follows the motion to its end
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion.figure import Panel
from surefoot.motion.robot_motion import Kinematic, resampled
from surefoot.policy import Policy
from surefoot.report import Column, Progress, Table, Watch
from surefoot.robot import Layout
from surefoot.task import Task
from surefoot.verdict import clopper_pearson

WORLDS = 64
OTHER = 0.05  # rad RMSE: a motion as far from the policy's is another


@dataclass(frozen=True, eq=False)
class Tracked:
    panel: Panel
    facts: dict[str, Any]

    def table(self, name: str) -> Table:
        f = self.facts
        heads = ["policy", Column("joint RMSE", "rad", ".3g"), Column("tracking error", "m", ".3g"), "survival"]
        low, high = f["survival_low"], f["survival_high"]
        survival = f"{100 * f['survival']:.0f} % ({100 * low:.0f} to {100 * high:.0f}) of {f['worlds']} worlds"
        return Table.of(heads, [[name, f["joint_rmse"], f["error"], survival]])


def follow(where: Path, motion: Log, kin: Kinematic, seed: int, watch: Watch) -> Tracked:
    """The policy of a run folder or a file, in the task that it was trained for."""
    from surefoot.deploy import bundle
    from surefoot.verbs.arguments import task_for

    policy = bundle.load(where)
    task = task_for(policy, "", where)
    if task.clip is None:
        raise SurefootError(f"--policy {where}: found task {task.name}, expected one that tracks a motion (`surefoot new track`)")  # fmt: skip
    watch(Progress("following the motion"))
    return followed(policy, task, motion, kin, seed)


def followed(policy: Policy, task: Task, motion: Log, kin: Kinematic, seed: int, worlds: int = WORLDS) -> Tracked:
    """One episode in the nominal world, for the film, and others in worlds of the task's belief."""
    from surefoot import tasks
    from surefoot.tasks.rollout import evaluate

    log = _played(policy, tasks.env(task, 1, tasks.nominal(task), seed))
    wanted = resampled(motion, log.rate)
    asked = _reference(task, log)
    apart = _rmse(asked, wanted)
    if apart > OTHER:
        raise SurefootError(f"--policy: the policy tracks another motion: joints are {apart:.2f} rad (RMSE) from this one's")  # fmt: skip
    found = evaluate(policy, tasks.env(task, worlds, task.belief, seed))
    lasted = int((found.lengths >= round(task.seconds * log.rate)).sum())
    low, high = clopper_pearson(lasted, worlds)
    facts = {
        "joint_rmse": _rmse(log, wanted), "error": float(np.nanmean(found.error)), "worlds": worlds, "seconds": float(log.time[-1]),
        "survival": lasted / worlds, "survival_low": low, "survival_high": high, "success": found.rate,
    }  # fmt: skip
    return Tracked(kin.panel(resampled(log, motion.rate), "robot with its policy"), facts)


def _played(policy: Policy, env: Env) -> Log:
    """The robot's motion until its episode ends."""
    from surefoot.tasks.rollout import Trials

    under_way, rows = Trials(policy, env), list[np.ndarray]()
    while not under_way.over:
        rows.append(env.world.state.q[0].copy())
        under_way.step()
    return _log(env.world.layout, env.world.dt, np.array(rows)[: max(2, int(under_way.lengths[0, 0]))])


def _log(layout: Layout, dt: float, q: np.ndarray) -> Log:
    assert layout.base is not None
    at = layout.base[0]
    columns = {"base_pos": q[:, at : at + 3], "base_quat": q[:, at + 3 : at + 7], "joint_pos": q[:, list(layout.places)]}  # fmt: skip
    return Log(dt * np.arange(len(q)), columns, {}, {"names": {"joint_pos": list(layout.joints)}})


def _reference(task: Task, played: Log) -> Log:
    """The motion that the policy was trained on; of several the first."""
    from surefoot.sim.layout import layout_of
    from surefoot.sim.model.load import load_robot
    from surefoot.tasks.build.track import Starts

    starts = task.clip.begin if task.clip else None
    if not isinstance(starts, Starts):
        raise SurefootError(f"--policy: found task {task.name}, expected one that `surefoot new track` wrote")
    last = starts.ends[0] + 1 if starts.ends else len(starts.ref.q)
    return _log(layout_of(load_robot(task.robot).model), 1 / played.rate, starts.ref.q[:last])


def _rmse(a: Log, b: Log) -> float:
    """rad over joints and the rows that both have."""
    n = min(len(a), len(b))
    order = [b.meta["names"]["joint_pos"].index(j) for j in a.meta["names"]["joint_pos"]]
    return float(np.sqrt(((a["joint_pos"][:n] - b["joint_pos"][:n, order]) ** 2).mean()))
