"""What the verbs between a log and its model say and write, on the command line."""

import json
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.belief import Gaussian
from surefoot.cli import main
from surefoot.learn.nets.export import graph_of
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.policy import Random
from surefoot.real2sim.actuator.net import ActuatorModule, Shape, UnitNets, exported
from surefoot.real2sim.plant import world
from surefoot.sim import learned
from surefoot.sim.learned.actuator_net import Actuators, drives
from surefoot.sim.learned.features import StateFeatures
from surefoot.tasks.rollout import contract
from surefoot.world import Chance, Start

MOTOR = '<motor name="motor" joint="hinge"/>'
PENDULUM = f"""
<mujoco><compiler angle="radian"/><option timestep="0.005" integrator="implicitfast"/>
<worldbody><body name="arm"><joint name="hinge" axis="0 1 0" damping=".05" limited="true" range="-9 9"/>
    <inertial pos="0 0 -.5" mass="2" diaginertia=".02 .02 .02"/></body></worldbody>
<actuator>{MOTOR}</actuator></mujoco>"""


def pendulum(xml=PENDULUM, terms=()):
    return world(mujoco.MjSpec.from_string(xml), Params(), 0.02, 1, terms)


class Constant(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.register_buffer("value", torch.tensor(value))

    def forward(self, x):
        return 0 * x[:, :1] + self.value


def constant(kind, model, value):
    """A Term with the same value everywhere."""
    features = StateFeatures.of(model)
    return kind(features, graph_of(Constant(value), len(features.names)))


def swung(w, seconds=3.0, e=()):
    """A log of a pendulum under a torque of two sines."""
    t = w.dt * np.arange(round(seconds / w.dt) + 1)
    u = (3 * np.sin(1.7 * t) + 4 * np.sin(3.1 * t))[:, None]
    w.reset(np.arange(1), np.array([e], float), Start(np.full((1, 1), 0.3), np.zeros((1, 1)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    q, v = np.concatenate([[[0.3]], m.q[0]]), np.concatenate([[[0.0]], m.v[0]])
    return Log(t, {"joint_pos": q, "joint_vel": v, "control": u}, meta={"names": {"joint_pos": ["hinge"]}})


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a pendulum, and the log of one on which a force of 0.3 N m acts that its model lacks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.xml").write_text(PENDULUM)
    force = constant(learned.ResidualForce, pendulum().model, [0.3])
    learned.save(force, tmp_path / "force")
    swung(pendulum(terms=(force,))).save(tmp_path / "log.npz")
    return tmp_path


def ask(capsys, words, code=0):
    assert main([*words.split(), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_model_file_replays_with_the_force_it_lacked(here, capsys):
    without = ask(capsys, "replay p.xml log.npz")["signals"]["joint_pos"]["rmse"]
    for name in ("force", "force/term.onnx"):
        assert ask(capsys, f"replay p.xml log.npz --world {name}")["signals"]["joint_pos"]["rmse"] < 1e-6 < without


def test_a_belief_is_replayed_at_the_values_that_were_fitted(here, capsys):
    """An ill-determined armature: fitted at 0.1, sd 2.3 of its logarithm, whose mean is exp(2.3^2 / 2) = 14 times that."""
    armature = Params((Param("armature", "armature", 0.01, 1e-4, 10.0, op="set", unit="kg m2", log=True),))
    swung(world(mujoco.MjSpec.from_string(PENDULUM), armature, 0.02), e=[0.1]).save(here / "heavy.npz")
    Gaussian.around(armature, [0.1], [[2.3**2]]).write(here / "e.json")
    assert ask(capsys, "replay p.xml heavy.npz --belief e.json")["signals"]["joint_pos"]["rmse"] < 1e-9


def test_several_of_what_a_model_lacks_act_together(here, capsys):
    half = constant(learned.DeltaAction, pendulum().model, [-0.3])  # of a motor's torque, which undoes the force
    learned.save(half, here / "undone")
    swung(pendulum()).save(here / "plain.npz")
    assert ask(capsys, "replay p.xml plain.npz --world force undone")["signals"]["joint_pos"]["rmse"] < 1e-6


def test_an_actuator_net_is_replayed_by_the_same_flag(here, capsys):
    model, shape = pendulum().model, Shape("mlp", (0,), 1, history=2, hidden=4)
    scales = {"shift": (1, 1, 6), "scale": (1, 1, 6), "gain": (1, 1, 1), "offset": (1, 1, 1)}
    module = ActuatorModule(UnitNets(shape, {k: np.ones(size) for k, size in scales.items()}, 3), shape, (6.0,))
    net = exported(module, Actuators(0.02, drives(model), (0.1,), (6.0,)), model)  # r = 1 N m: its last layer is 0
    learned.save(net, here / "net.onnx")
    swung(pendulum(terms=(net,))).save(here / "driven.npz")
    with_it, without = (
        ask(capsys, f"replay p.xml driven.npz {more}")["signals"]["joint_pos"]["rmse"]
        for more in ("--world net.onnx", "")
    )
    assert with_it < 1e-6 < without


def test_a_task_replays_with_a_delta(here, capsys):
    from surefoot.sim.realities import Reality
    from surefoot.tasks.record import record

    arm = tasks.resolve("arm")
    record(arm, Reality(0, {}), Random(contract(arm, tasks.env(arm, 1).world), 0), 2.0).save(here / "arm.npz")
    learned.save(constant(learned.DeltaAction, tasks.env(arm, 1).world.model, [0.2, -0.1]), here / "delta")
    without, moved = (
        ask(capsys, f"replay arm arm.npz {w}")["signals"]["joint_pos"]["rmse"] for w in ("", "--world delta")
    )
    assert without < 1e-6 and moved > 0.05  # servos rest where they are told: 0.2 and -0.1 rad further


@pytest.mark.parametrize("name, found", [("log.npz", "another file"), ("gone", "nothing"), (".", "a folder without")])
def test_what_is_no_such_file_is_refused_with_what_was_expected(here, capsys, name, found):
    error = ask(capsys, f"replay p.xml log.npz --world {name}", 2)["error"]
    assert error.startswith(f"--world: {name}: found {found}") and "`surefoot missing`" in error


def test_a_belief_is_not_what_a_model_lacks(here, capsys):
    (here / "b.json").write_text("{}")
    assert (
        "--world: b.json: found another file, expected"
        in ask(capsys, "replay p.xml log.npz --world b.json", 2)["error"]
    )


def test_what_was_not_to_be_learned_is_told_apart_from_what_the_log_determined(here, capsys):
    from surefoot.sim.realities import Reality
    from surefoot.tasks.record import record

    record(tasks.resolve("balance"), Reality(0, {}), None, 4.0).save(here / "b.npz")
    rows = ask(capsys, "identify balance b.npz --learn cart_mass --no-check")["params"]
    assert [r["name"] for r in rows if r["learned"]] == ["cart_mass"]
    assert all(r["determined"] is (True if r["learned"] else None) for r in rows) and len(rows) > 1


def test_words_follow_the_size_of_what_got_worse():
    from surefoot.verbs.robot.identify import _more

    assert _more(21.56, 28.75) == "by 33 %" and _more(1.0, 1.001) == "by less than 1 %" and _more(1.0, 3.0) == "3 times"


def test_gains_for_bare_motors_are_refused_by_servos(here, capsys):
    (here / "s.xml").write_text(PENDULUM.replace(MOTOR, '<position name="servo" joint="hinge" kp="8"/>'))
    error = ask(capsys, "replay s.xml log.npz --machine.kp 20", 2)["error"]
    assert "s.xml: kp: actuator servo: found a servo (gain 8), expected a bare motor" in error and "--learn kp" in error
    assert ask(capsys, "replay p.xml log.npz --machine.kp 20")["signals"]


@pytest.mark.parametrize(
    "words, error",
    [
        ("--plot x.png", "--plot: x.png: expected a name that ends in .html"),
        ("--resync 0", "--resync: expected at least 1, found 0"),
        ("--resync -3", "--resync: expected at least 1, found -3"),
        ("--belief log.npz", "log.npz: expected a JSON text, found what is no text"),
    ],
)
def test_replay_refuses_wrong_words_before_the_work(here, capsys, words, error):
    assert ask(capsys, f"replay p.xml log.npz {words}", 2)["error"] == error
    assert not (here / "x.png").exists()


LEARN = [
    "identify p.xml LOG --learn damping", "believe p.xml LOG --learn damping", "missing p.xml LOG", "actuator p.xml LOG --no-labels",
]  # fmt: skip


@pytest.mark.parametrize("words", LEARN)
def test_a_log_with_a_turned_sign_is_refused_by_all_that_learn_from_it(here, capsys, words):
    log = Log.load("log.npz")
    log = Log(log.time, {**log.columns, "joint_pos": -log["joint_pos"], "joint_vel": -log["joint_vel"]}, meta=log.meta)
    log.save("turned.npz")
    error = ask(capsys, words.replace("LOG", "turned.npz"), 2)["error"]
    assert error.startswith("turned.npz: signs") and error.endswith("or use --no-check")


@pytest.mark.parametrize("words", ["replay p.xml LOG", *(f"{w} --no-check" for w in LEARN)])
def test_an_error_about_a_log_names_its_file(here, capsys, words):
    log = Log.load("log.npz")
    Log(log.time, {k: v for k, v in log.columns.items() if k != "control"}, meta=log.meta).save("mute.npz")
    assert ask(capsys, words.replace("LOG", "mute.npz"), 2)["error"].startswith("mute.npz: ")


@pytest.mark.parametrize(
    "words",
    [
        "identify p.xml log.npz --save p.xml/e.json", "believe p.xml log.npz --save p.xml/e.json", "missing p.xml log.npz --out p.xml",
        "delta arm log.npz --out p.xml/d", "actuator p.xml log.npz --out p.xml/a.onnx", "replay p.xml log.npz --plot p.xml/x.html",
        "log log.npz --plot p.xml/x.png",
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_before_anything_is_read(here, capsys, words):
    (here / "log.npz").unlink()
    assert "expected a folder that can be written to" in ask(capsys, words, 2)["error"]


@pytest.mark.parametrize(
    "words", ["log log.npz --save log.npz", "record arm --excite log.npz --out log.npz", "log log.npz --save ./log.npz"]
)
def test_what_is_read_is_never_written_over(here, capsys, words):
    before = (here / "log.npz").read_bytes()
    assert "log.npz is read by this command, expected another file to write" in ask(capsys, words, 2)["error"]
    assert (here / "log.npz").read_bytes() == before


def test_a_line_tells_the_time_left_from_rounds_that_are_over(monkeypatch):
    from rich.console import Console

    from surefoot.cli import terminal

    line, now = terminal.Line(Console(quiet=True)), iter((10.0, 14.0, 15.0))
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(now))
    assert line.left(0.1) == "" and line.left(0.3).strip() == "14 s left" and line.left(0.1) == ""


@pytest.mark.parametrize(
    "model, has", [("hover", "hover has no joints"), ("arm", "arm has shoulder, elbow"), ("p.xml", "p.xml has hinge")]
)
def test_a_log_of_another_robot_is_told_by_the_joints_of_both(here, capsys, model, has):
    log = Log.load("log.npz")
    Log(log.time, log.columns, meta={"names": {"joint_pos": ["wheel"]}}).save("other.npz")
    for words in ("replay", "preflight", "identify", "missing"):
        error = ask(capsys, f"{words} {model} other.npz", 2)["error"]
        assert error.startswith(f"other.npz: found the joints wheel; {has}: is it a log of another robot?")


def test_an_identification_that_is_stopped_keeps_what_it_has(here):
    """Ctrl-C during the last stage: the best values so far are saved, and the exit code says that it was stopped."""
    from surefoot.belief import Belief
    from surefoot.verbs.robot.identify import Identify

    def stop(p):
        if "whole log" in p.doing:
            raise KeyboardInterrupt

    swung(pendulum(PENDULUM.replace(".05", ".4"))).save(here / "damped.npz")
    words = Identify("p.xml", (Path("damped.npz"),), ("damping",), check=False, save=Path("b.json"))
    report = words.run(stop)
    assert report.code == 130 and report.facts["interrupted"] and "best so far" in report.badge.words
    assert report.next == "surefoot identify p.xml damped.npz --learn damping --save b.json"
    kept = Belief.from_json(json.loads(Path("b.json").read_text()), "b.json")
    assert kept.estimate() == pytest.approx([8.0], rel=0.1)


@pytest.mark.parametrize("rows, enough", [(250, False), (2000, True)])
def test_identify_points_to_missing_only_where_the_log_is_long_enough_for_it(rows, enough):
    """What is fitted leaves physics unexplained: `missing` tells it from 319 rows at 50 Hz on."""
    from surefoot.verbs.robot.identify import Identify

    log = Log(np.arange(rows) / 50, {"control": np.zeros((rows, 4))})
    assert Identify("hover", ())._enough_rows(log, 0.02) is enough
    assert Identify("robot.xml", ())._enough_rows(log, 0.02) is False
    assert ("missing" in Identify("hover", ())._instead("hover log.npz", enough)) is enough
