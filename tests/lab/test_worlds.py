"""Many worlds: the same episodes as `surefoot eval`, seen one control period at a time."""

import numpy as np
import pytest

from surefoot import tasks
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.lab.page import parsed
from surefoot.lab.pages.worlds import GREEN, RED, YELLOW, Worlds
from surefoot.lab.subject import Subject, narrowed
from surefoot.report import Plot, Table, Text
from surefoot.tasks.rollout import evaluate
from surefoot.tasks.view.poses import Poses


@pytest.fixture(scope="module")
def ended() -> Worlds:
    page = Worlds(Subject.of("balance"))
    page.set("robots", "36")
    page.advance(10_000)
    return page


def test_every_robot_has_the_episode_that_eval_gives_it(ended: Worlds) -> None:
    policy = bundle.load("balance")
    task = tasks.resolve("balance")
    known = evaluate(policy, tasks.env(task, 36, task.belief, 1, threads=1))
    assert ended.trials.success[-1].tolist() == known.success.tolist()
    assert ended.trials.e.tolist() == known.e.tolist()
    good, bad, running = ended.counts
    assert (good, bad, running) == (known.success.sum(), 36 - known.success.sum(), 0)
    words = next(b.words for b in ended.blocks() if isinstance(b, Text) and "exact 95 %" in b.words)
    assert f"{100 * known.interval[0]:.1f} - {100 * known.interval[1]:.1f}" in words
    assert ended.command() == "surefoot eval balance --episodes 36"


def test_nobody_drives_and_every_pole_falls_which_is_shown_in_red_where_it_fell() -> None:
    page = Worlds(Subject.of("balance"))
    page.set("policy", "none")
    page.set("robots", "16")
    page.set("robot", 3)
    page.advance(10_000)
    assert page.counts == (0, 16, 0)
    colours = page.scene().colours
    assert colours is not None
    assert (
        colours[3].tolist() == list(YELLOW) and (np.delete(colours, 3, 0) == RED).all() and tuple(colours[0]) != GREEN
    )
    fell = np.abs(page.scene().q[:, 1])
    assert ((fell > 0.1) & (fell <= np.radians(12))).all()  # the last moment before 12 degrees, not the next start


def test_no_spread_is_the_nominal_world_and_full_spread_the_belief_itself() -> None:
    belief = Subject.of("balance").belief
    nothing, half = narrowed(belief, 0.0), narrowed(belief, 0.5)
    assert nothing.low == pytest.approx(belief.params.nominal) and nothing.high == pytest.approx(belief.params.nominal)
    assert narrowed(belief, 1.0) is belief
    i = belief.params.index("cart_mass")  # log scale: half of the way from 1 to 0.5 and to 2
    assert (half.low[i], half.high[i]) == pytest.approx((np.sqrt(0.5), np.sqrt(2)))


def test_a_spread_beyond_the_tasks_own_ranges_goes_as_far_as_its_parameters() -> None:
    page = Worlds(Subject.of("balance"))
    own, p = page.subject.belief, page.subject.task.params
    half, whole = narrowed(own, 1.5), narrowed(own, 2.0)
    assert narrowed(own, 1.0) == own
    assert whole.low.tolist() == [q.low for q in p] and whole.high.tolist() == [q.high for q in p]
    i = p.index("gravity")
    assert half.high[i] == pytest.approx(0.5 * (own.high[i] + p["gravity"].high))
    assert (whole.low <= half.low).all() and (half.low <= own.low).all()


def test_a_command_names_the_ranges_that_a_spread_makes() -> None:
    page = Worlds(Subject.of("balance"))
    page.set("spread", 0.0)
    assert page.command() == "surefoot eval balance --episodes 64 --belief nominal"
    page.set("spread", 0.5)
    assert "--range gravity=8.9..11.9" in page.command()


def test_a_link_opens_the_page_as_it_was_and_a_wrong_one_is_refused() -> None:
    page, other = (Worlds(Subject.of("balance")) for _ in range(2))
    page.set("spread", 0.25)
    page.set("robots", "16")
    page.set("colour", "gravity")
    key, settings = parsed(page.link())
    other.open(settings)
    assert key == "worlds" and other.asked == page.asked and other.link() == page.link()
    with pytest.raises(SurefootError, match="robots: found '17'"):
        other.open({"robots": "17"})
    with pytest.raises(SurefootError, match="no control matches 'sprad'.*did you mean spread"):
        other.open({"sprad": "1"})


def test_what_is_no_value_of_a_control_changes_nothing() -> None:
    page = Worlds(Subject.of("balance"))
    before = page.asked
    for name, value in (("spread", "wide"), ("spread", float("nan")), ("robots", 5), ("play", 1), ("robot", None)):
        page.set(name, value)
    assert page.asked == before
    page.set("spread", 7)
    assert page.asked.spread == 2.0  # within its range


def test_two_visitors_have_worlds_of_their_own() -> None:
    one, two = (Worlds(Subject.of("balance")) for _ in range(2))
    one.set("robots", "16")
    one.advance(50)
    assert two.trials.periods == 0 and two.env.n == 64
    two.advance(50)
    alone = Worlds(Subject.of("balance"))
    alone.advance(50)
    assert two.q.tolist() == alone.q.tolist()


def test_the_plot_and_the_table_hold_the_e_of_the_robot_that_was_clicked(ended: Worlds) -> None:
    ended.clicked(7, np.zeros(3), np.ones(3))
    plot = next(b for b in ended.blocks() if isinstance(b, Plot))
    table = next(b for b in ended.blocks() if isinstance(b, Table))
    p = ended.subject.task.params
    assert plot.series[-1].name == "robot 7"
    assert plot.series[-1].x == (ended.trials.e[7, p.index(plot.x.label)],)
    assert [row[1] for row in table.rows] == ended.trials.e[7].tolist()
    assert sum(len(s.x) for s in plot.series[:-1]) == 36


def test_a_body_is_where_the_closed_form_has_it() -> None:
    """The pole's tip of a cart at x and a pole at theta: x + sin theta, cos theta."""
    page = Worlds(Subject.of("balance"))
    q = np.array([[0.3, 0.2], [-1.0, -0.5]])
    x, r = Poses(page.model)(q)
    pole = page.model.body("pole").id
    assert x[:, pole, 0] == pytest.approx(q[:, 0])
    assert r[:, pole, 0] == pytest.approx(np.cos(q[:, 1] / 2)) and r[:, pole, 2] == pytest.approx(np.sin(q[:, 1] / 2))
    assert Poses(page.model).extent(np.zeros((1, 2))) == pytest.approx([5.26, 0.2], abs=1e-6)  # the rail; the cart
