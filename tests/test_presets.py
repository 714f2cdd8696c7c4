"""Other people's ranges: each has a source, means here what it means there, and stays physical."""

import json
import math
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
from scipy.stats import kstest

from surefoot import presets, tasks
from surefoot.belief import point
from surefoot.cli import _parse, main
from surefoot.errors import SurefootError
from surefoot.params import Params
from surefoot.presets import PRESETS
from surefoot.rng import stream
from surefoot.sim.fields import OUTSIDE, TARGETS
from surefoot.task import Episode

WALK, HOVER = tasks.resolve("walk"), tasks.resolve("hover")
ON = {"legged": WALK, "quadrotor": HOVER}


def rows(name):
    return {row.name: row for row in presets.fit(ON[PRESETS[name].kind], name).rows}


def wanted(name, param):
    return rows(name)[param].wanted


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_where_its_numbers_are_written(name):
    p = PRESETS[name]
    owner, repository = p.source.repository.split("/")
    assert p.name == name and owner and repository and p.source.version and p.robot
    assert Path(p.source.path).suffix in (".py", ".yaml", ".h", ".hpp") and not p.source.path.startswith("/")
    assert p.ranges or p.noise


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_stays_physical_and_says_what_was_cut_or_leaves_out_the_nominal(name):
    task = ON[PRESETS[name].kind]
    fit = presets.fit(task, name)
    for row in fit.rows:
        p = task.params[row.name]
        assert p.low <= row.used[0] <= row.used[1] <= p.high and row.wanted[0] <= row.wanted[1]
        inside = p.low <= row.wanted[0] and row.wanted[1] <= p.high
        assert row.used == row.wanted if inside else "bounds" in row.note
        assert row.used[0] <= p.nominal <= row.used[1] or "excludes the nominal" in row.note
    named = {row.name for row in fit.rows}
    for i, p in enumerate(task.params):
        assert p.name in named or fit.belief.low[i] == fit.belief.high[i] == p.nominal
    told = " ".join([*named, *fit.unnamed])
    assert all(k in told for k in PRESETS[name].ranges)
    assert all(term in told or "noise" in named for term in PRESETS[name].noise)


@pytest.mark.parametrize("name", PRESETS)
def test_draws_lie_inside_what_the_preset_says(name):
    task = ON[PRESETS[name].kind]
    e = presets.fit(task, name).belief.sample(stream(0, name), 500)
    for row in presets.fit(task, name).rows:
        x = e[:, task.params.index(row.name)]
        assert row.used[0] <= x.min() and x.max() <= row.used[1]
        assert row.used[0] == row.used[1] or np.ptp(x) > 0.8 * (row.used[1] - row.used[0])


def test_every_name_in_the_vocabulary_has_a_target_that_knows_its_op():
    for target, op in presets.MEANS.values():
        assert op in (TARGETS[target].ops if target in TARGETS else OUTSIDE[target][1])
    assert {k for p in PRESETS.values() for k in p.ranges} <= set(presets.MEANS)


def test_one_control_step_at_fifty_hertz_is_twenty_milliseconds():
    assert wanted("falcon-g1", "latency") == (0.0, 0.02)
    assert wanted("walk-these-ways-go1", "latency") == pytest.approx((0.03, 0.03))  # six physics steps of 5 ms


def test_physx_averages_the_friction_of_robot_and_ground():
    """(-0.2 + 1) / 2 = 0.4 and (1.25 + 1) / 2 = 1.125: why a source may write a friction below zero."""
    assert wanted("abs-go1", "friction") == (0.4, 1.125)
    assert wanted("playground-go1", "friction") == (0.4, 1.0)  # one surface alone decides there


def test_a_push_keeps_the_velocity_whatever_the_robot_weighs():
    """12.7 kg times 2 m/s over 60 N times 0.1 s is 4.2333."""
    low, high = wanted("playground-g1", "push")
    assert (low, high) == pytest.approx((12.7 * 0.1 / 6, 12.7 * 2.0 / 6))
    assert wanted("beyondmimic-g1", "push")[1] == pytest.approx(12.7 * math.hypot(0.5, 0.5) / 6)
    push = WALK.terms[0]
    weaker = replace(WALK, terms=(replace(push, force=2 * push.force, seconds=push.seconds / 4),))
    other = {row.name: row.wanted for row in presets.fit(weaker, "playground-g1").rows}
    assert other["push"] == pytest.approx((2 * low, 2 * high))


def test_the_strongest_push_of_a_preset_moves_the_robot_as_fast_as_its_source_says():
    """In free fall, where nothing else pushes, the centre of mass is at 0.5 sqrt(2) m/s sideways once it is over."""

    def aloft(rng, n):
        start = WALK.episode(rng, n).start
        return Episode(replace(start, q=start.q + np.eye(1, 19, 2) * 30.0, v=np.zeros((n, 18))))

    strongest = WALK.params.vector({"push": wanted("isaaclab-velocity", "push")[1]})
    env = tasks.env(replace(WALK, episode=aloft), 16, point(WALK.params, strongest), seed=0)
    env.reset()
    for _ in range(40):
        env.step(np.zeros((16, 12)))
    data, speed = mujoco.MjData(env.world.model), []
    for q, v in zip(env.world.state.q, env.world.state.v):
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_forward(env.world.model, data)
        mujoco.mj_subtreeVel(env.world.model, data)
        speed.append(np.hypot(*data.subtree_linvel[1, :2]))
    assert max(speed) == pytest.approx(math.sqrt(0.5), rel=1e-3) and min(speed) < 1e-3  # some are pushed later


def test_uniform_noise_becomes_the_deviation_it_has_relative_to_the_tasks_own():
    """Half-widths 0.2, 0.05, 0.01, 1.5 over sqrt 3, against walk's 0.1, 0.02, 0.01, 0.5: multiples 0.577 to 1.732."""
    assert wanted("legged-gym-a1", "noise") == pytest.approx((1 / math.sqrt(3), math.sqrt(3)))
    draws = stream(0, "noise").uniform(-0.2, 0.2, 200_000)
    assert draws.std() == pytest.approx(PRESETS["legged-gym-a1"].noise["base_ang_vel"], rel=0.01)
    assert wanted("learning-to-fly", "noise") == pytest.approx((0.1, 0.5))  # Gaussian there: no sqrt 3


def test_kilograms_and_gains_become_multiples():
    assert wanted("safe-control-gym", "mass") == pytest.approx((22 / 27, 32 / 27))
    assert wanted("cross-modal-a1", "kp") == pytest.approx((40 / 45, 50 / 45))
    assert wanted("cross-modal-a1", "kd") == pytest.approx((2 / 3, 4 / 3))


def test_a_range_wholly_beyond_the_bounds_is_left_at_the_nominal_and_said():
    row = rows("rotorpy-crazyflie")["motor_time"]
    assert row.wanted == (0.004, 0.006) and row.used == (0.05, 0.05)
    assert row.note == "0.004 .. 0.006 lies outside the bounds 0.02 .. 0.2; kept at 0.05"
    assert rows("legged-gym-anymal-c")["payload"].note == "-5 .. 5 cut at the bounds -3.5 .. 6.35"


def test_what_the_task_has_no_name_for_is_listed():
    fit = presets.fit(WALK, "beyondmimic-g1")
    assert "com_z (-0.05 .. +0.05 m)" in fit.unnamed and "restitution 0 .. 0.5" in fit.unnamed
    assert any("base_lin_vel" in what for what in fit.unnamed)  # walk's actor is not told it


def test_a_param_of_the_same_name_that_means_another_thing_is_not_taken_for_it():
    """A friction that scales is not a friction that is set: 0.4 of what the model has is another floor."""
    scaled = replace(WALK.params["friction"], op="scale", nominal=1.0)
    params = Params(tuple(scaled if p.name == "friction" else p for p in WALK.params))
    fit = presets.fit(replace(WALK, params=params), "playground-go1")
    assert "friction" not in {row.name for row in fit.rows}
    assert any(what.startswith("friction") for what in fit.unnamed)
    assert fit.belief.low[params.index("friction")] == 1.0


def test_a_preset_of_another_kind_of_robot_is_refused_with_those_that_fit():
    with pytest.raises(
        SurefootError,
        match="falcon-g1: made for a legged robot, hover has a quadrotor robot; presets that fit: learning-to-fly",
    ):
        presets.fit(HOVER, "falcon-g1")
    with pytest.raises(SurefootError, match="no preset fits"):
        presets.fit(tasks.resolve("balance"), "falcon-g1")
    with pytest.raises(SurefootError, match="did you mean falcon-g1"):
        presets.fit(WALK, "falcon-g2")


def test_a_thousand_resets_draw_the_payload_uniformly_and_the_friction_in_ratio():
    belief = presets.fit(WALK, "falcon-g1").belief
    env = tasks.env(WALK, 1000, belief, seed=3)
    env.reset()
    e = {name: env.world.state.e[:, WALK.params.index(name)] for name in ("payload", "friction")}
    assert kstest(e["payload"], "uniform", (-1.0, 4.0)).pvalue > 0.01
    low, high = math.log(0.625), math.log(1.125)
    assert kstest(np.log(e["friction"]), "uniform", (low, high - low)).pvalue > 0.01
    assert kstest(e["friction"], "uniform", (0.625, 0.5)).pvalue < 0.05  # so the test can tell the two apart


def test_a_presets_name_is_a_belief_and_what_was_cut_is_said(capsys):
    assert main(["try", "hover", "--belief", "rotorpy-crazyflie", "--episodes", "2"]) == 0
    assert "note: rotorpy-crazyflie: strength 1 .. 3.04 cut at the bounds 0.5 .. 1.5" in capsys.readouterr().out
    assert _parse(["eval", "runs/walk", "--belief", "falcon-g1"]).belief == "falcon-g1"
    assert _parse(["train", "walk", "--through", "nominal", "falcon-g1"]).through == ("nominal", "falcon-g1")


@pytest.mark.parametrize(
    "args, words",
    [
        (["try", "walk", "--belief", "falcon-g"], "did you mean falcon-g1?"),
        (["try", "walk", "--belief", "nominel"], "there are task, nominal, a JSON file, legged-gym-a1"),
        (
            ["try", "hover", "--belief", "falcon-g1"],
            "presets that fit: learning-to-fly, rotorpy-crazyflie, safe-control-gym",
        ),
        (["presets", "falcn-g1"], "no preset matches 'falcn-g1'"),
        (["presets", "falcon-g1", "--task", "hovr"], "no task matches 'hovr'"),
        (
            ["presets", "--task", "balance"],
            "task balance: no preset fits; try humanoid, walk, walk-estimate, walk-rough, hover",
        ),
    ],
)
def test_wrong_names_are_answered_with_right_ones(capsys, args, words):
    assert main(args) == 2
    assert words in capsys.readouterr().err


def test_presets_are_listed_and_shown_for_people_and_machines(capsys):
    def facts(*args):
        assert main(["presets", *args, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert [p["name"] for p in facts()["presets"]] == list(PRESETS)
    assert [p["name"] for p in facts("--task", "hover")["presets"]] == presets.fitting(HOVER)
    one = facts("falcon-g1", "--task", "walk-rough")
    assert one["task"] == "walk-rough" and one["source"]["repository"] == "LeCAR-Lab/FALCON"
    assert {r["name"]: r["used"] for r in one["ranges"]}["latency"] == [0.0, 0.02] and one["unnamed"]
    assert main(["presets", "falcon-g1"]) == 0
    assert "next: surefoot train humanoid --belief falcon-g1" in capsys.readouterr().out


def test_the_page_on_beliefs_has_the_ranges_of_every_preset():
    page = (Path(__file__).parents[1] / "docs" / "beliefs.md").read_text()
    for name, p in PRESETS.items():
        moved = [r for r in rows(name).values() if r.used[0] < r.used[1]]
        cells = [f"{r.name} {r.used[0]:.4g} .. {r.used[1]:.4g}" for r in moved]
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` | {p.source.repository} |")]
        assert all(cell in line for cell in cells)
    like = [p for p in PRESETS.values() if presets.GYM_NOISE.items() <= p.noise.items()]
    assert len(like) == 9 and "noise is in nine of these presets" in page


@pytest.mark.parametrize(
    "name, task", [("unitree-go2", "walk"), ("unitree-g1", "humanoid"), ("rotorpy-crazyflie", "hover")]
)
def test_a_preset_is_shown_on_the_ready_task_most_like_its_robot(name, task, capsys):
    assert main(["presets", name]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: surefoot train {task} --belief {name}"
