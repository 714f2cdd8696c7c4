"""blank: a task file for any robot with actuators, to be filled in. All that can be read from the model is written out.

    control = rest + reach * action,   -1 <= action <= 1        (rest, reach) from ctrlrange, joint range or force limit

A position servo rests at its joint's default position and reaches both ends of its range; MuJoCo clips what lies beyond.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.robot import Robot
from surefoot.sim.anatomy.drives import Drive, drives, force_limit
from surefoot.sim.anatomy.links import Links, posed
from surefoot.sim.anatomy.pose import keyframe, start
from surefoot.sim.layout import FREE, layout_of
from surefoot.sim.model import edits
from surefoot.sim.model.card import describe
from surefoot.sim.model.edits import Servo
from surefoot.sim.model.load import load_robot

PERIOD = 0.02  # s
ASSUMED = 1.0  # rad, m or unit of control: the reach of an actuator for which the model gives no range

IMPORTS = (
    "import numpy as np",
    "",
    "from surefoot.belief import Box",
    "from surefoot.contract import Action",
    "from surefoot.observation import Formula, ObsGroup, ObsTerm",
    "from surefoot.params import Param, Params",
    "from surefoot.rng import Draw",
    "from surefoot.robot import Robot",
    "from surefoot.sim.model.edits import name_parts",
    "from surefoot.task import Episode, Reward, Task",
    "from surefoot.tasks.terms import rewards, terminations  # noqa: F401",
    "from surefoot.world import Start",
)


@dataclass(frozen=True)
class Control:
    """One actuator of a model, as an action moves it."""

    actuator: str
    column: int
    """of u"""
    rest: float
    reach: float
    source: str
    assumed: bool = False
    """the reach is not in the model"""


@dataclass(frozen=True)
class Blank:
    """What a task file needs to know about a robot of any kind."""

    joints: tuple[str, ...]
    q: np.ndarray
    pose: str
    """where q comes from"""
    controls: tuple[Control, ...]
    left_out: tuple[str, ...]
    """actuators that no action moves, each with the reason"""
    free: bool
    """the base can move"""
    substeps: int
    timestep: float
    nu: int
    nv: int
    mass: float
    heaviest: str
    """body"""
    sensors: tuple[tuple[str, int], ...]
    """name and width"""
    servos: Mapping[str, Drive] = field(default_factory=dict)
    """joint -> the servo added to it; none where the model has actuators"""


def read_blank(robot: Robot) -> Blank:
    spec = load_robot(robot).spec
    edits.name_parts(spec)
    m, servos = _driven(spec)
    if not m.nactuator:
        raise SurefootError(f"robot {robot.name}: joints: found none that an actuator could move, expected one or more")
    tree = Links(m)
    q, pose = start(m, tree)
    found, left_out = _controls(m, q)
    free = [j for j in range(m.njnt) if m.jnt_type[j] == FREE]
    return Blank(
        layout_of(m).joints, q, pose, tuple(found), tuple(left_out), bool(free) and tree.free == free[0],
        max(1, round(PERIOD / m.opt.timestep)), float(m.opt.timestep), m.nu, m.nv, float(m.body_mass.sum()),
        str(m.body(int((m.body_mass * (m.body_weldid > 0)).argmax())).name),
        tuple((str(m.sensor(i).name), int(m.sensor_dim[i])) for i in range(m.nsensor) if m.sensor(i).name), servos,
    )  # fmt: skip


def _driven(spec: mujoco.MjSpec) -> tuple[mujoco.MjModel, Mapping[str, Drive]]:
    """The model, and the servos that were added to it where it has no actuator, as a URDF."""
    m = spec.compile()
    if m.nactuator:
        return m, {}
    tree = Links(m)
    found = {d.joint: d for d in drives(m, posed(m, start(m, tree)[0]), tree, ())}
    edits.add_servos(spec, {j: Servo(d.kp, d.kd, d.limit, d.armature) for j, d in found.items()})
    return spec.compile(), found


def imports(b: Blank) -> tuple[str, ...]:
    """Lines that a task file begins with."""
    return tuple(line.replace("name_parts", "Servo, add_servos, name_parts") if b.servos else line for line in IMPORTS)


def _controls(m: mujoco.MjModel, q: np.ndarray) -> tuple[list[Control], list[str]]:
    found, left_out = [], []
    key = keyframe(m)
    given = m.key_ctrl[key[0]] if key is not None else np.zeros(m.nu)
    for i, card in enumerate(describe(m)["actuators"]):
        if m.actuator_ctrlnum[i] != 1:
            left_out.append(f"{card['name']}: takes {m.actuator_ctrlnum[i]} controls, and an action gives one")
            continue
        control = _control(m, i, card, q, given if given.any() else None)
        if control.reach > 0:
            found.append(control)
        else:
            left_out.append(f"{card['name']}: its range is a single number")
    return found, left_out


def _control(m: mujoco.MjModel, i: int, card: dict, q: np.ndarray, given: np.ndarray | None) -> Control:
    k, j = int(m.actuator_ctrladr[i]), int(m.actuator_trnid[i, 0])
    servo = card["kind"] in ("position", "pid") and card["joint"] is not None and m.jnt_type[j] != FREE
    rest = float(q[m.jnt_qposadr[j]]) if servo else None if given is None else float(given[k])
    low, high, why = _ends(m, i, j, card, servo)
    if not np.isfinite(low):
        rest = rest or 0.0
        low, high = rest - ASSUMED, rest + ASSUMED
    rest = float(np.clip((low + high) / 2 if rest is None else rest, low, high))
    said = f"{card['kind']} on {card['target']}, {why or f'no range in the model: {ASSUMED:g} is assumed'}"
    return Control(card["name"], k, rest, max(high - rest, rest - low), said, not why)


def _ends(m: mujoco.MjModel, i: int, j: int, card: dict, servo: bool) -> tuple[float, float, str]:
    """Range of a control and where it comes from; infinite where the model has none."""
    if card["ctrl_range"] is not None:
        return (*card["ctrl_range"], "by its ctrlrange")
    if card["kind"] == "muscle":
        return 0.0, 1.0, "activation"
    if servo and m.jnt_limited[j]:
        return float(m.jnt_range[j][0]), float(m.jnt_range[j][1]), "by its joint's range"
    gain = abs(float(m.actuator_gainprm[i, 0] * m.actuator_gear[i, 0]))
    if card["kind"] == "motor" and card["joint"] is not None and gain > 0:
        most, why = force_limit(m, j, i)
        return -most / gain, most / gain, f"limit {why}" if why else ""
    return -np.inf, np.inf, ""


def lines(b: Blank, name: str) -> list[str]:
    """The task file after its head: tables of what was read, and a task with places to fill in."""
    columns = [c.column for c in b.controls]
    return [
        f"# default pose: {b.pose}",
        f"HOME = ({', '.join(f'{x:.6g}' for x in b.q)},)",
        *_servos(b),
        "# actuator: control at action 0, and how far an action of 1 moves it",
        "ACTUATORS = {",
        *(f"    {_quoted(c.actuator)}: ({c.rest:.6g}, {c.reach:.6g}),  # {c.source}" for c in b.controls),
        "}",
        *(f"# no action moves {said}" for said in b.left_out),
        'ACTION = Action(tuple(ACTUATORS), *np.array(list(ACTUATORS.values())).T, "control")',
        *_joints(b),
        *_unknowns(b),
        *_observations(b),
        "",
        "",
        "def begin(rng: Draw, n: int) -> Episode:",
        '    """n episodes begin at rest in the default pose. FILL IN: draw poses with rng, so that the policy learns from many."""',
        f"    q, v, u = np.tile(HOME, (n, 1)), np.zeros((n, {b.nv})), np.zeros((n, {b.nu}))",
        f"    u[:, {columns if len(columns) < b.nu else ':'}] = ACTION.offset",
        "    return Episode(Start(q, v, u))",
        "",
        "",
        *_task(b, name),
    ]


def _servos(b: Blank) -> list[str]:
    if not b.servos:
        return []
    return [
        "# the model has no actuators: servos that are added, kp [N m/rad], kd [N m s/rad], limit [N m], armature [kg m^2]",
        "SERVOS = {",
        *(f"    {_quoted(j)}: Servo({d.kp:g}, {d.kd:g}, {d.limit:g}, {d.armature:g}),  # {d.source}" for j, d in b.servos.items()),
        "}",
    ]  # fmt: skip


def _joints(b: Blank) -> list[str]:
    if not b.joints:
        return []
    return [f"JOINTS = ({', '.join(map(_quoted, b.joints))},)"]


def _unknowns(b: Blank) -> list[str]:
    return [
        "# what the model may be wrong about: nominal value, bounds; RANGES is what training draws from",
        "PARAMS = Params((",
        f'    Param("latency", "action_delay", 0.0, 0.0, {3 * PERIOD:g}, op="set", unit="s", about="from command to motor"),',
        '    Param("noise", "noise", 1.0, 0.0, 5.0, about="sensor noise, as a multiple"),',
        f'    # example: Param("mass", "mass", 1.0, 0.5, 2.0, {_quoted(re.escape(b.heaviest))}, about="mass of a body, as a multiple"),',
        "))",
        f'RANGES = {{"latency": (0.0, {0.75 * PERIOD:g}), "noise": (0.5, 1.5)}}  # example: "mass": (0.8, 1.2)',
    ]


def _observations(b: Blank) -> list[str]:
    """What the robot can measure, with the noise of ordinary sensors."""
    n, m = len(b.joints), len(b.controls)
    rows = []
    if n:
        rows += [
            f'    ObsTerm("joint_pos", Formula("joint_pos", JOINTS), {n}, "rad or m", noise=0.01),',
            f'    ObsTerm("joint_vel", Formula("joint_vel", JOINTS), {n}, "rad/s or m/s", noise=0.1, scale=0.1, clip=50.0),',
        ]
    if b.free:
        rows += [
            '    ObsTerm("base_ang_vel", Formula("base_ang_vel"), 3, "rad/s, body frame", noise=0.1, scale=0.25, clip=20.0),  # a gyro',
            '    ObsTerm("projected_gravity", Formula("projected_gravity"), 3, "unit vector, body frame", noise=0.02),  # attitude',
        ]
    rows.append(f'    ObsTerm("last_action", Formula("last_action"), {m}),')
    sensor, width = b.sensors[0] if b.sensors else ("name of a sensor", 3)
    example = f'    # example, a sensor of the model: ObsTerm({_quoted(sensor)}, Formula("reading", reading={_quoted(sensor)}), {width}),'
    return ["# what the robot can measure; FILL IN what yours measures besides", "ACTOR = (", *rows, example, ")"]


def _task(b: Blank, name: str) -> Iterable[str]:
    fell = '"fell": lambda s: terminations.bad_orientation(s, least=0.5),  # tilted by 60 degrees'
    stuck = '"too fast": lambda s: (np.abs(s.v) > 100.0).any(1),'
    rate = 1 / (b.substeps * b.timestep)
    return [
        "def task() -> Task:",
        "    return Task(",
        f"        name={_quoted(f'{name}-blank')},",
        f"        about={_quoted(f'{name}: FILL IN what it is asked to do')},",
        "        robot=ROBOT.edited(name_parts, lambda spec: add_servos(spec, SERVOS)),  # parts without a name get one"
        if b.servos
        else "        robot=ROBOT.edited(name_parts),  # the model as it is; parts without a name get one",
        "        params=PARAMS,",
        "        belief=Box.ranges(PARAMS, RANGES),",
        f"        substeps={b.substeps},  # engine steps of {1000 * b.timestep:g} ms in one action: {rate:g} actions a second",
        "        seconds=5.0,  # of an episode",
        "        action=ACTION,",
        "        observations={",
        '            "actor": ObsGroup(ACTOR, history=3),',
        '            # the critic may use what no sensor measures, such as the unknowns e',
        '            "critic": ObsGroup((*ACTOR, ObsTerm("e", lambda s: s.x.e, len(PARAMS), sensed=False))),',
        "        },",
        "        rewards={  # each is weight * function, a second",
        '            "alive": Reward(1.0, rewards.alive, "1 while the episode lasts"),',
        '            # FILL IN what it is asked to do, such as',
        '            # "near": Reward(2.0, lambda s: np.exp(-np.abs(s.q[:, 0] - s.command[:, 0])), "first coordinate at the command"),',
        '            # "action_rate": Reward(-0.01, rewards.action_rate, "change of action squared"),',
        "        },",
        "        ended={  # an episode that ends this way has failed",
        f"            # {fell if b.free else stuck}",
        "        },",
        "        episode=begin,",
        "        # FILL IN how far it is from what is asked; until then no episode counts as a success",
        "        error=lambda s: np.ones(len(s.q)),",
        '        error_unit="",',
        "        tolerance=0.5,  # largest error in the last `window` seconds that counts as success",
        "        window=1.0,",
        "        # a command, drawn anew every 2 s, for rewards and (as ObsTerm) for the policy:",
        '        # command=lambda rng, n: rng.uniform(-1.0, 1.0, (n, 1)), command_names=("place",), command_every=2.0,',
        '        settings={"envs": 256, "steps": 1_000_000, "horizon": 32},  # of training; `surefoot train --help` lists them',
        "    )",
    ]  # fmt: skip


def _quoted(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)
