"""Small machines to measure ingredients on, and what it takes to run them."""

from dataclasses import replace

import numpy as np

from surefoot import tasks
from surefoot.params import Params
from surefoot.robot import Robot
from surefoot.sim.gap.build import world_of
from surefoot.task import Task
from surefoot.world import Chance, OnSense, Start, State

LIMIT, MASS, LENGTH = 5.0, 1.0, 0.5  # N m, kg, m


def pendulum(actuator: str, gravity: float = 0.0, armature: float = 0.0) -> Task:
    """A point mass on a rod: level and direction along x at q = 0, turning down for q > 0."""
    xml = f"""
<mujoco><compiler angle="radian"/><option timestep="0.002" integrator="implicitfast" gravity="0 0 -{gravity}"/>
<worldbody><body name="link"><joint name="hinge" axis="0 1 0" armature="{armature}"/>
  <inertial pos="{LENGTH} 0 0" mass="{MASS}" diaginertia="1e-4 1e-4 1e-4"/></body></worldbody>
<actuator>{actuator}</actuator></mujoco>"""
    return of(xml, "pendulum")


MOTOR = f'<motor name="drive" joint="hinge" ctrlrange="-{LIMIT} {LIMIT}"/>'
SERVO = f'<position name="drive" joint="hinge" kp="200" kv="20" forcerange="-{LIMIT} {LIMIT}"/>'
INERTIA = MASS * LENGTH**2 + 1e-4

# it slides and sinks, and does not tip
BLOCK = """
<mujoco><option timestep="0.002" cone="elliptic" gravity="0 0 -10"/>
<worldbody><geom name="floor" type="plane" size="9 9 1" friction=".5" solimp=".9 .9 .001"/>
  <body name="block" pos="0 0 .02"><joint name="x" type="slide" axis="1 0 0"/>
  <joint name="z" type="slide" axis="0 0 1"/><geom name="block" type="box" size=".2 .2 .02" mass="2"
  friction=".5" solimp=".9 .9 .001"/></body></worldbody>
<actuator><motor name="pull" joint="x"/></actuator></mujoco>"""


def of(xml: str, name: str = "machine", substeps: int = 1) -> Task:
    balance = tasks.resolve("balance")
    return replace(
        balance, name=name, robot=Robot.text(xml, name), params=Params(), substeps=substeps, terms=(), explicit=False
    )


class Machine:
    """One simulation of a task with ingredients, stepped by hand."""

    def __init__(self, task: Task, strengths: dict[str, float], seed: int = 0):
        self.world, self.k = world_of(task, strengths, seed), 0
        self.engine = getattr(self.world, "engine", self.world)

    def start(self, q=None, v=None, u=None, act=None) -> "Machine":
        m = self.world.model
        row = lambda x, default: np.array([default if x is None else np.atleast_1d(x)], float)  # noqa: E731
        start = Start(
            row(q, m.qpos0), row(v, np.zeros(m.nv)), row(u, np.zeros(m.nu)), None if act is None else row(act, None)
        )
        self.world.reset(np.arange(1), np.tile(self.world.params.nominal, (1, 1)), start)
        return self

    def step(self, u, times: int = 1, seed: int = 0) -> "Machine":
        for _ in range(times):
            assert not self.world.step(np.atleast_2d(np.asarray(u, float)), Chance(seed, self.k, self.world.dt)).any()
            self.k += 1
        return self

    @property
    def q(self):
        return self.world.state.q[0].copy()

    @property
    def v(self):
        return self.world.state.v[0].copy()

    def told(self) -> State:
        """The state as the sensors tell it."""
        x = self.world.state
        for term in self.world.terms:
            if isinstance(term, OnSense):
                x = term(x, np.arange(1), Chance(0, self.k, self.world.dt))
        return x

    def joint(self, name: str) -> float:
        """Where a joint of the whole model is, also one that is not shown."""
        return float(self.engine.state.q[0, self.engine.model.joint(name).qposadr[0]])
