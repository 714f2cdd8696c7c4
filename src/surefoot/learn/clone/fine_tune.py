"""Imitate, then improve: FPO begins with a policy that was cloned by a flow.

    a = spread x:   the flow's unit of actions, its net, its steps and its normaliser are the clone's;   the critic begins anew

The normaliser is held, so that what the net learned keeps its meaning, and for the first WAIT iterations only the critic learns:
an advantage by a critic that knows nothing would unlearn the clone.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from surefoot.errors import SurefootError
from surefoot.learn.nets import export
from surefoot.learn.nets.flow import FlowActor, NoiseActor
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.settings import FPOSettings
from surefoot.task import Task

WAIT = 5  # iterations
HELD = 1e12  # rows that a normaliser counts as seen: what comes does not move it


def as_cloned(start: Path, s: FPOSettings) -> FPOSettings:
    """Settings of FPO with the shape of a cloned net; they are the clone's, whatever was asked."""
    net = _flow(start)
    assert isinstance(net.actor, FlowActor)
    hidden = tuple(m.out_features for m in net.actor.body if isinstance(m, nn.Linear))[:-1]
    one = 1.0 if bool((net.actor.start != 0).any()) else 0.0
    return replace(
        s, hidden=hidden, activation=net.actor.activation, flow_steps=net.actor.steps, spread=net.scale, symmetric=False,
        start=one, wait=max(WAIT, s.wait),
    )  # fmt: skip


def cloned_arrays(start: Path, task: Task) -> dict[str, np.ndarray]:
    """Actor and normaliser of a cloned policy, as FPO's checkpoints name them."""
    net = _flow(start)
    was, now = (", ".join(t.name for t in terms) for terms in (net.contract.terms, task.observations["actor"].terms))
    if was != now or net.contract.obs_dim != task.observations["actor"].dim:
        raise SurefootError(f"{start}: start: its actor observes {was}; here it would observe {now}")
    if net.contract.action.names != task.action.names:
        names = ", ".join(task.action.names)
        raise SurefootError(
            f"{start}: start: it moves {', '.join(net.contract.action.names)}; here it would move {names}"
        )
    found = {f"net.actor.{k}": v.numpy().copy() for k, v in net.actor.state_dict().items()}
    sd = net.sd.double().numpy()
    see = {"mean": net.mean.double().numpy().copy(), "var": sd**2 - 1e-6, "count": np.array(HELD)}
    return found | {f"net.see_actor.{k}": v for k, v in see.items()}


def _flow(start: Path) -> PolicyNet:
    """The policy, if FPO can go on from it."""
    net = export.load_net(start)
    if net.base is None and isinstance(net.actor, FlowActor) and net.actor.chunk == 1 and not net.actor.mirrored:
        return net
    found = "another kind of policy"
    if isinstance(net.actor, NoiseActor):
        found = f"a {net.actor.kind} in chunks of {net.actor.chunk}"
    raise SurefootError(
        f"{start}: start: expected a flow of one action at a time (surefoot clone --by flow --chunk 1), found {found}"
    )
