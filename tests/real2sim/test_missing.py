"""A force that was hidden is found in a log, trusted where the log has been, and refused where it explains nothing."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot.belief import point
from surefoot.errors import SurefootError
from surefoot.learn.nets.export import graph_of
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import replay
from surefoot.real2sim.residual import residual, residual_force
from surefoot.real2sim.residual.ensemble import FitSettings, answers, fit
from surefoot.real2sim.residual.labels import labels
from surefoot.real2sim.residual.log_states import log_states
from surefoot.rng import stream
from surefoot.sim import learned
from surefoot.sim.learned import ResidualForce
from surefoot.sim.learned.features import StateFeatures
from surefoot.world import Chance, OnForce, Start

NONE = Params(())
HOME = point(NONE, NONE.nominal)
PENDULUM = """
<mujoco><compiler angle="radian"/><option timestep="0.005" integrator="implicitfast"/>
<worldbody><body name="arm"><joint name="hinge" axis="0 1 0" damping=".05" limited="true" range="-9 9"/>
    <inertial pos="0 0 -.5" mass="2" diaginertia=".02 .02 .02"/></body></worldbody>
<actuator>{}</actuator></mujoco>"""
MOTOR = '<motor name="motor" joint="hinge"/>'
SLOW = '<general name="motor" joint="hinge" dyntype="filterexact" dynprm=".1"/>'
SMALL = FitSettings(spans=(0.06,), rounds=1, updates=400, members=3, hidden=(16, 16))
DRAG = 0.4  # N m s^2/rad^2


class Drag(OnForce):
    """-c v |v|, which no joint damping is."""

    def __call__(self, x, u, chance):
        return -DRAG * x.v * np.abs(x.v)


class Constant(OnForce):
    def __call__(self, x, u, chance):
        return np.full_like(x.v, 0.3)


def pendulum(actuator=MOTOR, terms=()):
    return world(mujoco.MjSpec.from_string(PENDULUM.format(actuator)), NONE, 0.02, 1, terms)


def swung(w, seconds=16.0, noise=0.0, seed=0):
    """A log of a pendulum under a torque of three sines."""
    count = round(seconds / w.dt)
    first = np.zeros((1, 1)) if w.model.na else None
    w.reset(np.arange(1), NONE.nominal[None], Start(np.full((1, 1), 0.3), np.zeros((1, 1)), np.zeros((1, 1)), first))
    t = w.dt * np.arange(count)
    u = (3 * np.sin(1.7 * t) + 4 * np.sin(3.1 * t) + 2 * np.sin(5.3 * t))[:, None]
    m = w.rollout(u[None], Chance(0, 0, w.dt))
    q, v = np.concatenate([[[0.3]], m.q[0]]), np.concatenate([[[0.0]], m.v[0]])
    rng = stream(seed, "noise")
    q, v = (x + noise * rng.standard_normal(x.shape) for x in (q, v))
    return Log(w.dt * np.arange(count + 1), {"joint_pos": q, "joint_vel": v, "control": np.concatenate([u, u[-1:]])})


@pytest.fixture(scope="module")
def found():
    log = swung(pendulum(terms=(Drag(),)))
    return log, residual_force(pendulum(), HOME, log, SMALL)


def test_a_constant_force_is_the_label_of_every_window():
    log = swung(pendulum(terms=(Constant(),)), 3.0)
    at = log_states(pendulum(), HOME, log)
    assert labels(at, at.windows(0.1), "force", ()) == pytest.approx(0.3, abs=2e-4)


def test_hidden_drag_is_found_and_what_is_left_is_little(found):
    log, explained = found
    v = np.linspace(*np.quantile(log["joint_vel"], (0.1, 0.9)), 50)
    rows = [int(np.argmin(np.abs(log["joint_vel"][:, 0] - x))) for x in v]
    q, v, u = (log[k][rows] for k in ("joint_pos", "joint_vel", "control"))
    force, true = explained.term.net(explained.term.features.read(q, v, u, np.zeros((50, 0)))), -DRAG * v * np.abs(v)
    assert 1 - np.square(force - true).mean() / true.var() > 0.9
    assert explained.share > 0.84 and explained.low > 0.8  # of the square: 60 % of the error itself
    assert explained.errors["joint_pos"]["with"] < 0.4 * explained.errors["joint_pos"]["without"]


def test_the_world_that_comes_back_predicts_another_log_better(found):
    log, other = found[0], swung(pendulum(terms=(Drag(),)), 4.0)
    better = residual(pendulum(), HOME, log, SMALL)
    with_it, without = (replay(w, other, resync=25).scores[0].rmse for w in (better, pendulum()))
    assert with_it < 0.4 * without


def test_it_fades_to_nothing_where_there_were_no_data(found):
    log, explained = found
    layout, net = explained.term.features, explained.term.net
    there = layout.read(*(log[k][:200] for k in ("joint_pos", "joint_vel", "control")), np.zeros((200, 0)))
    away = there + 30 * np.ptp(there, 0)
    assert np.abs(net(away)).max() < 0.01 * np.abs(net(there)).max()


def test_a_model_that_is_right_is_not_made_worse_but_refused():
    log = swung(pendulum(), 12.0, noise=0.01)
    with pytest.raises(SurefootError, match="nothing"):
        residual_force(pendulum(), HOME, log, SMALL)


def test_what_a_slow_motor_has_reached_is_known_along_the_log():
    """f' = (u - f) / tau, exactly, under controls held for dt."""
    w = pendulum(SLOW)
    log = swung(w, 2.0)
    at, f = log_states(w, HOME, log), [log["control"][0, 0]]
    for u in log["control"][:-1, 0]:
        f.append(u + (f[-1] - u) * np.exp(-w.dt / 0.1))
    assert at.act[:, 0] == pytest.approx(np.array(f), abs=1e-9)


def test_an_ensemble_is_its_law_and_onnxruntime_answers_as_torch_does_to_a_millionth():
    rng = stream(0, "data")
    x, y = rng.standard_normal((200, 3)), rng.standard_normal((200, 2))
    net = fit((x[:, None], y), replace(SMALL, updates=20), 0)
    a = {k: v.double().numpy() for k, v in net.state_dict().items()}
    z = np.clip((x - a["see.mean"]) / np.sqrt(a["see.var"] + 1e-6), -10, 10)
    f = p = z
    for k in (0, 2, 4):
        f = (np.tanh(f) if k else f) @ a[f"fitted.{k}.weight"] + a[f"fitted.{k}.bias"]
    for k in (0, 2):
        p = (np.maximum(p, 0) if k else p) @ a[f"prior.{k}.weight"] + a[f"prior.{k}.bias"]
    d = np.sqrt((f + p).var(0).mean(1))
    law = np.exp(-np.square(np.maximum(d / a["spread"] - 1, 0)))[:, None] * (f + p).mean(0) * a["scale"]
    assert answers(net, x) == pytest.approx(law, abs=2e-6)
    assert d.max() > a["spread"] == pytest.approx(np.quantile(d, 0.99), rel=1e-4)
    assert graph_of(net, 3)(x) == pytest.approx(answers(net, x), abs=1e-6)


def test_a_window_of_controls_that_jump_tells_the_law_of_each_of_them():
    """y is the mean of 3 x along a window of white x: from the middle alone a third of the slope would be found."""
    x = stream(0, "white").standard_normal((400, 3, 1))
    net = fit((x, 3 * x.mean(1)), SMALL, 0)
    at = np.linspace(-1, 1, 21)[:, None]
    assert np.polyfit(at[:, 0], answers(net, at)[:, 0], 1)[0] == pytest.approx(3.0, rel=0.05)


def test_a_log_beside_shrinks_what_is_learned_by_its_share_of_each_batch():
    """At the same states the log says 1 and the other 0: with a quarter of the log the mean that fits best is a quarter."""
    x = np.zeros((200, 1, 1))
    net = fit((x, np.ones((200, 1))), replace(SMALL, share=0.25, batch=64), 0, (x, np.zeros((200, 1))))
    assert answers(net, x[:1, 0])[0, 0] == pytest.approx(0.25, abs=0.05)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    rng = stream(0, "data")
    x, y = rng.standard_normal((100, 2)), rng.standard_normal((100, 1))
    first, again, other = (answers(fit((x[:, None], y), replace(SMALL, updates=20), seed), x) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_a_term_comes_back_from_disk_bit_for_bit_and_only_for_its_robot(found, tmp_path):
    log, explained = found
    learned.save(replace(explained.term, about=explained.facts), tmp_path)
    back = learned.load(tmp_path, pendulum().model)
    phi = stream(0, "phi").standard_normal((20, 3))
    assert (
        back.about == explained.facts
        and isinstance(back, ResidualForce)
        and np.array_equal(back.net(phi), explained.term.net(phi))
    )
    with pytest.raises(SurefootError, match="na: learned on a model with 0, found 1: not the same robot"):
        learned.load(tmp_path, pendulum(SLOW).model)
    assert learned.file_bytes(back) == (tmp_path / "term.onnx").read_bytes()


def test_what_is_read_of_a_flyer_is_the_same_at_any_place_and_heading():
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body name="b"><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
    )
    layout, rng = StateFeatures.of(model), stream(0, "flyer")
    q, v = rng.standard_normal((1, 7)), rng.standard_normal((1, 6))
    q[:, 3:] /= np.linalg.norm(q[:, 3:])
    turn = np.array([np.cos(0.6), 0, 0, np.sin(0.6)])  # about the vertical, by 1.2 rad
    there, moved = q.copy(), v.copy()
    there[0, :2] += (3.0, -2.0)
    mujoco.mju_mulQuat(there[0, 3:], turn, q[0, 3:])
    mujoco.mju_rotVecQuat(moved[0, :3], v[0, :3], turn)
    none = np.zeros((1, 0))
    assert layout.read(there, moved, none, none) == pytest.approx(layout.read(q, v, none, none), abs=1e-12)
    force = rng.standard_normal((1, 6))
    turned = np.zeros(3)
    mujoco.mju_rotVecQuat(turned, layout.turned(q, force)[0, :3], turn)
    assert layout.turned(there, force)[0, :3] == pytest.approx(turned, abs=1e-12)
    assert layout.turned(q, layout.turned(q, force), back=True) == pytest.approx(force, abs=1e-12)


def test_a_log_without_the_whole_state_is_refused_by_column():
    log = swung(pendulum(), 2.0)
    with pytest.raises(SurefootError, match="column joint_pos: found none"):
        log_states(pendulum(), HOME, Log(log.time, {k: v for k, v in log.columns.items() if k != "joint_pos"}))


def test_a_log_of_short_episodes_is_told_how_long_they_must_be_and_a_short_one_how_many_rows():
    log = swung(pendulum())
    u = log["control"].copy()
    u[::20] = np.nan  # an episode ends every 0.4 s
    with pytest.raises(SurefootError, match=r"longer than 0.36 s, .* episodes of at least 1 s: record with --policy"):
        residual_force(pendulum(), HOME, replace(log, columns={**log.columns, "control": u}), SMALL)
    with pytest.raises(
        SurefootError, match=r"found 101 rows, .* expected a longer log, of 319 rows or more"
    ):  # 51 / 0.16
        residual_force(pendulum(), HOME, swung(pendulum(), 2.0), SMALL)
