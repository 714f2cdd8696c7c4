"""How much CPU time it takes to get an answer, here and in another checkout of surefoot, and whether the answers agree.

python -m benchmarks.answer_times --against PATH [--only preflight|explore|arm|so101|go2|go1|humanoid] [--rounds 1] [--json] [--record]

preflight  of 40 s of a quadruped held in the air: 12 joints
explore    of a pendulum, 3 unknowns, motions of 2 s
arm        identify of a two-link arm, 4 unknowns, 500 rows, encoders with noise
so101      identify of a real arm of six joints, 4 unknowns, 500 rows
go2        identify of the quadruped, 11 unknowns, the first 8 s of its log
go1        gate of a walking quadruped, by a policy from elsewhere
humanoid   gate of a humanoid of 23 joints that stands, by a policy from elsewhere

PATH is a checkout with its own .venv/bin/python. Both run the same command in processes of their own, in turns, forwards and
then backwards; the number is CPU time of the process and its threads, imports of compiled modules included, so that a busy
machine counts less.
The quadruped's log and the models of others are no part of the project (docs/real-logs.md).
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from rich.console import Console

from benchmarks import measure
from benchmarks.measure import Row, row, said, skipped
from benchmarks.real_logs import DATA, MAPS, MODELS
from surefoot import tasks
from surefoot.log import Log
from surefoot.rng import stream
from surefoot.world import Chance

HERE = Path(__file__).parents[1]
OTHERS = Path(os.environ.get("SUREFOOT_MODELS") or HERE.parent / "shared" / "models")
GOAL = 1 / 3
LEGS = [f"{leg}_{part}_joint" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")]
UNKNOWNS = "armature:kinds,damping:kinds,frictionloss:kinds,delay=0..0.02,stop_high:calf_joint"
ARM = ("fore_mass", "payload", "shoulder_damping", "elbow_damping")
RENAMED = {"push borne": "push margin"}  # checks of earlier versions
STIFF = 10  # joints before the waist keep the model's gains


@dataclass(frozen=True)
class Case:
    """A command, and how its answer is compared."""

    words: list[str]
    compare: Callable[[dict[str, Any], dict[str, Any]], Iterator[Row]]


def held(folder: Path) -> list[str]:
    """How the quadruped was mounted and driven; its mapping in words that earlier versions know, too."""
    mapping = json.loads((MAPS / "go2_in_air.json").read_text())
    for name, column in mapping["columns"].items():
        column["names"] = [x.removesuffix("_joint") if name == "control" else x for x in LEGS]
    path = folder / "map.json"
    path.write_text(json.dumps(mapping))
    return ["--map", str(path), "--machine.fixed", "--machine.kp", "20", "--machine.kd", "0.5"]


def fit_errors(here: dict[str, Any], there: dict[str, Any]) -> Iterator[Row]:
    """Prediction of what was held out; and by how many of the other's sds the unknowns differ."""
    for name, (_, after) in here["held_out"].items():
        other = (there.get("held_out") or there["held"])[name][1]
        yield row(f"held-out error of {name}, here / there", after / other, "ratio", at_most=1.02)
    far = [
        abs(a["value"] - b["value"]) / max((b["high"] - b["low"]) / 3.92, 1e-12)
        for a, b in zip(here["params"], there["params"])
        if b["high"] > b["low"]
    ]
    yield row("unknowns: largest difference", max(far), "sd", at_most=1.0)


def same_checks(here: dict[str, Any], there: dict[str, Any]) -> Iterator[Row]:
    one, other = ({RENAMED.get(c["name"], c["name"]): c["holds"] for c in x["checks"]} for x in (here, there))
    same = {name: one.get(name) == other.get(name) for name in one | other}
    note = ", ".join(name for name, ok in same.items() if not ok)
    yield row("checks with the same answer", float(np.mean([*same.values()])), "of checks", at_least=1.0, note=note)
    for name in ("latency margin", "push margin"):
        found = [next((c["value"] for c in x["checks"] if c["name"] == name), None) for x in (here, there)]
        if None not in found:
            yield row(f"{name}, here", found[0], "ms" if "latency" in name else "N s", note=f"{found[1]:.4g} there")


def same_score(here: dict[str, Any], there: dict[str, Any]) -> Iterator[Row]:
    worse = [a["after"] / b["after"] for a, b in zip(here["params"], there["params"])]
    yield row(
        "predicted sd, here / there, geometric mean", float(np.exp(np.mean(np.log(worse)))), "ratio", at_most=1.05
    )


def go2(folder: Path) -> Case:
    rows = (DATA / "go2_in_air" / "first_40s.csv").read_text().splitlines()[:1601]
    log = folder / "go2.csv"
    log.write_text("\n".join(rows) + "\n")
    words = ["identify", str(OTHERS / "unitree_go2.xml"), str(log), *held(folder), "--learn", UNKNOWNS]
    return Case([*words, "--signals", "joint_pos", "--known-start", "--no-check"], fit_errors)


def arm(folder: Path) -> Case:
    """500 rows at the task's own rate: smooth random controls on an arm whose four unknowns are 15 to 30 % off."""
    task = tasks.resolve("arm")
    world, rng = tasks.env(task, 1, seed=3).world, stream(3, "a log of an arm")
    e, rows = task.params.nominal.copy(), 500
    for name, share in zip(ARM, (0.6, 0.3, 0.65, 0.35)):
        p = task.params[name]
        e[task.params.index(name)] = p.low + share * (p.high - p.low)
    t = world.dt * np.arange(rows)
    size = np.array([0.4, 0.4])
    u = size * np.sum([np.sin(2 * np.pi * f * t[:, None] + rng.uniform(0, 6.3, 2)) for f in (0.3, 0.7, 1.3)], 0)
    world.reset(np.arange(1), e[None], task.episode(rng, 1).start)
    begun = world.state.q[0].copy()
    motion = world.rollout(u[None], Chance(0, 0, world.dt))
    q = np.concatenate([begun[None], motion.q[0, :-1]])[:, world.layout.places]
    q = q + 0.002 * rng.standard_normal(q.shape)
    names = {"control": list(world.layout.actuators), "joint_pos": list(world.layout.joints)}
    path = Log(t, {"control": u, "joint_pos": q}, meta={"names": names}).save(folder / "arm.npz")
    return Case(["identify", "arm", str(path), "--learn", ",".join(ARM), "--no-check"], fit_errors)


def so101(folder: Path) -> Case:
    """The first 500 rows of a real arm's multisine, on an even clock; six joints share each unknown."""
    path = DATA / "so101" / "multisine"
    names = (path / "joint_list.txt").read_text().split()
    tables = [list(csv.DictReader((path / name).open())) for name in ("control.csv", "state_motor.csv")]
    u, q = (np.array([json.loads(r["positions"]) for r in rows]) for rows in tables)
    time = 1e-6 * np.array([float(r["timestamp"]) for r in tables[1]])
    even = 0.02 * np.arange(500)
    u, q = (np.stack([np.interp(time[0] + even, time, x) for x in a.T], 1) for a in (u, q))
    columns = {"control": u, "joint_pos": q}
    log = Log(even, columns, meta={"names": dict.fromkeys(columns, names)}).save(folder / "so101.npz")
    model = OTHERS / "menagerie" / "trs_so_arm100" / "so_arm100.xml"
    words = ["identify", str(model), str(log), "--learn", "armature,damping,frictionloss,delay=0..0.1", "--no-check"]
    return Case(words, fit_errors)


def preflight(folder: Path) -> Case:
    log = DATA / "go2_in_air" / "first_40s.csv"
    return Case(["preflight", str(OTHERS / "unitree_go2.xml"), str(log), *held(folder)], same_checks)


def explore(folder: Path) -> Case:
    """The pendulum of examples/models with a motor of 2 N m."""
    text = (MODELS / "qdd_pendulum.xml").read_text().replace("<motor ", '<motor ctrlrange="-2 2" ctrllimited="true" ')
    (folder / "pendulum.xml").write_text(text)
    words = ["explore", str(folder / "pendulum.xml"), "--learn", "mass,damping,frictionloss"]
    return Case([*words, "--limits.seconds", "2", "--out", str(folder / "plan.npz")], same_score)


def go1(folder: Path) -> Case:
    words = [
        "gate",
        str(OTHERS.parent / "policies" / "go1_joystick.onnx"),
        "--model",
        str(OTHERS / "unitree_go1_flat.xml"),
    ]
    contract = HERE / "examples" / "contracts" / "go1_joystick.json"
    return Case([*words, "--contract", str(contract), "--out", str(folder / "gate")], same_checks)


def plain(model: Path, copy: Path) -> Path:
    """A copy of a model's folder without materials, which earlier versions refuse."""
    shutil.copytree(model, copy)
    for path in copy.glob("*.xml"):
        path.write_text(re.sub(r' material="[^"]*"', "", path.read_text()))
    return copy


def humanoid(folder: Path) -> Case:
    """Ankles against the lean and the rate of the trunk; all other joints hold the pose of the keyframe."""
    from onnx import TensorProto, helper, numpy_helper, save

    scene = plain(OTHERS / "menagerie" / "booster_t1", folder / "model") / "scene.xml"
    m = mujoco.MjModel.from_xml_path(str(scene))
    joints = [m.joint(m.actuator_trnid[i, 0]).name for i in range(m.nu)]
    gain = np.zeros(
        (6 + 3 * m.nu + 3, m.nu), np.float32
    )  # ang_vel 3, gravity 3, joint_pos, joint_vel, last_action, command 3
    for i, name in enumerate(joints):
        if "Ankle_Pitch" in name:
            gain[3, i], gain[1, i] = 0.5, 0.05
        if "Ankle_Roll" in name:
            gain[4, i], gain[0, i] = -0.5, 0.05
    number = lambda name, n: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", n])  # noqa: E731
    product = helper.make_node("MatMul", ["obs", "gain"], ["actions"])
    weights = [numpy_helper.from_array(gain, "gain")]
    graph = helper.make_graph([product], "stand", [number("obs", len(gain))], [number("actions", m.nu)], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "stand.onnx")
    contract = {
        "joints": joints, "home": m.key_qpos[0][7:].tolist(), "action_scale": 1.0, "rate": 50, "kd": [5.0] * m.nu,
        "kp": [75.0 if i < STIFF else 200.0 for i in range(m.nu)], "commands": {}, "input": "obs", "output": "actions",
        "observation": ["base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "last_action", "command"],
    }  # fmt: skip
    (folder / "contract.json").write_text(json.dumps(contract))
    words = ["gate", str(folder / "stand.onnx"), "--model", str(scene), "--contract", str(folder / "contract.json")]
    return Case([*words, "--out", str(folder / "gate")], same_checks)


CASES = {
    "preflight": preflight,
    "explore": explore,
    "arm": arm,
    "so101": so101,
    "go2": go2,
    "go1": go1,
    "humanoid": humanoid,
}
NEEDS = {
    "go2": DATA / "go2_in_air",
    "preflight": DATA / "go2_in_air",
    "so101": DATA / "so101",
    "go1": OTHERS.parent / "policies" / "go1_joystick.onnx",
    "humanoid": OTHERS / "menagerie" / "booster_t1",
}


def python_of(checkout: Path) -> str:
    python = checkout / ".venv" / "bin" / "python"
    return str(python if python.exists() else sys.executable)


def compiled(checkout: Path) -> None:
    """Its modules as an installed package has them: compiled once, whatever PYTHONDONTWRITEBYTECODE says."""
    subprocess.run([python_of(checkout), "-m", "compileall", "-q", str(checkout / "src")], check=True)


def answered(checkout: Path, words: list[str]) -> tuple[float, dict[str, Any]]:
    """CPU seconds of a command in a checkout, and its facts."""
    code = "import sys; from surefoot.__main__ import entry; sys.exit(entry())"
    command = [python_of(checkout), "-c", code, *words, "--json"]
    with tempfile.TemporaryFile() as out:
        env = {**os.environ, "PYTHONPATH": str(checkout / "src")}  # not whatever surefoot the interpreter has installed
        child = subprocess.Popen(command, cwd=checkout, env=env, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    if child.returncode not in (0, 1):  # 1: the answer is no
        raise SystemExit(f"{' '.join(words)}: ended with {child.returncode} in {checkout}: {text[-500:]}")
    said(f"{words[0]} in {checkout.name}: {used.ru_utime + used.ru_stime:.1f} CPU s")
    return used.ru_utime + used.ru_stime, json.loads(text)


def compared(name: str, other: Path, rounds: int) -> Iterator[Row]:
    if not NEEDS.get(name, HERE).exists():
        yield skipped(name, f"no {NEEDS[name]}")
        return
    facts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        case = CASES[name](Path(folder))

        def turn(who: str, checkout: Path) -> Callable[[], float]:
            def run() -> float:
                spent, facts[who] = answered(checkout, case.words)
                return spent

            return run

        found = measure.interleaved({"here": turn("here", HERE), "there": turn("there", other)}, rounds)
    yield row(f"{name}: CPU time here / there", found["here"] / found["there"], "ratio", at_most=GOAL)
    yield row(f"{name}: CPU time here", found["here"], "s")
    yield row(f"{name}: CPU time there", found["there"], "s")
    for r in case.compare(facts["here"], facts["there"]):
        yield Row(**{**asdict(r), "name": f"{name}: {r.name}"})


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.answer_times", description=__doc__.split("\n")[0])
    parser.add_argument("--against", type=Path, required=True, help="a checkout of surefoot with its .venv")
    parser.add_argument("--only", choices=list(CASES), action="append")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print a list of rows in place of the tables")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/answer_times.json")
    asked = parser.parse_args()
    console, every = Console(stderr=asked.json, width=None if sys.stdout.isatty() else 140), []
    compiled(HERE)
    compiled(asked.against.resolve())
    for name in asked.only or CASES:
        load, began = os.getloadavg()[0], time.perf_counter()
        rows = list(compared(name, asked.against.resolve(), asked.rounds))
        every += rows
        spent = time.perf_counter() - began
        console.print(measure.table(f"answer_times · {name} against {asked.against} ({spent:.0f} s)", rows))
        if asked.record:
            console.print(f"recorded in {measure.record('answer_times', name, rows, spent, round(load, 2))}")
    if asked.json:
        print(json.dumps([asdict(r) for r in every], indent=1, allow_nan=False))


if __name__ == "__main__":
    main()
