"""A student's first actions: those that give the torque which its teacher would give.

    kp (u - q) - kd v = kp_s (u_s - q) - kd_s v    =>    u = q + (kp_s (u_s - q) + (kd - kd_s) v) / kp

u_s is the teacher's target in the support world (gains kp_s, kd_s), u the student's in its own. Where the support world is the same
robot made soft, this is all that an action of one means in the other. Latency and torque limits are not in it: it is where learning
begins. The student's actor is fitted to u on the states that it drives to itself (DAgger), while its critic learns from the rewards.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.contract import Contract
from surefoot.errors import SurefootError, unknown
from surefoot.learn.collect import Rollout
from surefoot.learn.learner import PolicyLearner
from surefoot.learn.nets import adam_state, restore_adam
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.sim2sim.support import KINEMATIC
from surefoot.rng import key

TEACHER = "teacher"  # group that the teacher and its forward model are asked with
EPOCHS, MINIBATCHES, RATE = 4, 8, 1e-3


class SameTorque:
    """(n, na) actions of a student that give a teacher's torque."""

    def __init__(self, teacher: PolicyNet, own: Contract, joints: tuple[str, ...], widths: Mapping[str, slice]):
        there = teacher.contract
        if not there.kp or not own.kp or there.joints != own.joints:
            raise SurefootError(
                "imitation.prime: expected position servos on the same joints in both worlds; give --imitation.prime 0"
            )
        for name in own.joints:
            if name not in joints:
                raise unknown("joint", name, joints, "imitation.prime")
        at = np.array([joints.index(name) for name in own.joints])
        self.q, self.v = widths["joint_pos"].start + at, widths["joint_vel"].start + at
        self.teacher, self.own = teacher, own
        self.kp, self.kd = (np.array([getattr(c, k) for c in (there, own)]) for k in ("kp", "kd"))

    @torch.no_grad()
    def __call__(self, obs: np.ndarray, k: np.ndarray) -> np.ndarray:
        action, there = self.own.action, self.teacher.contract.action
        target = there.control(there.bounded(self.teacher(torch.from_numpy(obs)).numpy()))
        q, v = k[:, self.q], k[:, self.v]
        u = q + (self.kp[0] * (target - q) + (self.kd[1] - self.kd[0]) * v) / self.kp[1]
        return action.bounded((u - action.offset) / action.scale).astype(np.float32)


class Primer:
    """Fits a student's actor to such actions in the first share of its steps."""

    def __init__(self, law: SameTorque, share: float, seed: int):
        self.law, self.share, self.seed = law, share, seed

    def meet(self, learner: PolicyLearner, actor: nn.Module, see: nn.Module) -> None:
        self.actor, self.see = actor, see
        self.named = dict(actor.named_parameters())
        self.optimiser = torch.optim.Adam(self.named.values(), RATE, fused=True)

    def waits(self, iteration: int, iterations: int) -> bool:
        """Whether PPO leaves the actor alone: also in the first iteration, after which normalisers know what is seen."""
        return iteration < max(2, self.share * iterations)

    def learn(self, r: Rollout, iteration: int) -> dict[str, float]:
        if iteration == 0:
            return {}
        obs, teacher, k = (
            np.array(r.obs[g][:-1]).reshape(-1, r.obs[g].shape[-1]) for g in ("actor", TEACHER, KINEMATIC)
        )
        seen, wanted = self.see(torch.from_numpy(obs)), torch.from_numpy(self.law(teacher, k))
        losses: list[Tensor] = []
        for epoch in range(EPOCHS):
            rng = torch.Generator().manual_seed(key(self.seed, "prime", iteration * EPOCHS + epoch) >> 1)
            for part in torch.randperm(len(seen), generator=rng).chunk(MINIBATCHES):
                loss = (self.actor(seen[part]) - wanted[part]).square().mean()
                self.optimiser.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.named.values(), 1.0)
                self.optimiser.step()
                losses.append(loss.detach())
        for p in self.named.values():
            p.grad = None
        return {"prime_loss": float(torch.stack(losses).mean())}

    def save(self) -> dict[str, np.ndarray]:
        return {k: v.numpy().copy() for k, v in adam_state(self.optimiser, self.named).items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        restore_adam(self.optimiser, self.named, {k: torch.from_numpy(v.copy()) for k, v in arrays.items()})
