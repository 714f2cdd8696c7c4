"""Drift: errors grow at the rate of the linearised pole, and feedback keeps to the plan."""

import numpy as np
import pytest

from surefoot.lab.pages.drift import CASES, LOST, STARTS, Drift, distance, growth
from surefoot.lab.subject import Subject
from surefoot.report import Plot, Table


@pytest.fixture(scope="module")
def page() -> Drift:
    return Drift(Subject.of("balance"))


def test_errors_grow_at_the_eigenvalue_of_the_falling_pole(page: Drift) -> None:
    """theta'' = k theta with k = g / (l (4/3 - m_p / M)), and explicit Euler: rho = 1 + h sqrt k."""
    k = 9.8 / (0.5 * (4 / 3 - 0.1 / 1.1))
    rho = page.found.rho
    assert rho.value == pytest.approx(1 + 0.02 * np.sqrt(k), rel=0.01)
    assert rho.low is not None and rho.high is not None and rho.low <= rho.value <= rho.high


def test_a_known_growth_is_measured() -> None:
    steps = np.arange(100)
    apart = 1e-5 * 1.07**steps * np.array([[1.0]] * 8 + [[2.0]] * 8)
    assert growth(apart).value == pytest.approx(1.07, rel=1e-9)
    assert np.isnan(growth(np.full((4, 50), 1e-4)).value)


def test_without_feedback_robots_leave_the_plan_and_sooner_in_another_world(page: Drift) -> None:
    same, other, feedback = (page.found.lost(case) for case in CASES[1:])
    assert np.isfinite(other).all() and (np.median(other) < np.median(same))
    assert not np.isfinite(feedback).any()  # the shipped policy keeps a pole that is 4 % heavier up
    assert (page.found.apart["plan"] == 0).all()


def test_with_no_mismatch_the_other_world_is_the_plan_itself() -> None:
    page = Drift(Subject.of("balance"))
    page.set("nominal", True)
    assert page.asked.value == 0.1
    assert (page.found.apart[CASES[2]] == 0).all() and (page.found.apart[CASES[3]] < 1e-9).all()
    page.set("value", 0.3)
    assert page.found.apart[CASES[2]].max() > LOST


def test_a_smaller_first_error_takes_longer_by_the_logarithm(page: Drift) -> None:
    """d reaches LOST after log(LOST / eps) / log rho steps: ten times less error, log 10 / log rho steps more."""
    later = Drift(Subject.of("balance"))
    later.set("offset", page.asked.offset - 1)
    waited = np.median(later.found.lost(CASES[1])) - np.median(page.found.lost(CASES[1]))
    assert waited == pytest.approx(0.02 * np.log(10) / np.log(page.found.rho.value), abs=0.1)


def test_the_distance_of_orientations_is_their_angle() -> None:
    import mujoco

    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
    )
    a, b = np.array([[[0, 0, 0, 1, 0, 0, 0.0]]]), np.array([[[0, 3, 4, np.cos(0.05), 0, 0, np.sin(0.05)]]])
    assert distance(model, b, a) == pytest.approx(np.hypot(5, 0.1))


def test_what_is_shown_is_what_was_found(page: Drift) -> None:
    table = next(b for b in page.blocks() if isinstance(b, Table))
    assert str(table.rows[1][1]).startswith(f"{STARTS} of {STARTS}")
    paths, errors = (b for b in page.blocks() if isinstance(b, Plot))
    assert {s.name for s in paths.series} == set(CASES)
    assert errors.series[0].y == pytest.approx(np.median(page.found.apart[CASES[1]], 0)[1:])
    scene = page.scene()
    assert scene.q.shape == (4, 2) and scene.q[0].tolist() == page.found.q["plan"][0, 0].tolist()
    assert scene.names == CASES and [s.tone for s in paths.series if s.name == "plan"] == ["quiet"]
    assert page.command().startswith("surefoot lab balance --page 'drift&") and page.command().endswith("--print")
