"""Whole-body tracking: what a humanoid learns of a motion, on a robot's runtime, too; and what adaptive starts save. Parts of benchmarks.motion.

track   each clip is retargeted to our humanoid, `surefoot new track` writes its task, and the task's own recipe trains it in
        runs/track/CLIP-STEPS-SEED, which is kept: the same command goes on where it stopped. All runs there that are finished are judged, on
        512 episodes from the beginning of the motion that no training saw: survival to its end, success (survival, and bodies within
        the tolerance), mean distance of bodies. The robot begins as fast as the motion; and, apart, thrown by up to 0.3 m/s each way. SUREFOOT_TRACK_STEPS, SUREFOOT_TRACK_CLIPS and SUREFOOT_TRACK_SEEDS, such as 5e6, squat
        and 0,1, train less.
feasible  where each clip presses on the floor, of the time and in cm outside of the feet that stand.
drive   the policies that are there, through a bundle: `surefoot robot` in a process of its own, held by its gantry in the soft start, and
        `surefoot run` in another.
starts  a clip whose third second of seven is hard, a fast deep squat: env steps until half of the episodes reach its end, with starts
        as they are, and uniform ones. Seeds in turn.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import Row, row, said, skipped
from surefoot import files, tasks
from surefoot.cli import main as surefoot
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
from surefoot.motion.retarget.balance import balanced
from surefoot.motion.retarget.humanoid import humanoid
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.retarget import retarget
from surefoot.motion.robot_motion import kinematic
from surefoot.robot import Robot
from surefoot.task import Task
from surefoot.tasks.build.feasible import FAR, pressed
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.ready.humanoid_model import JOINTS, stand, xml
from surefoot.tasks.rollout import Evaluation, contract, evaluate
from surefoot.verdict import clopper_pearson

FOLDER = Path("runs/track")
STEPS = int(float(os.environ.get("SUREFOOT_TRACK_STEPS", 30e6)))
CHOSEN = [c for c in os.environ.get("SUREFOOT_TRACK_CLIPS", "").split(",") if c]
SEEDS = [int(s) for s in os.environ.get("SUREFOOT_TRACK_SEEDS", "0").split(",")]
EPISODES, JUDGED = 512, 1_000_000  # JUDGED: a seed apart from every training's
HALF, EVERY, MOST = (
    0.5,
    60_000,
    3_000_000,
)  # of episodes; env steps between two looks; env steps after which a seed is given up
DRIVES, SLOW, PORT = (
    20,
    0.5,
    9871,
)  # runs on a simulated robot; speed of its clock, because other processes use the cores, too


def robot() -> Robot:
    return Robot.text(xml(), "humanoid")


def clips(recordings: Path) -> dict[str, Callable[[], Person]]:
    """Synthetic people, and recordings where there are any."""
    found: dict[str, Callable[[], Person]] = {
        "squat": lambda: made_person.squatting(lean=0.4),
        "squat-upright": made_person.squatting,
        "walk": lambda: made_person.walking(speed=0.6, seconds=10.0, sway=0.02),
    }
    for name, file in (("person-walks", "02_01"), ("person-jumps", "13_11")):
        path = recordings / "cmu_bvh" / f"{file}.bvh"
        if path.exists():
            found[name] = lambda path=path: read_person(path)
    return {k: v for k, v in found.items() if not CHOSEN or k in CHOSEN}


def task_file(name: str, person: Callable[[], Person]) -> Path:
    """The clip's task, written once: a run goes on with the very same motion."""
    model, clip, task = FOLDER / "humanoid.xml", FOLDER / f"{name}.npz", FOLDER / f"{name}.py"
    if not task.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        files.write(model, xml().encode())
        retarget(person(), humanoid(kinematic(robot()))).log.save(clip)
        if surefoot(["new", "track", str(model), "--motion", str(clip), "--out", str(task)]):
            raise SurefootError(f"{task}: `surefoot new track` did not write it")
    return task


def trained(task: Path, name: str, seed: int, steps: int) -> tuple[Path, float]:
    """The policy's run, resumed where it stopped, and the CPU seconds that it took in all."""
    out = FOLDER / name
    spent, began = FOLDER / f"{name}.cpu.json", time.process_time()
    before = float(json.loads(spent.read_text())["seconds"]) if spent.exists() else 0.0
    threads = torch.get_num_threads()
    found = tasks.resolve(str(task))
    settings = settings_for(found, {"steps": steps, "learner_threads": threads})
    try:
        train(str(task), out, seed=seed, belief=found.belief, settings=settings, threads=threads, resume_if_same=True)
    finally:
        total = before + time.process_time() - began
        files.write(spent, json.dumps({"seconds": total}).encode())
    return out, total


def track(recordings: Path, quick: bool) -> Iterable[Row]:
    """Trains what is asked for, and judges every run that is finished."""
    for name, person in clips(recordings).items():
        if quick and name != "squat":
            continue
        file, steps = task_file(name, person), 20_000 if quick else STEPS
        for seed in SEEDS:
            trained(file, f"{name}-{steps / 1e6:.3g}M-{seed}", seed, steps)
            said(f"{name}, seed {seed}: trained")
    for run in finished():
        name, steps, seed = run.name.rsplit("-", 2)
        what = f"{name}, {steps} env steps, seed {seed}"
        spent = json.loads((FOLDER / f"{run.name}.cpu.json").read_text())["seconds"]
        yield row(f"{what}: training", spent / 60, "CPU min")
        yield from judged(tasks.resolve(str(FOLDER / f"{name}.py")), run, what, 16 if quick else EPISODES)


def finished() -> list[Path]:
    """Runs that went to their end."""
    every = sorted(p.parent for p in FOLDER.glob("*-*M-*/policy.onnx"))
    return [run for run in every if _steps(run) >= float(run.name.rsplit("-", 2)[1][:-1]) * 1e6]


def _steps(run: Path) -> float:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return float(json.loads(lines[-1])["steps"]) if lines else 0.0


def feasible(recordings: Path, quick: bool) -> Iterable[Row]:
    """Where each clip presses on the floor before anything is learned, as it is and with `retarget --balance`."""
    for name, person in clips(recordings).items():
        if quick and name != "squat":
            continue
        plain = retarget(person(), humanoid(kinematic(robot())))
        began = time.process_time()
        better = balanced(plain)
        spent = time.process_time() - began
        for how, made in (("", plain), (", balanced", better)):
            begin = tasks.track(robot(), made.log).clip.begin
            far = pressed(begin.body, begin.ref).off()
            yield row(f"{name}{how}: presses more than 2 cm outside of its feet", 100 * float((far > FAR).mean()), "% of its time")  # fmt: skip
            yield row(f"{name}{how}: farthest outside, below 0: within", 100 * float(far.max()), "cm")
        moved = np.abs(better.q - plain.q)[:, :2]
        yield row(f"{name}, balanced: base shifted, at most", 100 * float(moved.max()), "cm")
        yield row(f"{name}, balanced: frames for each second of one core", len(plain.q) / spent, "1/s")
        found = metrics(better)
        yield row(f"{name}, balanced: standing soles off the floor, worst frame", 100 * found["floating"], "cm", at_most=1.0)  # fmt: skip
        yield row(f"{name}, balanced: feet slide", 1e3 * found["sliding"], "mm/s")


def judged(task: Task, run: Path, name: str, episodes: int) -> Iterator[Row]:
    net = export.load_net(run)
    thrown = replace(task, episode=task.clip.begin.thrown)
    cases = (("nominal", task, tasks.nominal(task)), ("belief", task, task.belief), ("thrown at the start, nominal", thrown, tasks.nominal(task)), ("thrown at the start, belief", thrown, task.belief))  # fmt: skip
    for where, asked, belief in cases:
        found = evaluate(net, tasks.env(asked, episodes, belief, JUDGED, torch.get_num_threads()))
        lasted = ended(task, found)
        yield share(f"{name}, {where}: to the end", lasted, 95.0 if where == "belief" else None)
        yield share(f"{name}, {where}: success", found.success)
        yield row(f"{name}, {where}: upright, mean of {task.seconds:.3g} s", float(found.lengths.mean()) * 0.02, "s")
        if where == "belief":
            yield from hardest(name, task, found.e, lasted)
        error = 100 * found.error[lasted & np.isfinite(found.error)]
        if len(error):
            yield row(f"{name}, {where}: bodies off their targets", error, "cm", at_most=10.0, note="of the episodes that reach the end, with their least and largest")  # fmt: skip


def hardest(name: str, task: Task, e: np.ndarray, lasted: np.ndarray, most: int = 4) -> Iterator[Row]:
    """The unknowns that survival depends on most, by thirds of their ranges."""
    third = np.clip((3 * task.belief.share(e)).astype(int), 0, 2)
    rates = [[100 * float(lasted[third[:, i] == k].mean()) if (third[:, i] == k).any() else 0.0 for k in range(3)] for i in range(e.shape[1])]  # fmt: skip
    for i in np.argsort([-np.ptp(r) for r in rates])[:most]:
        each = ", ".join(f"{r:.0f}" for r in rates[i])
        yield row(f"{name}, belief: to the end, by {task.params.names[i]}", rates[i], "%", note=f"in the lowest, middle and highest third of its range: {each}")  # fmt: skip


def ended(task: Task, found: Evaluation) -> np.ndarray:
    """(n,) bool: who reached the end of the motion."""
    return np.asarray(found.lengths >= round(task.seconds / 0.02) - 1)


def share(name: str, hits: np.ndarray, at_least: float | None = None) -> Row:
    low, high = clopper_pearson(int(hits.sum()), len(hits))
    made = row(
        name, 100 * float(hits.mean()), "%", at_least=at_least, note=f"{len(hits)} episodes; exact 95 % interval"
    )
    return replace(made, low=100 * low, high=100 * high)


def drive(quick: bool) -> Iterable[Row]:
    """Each run that is there: on the nominal robot, from the gantry, for the motion's length."""
    runs = finished()
    if not runs:
        yield skipped("policies", f"none in {FOLDER}: run `python -m benchmarks.motion --only track` first")
    for run in [r for r in runs if not CHOSEN or r.name.rsplit("-", 2)[0] in CHOSEN][: 1 if quick else None]:
        yield from driven(run, 1 if quick else DRIVES)


def driven(run: Path, count: int) -> Iterator[Row]:
    task, bundle = FOLDER / f"{run.name.rsplit('-', 2)[0]}.py", run / "bundle"
    length = tasks.resolve(str(task)).seconds
    if surefoot(["export", str(run), "--out", str(bundle), "--task", str(task)]):
        raise SurefootError(f"{run}: its bundle was not written")
    common = ["--speed", str(SLOW), "--json"]
    job = [sys.executable, "-m", "surefoot", "robot", str(task), "--port", str(PORT), "--runs", str(count), *common]
    there = subprocess.Popen(job, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    link = ["--link", f"udp://127.0.0.1:{PORT}", "--live", "--unjudged", "--seconds", str(length + 0.1)]
    ends = []
    for k in range(count):
        out = ["--out", str(run / f"drive-{k}.npz")]
        one = subprocess.run([sys.executable, "-m", "surefoot", "run", str(bundle), *link, *out, *common], capture_output=True, text=True)  # fmt: skip
        ends.append(json.loads(one.stdout).get("ended", {}).get("why", "refused"))
        said(f"{run.name}: {ends[-1]}")
    flights = json.loads(there.communicate(timeout=120)[0])["runs"]
    steps = [round(f["seconds"] / 0.02) for f in flights]
    yield row(f"{run.name}: control periods on the simulated robot, of {round(length / 0.02)}", steps, "", note=f"{len(flights)} runs from the gantry through `surefoot robot` and `surefoot run`")  # fmt: skip
    yield share(f"{run.name}: success on the simulated robot", np.array([f["success"] for f in flights]))


def hard_second() -> Log:
    """Arms move slowly for 7 s; in the third second the robot squats as deep as its ankles let it, and comes up."""
    home = {j: stand(j) for j in JOINTS}
    deep = {
        f"{s}_{j}": a for s in ("left", "right") for j, a in (("hip_pitch", -1.1), ("knee", 1.8), ("ankle_pitch", -0.7))
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
