"""A Task as a gymnasium.vector.VectorEnv, and that as Stable-Baselines3's own VecEnv.

    obs, info = env.reset(seed)        obs, reward, terminated, truncated, info = env.step(action)      n rows each

Autoreset is SAME_STEP: where an episode ends, `obs` is the first of the next one, `info["final_obs"][i]` the last of
the old one, and `info["final_info"]` says how it went: success, error, reason, return and length, each with a mask
(`_success`, ...) as Gymnasium has it. Only the actor's observations are given: what learns here may run on a robot.
"""

from functools import cache
from typing import Any

import numpy as np

from surefoot.belief import Belief
from surefoot.env import Env, Episodes, Step
from surefoot.errors import MissingExtra, SurefootError
from surefoot.tasks import env as env_of
from surefoot.tasks import resolve

try:
    from gymnasium.spaces import Box, Discrete, Space
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise MissingExtra("surefoot.tasks.adapters.gym", "gym") from error


class GymVectorEnv(VectorEnv):
    """An Env behind Gymnasium's vector API. The Env belongs to whoever made it; close() only ends its use from here.

    The final observation, of a failure as of a time-out, is what the actor would have observed next, noise included.
    """

    def __init__(self, env: Env):
        self.env, self.num_envs = env, env.n
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": [], "render_fps": 1 / env.world.dt}
        self.single_observation_space = _observation_space(env)
        self.single_action_space = _action_space(env)
        self.observation_space = batch_space(self.single_observation_space, env.n)
        self.action_space = batch_space(self.single_action_space, env.n)
        self._begun = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin everywhere. A seed starts all streams anew; without one they go on, so that starts differ."""
        self._expect_open()
        if options:
            raise SurefootError(f"options: this environment takes none, found {', '.join(map(str, options))}")
        super().reset(seed=seed)  # Gymnasium's own generator; ours are streams keyed by env.seed
        if seed is None and self._begun:
            self.env.counter += 1  # this count's start is in use: without a step between, two resets would be one
        self._begun = True
        return self.env.reset(seed=seed)["actor"], {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._expect_open()
        step = self.env.step(self._checked(actions))
        info = _final(step) if step.episodes is not None else {}
        return step.obs["actor"], step.reward, step.terminated, step.truncated, info

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        """Actions in the space's shape. NaN, or a choice that is not there, would otherwise reach the motors."""
        n, k, found = self.num_envs, self.env.task.action.choices, np.asarray(actions)
        shape = (n,) if k else (n, len(self.env.task.action.names))
        if found.shape != shape:
            raise SurefootError(f"actions: expected shape {shape}, found {found.shape}")
        good = np.isin(found, np.arange(k)) if k else np.isfinite(found).all(1)
        if not good.all():
            wanted = f"whole numbers from 0 to {k - 1}" if k else "finite numbers"
            row = int(np.flatnonzero(~good)[0])
            raise SurefootError(f"actions: expected {wanted}, found {found[row]} in row {row}")
        return found

    def _expect_open(self) -> None:
        if self.closed:
            raise SurefootError("this environment was closed; make a new one")


def make_gym(task_name: str, n: int, belief: Belief | None = None, seed: int = 0) -> GymVectorEnv:
    """n episodes of a ready task: in its nominal world, or under a belief, such as its own, `make(name).belief`."""
    return GymVectorEnv(env_of(resolve(task_name), n, belief, seed))


def _observation_space(env: Env) -> Box:
    """As wide as each term's clip allows; without bounds where Terms may change the observation after the clip."""
    group = env.task.observations["actor"]
    high = np.full(group.frame, np.inf) if env.observer.on_observation else np.abs(group.clips * group.scales)
    high = group.flat(np.tile(high, (1, group.history, 1)))[0].astype(np.float32)
    return Box(-high, high, dtype=np.float32)


def _action_space(env: Env) -> Space[Any]:
    action = env.task.action
    if action.choices:
        return Discrete(action.choices)
    return Box(-action.limit, action.limit, (len(action.names),), np.float32)


def _final(step: Step) -> dict[str, Any]:
    """What Gymnasium wants to know of the episodes that ended in this step."""
    assert step.episodes is not None
    done = step.terminated | step.truncated
    obs = np.full(len(done), None, object)
    for i, row in zip(np.flatnonzero(done), step.last["actor"], strict=True):
        obs[i] = row
    outcome = _outcome(step.episodes, len(done))
    return {"final_obs": obs, "_final_obs": done, "final_info": outcome, "_final_info": done.copy()}


def _outcome(episodes: Episodes, n: int) -> dict[str, np.ndarray]:
    """Columns over all n envs with their masks. `error` is NaN for a failure; a partial episode has no outcome."""
    mask = np.zeros(n, bool)
    mask[episodes.ids] = True
    columns = {
        "success": (bool, episodes.success), "error": (float, episodes.error), "reason": (object, episodes.reason),
        "return": (float, episodes.returns), "length": (int, episodes.lengths),
    }  # fmt: skip
    out: dict[str, np.ndarray] = {}
    for name, (kind, values) in columns.items():
        column = np.full(n, None, object) if kind is object else np.zeros(n, kind)
        column[episodes.ids] = values
        out |= {name: column, f"_{name}": mask.copy()}
    return out


def _sb3_infos(done: np.ndarray, truncated: np.ndarray, info: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict an env, with the keys Stable-Baselines3 bootstraps from and logs."""
    infos: list[dict[str, Any]] = [{} for _ in done]
    for i in np.flatnonzero(done):
        infos[i] = {"terminal_observation": info["final_obs"][i], "TimeLimit.truncated": bool(truncated[i])}
        end = info["final_info"]
        if end["_success"][i]:
            infos[i]["episode"] = {"r": float(end["return"][i]), "l": int(end["length"][i])}
            infos[i]["is_success"] = bool(end["success"][i])
            infos[i] |= {"error": float(end["error"][i]), "reason": end["reason"][i]}
    return infos


@cache
def _sb3() -> type:
    """The class SB3VecEnv, made when it is asked for: importing Stable-Baselines3 takes seconds, and few need it."""
    try:
        from stable_baselines3.common.vec_env import VecEnv
    except ImportError as error:
        raise SurefootError("SB3VecEnv needs Stable-Baselines3: pip install stable-baselines3") from error

    class SB3VecEnv(VecEnv):
        """A GymVectorEnv for Stable-Baselines3. All rows are one Env, so an attribute is every row's or none's."""

        def __init__(self, env: GymVectorEnv):
            self.env = env
            super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

        def reset(self) -> np.ndarray:
            obs, _ = self.env.reset(seed=self._seeds[0], options=self._options[0])
            self._reset_seeds()
            self._reset_options()
            return obs

        def step_async(self, actions: np.ndarray) -> None:
            self._actions = actions

        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            obs, reward, terminated, truncated, info = self.env.step(self._actions)
            done = terminated | truncated
            return obs, reward.astype(np.float32), done, _sb3_infos(done, truncated, info)

        def close(self) -> None:
            self.env.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            if indices is not None:
                raise SurefootError(f"{attr_name}: all rows are one environment; set it for all of them")
            setattr(self.env, attr_name, value)

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            answer = getattr(self.env, method_name)(*args, **kwargs)
            return [answer for _ in self._get_indices(indices)]

        def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
            return [False for _ in self._get_indices(indices)]

    return SB3VecEnv


def __getattr__(name: str) -> Any:
    """`from surefoot.tasks.adapters.gym import SB3VecEnv`, without Stable-Baselines3 being needed by the rest of this file."""
    if name == "SB3VecEnv":
        return _sb3()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
