"""Estimators out of JSON, and the observation terms that they make."""

from typing import Any

from surefoot.errors import SurefootError, unknown
from surefoot.estimate.abstract import Estimator
from surefoot.estimate.invariant import InvariantFilter
from surefoot.estimate.legs import Leg
from surefoot.estimate.settings import Contact, Delay, Deviations, Start
from surefoot.observation import Formula, ObsTerm
from surefoot.typed import known_fields, real

PARTS: dict[str, Any] = {"sd": Deviations, "start": Start, "contact": Contact, "delay": Delay}
MOST = 16  # legs, inputs


def from_json(data: Any, where: str) -> Estimator:
    """An estimator that `to_json` wrote."""
    known = {"kind", "dt", "inputs", "legs", "drag", "base", *PARTS}
    body = known_fields(data, known, {"kind", "dt", "inputs"}, where)
    if body.pop("kind") != "invariant":
        raise unknown("kind", str(data["kind"])[:80], ["invariant"], where)
    for name in ("inputs", "legs", "base"):
        if not isinstance(body.get(name, []), list) or len(body.get(name, [])) > MOST:
            raise SurefootError(f"{where}: {name}: expected a list of at most {MOST}, found {str(body[name])[:80]}")
    made: dict[str, Any] = {k: kind.from_json(body[k], f"{where}: {k}") for k, kind in PARTS.items() if k in body}
    made |= {k: real(body[k], f"{where}: {k}") for k in ("dt", "drag") if k in body}
    made["inputs"] = tuple(ObsTerm.from_json(t, f"{where}: inputs[{i}]") for i, t in enumerate(body["inputs"]))
    made["legs"] = tuple(Leg.from_json(x, f"{where}: legs[{i}]") for i, x in enumerate(body.get("legs", [])))
    if "base" in body:
        made["base"] = tuple(real(x, f"{where}: base") for x in body["base"])
        if len(made["base"]) != 3:
            raise SurefootError(f"{where}: base: expected 3 numbers, found {len(made['base'])}")
    try:
        return InvariantFilter(**made)
    except SurefootError as error:
        raise SurefootError(f"{where}: {error}") from None


def terms_of(estimator: Estimator) -> dict[str, ObsTerm]:
    """What an actor can observe of an estimator: NAME_estimate and NAME_spread, its standard deviations."""
    found = {}
    for name, (dim, unit) in estimator.quantities.items():
        clip = 10.0 if name.startswith("base_lin_vel") else float("inf")
        found[f"{name}_estimate"] = ObsTerm(
            f"{name}_estimate", Formula("estimate", reading=name), dim, unit, clip=clip, sensed=False
        )
        found[f"{name}_spread"] = ObsTerm(
            f"{name}_spread", Formula("spread", reading=name), dim, f"{unit}, 1 sd", clip=10.0, sensed=False
        )
    return found
