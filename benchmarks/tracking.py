"""Whole-body tracking: what a humanoid learns of a motion, and what adaptive starts save. Parts `track` and `starts` of benchmarks.motion.

track   each clip is retargeted to our humanoid and trained with the task's own recipe in runs/track/CLIP-SEED, which is kept: the same
        command goes on where it stopped, and judges what is finished. Judged on 512 episodes from the beginning of the motion that
        no training saw: survival to its end, success (survival, and bodies within the tolerance), mean distance of bodies.
starts  a clip whose third second of seven is hard, a fast deep squat: env steps until half of the episodes reach its end, with starts
        as they are, and uniform ones. Seeds in turn.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import Row, row, said, skipped
from surefoot import files, tasks
from surefoot.errors import SurefootError
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import export
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.ranges import starts as ranges_starts
from surefoot.learn.residual import OF_THE_TASK, BasePolicy, ResidualActor
from surefoot.learn.train import plan, settings_for, train
from surefoot.log import Log
from surefoot.motion import made_person
from surefoot.motion.made import from_poses
from surefoot.motion.person import Person
from surefoot.motion.readers import read_person
from surefoot.motion.retarget.humanoid import humanoid
from surefoot.motion.retarget.retarget import retarget
from surefoot.motion.robot_motion import kinematic
from surefoot.robot import Robot
from surefoot.task import Task
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.ready.humanoid_model import JOINTS, stand, xml
from surefoot.tasks.rollout import Evaluation, contract, evaluate
from surefoot.verdict import clopper_pearson

FOLDER = Path("runs/track")
STEPS, SEEDS, EPISODES = 30_000_000, (0,), 512
JUDGED = 1_000_000  # a seed apart from every training's
HALF, EVERY, MOST = (
    0.5,
    60_000,
    3_000_000,
)  # of episodes; env steps between two looks; env steps after which a seed is given up


def robot() -> Robot:
    return Robot.text(xml(), "humanoid")


def clips(recordings: Path) -> dict[str, Callable[[], Person]]:
    """Synthetic people, and recordings where there are any."""
    found: dict[str, Callable[[], Person]] = {
        "squat, 3 s": made_person.squatting,
        "walk, 10 s": lambda: made_person.walking(speed=0.6, seconds=10.0, sway=0.02),
    }
    path = recordings / "cmu_bvh" / "02_01.bvh"
    return found | ({"a person's walk (CMU 02_01), 2.8 s": lambda: read_person(path)} if path.exists() else {})


def motion(name: str, person: Callable[[], Person]) -> Log:
    """Retargeted once, and kept beside the runs, so that a run goes on with the very same motion."""
    path = FOLDER / f"{short(name)}.npz"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        retarget(person(), humanoid(kinematic(robot()))).log.save(path)
    return Log.load(path)


def short(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.partition(",")[0]).strip("-")


def trained(task: Task, name: str, seed: int, steps: int) -> tuple[Path, float]:
    """The policy's run, resumed where it stopped, and the CPU seconds that it took in all."""
    out = FOLDER / f"{short(name)}-{seed}"
    spent, began = out / "cpu.json", time.process_time()
    before = float(json.loads(spent.read_text())["seconds"]) if spent.exists() else 0.0
    settings = settings_for(task, {"steps": steps, "learner_threads": torch.get_num_threads()})
    try:
        train(
            task,
            out,
            seed=seed,
            belief=task.belief,
            settings=settings,
            threads=torch.get_num_threads(),
            resume_if_same=True,
        )
    finally:
        total = before + time.process_time() - began
        if out.exists():
            files.write(spent, json.dumps({"seconds": total}).encode())
    return out, total


def track(recordings: Path, quick: bool) -> Iterable[Row]:
    for name, person in clips(recordings).items():
        if quick and "squat" not in name:
            continue
        task = tasks.track(robot(), motion(name, person))
        for seed in SEEDS:
            steps = 20_000 if quick else STEPS
            try:
                run, cpu = trained(task, f"quick {name}" if quick else name, seed, steps)
            except SurefootError as error:
                yield skipped(f"{name}, seed {seed}", str(error))
                continue
            said(f"{name}, seed {seed}: trained")
            yield row(f"{name}, seed {seed}: env steps", float(steps), "")
            yield row(f"{name}, seed {seed}: training", cpu / 60, "CPU min")
            yield from judged(task, run, f"{name}, seed {seed}", 16 if quick else EPISODES)


def judged(task: Task, run: Path, name: str, episodes: int) -> Iterator[Row]:
    net = export.load_net(run)
    for where, belief in (("nominal world", tasks.nominal(task)), ("over the belief", task.belief)):
        found = evaluate(net, tasks.env(task, episodes, belief, JUDGED, torch.get_num_threads()))
        lasted = ended(task, found)
        goal = 95.0 if where == "over the belief" else None
        yield _share(f"{name}, {where}: to the end", lasted, goal)
        yield _share(f"{name}, {where}: success", found.success)
        yield row(f"{name}, {where}: s upright of {task.seconds:.3g}", float(found.lengths.mean()) * 0.02, "s")
        error = 100 * found.error[lasted & np.isfinite(found.error)]
        if len(error):
            yield replace(row(f"{name}, {where}: bodies off their targets", error, "cm", at_most=10.0), note="of those that reach the end; least and largest are over episodes")  # fmt: skip


def ended(task: Task, found: Evaluation) -> np.ndarray:
    """(n,) bool: who reached the end of the motion."""
    return np.asarray(found.lengths >= round(task.seconds / 0.02) - 1)


def _share(name: str, hits: np.ndarray, at_least: float | None = None) -> Row:
    low, high = clopper_pearson(int(hits.sum()), len(hits))
    made = row(name, 100 * float(hits.mean()), "%", at_least=at_least, note=f"least and largest: exact 95 % interval of {len(hits)} episodes")  # fmt: skip
    return replace(made, low=100 * low, high=100 * high)


def hard_second() -> Log:
    """Arms move slowly for 7 s; in the third second the robot squats as deep as its ankles let it, and comes up."""
    home = {j: stand(j) for j in JOINTS}
    deep = {
        f"{s}_{j}": a for s in ("left", "right") for j, a in (("hip_pitch", -1.3), ("knee", 2.1), ("ankle_pitch", -0.8))
    }
    up = {f"{s}_shoulder_pitch": -0.8 for s in ("left", "right")}
    ready = {f"{s}_shoulder_pitch": 0.2 for s in ("left", "right")}
    poses = [
        (0.0, home),
        (1.0, up),
        (2.0, home),
        (2.5, deep | up),
        (3.0, home),
        (4.0, up),
        (5.0, ready),
        (6.0, up),
        (7.0, home),
    ]
    return from_poses(robot(), read_legged(robot())[0].feet, poses)


def starts(quick: bool) -> Iterable[Row]:
    task, found = tasks.track(robot(), hard_second()), dict[str, list[float]]()
    seeds = (0,) if quick else (0, 1, 2)
    for seed in seeds:
        for kind, share in (("adaptive", ranges_starts.UNIFORM), ("uniform", 1.0)):
            steps = steps_until(task, seed, share, quick)
            said(f"starts: {kind}, seed {seed}: {steps:.3g} env steps")
            found.setdefault(kind, []).append(steps)
    for kind, values in found.items():
        missed = int(np.isinf(values).sum())
        yield row(f"{kind} starts: to {HALF:.0%} of episodes to the end", values, "env steps", note=f"{missed} of {len(seeds)} seeds did not get there" if missed else "")  # fmt: skip
    ratio = [a / b for a, b in zip(found["adaptive"], found["uniform"]) if np.isfinite(a) or np.isfinite(b)]
    if ratio:
        yield row("adaptive / uniform, seed by seed", ratio, "ratio", at_most=0.8)


def steps_until(task: Task, seed: int, share: float, quick: bool) -> float:
    """Env steps of the nominal world until enough episodes reach the end; infinite where MOST are not enough."""
    s = settings_for(task, {"learner_threads": 1, "steps": MOST})
    env = tasks.env(task, s.envs, tasks.nominal(task), seed, 1, stagger=True)
    judge = tasks.env(task, 16 if quick else 128, tasks.nominal(task), JUDGED + seed, 1)
    base = plan(task)[1].base
    assert base is not None
    learner = PPO(env, s, seed, upon=ResidualActor(OF_THE_TASK, BasePolicy(contract(task, env.world), base)))
    usual, ranges_starts.UNIFORM = ranges_starts.UNIFORM, share
    try:
        for _look in range(2 if quick else MOST // EVERY):
            for _ in range(1 if quick else max(1, EVERY // s.batch)):
                learner.iterate()
            if ended(task, evaluate(policy_of(learner), judge)).mean() >= HALF:
                return float(learner.iteration * s.batch)
    finally:
        ranges_starts.UNIFORM = usual
    return np.inf
