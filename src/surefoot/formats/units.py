"""Units in SI: value_SI = factor * value.

`g` is 9.80665 m/s^2, as accelerometers have it; the unit of mass is `gram`.
"""

import math

from surefoot.errors import SurefootError, unknown

TURN = 2 * math.pi
G = 9.80665
DEGREE = math.pi / 180

SI: dict[str, tuple[str, float]] = {
    **{u: (u, 1.0) for u in "1 rad rad/s rad/s^2 m m/s m/s^2 s Hz kg N A V W K degC Pa T".split()},
    "N m": ("N m", 1.0),
    "N m/A": ("N m/A", 1.0),
    "mrad": ("rad", 1e-3),
    "deg": ("rad", DEGREE),
    "rev": ("rad", TURN),
    "turn": ("rad", TURN),
    "deg/s": ("rad/s", DEGREE),
    "mrad/s": ("rad/s", 1e-3),
    "rev/s": ("rad/s", TURN),
    "rpm": ("rad/s", TURN / 60),
    "deg/s^2": ("rad/s^2", DEGREE),
    "mm": ("m", 1e-3),
    "cm": ("m", 1e-2),
    "um": ("m", 1e-6),
    "in": ("m", 0.0254),
    "mm/s": ("m/s", 1e-3),
    "cm/s": ("m/s", 1e-2),
    "km/h": ("m/s", 1 / 3.6),
    "g": ("m/s^2", G),
    "mg": ("m/s^2", G * 1e-3),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "min": ("s", 60.0),
    "kHz": ("Hz", 1e3),
    "gram": ("kg", 1e-3),
    "lb": ("kg", 0.45359237),
    "mN": ("N", 1e-3),
    "kN": ("N", 1e3),
    "kgf": ("N", G),
    "mN m": ("N m", 1e-3),
    "N cm": ("N m", 1e-2),
    "kgf cm": ("N m", G * 1e-2),
    "mA": ("A", 1e-3),
    "mV": ("V", 1e-3),
    "mW": ("W", 1e-3),
    "%": ("1", 1e-2),
    "kPa": ("Pa", 1e3),
    "bar": ("Pa", 1e5),
    "uT": ("T", 1e-6),
    "mT": ("T", 1e-3),
    "G": ("T", 1e-4),
}

SPELLINGS = {
    "N*m": "N m", "N.m": "N m", "Nm": "N m", "mNm": "mN m", "mN*m": "mN m", "Ncm": "N cm", "kg cm": "kgf cm", "kgcm": "kgf cm",
    "kg*cm": "kgf cm", "degree": "deg", "degrees": "deg", "degrees/s": "deg/s", "dps": "deg/s", "radians": "rad", "radian": "rad",
    "RPM": "rpm", "rev/min": "rpm", "turns": "turn", "sec": "s", "seconds": "s", "second": "s", "msec": "ms", "usec": "us",
    "nsec": "ns", "µs": "us", "m/s2": "m/s^2", "m/s/s": "m/s^2", "rad/s2": "rad/s^2", "": "1", "percent": "%", "C": "degC", "°": "deg", "°/s": "deg/s",
}  # fmt: skip


def si(unit: str, where: str) -> tuple[str, float]:
    """The SI unit and the factor to it."""
    if not isinstance(unit, str):
        raise SurefootError(f"{where}: found {unit!r:.80}, expected a unit as text")
    name = SPELLINGS.get(unit.strip(), unit.strip())
    if name not in SI:
        raise unknown("unit", unit, sorted({*SI, *SPELLINGS} - {""}), where)
    return SI[name]
