"""Forward-backward representations on the arm: behaviours that were asked for after training, against TD3 trained for each.

    python -m benchmarks.prompt [--only rewards|goals|aimed|motions|map] [--seeds N] [--rewards N] [--quick] [--json] [--record] [--keep FOLDER]

One run of `--learner fb` a seed, which sees no reward. `rewards`: each of eight rewards in words gives a z, with no further
learning, and after five rounds of search; FastTD3 learns each from nothing with the arm's settings for it. All rewards lie between 0 and
1; what is compared is the mean return in 64 unseen episodes: as a share of TD3's, and with what random z earn taken off both. `goals`: 64
poses in the range of the arm's commands, one unseen episode each. `aimed`: the same of runs for goals alone, whose B sees no speeds and whose z is larger. `motions`: two joints along sines of three
speeds, 4 s each: root mean square distance of the joints, of the policy and of random z. `map`: |E[B B^T] - I|. What is done is kept in the folder --keep.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import measure
from benchmarks.measure import Row, row, said
from surefoot import files, tasks
from surefoot.deploy import bundle
from surefoot.learn import keep_freed_memory
from surefoot.learn import train as learn
from surefoot.learn.forward_backward import motions, prompts
from surefoot.learn.forward_backward.losses import on_sphere, orthonormality
from surefoot.learn.forward_backward.rewards import reward_of, rewarded
from surefoot.learn.loop import policy_of
from surefoot.learn.off_policy.fast_td3 import FastTD3
from surefoot.log import Log
from surefoot.rng import stream
from surefoot.tasks.ready.arm import MIDDLE, SPAN, tip
from surefoot.tasks.rollout import evaluate

REWARDS = {
    "a pose": "exp(-2 * ((joint_pos[0] - 0.4)^2 + (joint_pos[1] - 1.4)^2))",
    "another pose": "exp(-2 * ((joint_pos[0] + 0.5)^2 + (joint_pos[1] - 0.5)^2))",
    "elbow bent": "exp(-4 * (joint_pos.elbow - 1.5)^2)",
    "shoulder up": "exp(-4 * (joint_pos.shoulder - 0.7)^2)",
    "keep moving": "1 - exp(-0.05 * joint_vel.elbow^2)",
    "hand high": "0.5 + 0.27 * sin(joint_pos[0]) + 0.225 * sin(joint_pos[0] + joint_pos[1])",
    "hand near the shoulder": "1 - 1.6 * (0.1525 + 0.15 * cos(joint_pos[1])) ",
    "reach out, slowly": "(0.5 + 0.27 * cos(joint_pos[0]) + 0.225 * cos(joint_pos[0] + joint_pos[1])) * exp(-0.05 * (joint_vel[0]^2 + joint_vel[1]^2))",
}  # fmt: skip
EPISODES, UNSEEN = 64, 1_000_000
AIMED: dict[str, Any] = {"goal_terms": ("joint_pos",), "z": 64}  # a run for goals alone
NEAR = {"3 cm": 0.03, "5 cm": 0.05, "10 cm": 0.10}  # of the hand from where the goal's angles have it


def trained(keep: Path, seed: int, quick: bool, name: str = "run", **changes: Any) -> prompts.Promptable:
    """The run of a seed, in the nominal world."""
    changes |= {"steps": 2048, "updates": 1, "warm_up": 512} if quick else {}
    belief, settings = tasks.nominal(tasks.resolve("arm")), learn.settings_for("arm", changes, "fb")
    learn.train(
        "arm",
        keep / f"{name}{seed}",
        seed=seed,
        belief=belief,
        ranges=None,
        settings=settings,
        threads=1,
        resume_if_same=True,
    )
    return prompts.opened(keep / f"{name}{seed}")


def case(path: Path, work: Any, *how: Any) -> Any:
    """What a case found; from its file where it is there already."""
    if not path.exists():
        began = time.process_time()
        files.write_json(path, work(*how) | {"cpu": round(time.process_time() - began, 1)})
    found = files.read_json(path)
    said(f"{path.stem}: {found}")
    return found


def by_td3(text: str, seed: int, quick: bool) -> dict[str, float]:
    task = tasks.resolve("arm")
    task = rewarded(task, reward_of(task, text))
    s = learn.settings_for("arm", {"steps": 2048 if quick else 50_000, "learner_threads": 1}, "fasttd3")
    learner = FastTD3(tasks.env(task, s.envs, None, seed, 1, stagger=True), s, seed)
    while learner.iteration < learner.iterations:
        learner.iterate()
    found = evaluate(policy_of(learner), tasks.env(task, EPISODES, None, UNSEEN + seed, 1))
    return {"return": float(found.returns.mean() / task.seconds)}


def by_prompt(p: prompts.Promptable, text: str, seed: int, quick: bool) -> dict[str, float]:
    reward = reward_of(p.task, text)
    z, share = prompts.for_reward(p, prompts.met(p, reward, seed, 1))
    better = prompts.searched(p, reward, z, 1 if quick else 5, seed, threads=1)
    d = p.maps.settings.z
    random = on_sphere(torch.from_numpy(stream(seed, "random z").standard_normal((EPISODES, d))).float())
    rows = {"return": z.expand(EPISODES, d), "searched": better.expand(EPISODES, d), "random": random}
    found = {k: float(prompts.returns(p, reward, x, UNSEEN + seed, 1).mean()) for k, x in rows.items()}
    return found | {"share": share}


def by_goals(p: prompts.Promptable, seed: int) -> dict[str, Any]:
    """Distance of the hand in the last period from where each goal has it, m."""
    goals = MIDDLE + SPAN * stream(seed, "goals").uniform(-1, 1, (EPISODES, 2))
    states = prompts.met(p, None, seed, 1)
    rest = {"joint_vel": (0.0, 0.0)} if "joint_vel" in p.maps.settings.goal_terms else {}
    z = torch.stack([prompts.for_goal(p, {"joint_pos": g.tolist()} | rest, states) for g in goals])
    ends = prompts.final(p, z, ["joint_pos"], UNSEEN + seed, 1)["joint_pos"]
    off = np.sqrt(((tip(ends) - tip(goals)) ** 2).sum(1))
    near = {name: float((off <= most).mean()) for name, most in NEAR.items()}
    return near | {"median": float(np.median(off)), "joints": float(np.median(np.abs(ends - goals).max(1)))}


def rewards_rows(keep: Path, seeds: int, count: int, quick: bool) -> Iterator[Row]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in list(REWARDS)[:count]}
    for seed in range(seeds):
        p = trained(keep, seed, quick)
        for name in found:
            text, stem = REWARDS[name], name.replace(" ", "-").replace(",", "")
            fb = case(keep / f"fb{seed}-{stem}.json", by_prompt, p, text, seed, quick)
            td3 = case(keep / f"td3{seed}-{stem}.json", by_td3, text, seed, quick)
            found[name].append(fb | {"td3": td3["return"]})
    ratio = lambda f, k: f[k] / max(f["td3"], 1e-9)  # noqa: E731
    over = lambda f, k: (f[k] - f["random"]) / max(f["td3"] - f["random"], 1e-9)  # noqa: E731
    for name, each in found.items():
        words = "; ".join("asked {return:.3f}, searched {searched:.3f}, random {random:.3f}, TD3 {td3:.3f}, R^2 {share:.2f}".format(**f) for f in each)  # fmt: skip
        yield row(f"{name}: return / TD3's", [ratio(f, "return") for f in each], "ratio", note=words)
    by_seed = list(zip(*found.values()))
    for key, words in (("return", "zero-shot"), ("searched", "after search")):
        yield row(f"mean over {len(found)} rewards, {words}: return / TD3's", [np.mean([ratio(f, key) for f in each]) for each in by_seed], "ratio", at_least=0.8)  # fmt: skip
        yield row(f"mean over {len(found)} rewards, {words}: the same above random z", [np.mean([over(f, key) for f in each]) for each in by_seed], "ratio")  # fmt: skip


def goals_rows(keep: Path, seeds: int, count: int, quick: bool) -> Iterator[Row]:
    each = [case(keep / f"goals{s}.json", by_goals, trained(keep, s, quick), s) for s in range(seeds)]
    yield from _distances("", each)


def aimed_rows(keep: Path, seeds: int, count: int, quick: bool) -> Iterator[Row]:
    found = []
    for s in range(seeds):
        p = trained(keep, s, quick, "aimed", **AIMED)
        found.append(case(keep / f"aimed{s}.json", by_goals, p, s))
    yield from _distances("B sees places alone: ", found)


def _distances(which: str, each: list[dict[str, Any]]) -> Iterator[Row]:
    for name in NEAR:
        yield row(f"{which}goals whose hand is within {name}", [f[name] for f in each], "of goals", at_least=0.9)
    yield row(f"{which}median distance of the hand", [f["median"] for f in each], "m")
    yield row(f"{which}median of the larger joint's distance", [f["joints"] for f in each], "rad")


def by_motion(p: prompts.Promptable, keep: Path, seed: int, rate: float) -> dict[str, float]:
    """Joints along sines of `rate` rad/s and 1.5 times that, in the middle of the arm's range."""
    t = np.arange(201) / 50
    q = MIDDLE + 0.5 * SPAN * np.stack([np.sin(rate * t), np.cos(1.5 * rate * t)], 1)
    asking = motions.for_motion(p, Log(t, {"joint_pos": q}, {}, {"names": {"joint_pos": ["shoulder", "elbow"]}}), 8)
    path = prompts.write(
        p, keep / f"run{seed}", keep / f"follow{seed}-{rate:g}", {"track": f"sines of {rate:g} rad/s"}, asking.z
    )
    return motions.followed(p, bundle.load(path), asking)


def motions_rows(keep: Path, seeds: int, count: int, quick: bool) -> Iterator[Row]:
    for rate in (1.0, 2.0, 4.0):
        each = [
            case(keep / f"motion{s}-{rate:g}.json", by_motion, trained(keep, s, quick), keep, s, rate)
            for s in range(seeds)
        ]
        yield row(f"sines of {rate:g} rad/s: joint error", [f["policy"] for f in each], "rad", note=f"random z: {np.median([f['random'] for f in each]):.2f} rad")  # fmt: skip


def map_rows(keep: Path, seeds: int, count: int, quick: bool) -> Iterator[Row]:
    found = []
    for seed in range(seeds):
        p = trained(keep, seed, quick)
        run, saved = learn.Run.open(keep / f"run{seed}")[0], None
        saved = run.newest()
        run.close()
        assert saved is not None
        arrays = saved[0]
        n, width = len(arrays["replay.head"]), p.task.observations["actor"].dim
        rows = torch.from_numpy(arrays["replay.table"].reshape(-1, arrays["replay.table"].shape[2]))
        critic = rows[torch.from_numpy(arrays["replay.kind"].reshape(-1) != 2)][:, width:][
            :, : p.task.observations["critic"].dim
        ]
        said(f"map of seed {seed}: {len(critic)} states of {n} simulations")
        found.append(orthonormality(p.maps.meaning(critic)))
    yield row("largest entry of |E[B B^T] - I| over the replay", [f[0] for f in found], "", at_most=0.1)
    yield row("root mean square of its entries", [f[1] for f in found], "", at_most=0.1)


PARTS = {"rewards": rewards_rows, "goals": goals_rows, "aimed": aimed_rows, "motions": motions_rows, "map": map_rows}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.prompt", description=__doc__)
    parser.add_argument("--only", choices=list(PARTS), action="append", help="this part (may be repeated)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rewards", type=int, default=len(REWARDS), help="the first so many")
    parser.add_argument("--quick", action="store_true", help="a smoke run: its numbers mean nothing")
    parser.add_argument("--json", action="store_true", help="print a list of rows in place of the tables")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/prompt.json")
    parser.add_argument("--keep", type=Path, default=Path("runs/prompt"), help="folder of what is done")
    asked = parser.parse_args()
    if asked.quick and asked.record:
        parser.error("--quick numbers mean nothing: they cannot be recorded")
    keep_freed_memory()
    keep, everything = asked.keep / "quick" if asked.quick else asked.keep, list[Row]()
    for part in asked.only or PARTS:
        load, began = os.getloadavg()[0], time.perf_counter()
        each = list(PARTS[part](keep, asked.seeds, asked.rewards, asked.quick))
        each = [replace(r, goal=None, holds=None) for r in each] if asked.quick else each
        everything += each
        if not asked.json:
            measure.Console(width=140).print(measure.table(f"\nprompt · {part}", each))
        if asked.record:
            path = measure.record("prompt", part, each, time.perf_counter() - began, round(load, 2))
            print(f"recorded in {path}", file=sys.stderr)
    if asked.json:
        print(json.dumps([asdict(r) for r in everything], indent=1, allow_nan=False))


if __name__ == "__main__":
    main()
