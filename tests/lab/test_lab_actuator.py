"""The actuator page: a motor without faults is its model, lag and friction have their closed forms, and a net is told apart."""

from pathlib import Path

import numpy as np
import pytest

from surefoot.belief import point
from surefoot.lab.pages.actuator import Actuator, motor_of, torques
from surefoot.lab.subject import Subject
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.actuator import fit
from surefoot.real2sim.actuator.dataset import Settings
from surefoot.real2sim.actuator.fake_motor import model, recorded
from surefoot.report import Note, Plot, Table
from surefoot.sim.learned import save


def log_of(u: np.ndarray, q: np.ndarray, tau: np.ndarray, dt: float = 0.005) -> Log:
    t, v = dt * np.arange(len(u)), np.zeros_like(q)
    names = {k: ["shoulder", "elbow"] for k in ("control", "joint_pos", "joint_vel", "joint_torque")}
    return Log(t, {"control": u, "joint_pos": q, "joint_vel": v, "joint_torque": tau}, {}, {"names": names})


def test_the_ideal_torque_is_the_servos_law_within_its_limits() -> None:
    u, q = np.tile([0.3, 3.0], (50, 1)), np.tile([0.1, 0.5], (50, 1))
    found = torques(log_of(u, q, np.zeros((50, 2))), None)
    assert found.commanded == pytest.approx(np.tile([30 * 0.2, 15 * 2.5], (48, 1)))
    assert found.ideal == pytest.approx(np.tile([6.0, 15.0], (48, 1)))  # the elbow's limit is 15 N m


def test_a_fast_strong_motor_without_friction_gives_the_torque_that_was_commanded() -> None:
    fast, slow = (torques(recorded(1, 3.0, motor=motor_of(lag, 3.0, 0.0), noise=0.0), None) for lag in (4.0, 40.0))
    spread = float(np.std(fast.real[:, 0]))
    assert fast.error("ideal", 0)[0] < 0.15 * spread < slow.error("ideal", 0)[0]


def test_an_error_is_a_root_mean_square_with_an_interval_around_it() -> None:
    found = torques(recorded(2, 3.0, motor=motor_of(8.0, 1.0, 1.0), noise=0.0), None)
    value, low, high = found.error("ideal", 1)
    assert value == pytest.approx(np.sqrt(np.square(found.ideal - found.real)[:500, 1].mean())) and low < value < high


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a short training left a net of the usual motor."""
    folder = tmp_path_factory.mktemp("lab")
    world = model()
    net = fit(world, point(Params(()), np.zeros(0)), recorded(1, 15.0), Settings(rounds=25)).net
    save(net, folder / "actuator" / "net.onnx")
    (folder / "actuator" / "motor.txt").write_text("lag 8 ms, torque limit 1, friction 1")
    return folder


def test_a_net_learned_elsewhere_removes_most_of_the_error_on_motions_it_has_not_seen(home: Path) -> None:
    page = Actuator(Subject.of("balance", home=home))
    assert page.net is not None and not any(isinstance(b, Note) for b in page.blocks())
    for j in range(2):
        assert page.found.error("net", j)[2] < page.found.error("ideal", j)[1]  # the intervals do not meet
    table = next(b for b in page.blocks() if isinstance(b, Table))
    assert [row[0] for row in table.rows][-1] == "ideal + net"
    page.set("net", False)
    assert page.found.net is None
    plot = next(b for b in page.blocks() if isinstance(b, Plot))
    assert [s.name for s in plot.series] == ["real", "commanded", "ideal: the model's servo"]


def test_a_net_on_another_motor_is_said_to_be_of_another_motor(home: Path) -> None:
    page = Actuator(Subject.of("balance", home=home))
    page.set("friction", 3.0)
    assert any(isinstance(b, Note) and b.warning and "learned on another motor" in b.words for b in page.blocks())


def test_a_command_computes_the_page_and_no_net_is_said_to_be_none(tmp_path: Path) -> None:
    page = Actuator(Subject.of("balance", home=tmp_path / "a b"))
    page.set("lag", 20.0)
    assert page.command().startswith("surefoot lab balance --page 'actuator&lag=20&") and "--print" in page.command()
    assert any(isinstance(b, Note) for b in page.blocks())  # no net yet
