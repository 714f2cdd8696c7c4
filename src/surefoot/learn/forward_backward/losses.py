"""What forward and backward maps learn, over every pair of a batch's transitions.

    M^pi(s, a, X) = sum_{t >= 0} gamma^t P(s_{t+1} in X | s, a, pi)        the successor measure: discounted visits
    M^pi_z(s, a, ds') = F(s, a, z)^T B(s') rho(ds')                        rho: where transitions of the batch end
    r(s') = B(s')^T z   =>   Q^pi_z(s, a) = F(s, a, z)^T z                 so pi_z = argmax F^T z is the policy for that r

Bellman's equation M = P + gamma P M, as a loss with the target D_ij = gamma_i F'(s'_i, pi(s'_i), z_i)^T B'(s'_j):

    L = 1/2 mean_{i != j} (F_i^T B_j - D_ij)^2 - mean_i F_i^T B_i
    L_ortho = 1/2 mean_{i != j} (B_i^T B_j)^2 - mean_i B_i^T B_i           least where E[B B^T] = I

A transition i has weight w_i; where it ends an episode for good it visits nothing more, so column i has weight c_i = 0 and
gamma_i = 0. In a world of ten states F and B may be tables: then M is (I - gamma P)^-1 P, which a test holds them to.
"""

import torch
from torch import Tensor


def measure_loss(forward: Tensor, backward: Tensor, target: Tensor, w: Tensor, c: Tensor) -> Tensor:
    """L of F (k, n, d), summed over its k maps, B (n, d) and targets D (n, n), with weights of rows and columns (n,)."""
    M = forward @ backward.T  # (k, n, n)
    pairs = torch.outer(w, c).fill_diagonal_(0.0)
    apart = (0.5 * (M - target).square() * pairs).sum() / pairs.sum().clamp(min=1.0)
    own = (M.diagonal(dim1=1, dim2=2) * (w * c)).sum() / w.sum().clamp(min=1.0)
    return apart - own


def orthonormal_loss(backward: Tensor, c: Tensor) -> Tensor:
    """L_ortho of B (n, d) with weights (n,)."""
    G = backward @ backward.T
    pairs = torch.outer(c, c).fill_diagonal_(0.0)
    return (0.5 * G.square() * pairs).sum() / pairs.sum().clamp(min=1.0) - (G.diagonal() * c).sum() / c.sum().clamp(
        min=1.0
    )


def orthonormality(backward: Tensor) -> tuple[float, float]:
    """Largest and root mean square entry of E[B B^T] - I over rows B (n, d)."""
    off = backward.T @ backward / len(backward) - torch.eye(backward.shape[1])
    return float(off.abs().max()), float(off.square().mean().sqrt())


def regressed(backward: Tensor, reward: Tensor, centred: bool = True) -> tuple[Tensor, float]:
    """z (d,) for which B(s)^T z is nearest to r(s) over rows, and the share of r's variance that it explains.

    z = E[B B^T]^-1 E[B r]: E[B r] where B is orthonormal, and right where states are drawn from elsewhere. `centred`: r less
    its mean, which moves no choice where episodes do not end early.
    """
    n, d = backward.shape
    B, r = backward.double(), reward.double()
    r = r - r.mean() if centred else r
    gram = B.T @ B / n + 1e-4 * torch.eye(d, dtype=torch.float64)
    z = torch.linalg.solve(gram, B.T @ r / n)
    spread = (r - r.mean()).square().sum()
    left = (r - B @ z - (r - B @ z).mean()).square().sum()
    return z.float(), float(1 - left / spread) if float(spread) > 0 else 0.0


def on_sphere(z: Tensor) -> Tensor:
    """z (..., d) of norm sqrt(d): only its direction asks for anything."""
    return z / z.norm(dim=-1, keepdim=True).clamp(min=1e-8) * z.shape[-1] ** 0.5
