"""Target: a physical quantity of some objects of a model, and how its value becomes rows of engine fields."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Rows = dict[str, np.ndarray]  # engine field -> (k, ...) rows being written
Write = Callable[[Rows, np.ndarray, np.ndarray, str], None]  # rows, object ids, values (k, 1), op


def combine(old: np.ndarray, value: np.ndarray, op: str) -> np.ndarray:
    """set, scale or add a Param's value to the model's; what is set has the value's own shape."""
    if op == "scale":
        return old * value
    return old + value if op == "add" else value


def column(field: str, k: int | slice | None = None) -> Write:
    """Writes one engine field, or its column or columns k, of the matched objects."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        at = (slice(None), ids) if k is None else (slice(None), ids, k)
        if op == "set":
            rows[field][at] = value.reshape(-1, *[1] * (rows[field].ndim - 1 - isinstance(k, int)))
            return
        old = rows[field][at]
        rows[field][at] = combine(old, value.reshape(-1, *[1] * (old.ndim - 1)), op)

    return write


@dataclass(frozen=True)
class Target:
    objects: str  # body, geom, joint, actuator, sensor, tendon, light, camera: whose names `match` is tried on; "" for the world
    fields: tuple[str, ...]  # engine fields it writes
    write: Write
    about: str
    ops: tuple[str, ...] = ("set", "scale", "add")
