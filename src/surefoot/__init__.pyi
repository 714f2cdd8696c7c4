"""Types of the public names; made by docs/make_api.py."""

from surefoot.belief import Belief as Belief
from surefoot.belief import Box as Box
from surefoot.belief import point as point
from surefoot.contract import Contract as Contract
from surefoot.deploy.bundle import load as load_policy
from surefoot.doctor.diagnosis import diagnose as diagnose
from surefoot.env import Env as Env
from surefoot.errors import SurefootError as SurefootError
from surefoot.learn.settings import Judging as Judging
from surefoot.learn.settings import PPOSettings as PPOSettings
from surefoot.log import Log as Log
from surefoot.motion.read import read_motion as read_motion
from surefoot.params import Param as Param
from surefoot.params import Params as Params
from surefoot.policy import Policy as Policy
from surefoot.real2sim.episodes import logged as log_episodes
from surefoot.real2sim.identify import identify as identify
from surefoot.real2sim.replay import replay as replay
from surefoot.robot import Robot as Robot
from surefoot.sim.audit import audit as audit
from surefoot.sim.simulate import make_world as make_world
from surefoot.sim.simulate import simulate as simulate
from surefoot.task import Task as Task
from surefoot.tasks import env as make_env
from surefoot.tasks import hover as hover
from surefoot.tasks import reach as reach
from surefoot.tasks import resolve as resolve
from surefoot.tasks import track as track
from surefoot.tasks import velocity as velocity
from surefoot.tasks.record import record as record
from surefoot.verbs.script import Run as Run
from surefoot.verbs.script import evaluate as evaluate
from surefoot.verbs.script import export as export
from surefoot.verbs.script import judge as judge
from surefoot.verbs.script import learn_delta as learn_delta
from surefoot.verbs.script import prompt as prompt
from surefoot.verbs.script import rehearse as rehearse
from surefoot.verbs.script import resume as resume
from surefoot.verbs.script import train as train
from surefoot.verdict import Verdict as Verdict

__version__: str
PUBLIC: dict[str, dict[str, str]]
