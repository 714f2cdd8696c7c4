"""Teacher and student: what is shown of the latent is what a probe reads, and its interval covers new robots."""

from pathlib import Path

import numpy as np
import pytest

from surefoot.cli import main
from surefoot.lab.pages.adaptation import Adaptation, Reader
from surefoot.lab.subject import Subject, load
from surefoot.report import Note, Plot, Text


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student that was trained briefly."""
    folder = tmp_path_factory.mktemp("lab")
    small = [
        "--steps",
        "16384",
        "--student.steps",
        "16384",
        "--student.envs",
        "64",
        "--student.history",
        "12",
        "--threads",
        "1",
    ]
    out = str(folder / "balance" / "adaptive")
    assert main(["train", "balance", "--adapt", "rma", "--out", out, *small, "--json"]) == 0
    return folder


@pytest.fixture(scope="module")
def page(home: Path) -> Adaptation:
    page = Adaptation(Subject.of("balance", home=home))
    page.set("play", False)
    page.work()
    return page


def test_what_the_latent_does_not_tell_has_the_interval_of_the_belief_itself(page: Adaptation) -> None:
    """A student that has hardly learned knows nothing of gravity: 95 % of a uniform law of 8 to 14 are within 2.85 of its mean."""
    assert page.reader is not None and page.asked.policy == "adaptive"
    assert (page.reader.r2 <= 1).all() and (page.reader.half > 0).all()
    assert page.reader.half.shape == (500, len(page.reader.names))
    j = page.reader.names.index("gravity")
    assert page.reader.r2[j] < 0.5 and np.median(page.reader.half[25:, j]) == pytest.approx(2.85, abs=0.7)


def test_the_interval_covers_the_truth_of_new_robots(page: Adaptation) -> None:
    """Of 40 robots and two unknowns 95 %: fewer than 33 of 40 has a probability below 0.001."""
    inside = np.zeros((40, 2))
    for k in range(40):
        page.set("robot", k)
        page.advance(60)
        for j, name in enumerate(("strength", "cart_mass")):
            page.asked = page.asked.__class__(**vars(page.asked) | {"unknown": name})
            estimate, half, e = page.now()
            inside[k, j] = abs(estimate - e) <= half
    assert (inside.sum(0) >= 33).all()


def test_a_change_in_mid_flight_keeps_the_state_and_moves_one_unknown(page: Adaptation) -> None:
    page.set("robot", 3)
    page.set("unknown", "strength")
    page.advance(50)
    before, q = page.env.world.state.e[0].copy(), page.env.world.state.q.copy()
    page.set("change", True)
    after, i = page.env.world.state.e[0], page.subject.task.params.index("strength")
    assert page.env.world.state.q.tolist() == q.tolist()
    assert after[i] != before[i] and np.delete(after, i).tolist() == np.delete(before, i).tolist()
    page.advance(20)
    plot = next(b for b in page.blocks() if isinstance(b, Plot))
    truth = next(s for s in plot.series if s.name == "truth")
    assert truth.y[49] == before[i] and truth.y[-1] == after[i] and plot.rules[0].at == pytest.approx(50 * 0.02)
    assert any(isinstance(b, Text) and "does not hold yet" in b.words for b in page.blocks())


def test_the_truth_is_not_shown_unless_asked_for(page: Adaptation) -> None:
    page.set("reveal", False)
    plot = next(b for b in page.blocks() if isinstance(b, Plot))
    assert [s.name for s in plot.series] == ["read from the latent"]
    page.set("reveal", True)


def test_a_robot_keeps_its_e_over_its_episodes_and_its_number_gives_it_again(page: Adaptation) -> None:
    page.set("robot", 5)
    first = page.env.world.state.e.tolist()
    page.advance(520)  # an episode has 500 periods
    assert page.env.world.state.e.tolist() == first and page.since < 520
    page.set("new", True)
    assert page.env.world.state.e.tolist() != first and page.asked.robot == 6
    page.set("robot", 5)
    assert page.env.world.state.e.tolist() == first


def test_without_a_student_the_page_says_how_to_train_one(tmp_path: Path) -> None:
    page = Adaptation(Subject.of("balance", home=tmp_path))
    page.work()
    assert any(isinstance(b, Note) for b in page.blocks()) and len(page.scene().q) == 1  # which waits
    assert page.command() == f"surefoot train balance --adapt rma --out {tmp_path}/balance/adaptive"


def test_a_reader_is_the_same_for_the_same_seed(page: Adaptation) -> None:
    again = Reader.fit(page.subject, load(page._adaptive()["adaptive"]))
    assert page.reader is not None and again.half.tolist() == page.reader.half.tolist()
