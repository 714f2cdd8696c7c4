"""What actuators do beyond the model's is learned from a log, kept, and refused where it does not belong."""

import json
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from surefoot.belief import point
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.actuator import actuator, check_improves, degraded, evaluate, fake_motor, fit, regress
from surefoot.real2sim.actuator.dataset import Settings, prepare
from surefoot.real2sim.actuator.net import ActuatorModule, Shape, UnitNets, exported, in_torch
from surefoot.real2sim.actuator.unlabelled import by_evolution, by_gradient, follow_log, tracking_cost
from surefoot.real2sim.plant import Plant, world
from surefoot.real2sim.replay import predict, windows
from surefoot.sim.gap.observed_world import on_whole, view
from surefoot.sim.layout import model_of
from surefoot.sim.learned import load, save
from surefoot.sim.learned.actuator_net import ActuatorNet, Actuators, drives
from surefoot.tasks.ready.arm import xml
from surefoot.world import Chance, Start

NOTHING = point(Params(()), np.zeros(0))
SMALL = Settings(hidden=8, history=3, rounds=30)


@pytest.fixture(scope="module")
def log() -> Log:
    return fake_motor.recorded(0, 10.0)


def some_module(kind="mlp", groups=(0, 1), seed=3) -> ActuatorModule:
    """Nets of an arm, of random weights."""
    rng, shape = np.random.default_rng(seed), Shape(kind, groups, 1, history=3, hidden=8)
    scales = {"shift": (2, 1, 3 * shape.frames), "gain": (2, 1, 1), "offset": (2, 1, 1)}
    drawn = {k: rng.standard_normal(size) for k, size in scales.items()}
    module = ActuatorModule(
        UnitNets(shape, drawn | {"scale": np.full((2, 1, 3 * shape.frames), 0.5)}, seed), shape, (6.0, 4.0)
    )
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(p.shape)))
    return module


def some_net(kind="mlp", dt=0.005, seed=3) -> ActuatorNet:
    model = fake_motor.model().model
    return exported(some_module(kind, seed=seed), Actuators(dt, drives(model), (0.1, 0.1), (6.0, 4.0)), model)


def moved(w, n=2, steps=20):
    """Positions of some arms under a sine."""
    q = np.tile([[0.1, 0.9]], (n, 1)) + 0.1 * np.arange(n)[:, None]
    w.reset(np.arange(n), np.zeros((n, 0)), Start(q, np.zeros((n, 2)), q))
    u = q[:, None] + 0.3 * np.sin(0.3 * np.arange(steps))[None, :, None]
    return w.rollout(u, Chance(0, 0, w.dt)).q


def test_a_motor_at_rest_follows_its_target_with_its_lag():
    """With the joints held, tau_m = kp (u - q) (1 - exp(-t / T)) after a step, from 0."""
    motor = fake_motor.Motor(coulomb=(0.0, 0.0), static=(0.0, 0.0))
    w = fake_motor.machine(motor)
    x = replace(w.state, q=np.zeros((1, 2)), v=np.zeros((1, 2)))
    motor(x, np.zeros((1, 2)), Chance(0, 0, 0.001))
    for k in range(1, 12):
        tau = motor(x, np.full((1, 2), 0.1), Chance(0, k, 0.001))
        assert tau == pytest.approx(np.array([[3.0, 1.5]]) * (1 - np.exp(-k / 8)))


@pytest.mark.parametrize("kind", ["mlp", "gru"])
@pytest.mark.parametrize("groups", [(0, 1), (0, 0)])
def test_onnxruntime_answers_as_torch_does_to_a_millionth(kind, groups):
    module, model = some_module(kind, groups), fake_motor.model().model
    actuators = Actuators(0.005, drives(model), (0.1, 0.1), (6.0, 4.0))
    f = np.random.default_rng(0).standard_normal((64, 12, 6))
    by_torch, by_onnx = (make(module, actuators, model).along(f) for make in (in_torch, exported))
    assert np.abs(by_torch - by_onnx).max() < 1e-6 * np.abs(by_torch).max()


def test_a_gru_answers_as_torchs_own_does():
    module, f = some_module("gru"), np.random.default_rng(0).standard_normal((4, 12, 6))
    nets, r = module.nets, some_net("gru").along(f)
    with torch.no_grad():
        together = nets.along(torch.from_numpy(f).float())
        for unit in range(2):
            gru = torch.nn.GRU(3, 8, batch_first=True)
            x, h, last = nets.gru.of_input, nets.gru.of_state, nets.last
            for name, value in {"weight_ih_l0": x.weight[unit].T, "weight_hh_l0": h.weight[unit].T, "bias_ih_l0": x.bias[unit, 0], "bias_hh_l0": h.bias[unit, 0]}.items():  # fmt: skip
                getattr(gru, name).copy_(value)
            features = torch.from_numpy(f[:, :, 3 * unit : 3 * unit + 3]).float()
            state = gru(((features - nets.shift[unit]) / nets.scale[unit]).clamp(-10, 10))[0]
            said = nets.offset[unit] + nets.gain[unit] * (state @ last.weight[unit] + last.bias[unit])
            limit = float(module.limit[unit])
            assert together[..., unit].numpy() == pytest.approx(said[..., 0].numpy(), abs=1e-5)
            assert r[..., unit] == pytest.approx(said[..., 0].clamp(-limit, limit).numpy(), abs=1e-5)


def test_an_mlp_reads_the_past_oldest_first_and_begins_with_copies_of_the_present():
    module, f = some_module(), np.random.default_rng(0).standard_normal((4, 12, 6)).astype(np.float32)
    r, layers = some_net().along(f), module.nets.mlp[0]
    for unit in range(2):
        for t in (0, 1, 7):
            frames = np.concatenate([f[:, max(0, t - i), 3 * unit : 3 * unit + 3] for i in (2, 1, 0)], 1)
            with torch.no_grad():
                y = ((torch.from_numpy(frames) - module.nets.shift[unit]) / module.nets.scale[unit]).clamp(-10, 10)
                for layer in (layers[0], layers[2]):
                    y = torch.tanh(y @ layer.weight[unit] + layer.bias[unit])
                y = y @ module.nets.last.weight[unit] + module.nets.last.bias[unit]
                said = (module.nets.offset[unit] + module.nets.gain[unit] * y)[:, 0].numpy()
            limit = float(module.limit[unit])
            assert r[:, t, unit] == pytest.approx(np.clip(said, -limit, limit), abs=1e-5)


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_in_a_world_a_net_adds_what_it_says_along_what_happens(kind):
    net = some_net(kind)
    w = fake_motor.model(n=2, terms=(net,))
    forces, features = [], []
    q = np.array([[0.1, 0.9], [0.3, 0.7]])
    w.reset(np.arange(2), np.zeros((2, 0)), Start(q, np.zeros((2, 2)), q))
    for k in range(10):
        u = q + 0.2 * np.sin(0.5 * k)
        features.append(net.features(w.state.q.copy(), w.state.v.copy(), u))
        w.step(u, Chance(0, k, w.dt))
        forces.append(w.batch.bind("qfrc_applied").copy())
    assert np.stack(forces, 1) == pytest.approx(net.along(np.stack(features, 1)), abs=1e-5)


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_what_a_net_remembers_is_the_worlds_and_goes_on_from_a_save(kind):
    w = fake_motor.model(n=2, terms=(some_net(kind),))
    moved(w)
    saved, go = w.save(), np.full((2, 5, 2), 0.2)
    first = w.rollout(go, Chance(0, 20, w.dt)).q
    w.load(saved)
    assert np.array_equal(w.rollout(go, Chance(0, 20, w.dt)).q, first)
    other = w.with_(2)
    other.load(saved)
    assert np.array_equal(other.rollout(go, Chance(0, 20, w.dt)).q, first)
    assert np.array_equal(moved(w), moved(w.with_(2)))  # a reset forgets


def test_a_net_remembers_also_where_the_world_has_joints_it_is_not_shown():
    net, w = some_net(), fake_motor.model(n=2)
    seen = on_whole(net, view(w.model, w.model, {}))
    assert np.array_equal(moved(w.with_(2, (net,))), moved(w.with_(2, (seen,))))


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_candidates_tried_together_do_what_each_does_alone(kind):
    modules, model = [some_module(kind, seed=k) for k in (1, 2)], fake_motor.model().model
    for name, value in modules[1].named_buffers():
        value.copy_(dict(modules[0].named_buffers())[name])
    actuators = Actuators(0.005, drives(model), (0.1, 0.1), (6.0, 4.0))
    each = [dict(m.named_parameters()) for m in modules]
    both = {k: torch.stack([w[k].detach() for w in each]) for k in each[0]}
    f = np.random.default_rng(0).standard_normal((3, 6, 6))
    together = in_torch(modules[0], actuators, model, both).along(np.concatenate([f, f]))
    alone = [in_torch(m, actuators, model).along(f) for m in modules]
    assert together == pytest.approx(np.concatenate(alone), abs=1e-5) and not np.allclose(alone[0], alone[1])


def test_a_net_goes_into_no_world_of_another_period():
    with pytest.raises(SurefootError, match="found a world of 0.02 s, expected 0.005 s"):
        fake_motor.model(dt=0.02, terms=(some_net(),))


def test_a_net_is_kept_and_comes_back_to_the_bit(tmp_path):
    (tmp_path / "arm.xml").write_text(xml())
    w = fake_motor.model(n=2, terms=(some_net("gru"),))
    path = save(w.terms[0], tmp_path / "net.onnx")
    log = Log(0.005 * np.arange(9), {"control": np.zeros((9, 2))})
    again = Plant(str(tmp_path / "arm.xml"), net=str(path)).world(Params(()), log, n=2)
    assert np.array_equal(moved(w), moved(again))
    with pytest.raises(SurefootError, match="expected 0.005 s"):
        Plant(str(tmp_path / "arm.xml"), net=str(path)).world(Params(()), Log(0.02 * np.arange(9), log.columns))


def test_a_net_is_refused_by_other_gains_other_weights_and_other_actuators(tmp_path):
    path = save(some_net(), tmp_path / "net.onnx")
    spec = mujoco.MjSpec.from_string(xml())
    spec.actuators[0].gainprm[0] *= 1.5
    with pytest.raises(SurefootError, match="actuator shoulder: gain: found 45.0 in this model, expected 30.0"):
        load(path, spec.compile())
    spec = mujoco.MjSpec.from_string(xml())
    spec.actuators[1].name = "elbo"
    with pytest.raises(SurefootError, match="no actuator matches 'elbow'.*did you mean elbo"):
        load(path, spec.compile())
    weight = some_module().limit.numpy().tobytes()  # 6 and 4 N m
    path.write_bytes(path.read_bytes().replace(weight, 2 * weight[:4]))
    with pytest.raises(SurefootError, match="sha256 differs"):
        load(path, fake_motor.model().model)


def test_own_forces_are_those_of_pd_also_late_ones(log):
    """kp (u - q) - kd v within the limits, at both ends of a period; a delay of one period reads the control before."""
    for delay in (0.0, 0.005):
        params = Params((Param("latency", "action_delay", delay, 0.0, 0.01, op="set", unit="s"),))
        w = world(mujoco.MjSpec.from_string(xml()), params, 0.005)
        data = prepare(w, params.nominal, log, SMALL, False)
        at = data.pieces.rows[3] + 4
        q, v, u = (log[k] for k in ("joint_pos", "joint_vel", "control"))
        ends = [30.0 * (u[at - round(delay / 0.005), 0] - q[k, 0]) - 2.5 * v[k, 0] for k in (at, at + 1)]
        assert data.model[3, 4, 0] == pytest.approx(np.clip(np.mean(ends), -30, 30), rel=1e-6)


def test_extra_damping_in_the_labels_is_found(log):
    """A robot whose servos brake by 0.4 N m s/rad more than its model's: r = -0.4 v, of each period's mean v.

    Its torque jumps with the command; read as a straight line, that is half a jump late.
    """
    w, x, u = fake_motor.model(), log["joint_vel"], log["control"]
    before = np.concatenate([u[:1], u[:-1]])  # what acts when a row is measured
    pd = np.array([30.0, 15.0]) * (before - log["joint_pos"]) - np.array([2.5, 1.0]) * x
    told = replace(log, columns={**log.columns, "joint_torque": pd - 0.4 * x})
    data = prepare(w, np.zeros(0), told, SMALL, True)
    at = data.pieces.rows[:, None] + np.arange(data.pieces.length)
    jump = np.array([30.0, 15.0]) * (u[at] - before[at])
    assert data.label - data.model == pytest.approx(-0.2 * (x[at] + x[at + 1]) - 0.5 * jump, abs=1e-9)
    module = regress(data, replace(SMALL, rounds=60), lambda text: None)
    net = exported(module, data.actuators, w.model)
    assert evaluate(data, net, SMALL.warm)["torque"]["explained"] > 0.95


def test_labels_cut_the_error_of_an_arm_that_is_not_its_model(log, tmp_path):
    fitted = fit(fake_motor.model(), NOTHING, log, Settings(rounds=60))
    torque, place = fitted.facts["torque"], fitted.facts["rollout"]["joint_pos"]
    assert torque["with"] < 0.6 * torque["without"] and place["with"] < 0.6 * place["without"]
    path = save(replace(fitted.net, about=fitted.facts), tmp_path / "net.onnx")
    assert load(path, fake_motor.model().model).about["torque"] == torque


def test_a_log_of_the_model_beside_that_of_the_machine_takes_half_of_what_is_learned(log):
    """The machine lacks 0.4 N m s/rad, the same motion beside it lacks nothing: with equal weights the net learns half."""
    w, u = fake_motor.model(), log["control"]
    before = np.concatenate([u[:1], u[:-1]])
    pd = np.array([30.0, 15.0]) * (before - log["joint_pos"]) - np.array([2.5, 1.0]) * log["joint_vel"]
    real, same = (replace(log, columns={**log.columns, "joint_torque": pd - c * log["joint_vel"]}) for c in (0.4, 0.0))
    data, how = prepare(w, np.zeros(0), real, SMALL, True), replace(SMALL, rounds=60, share=0.5)
    nets = [exported(regress(data, how, lambda text: None, x), data.actuators, w.model) for x in (same, None)]
    both, alone = (evaluate(data, net, SMALL.warm)["torque"]["explained"] for net in nets)
    assert alone > 0.95 and both == pytest.approx(1 - 0.5**2, abs=0.1)
    with pytest.raises(SurefootError, match="beside another only with torque labels"):
        fit(w, NOTHING, real, Settings(labels=False), beside=same)


def test_labels_that_do_not_follow_from_what_is_told_are_refused(log):
    noise = 5.0 * np.random.default_rng(0).standard_normal((len(log), 2))
    with pytest.raises(SurefootError, match="does not follow from error and velocity"):
        fit(fake_motor.model(), NOTHING, replace(log, columns={**log.columns, "joint_torque": noise}), SMALL)


def test_a_net_that_fits_torque_but_shakes_the_world_is_refused():
    """1 - (0.96 / 0.64)^2 = -1.25: the free rollout has 125 % more squared error in joint_vel."""
    facts = {
        "torque": {"explained": 0.98, "r2": 0.99},
        "rollout": {
            "joint_pos": {"without": 0.054, "with": 0.038, "explained": 0.5},
            "joint_vel": {"without": 0.64, "with": 0.96, "explained": -1.25},
        },
    }
    with pytest.raises(SurefootError, match=r"joint_vel .* gets worse .* 0.64 becomes 0.96, squared 125 % more"):
        check_improves(facts, True)
    facts["rollout"]["joint_vel"]["explained"] = float("nan")  # it diverged
    with pytest.raises(SurefootError, match="joint_vel"):
        check_improves(facts, True)
    facts["rollout"]["joint_vel"]["explained"] = -0.05
    check_improves(facts, True)
    assert degraded(facts) == {"joint_vel": 0.05}


def test_without_torque_labels_cannot_be_asked_for_and_holes_are_left_out(log):
    with pytest.raises(SurefootError, match="expected joint_torque, or --no-labels"):
        prepare(fake_motor.model(), np.zeros(0), fake_motor.without(log, "joint_torque"), SMALL, True)
    tau = log["joint_torque"].copy()
    tau[500] = np.nan
    holed = replace(log, columns={**log.columns, "joint_torque": tau})
    whole, left = (prepare(fake_motor.model(), np.zeros(0), x, SMALL, True).pieces.rows for x in (log, holed))
    assert set(whole) - set(left) == {whole[(whole <= 500)].max()}


def test_joints_of_one_type_share_a_net(log):
    data = prepare(fake_motor.model(), np.zeros(0), log, replace(SMALL, types=(".*",)), True)
    shared = data.untrained(0)
    assert data.shape.groups == (0, 0) and shared.nets.last.weight.shape[0] == 1
    assert torch.equal(shared.nets.gain[0], shared.nets.gain[1])
    with pytest.raises(SurefootError, match="joint elbow: matches 0 of shoulder, expected one"):
        prepare(fake_motor.model(), np.zeros(0), log, replace(SMALL, types=("shoulder",)), True)


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_the_slope_through_the_engine_is_that_of_differences(log, kind):
    """d cost / d w along a random direction, by rolling out at w + h and w - h."""
    s = Settings(net=kind, hidden=4, history=2, window=0.05, labels=False)
    w = fake_motor.model()
    data = prepare(w, np.zeros(0), fake_motor.without(log, "joint_torque"), s, False)
    way = tracking_cost(data, s)
    rng, module = torch.Generator().manual_seed(1), data.untrained(0)
    start = {k: v.detach() + 0.1 * torch.randn(v.shape, generator=rng) for k, v in module.named_parameters()}
    toward = {k: torch.randn(v.shape, generator=rng) for k, v in start.items()}

    @torch.no_grad()
    def put(h):
        for k, v in module.named_parameters():
            v.copy_(start[k] + h * toward[k])

    def cost(h):
        put(h)
        net, pieces = way.term(module), way.batch(s.seed, 0, 16)
        motion = predict(w.with_(len(pieces), (net,)), pieces, np.zeros((1, 0)))
        errors = pieces.errors(motion)
        q, v = (
            np.concatenate([a[:, None], b[:, :-1]], 1)
            for a, b in ((pieces.start.q, motion.q), (pieces.start.v, motion.v))
        )
        small = 1e-3 * np.square(net.along(net.features(q, v, pieces.u)) / data.actuators.limit).mean()
        return np.mean([np.square(e / way.sd[k]).mean() for k, e in errors.items()]) + small

    put(0.0)
    slope = by_gradient(way, s, module, 0)
    found = sum(float((slope[k] * toward[k]).sum()) for k in start)
    assert found == pytest.approx((cost(1e-3) - cost(-1e-3)) / 2e-3, rel=0.02)


def test_without_labels_the_arm_is_followed(log):
    found = fit(fake_motor.model(), NOTHING, fake_motor.without(log, "joint_torque"), Settings(labels=False, rounds=12))
    assert found.facts["rollout"]["joint_pos"]["explained"] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_without_labels_the_true_residual_is_found(seed):
    """On chirps that nothing was learned from, r goes with what the motor truly did beyond the model's.

    The goal, a median of 0.8 over seeds, is the benchmark's; no single seed may fall far below it.
    """
    w, s = fake_motor.model(), Settings(labels=False, seed=seed)
    net = fit(w, NOTHING, fake_motor.without(fake_motor.recorded(seed, 30.0), "joint_torque"), s).net
    truth = prepare(w, np.zeros(0), fake_motor.recorded(1000 + seed, 20.0, noise=0.0), s, True)
    r, lacks = net.along(truth.features), truth.label - truth.model
    assert all(np.corrcoef(r[..., j].ravel(), lacks[..., j].ravel())[0, 1] > 0.7 for j in range(2))


def test_evolution_goes_the_way_of_the_gradient_and_seeds_matter(log):
    s = Settings(labels=False, hidden=4, history=2, window=0.1, by="es")
    data = prepare(fake_motor.model(), np.zeros(0), log, s, False)
    way, w = tracking_cost(data, s), data.untrained(0)
    flat = lambda g: torch.cat([v.ravel() for v in g.values()])  # noqa: E731
    mean = sum(flat(by_evolution(way, s, w, k)) for k in range(4))
    assert torch.nn.functional.cosine_similarity(mean, flat(by_gradient(way, s, w, 0)), dim=0) > 0.3
    assert torch.equal(flat(by_evolution(way, s, w, 0)), flat(by_evolution(way, s, w, 0)))
    assert not torch.equal(flat(by_evolution(way, s, w, 0)), flat(by_evolution(way, replace(s, seed=1), w, 0)))


def test_equal_seeds_learn_equal_nets(log):
    s = replace(SMALL, labels=False, rounds=2, window=0.05)
    data = prepare(fake_motor.model(), np.zeros(0), log, s, False)
    nets = [follow_log(data, replace(s, seed=seed), lambda text: None).nets for seed in (0, 0, 1)]
    assert torch.equal(nets[0].mlp[0][0].weight, nets[1].mlp[0][0].weight)
    assert not torch.equal(nets[0].mlp[0][0].weight, nets[2].mlp[0][0].weight)


def test_the_verb_returns_the_world_with_the_net(log):
    w = fake_motor.model(n=3)
    better = actuator(w, NOTHING, log, SMALL)
    assert better.n == 3 and isinstance(better.terms[-1], ActuatorNet)
    pieces = windows(w, log, 100, 300, ("joint_pos",))
    errors = [np.square(pieces.errors(predict(x, pieces, np.zeros((1, 0))))["joint_pos"]).mean() for x in (w, better)]
    assert errors[1] < 0.5 * errors[0]


def test_the_actor_of_a_replayed_log_becomes_the_net_it_was(log):
    """With no action the replay is the prediction; the policy's mean action times the limit is the net's r."""
    from surefoot.belief import Box
    from surefoot.env import Env
    from surefoot.learn.on_policy.ppo import PPO
    from surefoot.learn.settings import PPOSettings
    from surefoot.real2sim.actuator.matching import as_module, force_task, force_world

    s = Settings(labels=False, by="ppo", history=3, hidden=8, window=0.1)
    data = prepare(fake_motor.model(), np.zeros(0), log, s, False)
    way = tracking_cost(data, s)
    world_ = force_world(way, 8)
    env = Env(force_task(way, world_), world_, Box.full(world_.params), 0)
    settings = PPOSettings(envs=8, horizon=8, steps=128, hidden=(8,), activation="tanh", learner_threads=1)
    learner = PPO(env, settings, 0)
    learner.iterate()
    net = exported(as_module(learner, data), data.actuators, model_of(data.world))
    env.reset(seed=5, e=np.arange(8.0)[:, None] + 0.5)
    features = []
    for _ in range(way.pieces.length - 1):
        features.append(net.features(world_.state.q, world_.state.v, world_.controls(world_.state)))
        obs = env.step(np.zeros((8, 2))).obs["actor"]
    features.append(net.features(world_.state.q, world_.state.v, world_.controls(world_.state)))
    few = way.pieces.some(slice(0, 8))
    motion = predict(fake_motor.model(), few, np.zeros((1, 0)))
    assert world_.state.q == pytest.approx(motion.q[:, -2])
    with torch.no_grad():
        mean = learner.actor(learner.see_actor(torch.from_numpy(obs))).numpy()
    r = net.along(np.stack(features, 1))[:, -1]
    assert r == pytest.approx(np.clip(mean, -1, 1) * data.actuators.limit, abs=1e-5)


@pytest.mark.slow
def test_ppo_follows_the_arm_too(log):
    found = fit(fake_motor.model(), NOTHING, log, Settings(labels=False, by="ppo", rounds=15)).facts["rollout"]
    assert found["joint_pos"]["explained"] > 0.5


def test_the_command_writes_a_net_and_says_what_it_explains(log, tmp_path, capsys):
    from surefoot.cli import main

    (tmp_path / "arm.xml").write_text(xml())
    log.save(tmp_path / "log.npz")
    words = [
        "actuator",
        str(tmp_path / "arm.xml"),
        str(tmp_path / "log.npz"),
        "--rounds",
        "10",
        "--out",
        str(tmp_path / "net.onnx"),
    ]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["torque"]["explained"] > 0.5
    assert isinstance(load(facts["actuator"], fake_motor.model().model), ActuatorNet)
