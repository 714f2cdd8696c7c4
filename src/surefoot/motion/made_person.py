"""Synthetic people, for tests and for trying things without a recording: they walk, squat, carry a box, lean on a wall
and step up; places alone.

Legs are two links that reach from hip to ankle by the law of cosines, knees forward; lengths are fractions of the stature
(Drillis and Contini). A walking foot is fixed on the floor for STANCE of each stride and swings on a smooth arc otherwise.
"""

import numpy as np

from surefoot.motion.person import Person

THIGH, SHANK, ANKLE, FOOT = 0.245, 0.246, 0.039, 0.1
UPPER, FORE, HIPS, SHOULDERS, TRUNK, NECK = 0.186, 0.146, 0.095, 0.22, 0.29, 0.07
STANCE = 0.62  # of a stride
NAMES = (
    "pelvis", "chest", "neck", "head",
    *(f"{s}_{p}" for s in ("left", "right") for p in ("hip", "knee", "ankle", "toe", "shoulder", "elbow", "wrist")),
)  # fmt: skip
PARENT = {
    "pelvis": "", "chest": "pelvis", "neck": "chest", "head": "neck",
    **{f"{s}_{a}": b if b in ("pelvis", "chest") else f"{s}_{b}" for s in ("left", "right") for a, b in (
        ("hip", "pelvis"), ("knee", "hip"), ("ankle", "knee"), ("toe", "ankle"), ("shoulder", "chest"), ("elbow", "shoulder"), ("wrist", "elbow"))},
}  # fmt: skip
SIDES = {"left": 1.0, "right": -1.0}


def walking(
    tall: float = 1.7,
    speed: float = 1.0,
    seconds: float = 4.0,
    rate: float = 60.0,
    stride: float = 1.1,
    sway: float = 0.0,
) -> Person:
    """Walks forward; a stride takes `stride` seconds. The pelvis sways by `sway` m to the foot that stands: a point mass h m high then
    presses on the floor sway (1 + (2 pi / stride)^2 h / g) m beside the middle, which is under that foot for 0.02 m."""
    t = np.arange(int(seconds * rate) + 1) / rate
    aside = sway * np.cos(2 * np.pi * (t / stride - STANCE / 2))
    pelvis = np.stack([speed * t, aside, (ANKLE + 0.955 * (THIGH + SHANK)) * tall + 0.012 * tall * np.cos(4 * np.pi * t / stride)], 1)  # fmt: skip
    feet = {
        s: _step(t, speed, stride, 0.0 if s == "left" else 0.5, side * HIPS / 2 * tall, tall)
        for s, side in SIDES.items()
    }
    swing = {s: 0.4 * side * np.sin(2 * np.pi * t / stride) for s, side in SIDES.items()}
    return _person(t, tall, pelvis, feet, {s: ("swing", a) for s, a in swing.items()})


def squatting(
    tall: float = 1.7, seconds: float = 3.0, rate: float = 60.0, deep: float = 0.25, lean: float = 0.0
) -> Person:
    """Goes down by `deep` of the stature and up again; arms forward, the trunk `lean` rad forward at the bottom, as people do who would
    fall on their backs otherwise."""
    t = np.arange(int(seconds * rate) + 1) / rate
    down = deep * tall * (1 - np.cos(2 * np.pi * t / t[-1])) / 2
    pelvis = np.stack([-0.3 * down, 0 * t, (ANKLE + 0.98 * (THIGH + SHANK)) * tall - down], 1)
    feet = {s: _standing(t, side * HIPS / 2 * tall, tall) for s, side in SIDES.items()}
    tilt = lean * down / down.max()
    up = np.stack([np.sin(tilt), 0 * t, np.cos(tilt)], 1)
    return _person(t, tall, pelvis, feet, {s: ("swing", -1.2 * down / down.max()) for s in SIDES}, up)


def carrying(
    tall: float = 1.7, width: float = 0.34, seconds: float = 4.0, rate: float = 60.0
) -> tuple[Person, np.ndarray]:
    """Squats, takes a box from a low shelf between flat hands, stands up with it and turns a little; the box's places (T, 3).

    The wrists are outside the box's sides by a palm's half thickness from the second quarter on.
    """
    t = np.arange(int(seconds * rate) + 1) / rate
    s = t / t[-1]
    down = 0.22 * tall * np.clip(1.2 * np.sin(np.pi * np.clip(s / 0.7, 0, 1)), 0, 1)
    pelvis = np.stack([-0.25 * down, 0 * t, (ANKLE + 0.98 * (THIGH + SHANK)) * tall - down], 1)
    feet = {k: _standing(t, side * HIPS * 0.8 * tall, tall) for k, side in SIDES.items()}
    held = s > 0.35
    start = pelvis[int(0.35 * len(t))] + np.array([0.3 * tall, 0, 0.1 * tall])
    lift = np.clip((s - 0.35) / 0.45, 0, 1)
    lift = lift * lift * (3 - 2 * lift)
    box = start + lift[:, None] * np.array([-0.05, 0.04, 0.14]) * tall
    open_ = np.where(held, 0.0, 0.12 * np.clip((0.35 - s) / 0.1, 0, 1))
    hands = {k: box + np.stack([0 * t, side * (width / 2 + open_), 0 * t], 1) for k, side in SIDES.items()}
    return _person(t, tall, pelvis, feet, {k: ("reach", h) for k, h in hands.items()}), box


WALL_AT, WRIST = 0.79, 0.05  # m: a wall in front of somebody 1.7 m tall; from it to the wrist of a flat palm


def leaning(tall: float = 1.7, seconds: float = 4.0, rate: float = 60.0) -> tuple[Person, float]:
    """Falls forward against a wall in front, palms flat, bends the elbows and comes back a little; and the wall's place x."""
    t = np.arange(int(seconds * rate) + 1) / rate
    s, L = t / t[-1], tall / 1.7
    tilt = np.interp(s, [0, 0.1, 0.35, 0.6, 0.85, 1], [0, 0, 0.19, 0.3, 0.2, 0.2])
    tilt = np.convolve(np.pad(tilt, len(t) // 10, "edge"), np.ones(len(t) // 5 + 1) / (len(t) // 5 + 1), "same")[len(t) // 10 :][: len(t)]  # fmt: skip
    up = np.stack([np.sin(tilt), 0 * t, np.cos(tilt)], 1)
    ankle = np.array([0, 0, ANKLE * tall])
    pelvis = ankle + 0.99 * (THIGH + SHANK) * tall * up
    feet = {k: _standing(t, side * HIPS / 2 * tall, tall) for k, side in SIDES.items()}
    shoulders = pelvis + (TRUNK - 0.02) * tall * up
    reach = 0.97 * (UPPER + FORE) * tall
    raised = np.clip((s - 0.05) / 0.25, 0, 1)
    raised = np.pi / 2 * raised * raised * (3 - 2 * raised)
    free = shoulders + reach * np.stack([np.sin(raised), 0 * t, -np.cos(raised)], 1)
    wrist = np.stack([np.minimum(free[:, 0], WALL_AT * L - WRIST), 0 * t, free[:, 2]], 1)
    first = int(np.argmax(free[:, 0] >= WALL_AT * L - WRIST))
    wrist[first:, 2] = wrist[first, 2]
    hands = {k: wrist + np.array([0, side * 1.2 * SHOULDERS / 2 * tall, 0]) for k, side in SIDES.items()}
    return _person(t, tall, pelvis, feet, {k: ("reach", h) for k, h in hands.items()}, up), WALL_AT * L


STEP_AT = (0.58, 0.6, 1.0)  # m: middle, length and width of the block that `stepping` steps on


def stepping(tall: float = 1.7, high: float = 0.2, seconds: float = 4.0, rate: float = 60.0) -> Person:
    """Steps up on a block `high` m above the floor, the left foot first, and stands there."""
    t = np.arange(int(seconds * rate) + 1) / rate
    s, L = t / t[-1], (THIGH + SHANK) * tall
    smooth = lambda a, b: (lambda x: x * x * (3 - 2 * x))(np.clip((s - a) / (b - a), 0, 1))  # noqa: E731
    feet, far = {}, 0.45
    for side, (a, b) in (("left", (0.1, 0.35)), ("right", (0.5, 0.75))):
        x, up = far * smooth(a + 0.25 * (b - a), b), high * smooth(a, a + 0.6 * (b - a))
        over = 0.06 * np.sin(np.pi * np.clip((s - a) / (b - a), 0, 1)) ** 2
        feet[side] = np.stack([x, np.full_like(t, SIDES[side] * HIPS / 2 * tall), ANKLE * tall + up + over, 0 * t], 1)
    x = 0.15 * smooth(0.1, 0.35) + 0.15 * smooth(0.35, 0.52) + 0.15 * smooth(0.5, 0.8)
    wanted = ANKLE * tall + 0.97 * L + high * smooth(0.5, 0.85)
    most = [f[:, 2] + np.sqrt((0.985 * L) ** 2 - (f[:, 0] - x) ** 2) for f in feet.values()]
    z = np.minimum(np.minimum(*most), wanted)
    k = max(1, round(0.1 * rate))
    z = np.array([z[max(0, i - k) : i + k + 1].min() for i in range(len(z))])  # lower before it must be, then smoothed
    z = np.convolve(np.pad(z, k, "edge"), np.ones(2 * k + 1) / (2 * k + 1), "valid")
    swing = {side: ("swing", 0.3 * k * np.sin(2 * np.pi * s)) for side, k in SIDES.items()}
    return _person(t, tall, np.stack([x, 0 * t, z], 1), feet, swing)


def _step(t: np.ndarray, speed: float, stride: float, phase: float, y: float, tall: float) -> np.ndarray:
    """(T, 4) ankle places and pitch of a foot that steps."""
    cycle = t / stride + phase
    k, u = np.floor(cycle), cycle % 1.0
    length = speed * stride
    place = (k - phase + STANCE / 2) * length  # middle of a stance is under the hip
    s = np.clip((u - STANCE) / (1 - STANCE), 0, 1)
    s = s * s * (3 - 2 * s)
    up = 0.06 * tall * np.sin(np.pi * s) ** 2
    return np.stack([place + s * length, np.full_like(t, y), ANKLE * tall + up, 0 * t], 1)


def _standing(t: np.ndarray, y: float, tall: float) -> np.ndarray:
    return np.stack([0 * t, np.full_like(t, y), np.full_like(t, ANKLE * tall), 0 * t], 1)


Arms = dict[str, tuple[str, np.ndarray]]
"""side -> swing, (T,) rad backwards from hanging; or reach, (T, 3) places of the wrist"""


def _person(
    t: np.ndarray,
    tall: float,
    pelvis: np.ndarray,
    feet: dict[str, np.ndarray],
    arms: Arms,
    up: np.ndarray | None = None,
) -> Person:
    """`up`: (T, 3) where the trunk points; upright without it."""
    place: dict[str, np.ndarray] = {"pelvis": pelvis}
    up = np.array([0, 0, 1.0]) if up is None else up
    place["chest"] = pelvis + 0.75 * TRUNK * tall * up
    place["neck"] = pelvis + TRUNK * tall * up
    place["head"] = place["neck"] + NECK * tall * up
    for s, side in SIDES.items():
        y = np.array([0, side, 0.0])
        hip = pelvis + HIPS / 2 * tall * y
        ankle = feet[s][:, :3]
        place |= {f"{s}_hip": hip, f"{s}_knee": _bent(hip, ankle, THIGH * tall, SHANK * tall, np.array([1.0, 0, 0]))}
        place |= {f"{s}_ankle": ankle, f"{s}_toe": ankle + np.array([FOOT * tall, 0, -0.6 * ANKLE * tall])}
        shoulder = pelvis + (TRUNK - 0.02) * tall * up + SHOULDERS / 2 * tall * y
        kind, how = arms[s]
        if kind == "reach":
            elbow, wrist = _bent(shoulder, how, UPPER * tall, FORE * tall, np.array([0.0, side, -1.0])), how
        else:
            elbow = shoulder + UPPER * tall * np.stack([-np.sin(how), 0 * how, -np.cos(how)], 1)
            bend = how - 0.3
            wrist = elbow + FORE * tall * np.stack([-np.sin(bend), 0 * how, -np.cos(bend)], 1)
        place |= {f"{s}_shoulder": shoulder, f"{s}_elbow": elbow, f"{s}_wrist": wrist}
    parents = tuple(NAMES.index(PARENT[n]) if PARENT[n] else -1 for n in NAMES)
    return Person(t, NAMES, parents, np.stack([place[n] for n in NAMES], 1), notes=("synthetic",))


def _bent(a: np.ndarray, b: np.ndarray, upper: float, lower: float, towards: np.ndarray) -> np.ndarray:
    """The middle joint of two links from a to b, bent in a direction; b farther than both links pulls it straight."""
    d = np.linalg.norm(b - a, axis=1, keepdims=True)
    d = np.clip(d, 1e-6, 0.9999 * (upper + lower))
    u = (b - a) / np.linalg.norm(b - a, axis=1, keepdims=True)
    along = (upper**2 - lower**2 + d**2) / (2 * d)
    out = towards - (u @ towards)[:, None] * u
    out = out / np.linalg.norm(out, axis=1, keepdims=True)
    return a + along * u + np.sqrt(np.maximum(upper**2 - along**2, 0)) * out
