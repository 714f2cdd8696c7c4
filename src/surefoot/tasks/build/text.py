"""Parts of a task file as lines of Python text: head, joints, legs, motions, ranges, timing.

Names in a model are strangers' words. As a value a name is a quoted string; in a comment or docstring it stays on its
line. So no name becomes code.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.params import Param
from surefoot.robot import Robot
from surefoot.sim.anatomy.study import Anatomy
from surefoot.sim.model.accuracy import Chosen
from surefoot.sim.model.modelxml import UNPRINTED
from surefoot.task import Task
from surefoot.tasks.build.legged import Joint, Legged

BUILT = ("from surefoot import tasks", "from surefoot.robot import Robot", "from surefoot.task import Task")


def head(robot: Robot, out: Path, kind: str, does: str, imports: Sequence[str]) -> list[str]:
    path = os.path.relpath(robot.path, out.absolute().parent)
    root = (
        f", asset_root={quoted(os.path.relpath(robot.asset_root, out.absolute().parent))}" if robot.asset_root else ""
    )
    return [
        f'"""{prose(robot.name)} {does}.',
        "",
        f"Written by `surefoot new {kind}` from the model; correct each number that you know better. Train it with",
        "",
        f"    surefoot train {prose(out.name)} --out run",
        '"""',
        "",
        *imports,
        "",
        f"ROBOT = Robot.file({quoted(path)}, beside=__file__{root})",
        "",
    ]


def joints(name: str, rows: Mapping[str, Joint], a: Anatomy) -> list[str]:
    """The table of joints; where all come from one place, that is said once."""
    sources = {d.joint: d.source for d in a.drives}
    said = list(dict.fromkeys(sources[j] for j in rows))
    what = "that the policy moves" if name == "JOINTS" else "that stay in the default pose"
    lines = [
        f"# joints {what}: default pose [rad or m], kp [N m/rad], kd [N m s/rad], limit [N m], mirror image (- where its sign changes)",
        f"# default pose: {a.sources['home']}",
        *([f"# {said[0]}"] if len(said) == 1 else []),
        f"{name} = {{",
    ]
    for joint, j in rows.items():
        numbers = f"{j.home + 0.0:g}, {j.kp:g}, {j.kd:g}, {end(j.limit)}"
        more = f", {quoted(j.mirror)}" if j.mirror else ""
        more += f", armature={j.armature:g}" if j.armature else ""
        lines.append(
            f"    {quoted(joint)}: Joint({numbers}{more})," + (f"  # {sources[joint]}" if len(said) > 1 else "")
        )
    return [*lines, "}"]


def ranges(task: Task) -> list[str]:
    """What the model may be wrong about, and the range that is trained over."""
    low, high = task.belief.support(1.0)
    rows = [
        f"    {quoted(p.name)}: ({within(low[i], p)}, {within(high[i], p)}),  # {p.unit + ', ' if p.unit else ''}{p.about}"
        for i, p in enumerate(task.params)
    ]
    return ["# what the model may be wrong about: the range that is trained over", "RANGES = {", *rows, "}", "", ""]


def within(x: float, p: Param) -> str:
    """Three digits, or all of them where three would lie beyond the physical bounds."""
    short = f"{x:.3g}"
    return short if p.low <= float(short) <= p.high else repr(float(x))


def timing(chosen: Chosen) -> str:
    t = chosen.timing
    return (
        f"Timing(steps={t.steps}, iterations={t.iterations}),  # of {1000 * t.timestep:.3g} ms, 50 actions a second: "
        f"joints within {chosen.error:.2g} rad (rms) of steps of 1 ms after 0.2 s"
    )


def legs(legs: Legged, a: Anatomy) -> list[str]:
    """Tables of joints and feet, and the robot made of them."""
    return [
        *joints("JOINTS", legs.joints, a),
        *(joints("HELD", legs.held, a) if legs.held else ()),
        "FEET = (",
        *(f"    Foot({quoted(f.name)}, {quoted(f.body)}, {points(f.points)}, {f.radius:g}),  # {g.source}" for f, g in zip(legs.feet, a.feet)),
        ")",
        "LEGS = Legged(",
        f"    base={quoted(legs.base)},  # {a.sources['base']}",
        f"    height={legs.height:g},  # m, of the base in the default pose, feet on the floor",
        f"    length={legs.length:g},  # m, from the hip along the leg to the sole",
        "    joints=JOINTS,",
        "    feet=FEET,",
        f"    imu={quoted(legs.imu)},  # {a.sources['imu']}",
        f"    trunk={legs.trunk},  # m, centre and half sizes of a box around the shapes of {legs.base}",
        *(["    held=HELD,"] if legs.held else []),
        ")",
    ]  # fmt: skip


def motions(paths: Sequence[str], how: str) -> list[str]:
    """MOTION of a task file: one, or a tuple of several."""
    if len(paths) == 1:
        return [f"MOTION = read_motion({quoted(paths[0])}, {how})"]
    return ["MOTION = (", *(f"    read_motion({quoted(path)}, {how})," for path in paths), ")"]


def quoted(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


def points(points: tuple[tuple[float, ...], ...]) -> str:
    return "(" + " ".join(f"({', '.join(f'{x + 0.0:g}' for x in p)})," for p in points) + ")"


def end(x: float) -> str:
    return f"{x:g}" if np.isfinite(x) else f'float("{x}")'


def prose(name: str) -> str:
    """The name of a stranger's file inside a string: it neither ends the string nor begins an escape."""
    return "".join(c if c.isprintable() and c not in '"\\' else "_" for c in name)


def joined(lines: list[Any]) -> str:
    """Each of them as one line, so that no name in a comment goes on as code."""
    return "\n".join(UNPRINTED.sub(lambda c: ascii(c[0])[1:-1], str(line)) for line in lines) + "\n"
