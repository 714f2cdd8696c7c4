"""The metadata that holosoma writes into its ONNX files: one JSON value a key.

    dof_names, kp, kd, command_ranges            in every version
    action_scale, observation_layout             in later ones
    experiment_config                            the whole configuration of the training: pose, observation, rate, gait

holosoma puts the terms of an observation in alphabetical order, clips after scaling, and stands with every foot at one phase.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from surefoot.contract import COMMANDS
from surefoot.deploy.unitree import symmetric
from surefoot.errors import SurefootError
from surefoot.onnx_file import parsed
from surefoot.typed import real, texts, whole

KEYS = ("dof_names", "kp", "kd")
RANGES = ("lin_vel_x", "lin_vel_y", "ang_vel_yaw")  # of COMMANDS
CLOCKS = ("sin_phase", "cos_phase")
ACTOR = "actor_obs"
FEET, STILL, STAND = (0.0, -math.pi), 0.01, math.pi  # of its gait: rad, m/s and rad/s, rad


def is_one(metadata: Mapping[str, str]) -> bool:
    return all(isinstance(parsed(metadata.get(k, "")), list) for k in KEYS)


def from_holosoma(metadata: Mapping[str, str], where: str) -> dict[str, Any]:
    """The short contract that the metadata say, as far as they do."""
    data = {k: parsed(v) for k, v in metadata.items() if k != "robot_urdf"}
    config, joints = data.get("experiment_config"), texts(data["dof_names"], f"{where}: metadata dof_names")
    found: dict[str, Any] = {"joints": list(joints), "kp": data["kp"], "kd": data["kd"], "layout": "terms"}
    pose = _at(config, "robot", "init_state", "default_joint_angles")
    if isinstance(pose, Mapping):
        lost = [j for j in joints if j not in pose]
        if lost:
            raise SurefootError(f"{where}: metadata: default_joint_angles: found nothing for {lost[0]}")
        found["home"] = [pose[j] for j in joints]
    terms = _layout(data, config)
    if terms:
        found["observation"] = [_term(t, data.get("observation_clip"), where) for t in terms]
    for name, value in (("action_scale", _action_scale(data, config)), ("rate", _rate(config))):
        if value is not None:
            found[name] = value
    limit = _at(config, "robot", "control", "action_clip_value")
    if limit is not None and _at(config, "robot", "control", "clip_actions"):
        found["action_limit"] = limit
    ranges = data.get("command_ranges")
    if isinstance(ranges, Mapping):
        found["commands"] = {ours: ranges[name] for ours, name in zip(COMMANDS, RANGES) if name in ranges}
    return found | _phase(terms, config, where)


def _at(data: Any, *names: str) -> Any:
    """What is at a path of keys; None where there is nothing."""
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def _layout(data: Mapping[str, Any], config: Any) -> list[dict[str, Any]]:
    """Terms in the order of the net's input."""
    listed = data.get("observation_layout")
    if isinstance(listed, list) and all(isinstance(t, Mapping) and "name" in t for t in listed):
        return [dict(t) for t in listed]
    group = _at(config, "observation", "groups", ACTOR)
    terms = _at(group, "terms")
    if not isinstance(terms, Mapping):
        return []
    history = _at(group, "history_length") or 1
    bodies = {n: dict(body) if isinstance(body, Mapping) else {} for n, body in terms.items()}
    return [bodies[n] | {"name": n, "history_length": history} for n in sorted(bodies)]


def _term(body: Mapping[str, Any], most: Any, where: str) -> dict[str, Any]:
    """Its clips are of scaled numbers, ours of numbers in their unit."""
    scale = body.get("scale", 1.0)
    found: dict[str, Any] = {"name": body["name"], "scale": scale, "history": body.get("history_length") or 1}
    ends = [most] if isinstance(most, int | float) else []
    if isinstance(body.get("clip"), list):
        place = f"{where}: metadata: {body['name']}"
        ends.append(symmetric([real(v, f"{place}: clip") for v in body["clip"]], place))
    if ends and isinstance(scale, int | float) and scale:
        found["clip"] = min(ends) / abs(scale)
    return found


def _action_scale(data: Mapping[str, Any], config: Any) -> Any:
    if "action_scale" in data:
        return data["action_scale"]
    control = _at(config, "robot", "control")
    by_effort = _at(control, "action_scales_by_effort_limit_over_p_gain")
    return None if by_effort else _at(control, "action_scale")


def _rate(config: Any) -> float | None:
    """Hz: the physics' rate over the steps of a control period, or the rate itself as text, such as 50Hz."""
    sim = _at(config, "simulator", "config", "sim")
    fps, steps = _at(sim, "fps"), _at(sim, "control_decimation")
    named = re.fullmatch(r"~?([0-9.]{1,9}) ?Hz", steps) if isinstance(steps, str) else None
    if named is not None:
        return float(named[1])
    if not isinstance(fps, int | float) or not isinstance(steps, int | float) or not steps:
        return None
    return float(fps / steps)


def _phase(terms: list[dict[str, Any]], config: Any, where: str) -> dict[str, Any]:
    """The gait clock of terms sin_phase and cos_phase, for as many feet as they have columns."""
    columns = [t.get("dim", len(FEET)) for t in terms if t["name"] in CLOCKS]
    params = _at(config, "command", "setup_terms", "locomotion_gait", "params")
    if not columns or _at(params, "gait_period") is None:
        return {}
    feet = FEET[: whole(columns[0], 1, len(FEET), f"{where}: metadata: {CLOCKS[0]}: dim")]
    stand = _at(params, "stand_phase_value")
    gait = {"period": params["gait_period"], "feet": list(feet), "still": STILL}
    return {"phase": gait | {"stand": STAND if stand is None else stand}}
