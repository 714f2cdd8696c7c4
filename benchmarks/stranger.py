"""The Go1 policy that others trained, at the gate: passes at its own contract, its margin, and why each sabotage fails."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from benchmarks.measure import Row, row, said, skipped
from surefoot import tasks
from surefoot.gate.candidate import Candidate, candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import gate
from surefoot.gate.measures import margins
from surefoot.gate.plan import Plan
from surefoot.tasks.rollout import evaluate
from surefoot.verdict import Verdict

ROOT = Path(__file__).parents[1]
MODELS = Path(os.environ.get("SUREFOOT_MODELS") or ROOT.parent / "shared" / "models")
MODEL, POLICY = MODELS / "unitree_go1_flat.xml", MODELS.parent / "policies" / "go1_joystick.onnx"
CONTRACT = json.loads((ROOT / "examples" / "contracts" / "go1_joystick.json").read_text())
OTHER = [CONTRACT["joints"][i] for i in (3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8)]  # left and right legs exchanged


def _exchanged(a: int, b: int) -> list[str]:
    joints = list(CONTRACT["joints"])
    joints[a], joints[b] = joints[b], joints[a]
    return joints


def _told(**terms: dict[str, Any]) -> dict[str, Any]:
    return {"observation": [{"name": t, **terms[t]} if t in terms else t for t in CONTRACT["observation"]]}


SABOTAGE: dict[str, tuple[dict[str, Any], str]] = {
    "40 ms of delay": ({"latency": 0.04}, "delay"),
    "60 ms of delay": ({"latency": 0.06}, "delay"),
    "joint_pos and joint_vel in another joint order": (_told(joint_pos={"joints": OTHER}, joint_vel={"joints": OTHER}), "order"),
    "observations and actions in another joint order": ({"joints": OTHER}, "order"),
    "gravity with the other sign": (_told(projected_gravity={"scale": -1.0}), "sign"),
    "joint_pos in degrees": (_told(joint_pos={"scale": 57.3}), "scale"),
    "actions scaled by a quarter": ({"action_scale": 0.125}, "scale"),
    "FR_calf and FL_calf exchanged in joints": ({"joints": _exchanged(2, 5)}, "order"),
    "FR_thigh and FL_thigh exchanged in joints": ({"joints": _exchanged(1, 4)}, "order"),
}  # fmt: skip
TOO_WEAK, TOO_STIFF = 0.35, 4.0  # of the model's own kp: with it the policy fails
TWO = {"latency": 0.06} | _told(projected_gravity={"scale": -1.0})  # two mistakes, which no single change puts right


def client(change: dict[str, Any], model: Path = MODEL) -> Candidate:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contract.json"
        path.write_text(json.dumps(CONTRACT | change))
        return candidate(POLICY, model=model, contract_file=path)


def other_kp(folder: Path, by: float) -> Path:
    """The robot's model with another kp; the contract says nothing of gains."""
    spec = mujoco.MjSpec.from_file(str(MODEL))
    for a in spec.actuators:
        a.gainprm[0], a.biasprm[1] = by * a.gainprm[0], by * a.biasprm[1]
    path = folder / "robot.xml"
    path.write_text(spec.to_xml())
    return path


def go1(quick: bool) -> Iterator[Row]:
    if not (MODEL.exists() and POLICY.exists()):
        yield skipped("go1", f"no {POLICY}: point SUREFOOT_MODELS at a folder with the models, policies beside it")
        return
    who, n = client({}), 4 if quick else 50
    places: list[np.ndarray] = []
    env = tasks.env(who.task, n, seed=1000)
    found = evaluate(who.policy, env, lambda k, env: places.append(env.world.state.q[:, :2].copy()))
    speed = np.linalg.norm(places[-2] - places[50], axis=1) / (0.02 * (len(places) - 52))
    yield row("at its own contract: success", found.rate, "of episodes", at_least=0.9)
    yield row("at its own contract, vx = 1.0: speed", speed, "m/s", at_least=0.98, note="1.02 in its makers' own loop")
    said("latency margin")
    late = margins.latency(margins.Asked(who.policy, who.task, 4 if quick else 50, 1000, 0.9))
    note = f"breaks at {1000 * late.failing:.0f} ms; half fall at {1000 * (late.falls or np.nan):.0f} ms; at most 40 is asked, too"
    yield row("latency margin", 1000 * (late.tolerated or 0.0), "ms", at_least=20 - 1e-6, note=note)
    if not quick:
        said("the whole gate")
        verdict = gate(who, who.task.belief, Plan(), Limits())
        failed = [c.name for c in verdict.checks if not c.holds]
        yield row("the whole gate: checks that hold", np.mean([c.holds for c in verdict.checks]), "of checks", at_least=1.0, note=", ".join(failed))  # fmt: skip
    yield from _sabotaged(quick)


def _judged(who: Candidate, quick: bool) -> Verdict:
    return gate(who, tasks.nominal(who.task), Plan(episodes=20 if quick else 50), Limits(success=0.8))


def _named(name: str, who: Candidate, kind: str, quick: bool) -> Row:
    verdict = _judged(who, quick)
    best = (verdict.meta["contract_faults"] or [None])[0]
    right = bool(best and best["passes"] and best["kind"] == kind and not verdict.holds)
    note = "passes in spite of it" if verdict.holds else best["change"] if best else "nothing explains it"
    return row(f"{name}: held back, and named", float(right), "1: yes", at_least=1.0, note=note)


def _wrong_model(quick: bool) -> Iterator[Row]:
    """Gains that are wrong in the model, and two mistakes at once, for which no cause may be named."""
    with tempfile.TemporaryDirectory() as folder:
        for by in (TOO_WEAK,) if quick else (TOO_WEAK, TOO_STIFF):
            said(f"kp of the model x {by:g}")
            yield _named(f"kp of the model x {by:g}", client({}, other_kp(Path(folder), by)), "gain", quick)
    if not quick:
        said("two mistakes at once")
        verdict = _judged(client(TWO), quick)
        silent = not verdict.holds and verdict.meta["why"][0].startswith("no cause found")
        yield row("60 ms of delay and gravity upside down: no cause is named", float(silent), "1: yes", at_least=1.0, note=verdict.meta["why"][0])  # fmt: skip


def _sabotaged(quick: bool) -> Iterator[Row]:
    cases = list(SABOTAGE.items())[:1] if quick else list(SABOTAGE.items())
    for name, (change, kind) in cases:
        said(name)
        yield _named(name, client(change), kind, quick)
    yield from _wrong_model(quick)
    weak = client({"kp": 21.0})
    found = evaluate(weak.policy, tasks.env(weak.task, 4 if quick else 50, seed=1000))
    yield row(
        "kp x 0.6: success", found.rate, "of episodes", note=f"{weak.notes[0]}; 0.95 m/s in another loop, so it passes"
    )
