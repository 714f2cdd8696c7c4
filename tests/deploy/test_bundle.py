"""A policy on disk that was tampered with: a flipped bit breaks the seal, an edited card its golden vectors or its task."""

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.onnx_file.seal import check_seal
from surefoot.tasks.rollout import contract

onnx = pytest.importorskip("onnx", reason="needs the export extra")
from surefoot.learn.nets import export  # noqa: E402
from surefoot.learn.nets.policy_net import linear  # noqa: E402
from surefoot.tasks import golden  # noqa: E402

FLIPS, WHOLE = 600, 10  # bits flipped of each policy, and those of them for which the whole file is read
GAINS = {"balance": {"cart_pole": [[1.0, 2.0, 20.0, 4.0]]}, "walk": {}}
LEGS = [3, 4, 5, 0, 1, 2, 6, 7, 8, 9, 10, 11]


@pytest.fixture(scope="module", params=GAINS)
def saved(request, tmp_path_factory) -> Path:
    """A linear law, with golden vectors of its task's own robot, as a run writes it."""
    env = tasks.env(tasks.resolve(request.param), 1)
    net = linear(contract(env.task, env.world), GAINS[request.param])
    recorded = golden.recorder(env.task, env.world)(net)
    assert recorded["readings"] and not recorded["raw"]
    return export.save(net, tmp_path_factory.mktemp(request.param), export.golden_of(net, **recorded))


@pytest.fixture
def walk(saved):
    if saved.parent.name.startswith("balance"):
        pytest.skip("of walk alone")
    return saved


def metadata(path: Path) -> dict[str, str]:
    return {p.key: p.value for p in onnx.load(path).metadata_props}


def test_it_is_read_as_it_was_written(saved):
    policy, net = bundle.load(saved), export.load_net(saved)
    obs = np.random.default_rng(0).standard_normal((7, policy.contract.obs_dim)).astype(np.float32)
    assert policy.contract == net.contract and np.allclose(policy(obs), net(obs), atol=1e-5)
    assert tasks.of(policy.contract).name == policy.contract.task


def flipped(data: bytes, bit: int) -> bytes:
    at = bit // 8
    return data[:at] + bytes([data[at] ^ (1 << bit % 8)]) + data[at + 1 :]


def test_every_flipped_bit_is_noticed(saved, tmp_path):
    """Spread over the whole file, each bit of a byte in turn; a few through all that reading a policy does."""
    data = saved.read_bytes()
    written = metadata(saved)["sha256"]
    bits = np.linspace(0, 8 * len(data) - 1, FLIPS).astype(int)
    assert set(bits % 8) == set(range(8))
    check_seal(data, written, "p")
    for bit in bits:
        with pytest.raises(SurefootError, match="sha256"):
            check_seal(flipped(data, bit), written, "p")
    for bit in bits[:: FLIPS // WHOLE]:
        (tmp_path / "policy.onnx").write_bytes(flipped(data, bit))
        with pytest.raises(SurefootError, match="policy.onnx"):
            bundle.load(tmp_path)


def test_a_byte_added_or_taken_away_is_noticed(saved, tmp_path):
    data = saved.read_bytes()
    for other in (data[:-1], data + b"\x00", data[: len(data) // 2], b""):
        (tmp_path / "policy.onnx").write_bytes(other)
        with pytest.raises(SurefootError, match="policy.onnx"):
            bundle.load(tmp_path)


def test_a_seal_that_was_taken_out_or_written_over_is_noticed(saved, tmp_path):
    data = saved.read_bytes()
    seal = metadata(saved)["sha256"].encode()
    for other in (b"0" * 64, b"f" * 64, seal[::-1]):
        (tmp_path / "policy.onnx").write_bytes(data.replace(seal, other))
        with pytest.raises(SurefootError, match="sha256"):
            bundle.load(tmp_path)


# ---- whoever edits the card can seal it again


def resealed(path: Path, folder: Path, change) -> Path:
    card = json.loads(metadata(path)["surefoot"])
    before = copy.deepcopy(card)
    change(card["contract"])
    assert card != before, "the change changes nothing"
    (folder / "policy.onnx").write_bytes(bundle.sealed(path.read_bytes(), card))
    return folder / "policy.onnx"


def times(spot, name, factor):
    spot[name] = [factor * x for x in spot[name]] if isinstance(spot[name], list) else factor * spot[name]


def named(c, name):
    return next(t for t in c["observation"]["terms"] if t["name"] == name)


def moved(values):
    return [values[i] for i in LEGS]


OTHER = "the contract makes other observations of the readings"
CONTROLS = "the contract makes other controls of the actions"


def offset_of_action(c):
    c["action"]["offset"][0] += 0.01


def test_a_card_sealed_again_as_it_was_is_read(saved, tmp_path):
    path = resealed(saved, tmp_path, lambda c: c.update(about="sealed again"))
    assert bundle.load(path).contract.about == "sealed again"


def test_other_controls_of_the_same_actions_are_refused(saved, tmp_path):
    with pytest.raises(SurefootError, match=CONTROLS):
        bundle.load(resealed(saved, tmp_path, offset_of_action))


def balance_only(saved):
    if not saved.parent.name.startswith("balance"):
        pytest.skip("of balance alone: a policy of zero gains asks for nothing that a scale could change")


@pytest.mark.parametrize("factor", [-10.0, -1.0, 1.01])
def test_another_scale_of_actions_is_refused(saved, tmp_path, factor):
    balance_only(saved)
    with pytest.raises(SurefootError, match=CONTROLS):
        bundle.load(resealed(saved, tmp_path, lambda c: times(c["action"], "scale", factor)))


def test_joints_of_the_cart_told_in_another_order_are_refused(saved, tmp_path):
    balance_only(saved)
    with pytest.raises(SurefootError, match=OTHER):
        bundle.load(resealed(saved, tmp_path, lambda c: named(c, "cart_pole")["formula"].update(joints=["hinge", "slide"])))  # fmt: skip


OBSERVED = {
    "joint order of positions": lambda c: named(c, "joint_pos")["formula"].update(joints=moved(named(c, "joint_pos")["formula"]["joints"])),
    "joint order of speeds": lambda c: named(c, "joint_vel")["formula"].update(joints=moved(named(c, "joint_vel")["formula"]["joints"])),
    "default pose": lambda c: times(named(c, "joint_pos")["formula"], "offset", 1.01),
    "no default pose": lambda c: named(c, "joint_pos")["formula"].pop("offset"),
    "frequency": lambda c: times(named(c, "gait_clock")["formula"], "frequency", 1.05),
    "the clock never stands": lambda c: named(c, "gait_clock")["formula"].update(still=100.0),
    "scale": lambda c: times(named(c, "base_ang_vel"), "scale", 1.05),
    "sign": lambda c: times(named(c, "projected_gravity"), "scale", -1.0),
    "clip where it bites": lambda c: named(c, "joint_vel").update(clip=0.05),
    "places of two terms": lambda c: c["observation"]["terms"].insert(0, c["observation"]["terms"].pop(1)),
    "speeds as positions": lambda c: named(c, "joint_vel")["formula"].update(kind="joint_pos"),
    "frame of the spin": lambda c: named(c, "base_ang_vel")["formula"].update(frame="base"),
    "frame of gravity": lambda c: named(c, "projected_gravity")["formula"].update(frame="base"),
    "a term without a formula": lambda c: named(c, "joint_pos").update(formula=None),
}  # fmt: skip


@pytest.mark.parametrize("name", OBSERVED)
def test_a_card_that_makes_other_observations_of_the_same_readings_is_refused(walk, tmp_path, name):
    """A frame that was not read while the golden vectors were written is refused for want of that reading."""
    said = "no reading matches" if name.startswith("frame") else OTHER
    with pytest.raises(SurefootError, match=said) as refused:
        bundle.load(resealed(walk, tmp_path, OBSERVED[name]))
    assert "policy.onnx" in str(refused.value)


def test_actions_that_move_other_joints_are_refused(walk, tmp_path):
    """The default pose of the legs is alike, so golden controls cannot tell; its names and the task's can."""

    def exchanged(c):
        c["joints"], c["action"]["names"] = moved(c["joints"]), moved(c["action"]["names"])

    path = resealed(walk, tmp_path, exchanged)
    with pytest.raises(SurefootError):
        tasks.of(bundle.load(path).contract)


UNSEEN = {
    "rate": lambda c: times(c, "rate", 2.0),
    "kp": lambda c: times(c, "kp", 2.0),
    "kd": lambda c: times(c, "kd", 2.0),
    "home": lambda c: times(c, "home", 2.0),
    "latency": lambda c: c.update(latency=0.1),
    "joints": lambda c: c.update(joints=moved(c["joints"])),
    "control_high": lambda c: c.update(control_low=12 * [-9.0], control_high=12 * [9.0]),
    "command_names": lambda c: c.update(command_names=["vy", "vx", "yaw_rate"]),
    "action.unit": lambda c: c["action"].update(unit="deg"),
    "action.limit": lambda c: times(c["action"], "limit", 10.0),
    "action.scale": lambda c: times(c["action"], "scale", -10.0),  # zero gains: golden actions are all 0
    "observation.terms.joint_pos.unit": lambda c: named(c, "joint_pos").update(unit="deg"),
    "observation.terms.joint_vel.clip": lambda c: named(c, "joint_vel").update(clip=45.0),  # nothing moves as fast
    "observation.terms.gait_clock.formula.still": lambda c: named(c, "gait_clock")["formula"].update(still=0.06),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_golden_vectors_cannot_tell_is_refused_by_the_task_by_field(walk, tmp_path, name):
    changed = bundle.load(resealed(walk, tmp_path, UNSEEN[name])).contract
    with pytest.raises(SurefootError, match=f"not that of walk: .*{re.escape(name)}: "):
        tasks.of(changed)


def test_an_edited_formula_whose_golden_readings_were_taken_out_is_refused_by_the_task(walk, tmp_path):
    card = json.loads(metadata(walk)["surefoot"])
    card["golden"]["readings"] = {}
    named(card["contract"], "joint_pos")["formula"].pop("offset")
    (tmp_path / "policy.onnx").write_bytes(bundle.sealed(walk.read_bytes(), card))
    with pytest.raises(SurefootError, match="observation.terms.joint_pos.formula.offset"):
        tasks.of(bundle.load(tmp_path).contract)


# ---- golden vectors that were taken out or do not fit


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda g: g.update(obs=[], out=[], control=[]), "golden"),
        (lambda g: g["obs"][0].append(0.0), "golden"),
        (lambda g: g["obs"].pop(), "golden"),
        (lambda g: g["out"][0].__setitem__(0, float("1e300")), "golden"),
        (lambda g: g["out"][0].__setitem__(0, None), "golden"),
        (lambda g: g.update(readings=5), "golden"),
        (lambda g: g.update(parts=[1]), "golden"),
        (lambda g: next(iter(g["readings"].values()))[0].append(1.0), "golden"),
        (lambda g: [row.append(1.0) for v in g["readings"].values() for row in v], "golden"),
        (lambda g: g.update(parts={}), "policy.onnx"),
    ],
)
def test_golden_vectors_that_do_not_fit_are_refused(saved, tmp_path, change, said):
    card = json.loads(metadata(saved)["surefoot"])
    change(card["golden"])
    (tmp_path / "policy.onnx").write_bytes(bundle.sealed(saved.read_bytes(), card))
    with pytest.raises(SurefootError, match=said):
        bundle.load(tmp_path)
