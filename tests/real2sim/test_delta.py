"""What to add to an action so that the model answers as a robot with weak servos does; and the loop around it."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.belief import point
from surefoot.cli import main
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.learn.nets import Actor, BoundedActor, Normaliser, mlp
from surefoot.learn.settings import DistillSettings, PPOSettings
from surefoot.learn.train import progressive, resume, settings_for, train
from surefoot.policy import Random
from surefoot.real2sim.episodes import logged
from surefoot.real2sim.replay import replay
from surefoot.real2sim.residual.delta import (
    SETTINGS,
    ReinforcementSettings,
    by_inversion,
    by_reinforcement,
    delta,
    delta_task,
    delta_world,
)
from surefoot.real2sim.residual.ensemble import FitSettings
from surefoot.real2sim.residual.force_fit import term_of
from surefoot.real2sim.residual.log_states import log_states
from surefoot.sim import learned
from surefoot.sim.learned import DeltaAction
from surefoot.tasks.rollout import contract

ARM = tasks.resolve("arm")
HOME = tasks.nominal(ARM)
WEAK = point(ARM.params, ARM.params.vector({"kp": 0.65}))
SMALL = FitSettings(spans=(0.02,), rounds=1, updates=1000)
FEW = PPOSettings(**{**SETTINGS, "envs": 16, "horizon": 8, "steps": 256, "hidden": (8,), "minibatches": 2})


class Wander(Random):
    """Random targets, each held for 0.4 s."""

    def step(self, s, obs):
        _, action = Random.step(self, {"asked": s["asked"] // 20}, obs)
        return {"asked": s["asked"] + 1}, 0.4 * action


def moved(belief, n=6, seed=0):
    env = tasks.env(ARM, n, belief, seed)
    return logged(Wander(contract(ARM, env.world), seed), env)


@pytest.fixture(scope="module")
def log():
    return moved(WEAK)


@pytest.fixture(scope="module")
def found(log):
    return by_inversion(tasks.env(ARM, 1).world, HOME, log, SMALL)


def test_a_recorded_log_is_predicted_by_the_world_that_made_it(log):
    world = tasks.env(ARM, 1).world
    own = replay(world, log, WEAK.mean(), resync=50)
    assert max(s.rmse for s in own.scores) < 1e-9 and replay(world, log, resync=50).scores[0].rmse > 0.01


def test_episodes_of_a_recorded_log_are_apart_by_an_empty_row(log):
    assert len(log) == 6 * 200 + 5 and np.isnan(log["joint_pos"][200]).all() and np.isnan(log["control"][200]).all()
    assert log.meta["names"]["control"] == ["shoulder", "elbow"]


def test_inversion_finds_the_closed_form_of_weak_servos(log, found):
    """0.65 kp (u - q) = kp (u + delta - q) for delta = -0.35 (u - q)."""
    at = log_states(tasks.env(ARM, 1).world, HOME, log)
    good = np.isfinite(at.q).all(1)
    q, u = at.q[good], at.u[good]
    delta_, true = found.term.net(at.phi(good)), -0.35 * (u - q)
    assert (1 - np.square(delta_ - true).mean(0) / true.var(0)).min() > 0.8


def test_the_world_with_delta_replays_actions_it_was_not_shown(found):
    world, other = tasks.env(ARM, 1).world, moved(WEAK, 2, seed=7)
    better = world.with_(1, (*world.terms, found.term))
    with_it, without = (replay(w, other, resync=50).scores[0].rmse for w in (better, world))
    assert with_it < 0.4 * without


def test_a_world_comes_back_with_delta_behind_its_own_terms(log):
    world = tasks.env(ARM, 1).world
    better = delta(world, HOME, log, replace(SMALL, updates=100))
    assert better.terms[:-1] == world.terms and isinstance(better.terms[-1], DeltaAction) and better.n == world.n


def test_a_lesson_begins_where_the_log_was_and_its_best_action_is_the_closed_form(log):
    at = log_states(tasks.env(ARM, 1).world, HOME, log)
    pieces = at.windows(1.0)
    returns = {}
    for share in (0.0, 1.0):
        world = delta_world(ARM, at, pieces, 8)
        task = delta_task(ARM, at, world, ReinforcementSettings())
        env = Env(task, world, task.belief, seed=3)
        env.reset()
        w = env.world.state.e[:, -1].astype(int)
        assert np.array_equal(env.world.state.q, pieces.start.q[w])
        total = 0.0
        for k in range(50):
            a = share * -0.35 * (pieces.u[w, k] - env.world.state.q) / task.action.scale
            step = env.step(a)
            total += step.reward
        returns[share] = total
    calm = 0.1 * np.expm1(0.6)  # the most that a delta within reach of 0.6 costs a second
    assert (returns[1.0] > 2.0 - 0.4 - calm).all() and (returns[1.0] > returns[0.0]).all()


def test_a_frozen_policy_answers_as_the_policy_and_never_beyond_its_reach():
    rng, scale, env = torch.Generator().manual_seed(0), np.array([0.9, 0.75]), tasks.env(ARM, 5)
    actor, see = Actor(mlp(6, (8,), 2, "elu", 2.0, rng), None), Normaliser(6)
    see.update(torch.randn(50, 6, generator=rng))
    term = term_of("action", env.world, BoundedActor(see, actor, scale))
    env.reset()
    x, u = env.world.state, np.random.default_rng(0).standard_normal((5, 2))
    with torch.no_grad():
        said = actor(see(torch.from_numpy(np.concatenate([x.q, x.v, u], 1)).float())).numpy()
    assert np.abs(said).max() > 1
    assert term.delta(x, u) == pytest.approx(np.clip(said, -1, 1) * scale, abs=1e-6)


def test_practice_is_the_same_for_the_same_seed(log):
    found = []
    for _ in range(2):
        with suppress(SurefootError):  # 256 steps may teach nothing, and that is said
            by_reinforcement(
                ARM, HOME, log, FEW, watch=lambda p: found.append({k: v for k, v in p.metrics.items() if k != "run"})
            )
    half = len(found) // 2
    assert half == FEW.iterations and found[:half] == found[half:]


@pytest.mark.slow
def test_practice_finds_the_closed_form_too():
    log = moved(WEAK, 16)
    found = by_reinforcement(ARM, HOME, log, PPOSettings(**{**SETTINGS, "steps": 300_000}))
    at = log_states(tasks.env(ARM, 1).world, HOME, log)
    good = np.isfinite(at.q).all(1)
    true = -0.35 * (at.u[good] - at.q[good])
    assert (1 - np.square(found.term.net(at.phi(good)) - true).mean(0) / true.var(0)).min() > 0.8


def test_actions_that_are_choices_have_no_delta(log):
    at = log_states(tasks.env(ARM, 1).world, HOME, log)
    with pytest.raises(SurefootError, match="continuous"):
        delta_world(tasks.resolve("balance-discrete"), at, at.windows(1.0), 3)


def test_a_run_keeps_the_delta_it_was_trained_in_and_notices_another(found, tmp_path):
    learned.save(found.term, tmp_path / "delta")
    small = settings_for("arm", {"envs": 8, "horizon": 8, "steps": 128, "hidden": (8,), "minibatches": 2})
    inside = train("arm", tmp_path / "in", settings=small, terms=[tmp_path / "delta"])
    plain = train("arm", tmp_path / "plain", settings=small)
    assert inside.read_bytes() != plain.read_bytes()
    (tmp_path / "in" / "checkpoints" / "00000002.json").unlink()
    assert resume(tmp_path / "in").read_bytes() == inside.read_bytes()
    learned.save(replace(found.term, about={"edited": True}), tmp_path / "in" / "terms" / "0")
    with pytest.raises(SurefootError, match="not the Term this run began with"):
        resume(tmp_path / "in")
    with pytest.raises(SurefootError, match="not the same robot"):
        train("hover", tmp_path / "hover", terms=[tmp_path / "delta"])
    assert not (tmp_path / "hover").exists()


def test_students_stages_and_judges_meet_the_delta_too(found, tmp_path, capsys):
    learned.save(found.term, tmp_path / "delta")
    small = settings_for("arm", {"envs": 8, "horizon": 8, "steps": 128, "hidden": (8,), "minibatches": 2})
    inside = [tmp_path / "delta"]
    stages = [tasks.nominal(ARM), ARM.belief]
    through = progressive("arm", tmp_path / "through", stages, settings=small, terms=inside)
    assert [(p.parent / "terms" / "0").is_dir() for p in through] == [True, True]
    teacher = train("arm", tmp_path / "teacher", settings=small, obs=tasks.ObsOverride(also=("e",)), terms=inside)
    lesson = DistillSettings(envs=8, horizon=8, steps=128, history=5, label="action", hidden=(8,))
    told, alone = (
        train("arm", tmp_path / name, teacher=teacher, settings=lesson, terms=terms).read_bytes()
        for name, terms in (("told", inside), ("alone", ()))
    )
    assert told != alone
    returns = []
    for more in ((), ("--terms", str(inside[0]))):
        assert main(["eval", str(tmp_path / "through/stage2"), "--episodes", "4", *more, "--json"]) == 0
        returns.append(json.loads(capsys.readouterr().out)["return"])
    assert returns[0] != returns[1]


def test_the_verb_writes_a_delta_and_names_the_next_command(log, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("surefoot.real2sim.residual.delta.FitSettings", lambda: replace(SMALL, updates=100))
    log.save(tmp_path / "real.npz")
    assert main(["delta", "arm", str(tmp_path / "real.npz")]) == 0
    said = capsys.readouterr().out
    assert "explains" in said and f"next: surefoot train arm --start RUN --terms {tmp_path / 'real-delta'}" in said
    assert isinstance(learned.load(tmp_path / "real-delta", tasks.env(ARM, 1).world.model), DeltaAction)
