"""A compiled model that can take e: what some unknowns need of a model beyond their engine fields."""

import math
import re

import mujoco

from surefoot.params import Params
from surefoot.sim.fields import friction

STIFF = 0.999  # impedance of dry friction that has a law: the engine's 0.9 creeps, and what creeps does not stick


def compile_for(spec: mujoco.MjSpec, params: Params) -> mujoco.MjModel:
    """Compile a model that can take e: buffers as long as the largest delay, bodies whose com may leave the axis."""
    dt = spec.option.timestep
    own = []  # bodies whose inertial frame will be where the model does not have it
    for p in params:
        for body in spec.bodies if p.target.startswith(("com_", "inertia_")) else ():
            if re.fullmatch(p.match, body.name):
                body.simple = 0
                own.append(body.name)
        for joint in spec.joints if p.target in friction.LAWS else ():
            if re.fullmatch(p.match, joint.name):
                joint.solimp_friction[:2] = STIFF
                joint.solref_friction[0] = 2 * dt  # s; the engine's 20 ms let it creep at loss / inertia x 10 ms
        driven = [a for a in spec.actuators if a.ctrlspec != int(mujoco.mjtCtrlInput.mjINPUT_NONE)]
        objects = {"action_delay": driven, "sensor_delay": spec.sensors}.get(p.target, [])
        for obj in objects:
            if re.fullmatch(p.match, obj.name):
                obj.nsample = max(obj.nsample, math.ceil(p.high / dt - 1e-9) + 1)
    model = spec.compile()
    for name in own:
        model.body_sameframe[model.body(name).id] = 0
    return model
