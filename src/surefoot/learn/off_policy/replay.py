"""The replay: what each simulation did last, a ring of rows for each, and n-step returns from any row.

    row i of an env: o_i, a_i, r_i, kind_i        R = sum_{j < k} gamma^j r_{i+j},   and gamma^k V(o_{i+k}) follows

k is n, or less where the episode ends:

    FAILED  a_i ended the episode for good: nothing follows, V = 0
    CUT     no action was taken here: V(o_i) takes over. The last state of an episode that ran out of time, the newest
            observation of all, and a state from which the simulation diverged, whose step must not be learned from
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from surefoot.errors import SurefootError
from surefoot.learn.collect import Rollout

GOES_ON, FAILED, CUT = 0, 1, 2
MOST_BYTES = 2 << 30


class Sample(NamedTuple):
    """m transitions; observations as they were seen, not normalised."""

    actor: Tensor  # (m, .)
    critic: Tensor
    action: Tensor
    next_actor: Tensor  # where V takes over
    next_critic: Tensor
    reward: Tensor  # (m,) R
    discount: Tensor  # (m,) gamma^k, 0 where nothing follows
    weight: Tensor  # (m,) 0 where there is no transition to learn from, else 1


class Replay:
    """Rings of `capacity` rows for n envs."""

    def __init__(self, n: int, capacity: int, widths: Sequence[int], where: str = "replay"):
        """`widths` of an actor's observation, a critic's, and an action."""
        size = 4 * n * capacity * (sum(widths) + 2)
        if size > MOST_BYTES:
            most = MOST_BYTES // (4 * n * (sum(widths) + 2))
            raise SurefootError(
                f"{where}: {capacity} rows of {n} simulations take {size / 2**30:.1f} GB, expected at most "
                f"{MOST_BYTES / 2**30:.0f} GB: {most} rows"
            )
        self.n, self.capacity, self.widths = n, capacity, list(widths)
        self.table = torch.zeros(n * capacity, sum(widths))
        self.reward = torch.zeros(n * capacity)
        self.kind = torch.full((n * capacity,), CUT, dtype=torch.uint8)
        self.first = torch.arange(n) * capacity  # of each env's ring in the table
        self.head = torch.zeros(n, dtype=torch.int64)  # where the next row goes
        self.count = torch.zeros(n, dtype=torch.int64)  # rows before it

    def add(self, r: Rollout) -> None:
        """What a rollout did; `r.kept["action"]` are the actions to learn from."""
        obs = np.concatenate([r.obs["actor"], r.obs["critic"]], 2)
        failed, valid = r.flags["terminated"] & r.flags["final"], r.flags["valid"]
        kind = np.where(valid, np.where(failed, FAILED, GOES_ON), CUT).astype(np.uint8)
        late = {t: [(rows, last) for at, rows, last in r.last if at == t] for t, _, _ in r.last}
        everyone = torch.arange(self.n)
        for t in range(len(r.reward)):
            self._write(everyone, np.concatenate([obs[t], r.kept["action"][t]], 1), r.reward[t], kind[t])
            self._advance(everyone)
            for rows, last in late.get(t, ()):
                ids = torch.from_numpy(np.asarray(rows))
                self._cut(ids, np.concatenate([last["actor"], last["critic"]], 1))
                self._advance(ids)
        self._cut(everyone, obs[-1])

    def _cut(self, ids: Tensor, obs: np.ndarray) -> None:
        """Observations without an action."""
        still = np.zeros((len(obs), self.widths[2]), np.float32)
        nothing, kind = np.zeros(len(obs), np.float32), np.full(len(obs), CUT, np.uint8)
        self._write(ids, np.concatenate([obs, still], 1), nothing, kind)

    def _write(self, ids: Tensor, rows: np.ndarray, reward: np.ndarray, kind: np.ndarray) -> None:
        at = self.first[ids] + self.head[ids]
        self.table[at], self.reward[at] = torch.from_numpy(rows), torch.from_numpy(reward)
        self.kind[at] = torch.from_numpy(kind)

    def _advance(self, ids: Tensor) -> None:
        self.head[ids] = (self.head[ids] + 1) % self.capacity
        self.count[ids] = (self.count[ids] + 1).clamp(max=self.capacity - 1)

    def sample(self, m: int, n_step: int, gamma: float, rng: torch.Generator) -> Sample:
        """m rows, each env's as likely as any other's."""
        env = torch.randint(self.n, (m,), generator=rng)
        back = (torch.rand(m, generator=rng) * self.count[env]).long()
        slot, first = (self.head[env] - 1 - back) % self.capacity, self.first[env]
        return self.at(first + slot, first, n_step, gamma)

    def at(self, rows: Tensor, first: Tensor, n_step: int, gamma: float) -> Sample:
        """The transitions that begin at rows of the table, of envs whose rings begin at `first`."""
        here, total, discount = rows, torch.zeros(len(rows)), torch.ones(len(rows))
        for _ in range(n_step):
            kind = self.kind[here]
            acted = kind != CUT
            total += discount * self.reward[here] * acted
            discount = torch.where(acted, gamma * discount * (kind != FAILED), discount)
            here = torch.where(acted, first + (here - first + 1) % self.capacity, here)
        actor, critic, action = self.table.index_select(0, rows).split(self.widths, 1)
        next_actor, next_critic, _ = self.table.index_select(0, here).split(self.widths, 1)
        weight = (self.kind[rows] != CUT).float()
        return Sample(actor, critic, action, next_actor, next_critic, total, discount, weight)

    def returns(self, gamma: float) -> Tensor:
        """(k,) discounted sums of reward from each row that is held to the end of its episode, or of what is known of it."""
        found, after = [], torch.zeros(self.n)
        for back in range(1, int(self.count.max()) + 1):
            at = self.first + (self.head - back) % self.capacity
            kind, there = self.kind[at], self.count >= back
            after = torch.where(kind == CUT, 0.0, self.reward[at] + gamma * after * (kind != FAILED))
            found.append(after[there & (kind != CUT)])
        return torch.cat(found) if found else torch.zeros(0)

    @property
    def filled(self) -> int:
        """Rows of each ring that hold something."""
        full = bool((self.count == self.capacity - 1).any())
        return self.capacity if full else int(self.head.max()) + 1

    def save(self) -> dict[str, np.ndarray]:
        each = {"table": self.table, "reward": self.reward, "kind": self.kind}
        arrays = {k: v.reshape(self.n, self.capacity, -1)[:, : self.filled] for k, v in each.items()}
        return {k: v.numpy().copy() for k, v in (arrays | {"head": self.head, "count": self.count}).items()}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        head, count = (torch.from_numpy(saved[k].copy()) for k in ("head", "count"))
        for name, x in (("head", head), ("count", count)):
            if x.shape != (self.n,) or x.dtype != torch.int64 or not bool(((x >= 0) & (x < self.capacity)).all()):
                raise ValueError(f"replay: {name}: expected {self.n} places in {self.capacity} rows")
        for name, whole in (("table", self.table), ("reward", self.reward), ("kind", self.kind)):
            part, rows = torch.from_numpy(saved[name].copy()), whole.reshape(self.n, self.capacity, -1)
            if part.ndim != 3 or len(part) != self.n or part.shape[2] != rows.shape[2] or part.dtype != whole.dtype:
                raise ValueError(f"replay: {name}: found {tuple(part.shape)} {part.dtype}")
            rows[:, : part.shape[1]] = part
            rows[:, part.shape[1] :] = CUT if name == "kind" else 0
        self.head, self.count = head, count
