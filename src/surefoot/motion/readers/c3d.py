"""C3D: places of markers on a body, by the labels of the Plug-in Gait set. The file is read by ezc3d.

    pelvis  mean of LASI RASI LPSI RPSI        hip  from the pelvis by Bell's rule: 0.30 d down, 0.14 d inwards, 0.22 d back from ASI
    d = |LASI - RASI|;  knee, ankle, toe, shoulder, elbow: their markers;  wrist: mean of WRA and WRB

A marker that is not seen for at most GAP seconds is interpolated; one that is missing for longer is an error.
"""

import re
from pathlib import Path

import numpy as np

from surefoot.errors import SurefootError
from surefoot.motion.readers import CELLS, Skeletal

GAP = 0.5  # s
MEANS = {
    "pelvis": ("LASI", "RASI", "LPSI", "RPSI", "SACR"), "neck": ("C7", "CLAV"), "head": ("LFHD", "RFHD", "LBHD", "RBHD"),
    **{f"{side}_{part}": tuple(f"{side[0].upper()}{m}" for m in marks) for side in ("left", "right") for part, marks in (
        ("knee", ("KNE",)), ("ankle", ("ANK",)), ("heel", ("HEE",)), ("toe", ("TOE",)), ("shoulder", ("SHO",)), ("elbow", ("ELB",)), ("wrist", ("WRA", "WRB")))},
}  # fmt: skip
BONES = {
    "neck": "pelvis", "head": "neck",
    **{f"{s}_{a}": f"{s}_{b}" for s in ("left", "right") for a, b in (("knee", "hip"), ("ankle", "knee"), ("toe", "ankle"), ("heel", "ankle"), ("elbow", "shoulder"), ("wrist", "elbow"))},
    **{f"{s}_hip": "pelvis" for s in ("left", "right")}, **{f"{s}_shoulder": "neck" for s in ("left", "right")},
}  # fmt: skip
OPTIONAL = ("left_toe", "right_toe", "left_heel", "right_heel", "neck", "head")
UNITS = {"mm": "mm", "m": "m", "cm": "cm"}


def read_c3d(path: Path) -> Skeletal:
    import ezc3d

    try:
        file = ezc3d.c3d(str(path))
        points = np.asarray(file["data"]["points"], float)  # (4, markers, T)
        about = file["parameters"]["POINT"]
        labels = [str(x) for k in ("LABELS", "LABELS2", "LABELS3") for x in about.get(k, {}).get("value", ())]
        rate, units = float(about["RATE"]["value"][0]), [str(u) for u in about.get("UNITS", {}).get("value", ())]
    except (OSError, ValueError, KeyError, IndexError, TypeError, RuntimeError) as error:
        raise SurefootError(f"{type(error).__name__}: {str(error)[:200]}; expected a C3D file with markers") from None
    if points.ndim != 3 or points.size > CELLS or points.shape[2] < 3:
        raise SurefootError(f"points: found shape {points.shape}, expected (4, markers, 3 frames or more)")
    names = [re.sub(r"^.*:", "", label).strip().upper() for label in labels]
    seen = {n: points[:3, k].T for k, n in reversed(list(enumerate(names))) if k < points.shape[1]}
    notes: list[str] = []
    places = _landmarks({n: _filled(n, x, rate, notes) for n, x in seen.items() if n in _wanted()}, list(seen))
    order = _ordered(places)
    parents = tuple(order.index(BONES[n]) if BONES.get(n) in order else -1 for n in order)
    unit = UNITS.get(units[0].strip().lower(), "") if units else ""
    notes.append(f"{len(seen)} markers; hips by Bell's rule from the pelvis")
    return Skeletal(rate, tuple(order), parents, np.stack([places[n] for n in order], 1), unit=unit, notes=tuple(notes))


def _wanted() -> set[str]:
    return {m for marks in MEANS.values() for m in marks}


def _filled(name: str, x: np.ndarray, rate: float, notes: list[str]) -> np.ndarray:
    """A marker's places, gaps interpolated; ezc3d gives nan where it is not seen, other writers zeros."""
    lost = ~np.isfinite(x).all(1) | (x == 0).all(1)
    if not lost.any():
        return x
    if lost.all():
        raise SurefootError(f"marker {name}: is never seen")
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lost.astype(int), [0]])))
    longest = int((edges[1::2] - edges[::2]).max())
    if longest > GAP * rate:
        raise SurefootError(f"marker {name}: is not seen for {longest / rate:.2f} s, expected at most {GAP} s; fill the gap or cut the file")  # fmt: skip
    good = np.flatnonzero(~lost)
    notes.append(f"marker {name}: {int(lost.sum())} frames interpolated, at most {longest} in a row")
    return np.stack([np.interp(np.arange(len(x)), good, c[good]) for c in x.T], 1)


def _landmarks(seen: dict[str, np.ndarray], labels: list[str]) -> dict[str, np.ndarray]:
    found = {}
    for mark, of in MEANS.items():
        own = [seen[m] for m in of if m in seen]
        if own:
            found[mark] = np.mean(own, 0)
        elif mark not in OPTIONAL:
            raise SurefootError(
                f"markers: found none of {', '.join(of)} for {mark}; the labels are {', '.join(labels[:40])}"
            )
    if not {"LASI", "RASI"} <= seen.keys() or not {"LPSI", "RPSI", "SACR"} & seen.keys():
        raise SurefootError("markers: found no LASI, RASI and LPSI, RPSI or SACR; expected them for the hips")
    back = np.mean([seen[m] for m in ("LPSI", "RPSI", "SACR") if m in seen], 0)
    return found | _hips(seen["LASI"], seen["RASI"], back)


def _hips(left: np.ndarray, right: np.ndarray, back: np.ndarray) -> dict[str, np.ndarray]:
    """Centres of the hips by Bell's rule."""
    d = np.linalg.norm(left - right, axis=1, keepdims=True)
    y = (left - right) / d
    x = (left + right) / 2 - back
    x = x - (x * y).sum(1, keepdims=True) * y
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    z = np.cross(x, y)
    inside = {"left": left - 0.14 * d * y, "right": right + 0.14 * d * y}
    return {f"{s}_hip": p - 0.30 * d * z - 0.22 * d * x for s, p in inside.items()}


def _ordered(places: dict[str, np.ndarray]) -> list[str]:
    """Parents before their children."""
    out: list[str] = []
    while len(out) < len(places):
        out += [n for n in places if n not in out and (BONES.get(n) in out or BONES.get(n) not in places)]
    return out
