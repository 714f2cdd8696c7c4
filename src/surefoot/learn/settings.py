"""Settings of the learners: what a command line parses. Nothing here needs torch, which takes seconds to import."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import tyro

from surefoot.errors import SurefootError, unknown
from surefoot.task import Task
from surefoot.task_check import in_task_file

MOST_ENVS = 1 << 20  # simulations; far beyond any machine's memory for most robots
MOST_STEPS = 1 << 28  # env steps of a batch
MOST_THREADS = 1024
Hidden = Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT INT ...")]


@dataclass(frozen=True)
class Batched:
    """What the settings of every learner share: how steps make batches, and which numbers can be."""

    envs: int = 1024
    """simulations side by side"""
    steps: int = 2_000_000
    """env steps in all, rounded up to whole batches"""
    horizon: int = 24
    """env steps of each simulation between updates"""
    learner_threads: int = 2
    """threads of the learner; a setting, because sums split otherwise have other last bits"""

    @property
    def batch(self) -> int:
        return self.envs * self.horizon

    @property
    def iterations(self) -> int:
        return max(1, -(-self.steps // self.batch))

    @property
    def rounding(self) -> str:
        """What becomes of `steps`, in words; empty where they are whole batches."""
        runs = self.iterations * self.batch
        parts = f"{self.envs} simulations x {self.horizon} steps"
        return "" if runs == self.steps else f"{self.steps} steps are run as {runs}: whole batches of {parts}"

    def check(self, least_one: Sequence[str], finite: Sequence[str], where: str = "") -> None:
        for name in ("envs", "steps", "horizon", "learner_threads", *least_one):
            if getattr(self, name) < 1:
                raise SurefootError(f"{where}{name}: expected at least 1, found {getattr(self, name)}")
        most = {"envs": MOST_ENVS, "batch": MOST_STEPS, "learner_threads": MOST_THREADS}
        for name, limit in most.items():
            if getattr(self, name) > limit:
                what = "envs x horizon" if name == "batch" else name
                raise SurefootError(f"{where}{what}: expected at most {limit}, found {getattr(self, name)}")
        for name in finite:
            if not 0 <= getattr(self, name) < float("inf"):
                raise SurefootError(f"{where}{name}: expected a finite number >= 0, found {getattr(self, name)}")


def within(settings: Any, where: str, **limits: tuple[float, float]) -> None:
    """Refuse settings outside of these limits, by name."""
    for name, (low, high) in limits.items():
        value = getattr(settings, name)
        if not low <= value <= high:
            raise SurefootError(f"{where}{name}: expected {low:g} to {high:g}, found {value:g}")


def learns(settings: Any, where: str, *names: str) -> None:
    """Refuse what would learn nothing: step sizes and shares of 0."""
    for name in names:
        if getattr(settings, name) == 0:
            raise SurefootError(f"{where}{name}: expected more than 0: nothing would be learned")


def widths(settings: Any, where: str, *names: str) -> None:
    """Refuse nets without hidden layers."""
    for name in names:
        if not getattr(settings, name) or min(getattr(settings, name)) < 1:
            raise SurefootError(f"{where}{name}: expected widths of at least 1, found {getattr(settings, name)}")


def tuned(kind: type[Any], task: Task) -> Any:
    """The settings that a task has for a learner: PPOSettings of `settings`, DistillSettings of `lesson`, others of `learners`.

    What a learner `shares` with PPO is the task's own for PPO, where the task says nothing else.
    """
    name = {PPOSettings: "settings", DistillSettings: "lesson"}.get(kind, "learners")
    given, known = getattr(task, name), [f.name for f in fields(kind)]
    if name == "learners":
        shared = {k: v for k, v in task.settings.items() if k in getattr(kind, "shares", ())}
        given, name = {**shared, **given.get(kind.learner, {})}, f"learners: {kind.learner}"
    for k in given:
        if k not in known:
            with in_task_file(task):
                raise unknown("setting", str(k), known, f"task {task.name}: {name}")
    try:
        return kind(**given)
    except (SurefootError, TypeError) as error:
        raise SurefootError(f"task {task.name}: {name}: {error}") from None


@dataclass(frozen=True)
class Judging:
    """How a policy is judged while it is trained."""

    every: int
    """env steps between evaluations, rounded up to whole batches"""
    episodes: int = 100
    """episodes of each evaluation"""

    def __post_init__(self) -> None:
        for name in ("every", "episodes"):
            if getattr(self, name) < 1:
                raise SurefootError(f"judge.{name}: expected at least 1, found {getattr(self, name)}")
        if self.episodes > MOST_ENVS:
            raise SurefootError(f"judge.episodes: expected at most {MOST_ENVS}, found {self.episodes}")


@dataclass(frozen=True)
class OnPolicySettings(Batched):
    """What the learners share that use each batch once, by a clipped ratio."""

    epochs: int = 5
    """passes over each batch"""
    minibatches: int = 4
    """parts of a batch, one gradient step each"""
    gamma: float = 0.99
    """discount factor a step"""
    lam: float = 0.95
    """lambda of the advantage estimator"""
    clip: float = 0.2
    """PPO clip range epsilon"""
    lr: float = 1e-3
    """initial learning rate of Adam"""
    value: float = 1.0
    """weight of the value loss"""
    clip_gradient: float = 1.0
    """largest norm of the gradient"""
    hidden: Hidden = (128, 128)
    """widths of the hidden layers, of actor and critic"""
    activation: str = "relu"
    """relu (quickest on a CPU), elu or tanh"""
    symmetric: bool = True
    """use the task's left-right symmetry where it has one"""

    def check_shared(self, where: str = "") -> None:
        self.check(("epochs", "minibatches"), ("gamma", "lam", "clip", "lr", "value", "clip_gradient"), where)
        within(self, where, gamma=(0, 1), lam=(0, 1))
        learns(self, where, "lr", "clip", "clip_gradient")
        widths(self, where, "hidden")
        if self.envs * self.horizon % self.minibatches:
            raise SurefootError(
                f"{where}minibatches: {self.minibatches} does not divide envs x horizon = {self.envs * self.horizon}"
            )
        if self.activation not in ("relu", "elu", "tanh"):
            raise SurefootError(f"{where}activation: expected relu, elu or tanh, found {self.activation}")


@dataclass(frozen=True)
class GaussianSettings(OnPolicySettings):
    """What the learners share whose actions are a normal distribution, and whose steps follow its KL."""

    kl: float = 0.01
    """target KL of a gradient step: the learning rate grows below half of it and shrinks above twice; 0: fixed lr"""
    settle: float = 0.9
    """fraction by which the target KL is annealed linearly"""
    entropy: float = 0.002
    """weight of the entropy bonus"""
    spread: tuple[float, float, float] = (0.05, 0.5, 1.0)
    """standard deviation of the actions: least, at the start, largest"""

    def check_gaussian(self, where: str = "") -> None:
        self.check_shared(where)
        self.check((), ("kl", "settle", "entropy"), where)
        within(self, where, settle=(0, 1))
        low, start, high = self.spread
        if not 0 < low < start < high:
            raise SurefootError(f"{where}spread: expected 0 < least < start < largest, found {self.spread}")


@dataclass(frozen=True)
class PPOSettings(GaussianSettings):
    """Settings of the learner, PPO."""

    steps: int = 2_000_000
    """env steps in all, rounded up to whole batches; a student's steps change in proportion"""
    encoder: Literal["none", "e", "conv", "gru"] = "none"
    """actor: none; or a latent encodes the privileged e (`--obs.also e`), or the history (conv, gru)"""
    latent: int = 8
    """size of an encoder's latent"""
    estimate: tuple[str, ...] = ()
    """the critic's terms, such as base_lin_vel, that the encoder (conv, gru) learns to estimate, with their variance, in place of a latent"""

    def __post_init__(self) -> None:
        self.check_gaussian()
        self.check(("latent",), ())
        if self.estimate and self.encoder not in ("conv", "gru"):
            raise SurefootError(
                f"estimate: expected an encoder of the history (--encoder conv or gru), found {self.encoder}"
            )


@dataclass(frozen=True)
class DistillSettings(Batched):
    """Settings of learning from a teacher."""

    label: Annotated[Literal["action", "latent"], tyro.conf.Suppress] = "latent"
    """what of the teacher is learned: its actions (dagger), or its encoder's latent, keeping its body (rma)"""
    only: tuple[str, ...] = ()
    """observation terms of the student, instead of the task's actor terms; only with --adapt dagger"""
    encoder: Literal["conv", "gru"] = "conv"
    """how the history is read"""
    history: int = 25
    """frames the student observes, newest last"""
    latent: int = 8
    """size of the encoder's latent, with --adapt dagger"""
    hidden: tuple[int, ...] = (128, 128)
    """widths of the hidden layers, with --adapt dagger"""
    envs: int = 256
    steps: int = 500_000
    horizon: int = 16
    keep: int = 1
    """batches learned from: the newest and those before it, where each is dear, as pictures are; checkpoints hold them"""
    epochs: int = 2
    """passes over the batches kept"""
    minibatches: int = 4
    """parts of a batch, one gradient step each"""
    lr: float = 1e-3
    """initial learning rate of Adam; falls to a tenth"""
    noise: float = 0.1
    """standard deviation added to the student's actions, so that it sees more than its own path"""
    mix: float = 0.0
    """initial fraction of simulations that the teacher drives"""
    mix_until: float = 0.5
    """share of the steps after which it drives none; 1 and more: to the end, without falling, which is cloning"""

    def __post_init__(self) -> None:
        counts = ("history", "latent", "keep", "epochs", "minibatches")
        self.check(counts, ("lr", "noise", "mix", "mix_until"), "student.")
        learns(self, "student.", "lr")
        within(self, "student.", mix=(0, 1))
