"""What replay and identify say and write beyond their table: inverse dynamics, a horizon, pages, models, next commands."""

import json
import shlex

import mujoco
import numpy as np
import pytest

from surefoot.belief import Gaussian
from surefoot.cli import main
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.inverse import inverse
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import ahead
from surefoot.world import Chance, Start

PENDULUM = """<mujoco><compiler angle="radian"/><option timestep="0.001" integrator="implicitfast"/>
<worldbody><body name="arm"><joint name="hinge" axis="0 1 0" damping=".05" armature=".01" limited="true" range="-9 9"/>
<inertial pos="0 0 -.5" mass="2" diaginertia=".02 .02 .02"/></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""
NONE = Params()
ARMATURE = Params((Param("armature", "armature", 0.01, 1e-4, 10.0, op="set", unit="kg m^2", log=True),))


def swung(params=NONE, e=(), seconds=3.0, xml=PENDULUM):
    """A log of a pendulum under a smooth torque, with that torque as measured at each row: between two controls."""
    w = world(mujoco.MjSpec.from_string(xml), params, 0.005)
    t = w.dt * np.arange(round(seconds / w.dt) + 1)
    u = (3 * np.sin(1.7 * t) + 4 * np.sin(3.1 * t))[:, None]
    w.reset(np.arange(1), np.array([e], float), Start(np.full((1, 1), 0.3), np.zeros((1, 1)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    q, v = np.concatenate([[[0.3]], m.q[0]]), np.concatenate([[[0.0]], m.v[0]])
    names = {k: ["hinge"] for k in ("joint_pos", "joint_vel", "joint_torque")}
    return w, Log(
        t,
        {"joint_pos": q, "joint_vel": v, "joint_torque": np.concatenate([u[:1], (u[1:] + u[:-1]) / 2]), "control": u},
        meta={"names": names},
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.xml").write_text(PENDULUM)
    swung(ARMATURE, [0.1])[1].save(tmp_path / "heavy.npz")
    Gaussian.around(ARMATURE, [0.1], [[0.01]]).write(tmp_path / "e.json")
    return tmp_path


def ask(capsys, words, code=0):
    assert main([*shlex.split(words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_inverse_dynamics_give_the_torque_that_moved_the_model():
    """(m l^2 + I + armature) a + b v + m g l sin q = 2 (.25) + .02 + .01 = 0.53 a + ..., within half an engine step (0.5 ms) of torques that change by up to 40 N m/s."""
    w, log = swung()
    found = inverse(w, log)
    assert found.scores[0].rmse < 0.02 and found.scores[0].r2 > 0.9999
    q, v = log["joint_pos"][:, 0], log["joint_vel"][:, 0]
    by_hand = 0.53 * np.gradient(v, log.time) + 0.05 * v + 2 * 9.81 * 0.5 * np.sin(q)
    assert np.abs(found.predicted["joint_torque"][20:-20, 0] - by_hand[20:-20]).max() < 0.02


def test_inverse_dynamics_use_identified_numbers_and_constant_torques():
    params = Params((*ARMATURE, Param("offset", "torque_offset", 0.0, -1.0, 1.0, op="set", unit="N m")))
    w, log = swung(params, [0.1, 0.4])
    assert inverse(w, log, np.array([0.1, 0.4])).scores[0].rmse < 0.02
    assert inverse(w, log, np.array([0.1, 0.0])).scores[0].rmse == pytest.approx(0.4, abs=0.02)


def test_replay_predicts_torque_by_inverse_dynamics(here, capsys):
    found = ask(capsys, "replay p.xml heavy.npz --inverse --belief e.json")["signals"]["joint_torque"]
    plain = ask(capsys, "replay p.xml heavy.npz --inverse")["signals"]["joint_torque"]
    assert found["rmse"] < 0.02 < plain["rmse"] and found["r2"] > 0.999
    assert "leave --resync out" in ask(capsys, "replay p.xml heavy.npz --inverse --resync 3", 2)["error"]
    log = Log.load("heavy.npz")
    Log(log.time, {k: v for k, v in log.columns.items() if k != "joint_torque"}, meta={}).save("mute.npz")
    assert (
        "mute.npz: inverse: found no column joint_torque" in ask(capsys, "replay p.xml mute.npz --inverse", 2)["error"]
    )


def test_the_error_at_a_horizon_is_that_of_windows_of_its_length(here, capsys):
    row = {x["signal"]: x for x in ask(capsys, "replay p.xml heavy.npz --horizon 50")["horizon"]}["joint_pos"]
    w, _ = swung()
    log = Log.load("heavy.npz")
    (same,) = (x for x in ahead(w, log, np.zeros(0), 50) if x.signal == "joint_pos")
    assert row["rmse"] == pytest.approx(same.rmse) and same.starts > 100
    q = log["joint_pos"][:, 0]
    assert same.still == pytest.approx(np.sqrt(np.mean((q[50:] - q[:-50]) ** 2)), rel=0.02)
    near = ahead(w, log, np.zeros(0), 5)[0]
    assert near.rmse < same.rmse < same.still
    assert "--horizon: expected at least 1" in ask(capsys, "replay p.xml heavy.npz --horizon 0", 2)["error"]


def test_a_page_draws_the_worst_joints_each_by_itself(tmp_path):
    """Of six joints the last two are wrong; of 20 s the 6 s around 14 s."""
    from surefoot.real2sim.replay import Replay, Score
    from surefoot.verbs.robot.replay import _plots

    t = np.arange(0, 20, 0.01)
    measured = np.zeros((len(t), 6))
    predicted = measured.copy()
    predicted[:, 4], predicted[:, 5] = 0.1, np.where(np.abs(t - 14) < 2, 1.0, 0.0)
    parts = {f"j{i}": float(np.sqrt(np.mean(predicted[:, i] ** 2))) for i in range(6)}
    s = Score("joint_pos", "rad", 0.1, 0.1, 0.0, parts)
    plots = _plots(Replay(t, {"joint_pos": measured}, {"joint_pos": predicted}, (s,), {}, {}, 0), s)
    assert [p.title for p in plots[:2]] == ["joint_pos: j5", "joint_pos: j4"] and len(plots) == 4
    assert [x.name for x in plots[0].series] == ["measured", "predicted"]
    assert plots[0].series[0].x[0] <= 12.0 and plots[0].series[0].x[-1] > 15.98 and len(plots[0].series[0].x) == 601
    assert "2 parts with smaller errors are left out" in plots[-1].caption


def test_a_saved_model_moves_as_its_belief(here, capsys):
    asked_for = (
        "identify p.xml heavy.npz --learn armature,damping,mass:arm,torque_offset --no-check --hold 0 --known-start"
    )
    ask(capsys, f"{asked_for} --save b.json --save-model fitted.xml")
    fitted = mujoco.MjModel.from_xml_path("fitted.xml")
    value = json.loads((here / "b.json").read_text())["estimate"]
    assert fitted.dof_armature[0] == pytest.approx(0.01 * value["armature"], rel=1e-5)
    assert fitted.body_mass[1] == pytest.approx(2 * value["mass:arm"], rel=1e-5)
    with_belief, saved = (
        ask(capsys, f"replay {words}")["signals"]["joint_pos"]["rmse"]
        for words in ("p.xml heavy.npz --belief b.json", "fitted.xml heavy.npz")
    )
    assert saved == pytest.approx(with_belief, abs=2e-3) and saved < 0.01
    assert main([*asked_for.split(), "--save-model", "again.xml"]) == 0
    assert "since MJCF has no place for them: torque_offset" in capsys.readouterr().out


def test_next_commands_lead_on(here, capsys):
    """Model -> identify -> keep it -> replay with it -> what is missing: no command twice, and each with the mapping."""
    (here / "m.json").write_text(
        '{"columns": {"joint_pos": {"from": "joint_pos", "names": ["hinge"]}, "control": {"from": "control"}}}'
    )

    def after(words, code=0):
        assert main(shlex.split(words)) == code
        return capsys.readouterr().out.strip().split("next: surefoot ")[1].replace("\n", " ")

    given = "p.xml heavy.npz --map m.json"
    assert after(f"replay {given}") == f"identify {given}"
    kept = after(f"identify {given} --learn armature --no-check")
    assert kept == f"identify {given} --learn armature --save heavy-belief.json"
    assert after(f"{kept} --no-check") == f"replay {given} --belief heavy-belief.json"
    assert after(f"replay {given} --belief heavy-belief.json") == f"missing {given} --belief heavy-belief.json"
    few = "--dropo.rounds 2 --dropo.population 4 --dropo.draws 4"
    dropo = f"believe {given} --learn armature --no-check --save d.json {few}"
    assert after(dropo, 1) == f"replay {given} --belief d.json"  # 2 rounds do not tell whether it has converged


@pytest.mark.parametrize(
    "words", ["--machine.kp 5 --machine.kd -1", "--machine.kp -2", "--machine.timestep 0", "--machine.kd 1"]
)
def test_gains_and_steps_that_no_machine_has_are_refused(here, capsys, words):
    flag = words.split()[-2]
    assert ask(capsys, f"replay p.xml heavy.npz {words}", 2)["error"].startswith(f"{flag}: found")
