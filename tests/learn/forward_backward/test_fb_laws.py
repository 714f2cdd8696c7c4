"""The maths of forward-backward representations, where every number is known: a chain of ten states."""

from functools import lru_cache

import numpy as np
import pytest
import torch

from surefoot.learn.forward_backward.losses import measure_loss, on_sphere, orthonormal_loss, orthonormality, regressed

STATES, GAMMA = 10, 0.8


def chain() -> np.ndarray:
    """(10, 10): a step to the right with 0.7, to the left with 0.2, none with 0.1; walls at both ends."""
    P = 0.1 * np.eye(STATES)
    for s in range(STATES):
        P[s, min(s + 1, STATES - 1)] += 0.7
        P[s, max(s - 1, 0)] += 0.2
    return P


def drawn(P: np.ndarray, count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Transitions from states drawn evenly."""
    s = rng.integers(STATES, size=count)
    after = (rng.random((count, 1)) > P.cumsum(1)[s]).sum(1).clip(0, STATES - 1)
    return torch.from_numpy(s), torch.from_numpy(after)


@lru_cache
def learned(ends: bool = False, steps: int = 2000) -> tuple[torch.Tensor, torch.Tensor]:
    """F, B (10, 10) as tables, by the learner's own loss on sampled transitions; `ends`: state 9 ends it all."""
    P, rng = chain(), np.random.default_rng(0)
    F, B = (torch.from_numpy(0.3 * rng.standard_normal((STATES, STATES))).float().requires_grad_() for _ in range(2))
    Ft, Bt = F.detach().clone(), B.detach().clone()
    optimiser = torch.optim.Adam([F, B], 0.01)
    for k in range(steps):
        optimiser.param_groups[0]["lr"] = 0.01 * (1 - 0.98 * k / steps)
        s, after = drawn(P, 128, rng)
        w = torch.ones(128)
        c = (after != STATES - 1).float() if ends else w
        target = GAMMA * c[:, None] * (Ft[after] @ Bt[after].T)
        loss = measure_loss(F[s][None], B[after], target, w, c)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        Ft.lerp_(F.detach(), 0.1), Bt.lerp_(B.detach(), 0.1)
    return F.detach(), B.detach()


def test_the_successor_measure_of_a_chain_is_found_within_5_percent():
    """F B^T rho = (I - gamma P)^-1 P, with rho where transitions end."""
    P = chain()
    F, B = learned()
    rho = P.mean(0)
    found, exact = (F @ B.T).numpy() * rho, np.linalg.solve(np.eye(STATES) - GAMMA * P, P)
    assert np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)
    assert np.allclose(found.sum(1), 1 / (1 - GAMMA), rtol=0.05)  # every row: discounted visits in all


def test_what_ends_an_episode_is_visited_no_more():
    """With state 9 an end for good: P without its last row and column."""
    P = chain()
    F, B = learned(ends=True)
    lives = P.copy()
    lives[:, -1] = 0.0
    rho = lives.mean(0) / lives.mean(0).sum()
    found, exact = (F @ B.T).numpy() * rho, np.linalg.solve(np.eye(STATES) - GAMMA * lives, lives)
    assert np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)
    assert (
        np.abs(found[8].sum() - exact[8].sum()) < 0.15 < found[0].sum() - found[8].sum()
    )  # near the end little follows


def test_values_of_a_reward_that_was_never_learned_follow_from_the_maps():
    """Q = F^T z with z = E[B r] is (I - gamma P)^-1 P r."""
    P, r = chain(), np.sin(np.arange(STATES))
    F, B = learned()
    rho = torch.from_numpy(P.mean(0)).float()
    z = (rho[:, None] * B * torch.from_numpy(r).float()[:, None]).sum(0)
    exact = np.linalg.solve(np.eye(STATES) - GAMMA * P, P @ r)
    assert np.allclose((F @ z).numpy(), exact, atol=0.05 * np.abs(exact).max() + 0.05)


def test_the_orthonormal_loss_is_least_at_an_orthonormal_map():
    """Of ten states drawn evenly and d = 10: E[B B^T] = I, where B is sqrt(10) times a rotation."""
    rng = np.random.default_rng(1)
    B = torch.from_numpy(rng.standard_normal((STATES, STATES))).float().requires_grad_()
    optimiser = torch.optim.Adam([B], 0.02)
    for k in range(1500):
        optimiser.param_groups[0]["lr"] = 0.02 * (1 - 0.98 * k / 1500)
        at = torch.from_numpy(rng.integers(STATES, size=128))
        loss = orthonormal_loss(B[at], torch.ones(128))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    largest, rms = orthonormality(B.detach())
    assert largest < 0.1 and rms < 0.03


def test_a_reward_in_the_span_of_b_is_found_exactly_wherever_its_states_are_drawn():
    rng = torch.Generator().manual_seed(0)
    B, z = torch.randn((500, 6), generator=rng) * torch.arange(1.0, 7.0), torch.arange(6.0)
    found, share = regressed(B - B.mean(0), (B - B.mean(0)) @ z)
    assert torch.allclose(found, z, atol=2e-3) and share == pytest.approx(1.0, abs=1e-4)
    _, share = regressed(B, torch.randn(500, generator=rng))
    assert -0.01 < share < 0.05  # noise: nothing to explain
    assert on_sphere(found).norm().item() == pytest.approx(6**0.5, abs=1e-5)
