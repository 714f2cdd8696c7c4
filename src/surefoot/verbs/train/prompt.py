"""surefoot prompt: ask a run of `--learner fb` for a behaviour, by a reward, a goal or a motion, without training."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import Positional

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import Column, Note, Progress, Report, Table, Text, Watch
from surefoot.verbs.arguments import count

if TYPE_CHECKING:
    from torch import Tensor

    from surefoot.learn.forward_backward.prompts import Promptable
    from surefoot.task import Reward
    from surefoot.tasks.registry import Reference

LITTLE = 0.3  # of a reward's variance: with less, B cannot express it


@dataclass(frozen=True)
class Prompt:
    policy: Positional[Path]
    """folder of a run of `surefoot train TASK --learner fb`"""
    reward: str = ""
    """a reward: arithmetic over the task's observation and reward terms, such as "1 - abs(joint_pos[0] - 0.5)" (docs/prompt.md);
    one that begins with a minus stands in parentheses"""
    goal: tuple[str, ...] = ()
    """a state to reach and hold: TERM=NUMBER,NUMBER of terms that the run can be asked for, in their units"""
    track: Path | None = None
    """a motion to follow: a log with joint_pos (and base_pos, base_quat), such as `surefoot retarget` writes"""
    ahead: int = 8
    """with --track: control periods of the motion that each z looks ahead"""
    search: int = 0
    """rounds of search around the z that was found, by what it earns in simulation; 0: none"""
    episodes: int = 100
    """episodes in which the behaviour is measured"""
    seed: int = 1
    """seed of these, of the states that a reward is read in, and of the search"""
    task: str = ""
    """the run's task, where that is a file or a module"""
    out: Path | None = None
    """folder of the policy; default: RUN/prompts/NAME"""
    threads: int = 0
    """threads of the physics; 0: every core"""

    def run(self, watch: Watch) -> Report:
        return self.asked(watch, self.task)

    def asked(self, watch: Watch, task: "Reference") -> Report:
        """The same where the task may be one that no reference leads to."""
        given = [k for k in ("reward", "goal", "track") if getattr(self, k)]
        if len(given) != 1:
            found = " and ".join(f"--{k}" for k in given) or "none"
            raise SurefootError(f"prompt: expected one of --reward, --goal and --track, found {found}")
        if self.ahead < 1 or self.search < 0:
            raise SurefootError("prompt: expected --ahead of 1 or more, and --search of 0 or more")
        if self.search and self.track:
            raise SurefootError("--search: only with --reward or --goal")
        from surefoot.learn.forward_backward import prompts

        out = self.out or self.policy / "prompts" / self._name()
        files.check_writable(out / "policy.onnx", "--out")
        p = prompts.opened(self.policy, task)
        return self._tracked(p, out) if self.track is not None else self._asked(p, out, watch)

    def _name(self) -> str:
        words = self.reward or "_".join(self.goal) or (self.track.stem if self.track else "")
        return re.sub(r"[^A-Za-z0-9.=+-]+", "_", words).strip("_.")[:60] or "prompt"

    def _asked(self, p: "Promptable", out: Path, watch: Watch) -> Report:
        """For a reward or a goal: one z."""
        from surefoot.learn.forward_backward import prompts, rewards

        watch(Progress("simulating states to read the prompt in", 0.1))
        if self.reward:
            reward = rewards.reward_of(p.task, self.reward)
            states = prompts.met(p, reward, self.seed, self.threads)
            z, share = prompts.for_reward(p, states)
        else:
            goal = goal_of(self.goal)
            states, share = prompts.met(p, None, self.seed, self.threads), None
            z = prompts.for_goal(p, goal, states)
            reward = prompts.goal_reward(p, goal)
        facts: dict[str, Any] = {"share": share} if share is not None else {}
        found = {"prompted": z}
        if self.search:
            watch(Progress(f"searching around it: {self.search} rounds", 0.3))
            found["after search"] = prompts.searched(p, reward, z, self.search, self.seed, threads=self.threads)
        watch(Progress(f"measuring in {self.episodes} episodes", 0.8))
        earned = self._earned(p, reward, found)
        best = max(found, key=lambda k: float(earned[k].mean()))
        z = found[best]
        asked = {"reward": self.reward} if self.reward else {"goal": {k: list(v) for k, v in goal.items()}}
        path = prompts.write(p, self.policy, out, asked | facts, z)
        facts |= asked | {
            "policy": str(path),
            "z": z.tolist(),
            "kept": best,
            "earns": {k: _stats(v) for k, v in earned.items()},
        }
        if not self.reward:
            facts["off"] = self._off(p, z, goal)
        return Report(f"{self.policy}, prompted", facts, tuple(self._blocks(path, earned, facts)), self._next(out))

    def _earned(self, p: "Promptable", reward: "Reward", found: "Mapping[str, Tensor]") -> dict[str, np.ndarray]:
        """What each z, and as a measure random ones, earn a second, in the same unseen episodes."""
        import torch

        from surefoot.learn.forward_backward import prompts
        from surefoot.learn.forward_backward.losses import on_sphere
        from surefoot.rng import judging, stream

        n, d = count(self.episodes), p.maps.settings.z
        random = on_sphere(torch.from_numpy(stream(self.seed, "random z").standard_normal((n, d))).float())
        every = {k: z.expand(n, d) for k, z in found.items()} | {"random prompts": random}
        return {k: prompts.returns(p, reward, z, judging(self.seed), self.threads) for k, z in every.items()}

    def _off(self, p: "Promptable", z: "Tensor", goal: Mapping[str, tuple[float, ...]]) -> dict[str, float]:
        """Of each term of a goal, in its unit: the median distance from it at the end of episodes."""
        from surefoot.learn.forward_backward import prompts

        ends = prompts.final(p, z.expand(count(self.episodes), -1), list(goal), self.seed, self.threads)
        return {k: float(np.median(np.sqrt(((ends[k] - np.array(g)) ** 2).sum(1)))) for k, g in goal.items()}

    def _blocks(self, path: Path, earned: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> list[Any]:
        blocks: list[Any] = [Text(f"policy: {path}")]
        rows = [[k, float(v.mean()), "{low:.3g} - {high:.3g}".format(**_stats(v))] for k, v in earned.items()]
        what = "reward a second" if self.reward else "minus the distance from the goal, in standard deviations"
        blocks.append(Table.of(["", Column(what, form=".3g"), "95 % interval"], rows))
        if "off" in facts:
            rows = [[k, v] for k, v in facts["off"].items()]
            blocks.append(
                Table.of(["term of the goal", Column("off at the end of an episode, median", form=".3g")], rows)
            )
        share = facts.get("share")
        if share is not None and share < LITTLE:
            words = f"B expresses only {100 * share:.0f} % of this reward's variance: --search may help, or --fb.goal-terms and a larger --fb.z"
            blocks.append(Note(words, True))
        return blocks

    def _tracked(self, p: "Promptable", out: Path) -> Report:
        """For a motion: a z for each of its periods, which the policy observes."""
        from surefoot.deploy import bundle
        from surefoot.learn.forward_backward import motions, prompts
        from surefoot.log import Log

        assert self.track is not None
        asking = motions.for_motion(p, Log.read(self.track), self.ahead)
        about = {"track": str(self.track), "sha256": files.sha256(self.track.read_bytes())}
        path = prompts.write(p, self.policy, out, about, asking.z)
        error = motions.followed(p, bundle.load(path), asking)
        facts = {"policy": str(path), "track": str(self.track), "rows": len(asking.z), "joint_error": error}
        rows = [["prompted", error["policy"]], ["random prompts", error["random"]]]
        blocks = (Text(f"policy: {path}"), Table.of(["", "joint error, root mean square, rad or m"], rows))
        return Report(f"{self.policy}, following {self.track}", facts, blocks, self._next(out))

    def _next(self, out: Path) -> str:
        task = f" --task {quote(self.task)}" if self.task else ""
        return f"surefoot play {quote(str(out))}{task}"


def goal_of(words: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    """Words such as joint_pos=0.5,1 as terms with their numbers; the command line may have split them at commas."""
    found: dict[str, tuple[float, ...]] = {}
    for word in (part for whole in words for part in whole.split(",")):
        name, there, value = word.rpartition("=")
        name = name if there else next(reversed(found), "")
        try:
            number = float(value)
        except ValueError:
            number = np.nan
        if not name or not np.isfinite(number) or there and name in found:
            raise SurefootError(
                f"--goal: found {word!r}, expected TERM=NUMBER,NUMBER such as joint_pos=0.5,1, each term once"
            )
        found[name] = (*found.get(name, ()), number)
    return found


def _stats(x: np.ndarray) -> dict[str, float]:
    """Mean with its 95 % interval, by the normal law."""
    half = 1.96 * float(x.std(ddof=1)) / len(x) ** 0.5 if len(x) > 1 else 0.0
    return {"mean": float(x.mean()), "low": float(x.mean()) - half, "high": float(x.mean()) + half}
