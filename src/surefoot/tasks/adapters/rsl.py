"""A Task as rsl_rl's VecEnv, and the settings its OnPolicyRunner needs to train on it.

    env = RslVecEnv(surefoot.tasks.env(task, 1024, task.belief))
    OnPolicyRunner(env, runner_settings(task), log_dir).learn(300)

Observation groups go by their own names (actor, critic, ...), and `obs_groups` says which net reads which. rsl_rl adds
gamma V(s_t) to the reward of a time-out, so it needs to know of time-outs but not of their last observation.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.env import Env, Episodes
from surefoot.errors import MissingExtra, SurefootError
from surefoot.task import Task

try:
    from rsl_rl.env import VecEnv
    from tensordict import TensorDict
except ImportError as error:
    raise MissingExtra("surefoot.tasks.adapters.rsl", "rsl") from error

THEIRS = {
    "epochs": "num_learning_epochs", "minibatches": "num_mini_batches", "gamma": "gamma", "lam": "lam",
    "lr": "learning_rate", "clip": "clip_param", "kl": "desired_kl", "entropy": "entropy_coef",
    "value": "value_loss_coef", "clip_gradient": "max_grad_norm",
}  # fmt: skip
"""our name of a learner's setting -> rsl_rl's"""


class RslVecEnv(VecEnv):
    """An Env behind rsl_rl's contract. Runs repeat when the Env's seed and torch's do: rsl_rl itself has none."""

    def __init__(self, env: Env, device: str = "cpu"):
        if k := env.task.action.choices:
            raise SurefootError(f"{env.task.name}: this task picks one of {k}; rsl_rl has continuous actions only")
        self.env, self.device = env, device
        self.num_envs, self.num_actions, self.max_episode_length = env.n, len(env.task.action.names), env.steps
        self.cfg = {"task": env.task.name, "envs": env.n, "seed": env.seed, "seconds": env.task.seconds}
        self._obs = env.reset()

    @property
    def episode_length_buf(self) -> Tensor:
        """Control periods into each episode; on the CPU a live view of the Env's own."""
        return torch.from_numpy(self.env.age).to(self.device)

    @episode_length_buf.setter
    def episode_length_buf(self, ages: Tensor) -> None:
        """Go on at other ages, as `init_at_random_ep_len` asks; such partial episodes count in no statistic."""
        self._obs = self.env.begin_at(ages.cpu().numpy())  # a task may see the time, as a gait's phase

    def get_observations(self) -> TensorDict:
        groups = {g: torch.from_numpy(rows).to(self.device) for g, rows in self._obs.items()}
        return TensorDict(groups, batch_size=[self.num_envs], device=self.device)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        shape = (self.num_envs, self.num_actions)
        if actions.shape != shape:
            raise SurefootError(f"actions: expected shape {shape}, found {tuple(actions.shape)}")
        step = self.env.step(actions.detach().cpu().numpy())
        self._obs = step.obs
        extras: dict[str, Any] = {"time_outs": torch.from_numpy(step.truncated).to(self.device)}
        if step.episodes is not None and len(step.episodes.ids):
            extras["log"] = _log(self.env.task, step.episodes)
        reward = torch.from_numpy(step.reward.astype(np.float32)).to(self.device)
        done = torch.from_numpy(step.terminated | step.truncated).long().to(self.device)
        return self.get_observations(), reward, done, extras


def _log(task: Task, episodes: Episodes) -> dict[str, Tensor]:
    """One number an episode under each name, of which rsl_rl logs the mean: how it went, and why it ended."""
    reason = np.array(episodes.reason)
    columns = {
        "Episode/return": episodes.returns, "Episode/length": episodes.lengths, "Episode/success": episodes.success,
        **{f"Ended/{why}": reason == why for why in (*task.ended, "diverged", "time")},
    }  # fmt: skip
    finished = np.isfinite(episodes.error)  # a failure has no error, and a NaN would take the mean with it
    if finished.any():
        columns["Episode/error"] = episodes.error[finished]
    return {name: torch.from_numpy(np.asarray(values, np.float32)) for name, values in columns.items()}


def runner_settings(task: Task | None = None) -> dict[str, Any]:
    """A train_cfg that OnPolicyRunner accepts, with the task's own tuned settings where it has them."""
    tuned = dict(task.settings) if task is not None else {}
    low, start, high = tuned.get("spread", (0.05, 0.5, 1.0))
    net = {
        "class_name": "MLPModel",
        "hidden_dims": list(tuned.get("hidden", (128, 128))),
        "activation": tuned.get("activation", "elu"),
        "obs_normalization": True,
    }
    spread = {"class_name": "GaussianDistribution", "init_std": start, "std_range": [low, high], "std_type": "log"}
    learner = {theirs: tuned[ours] for ours, theirs in THEIRS.items() if ours in tuned}
    learner["schedule"] = "adaptive" if tuned.get("kl", 0.01) else "fixed"
    return {
        "num_steps_per_env": tuned.get("horizon", 24),
        "save_interval": 50,
        "obs_groups": {"actor": ["actor"], "critic": ["critic"]},
        "algorithm": {"class_name": "PPO", "entropy_coef": 0.002} | learner,
        "actor": net | {"distribution_cfg": spread},
        "critic": dict(net),
        "logger": "tensorboard",
    }
