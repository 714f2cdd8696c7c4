"""Peers: N processes share a learner's update. Each has a part of the batch's rows, and their gradients are summed by gloo.

    rank k: rows k, k + N, ...        a minibatch has as many of each rank        g = sum_k g_k        rank 0, the learner, steps

Minibatches are drawn by rank and sums are rounded in another order than in one process: the bits are others, and the run
says so. They are the same whenever N is, whoever died on the way: an update whose peer dies is begun again with a new one.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from surefoot.errors import SurefootError
from surefoot.learn.cluster.address import On
from surefoot.learn.cluster.ray_workers import DEATHS, connect
from surefoot.learn.cluster.worker import Plan, same_task, sent_parents
from surefoot.learn.on_policy.group import Group
from surefoot.learn.on_policy.learner import OnPolicy
from surefoot.learn.runspec import RunSpec

if TYPE_CHECKING:
    from surefoot.learn.run import Run

INTERFACE = "GLOO_SOCKET_IFNAME"  # by which gloo is told where to listen
WAIT = timedelta(seconds=300)  # for a peer that says nothing
Meeting = tuple[str, int]
"""a file that all can open and 0, or host and port"""


class Gloo(Group):
    """Ranks that torch.distributed connects."""

    def __init__(self, meeting: Meeting, rank: int, size: int):
        self.rank, self.size = rank, size
        where, port = meeting
        store = dist.TCPStore(where, port, size, rank == 0, WAIT, False) if port else dist.FileStore(where, size)
        with nullcontext() if port else _loopback():
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=WAIT)

    def total(self, numbers: Sequence[float]) -> list[float]:
        found = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(found)
        return found.tolist()

    def summed(self, gradients: Sequence[Tensor | None], losses: Tensor) -> tuple[list[Tensor | None], Tensor]:
        there = [g for g in gradients if g is not None]
        flat = torch.cat([*(g.reshape(-1) for g in there), losses])
        dist.reduce(flat, 0)
        *parts, losses = flat.split([*(g.numel() for g in there), len(losses)])
        each = iter(part.view_as(g) for part, g in zip(parts, there))
        return [None if g is None else next(each) for g in gradients], losses

    @torch.no_grad()
    def follow(self, learned: Sequence[Tensor]) -> None:
        flat = torch.cat([p.detach().reshape(-1) for p in learned])
        dist.broadcast(flat, 0)
        if self.rank:
            for p, part in zip(learned, flat.split([p.numel() for p in learned])):
                p.copy_(part.view_as(p))


@contextmanager
def _loopback() -> Iterator[None]:
    """Connections of this machine alone: gloo listens where the host's name leads, and asks nobody who they are."""
    before = os.environ.get(INTERFACE)
    os.environ[INTERFACE] = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    try:
        yield
    finally:
        os.environ.pop(INTERFACE)
        if before is not None:
            os.environ[INTERFACE] = before


class Peer:
    """A rank other than the learner's, in a Ray actor: a replica of its nets, and no envs but one to build them for."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.learner: OnPolicy | None = None
        self.group: Gloo | None = None

    def join(self, meeting: Meeting, rank: int, size: int) -> None:
        self.learner = self.learner or _replica(self.plan)
        if dist.is_initialized():
            dist.destroy_process_group()
        self.group = Gloo(meeting, rank, size)

    def steps(self, rows: Any, widths: list[int], before: Any, iteration: int, nets: dict[str, Any]) -> None:
        assert self.learner is not None and self.group is not None
        self.learner.modules.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in nets.items()})
        self.learner.iteration = iteration
        self.learner.steps(torch.from_numpy(rows), widths, torch.from_numpy(before), self.group)


def _replica(plan: Plan) -> OnPolicy:
    from surefoot.learn.build import learner_of
    from surefoot.learn.envs import learners_task, part

    spec = RunSpec.from_json(dict(plan.spec))
    task = same_task(plan)
    parents = sent_parents(plan, spec, task)
    task = learners_task(spec, task, parents)
    found = learner_of(spec, task, parents, part(spec, parents, task, slice(0, 1), 1), [])
    assert isinstance(found, OnPolicy)
    return found


class Peers:
    """Rank 0's view of the others."""

    def __init__(self, on: On, plan: Plan, run: "Run"):
        self.on, self.plan, self.run, self.size = on, plan, run, on.shards
        self.ray = connect(on)
        how = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self.kind = self.ray.remote(**how)(Peer)
        self.actors: list[Any] = []
        self.group: Gloo | None = None
        self.folder = TemporaryDirectory()
        self.meetings = 0
        run.update = f"by {self.size} processes"
        run.notes.append(
            f"the update is shared by {self.size} processes: the result has not the bits of one process, "
            f"and the same bits only with --shards {self.size}"
        )

    def steps(self, learner: OnPolicy, table: Tensor, widths: list[int], before: Tensor) -> list[Tensor]:
        """What `learner.steps` gives, by all ranks; begun again if one dies."""
        undo, lr = {k: v.clone() for k, v in learner.state_dict().items()}, learner.lr
        for _ in range(DEATHS + 1):
            asked: list[Any] = []
            try:
                self._meet()
                nets = self.ray.put({k: v.numpy() for k, v in learner.modules.state_dict().items()})
                for k, actor in enumerate(self.actors, 1):
                    rows = table[k :: self.size].numpy()
                    asked.append(actor.steps.remote(rows, widths, before.numpy(), learner.iteration, nets))
                assert self.group is not None
                found = learner.steps(table[:: self.size].contiguous(), widths, before, self.group)
                self.ray.get(asked)
                return found
            except (RuntimeError, self.ray.exceptions.RayError) as error:
                self._refused(asked)
                self.run.notes.append(f"a process that shares the update died ({type(error).__name__}); begun again")
                self._part()
                learner.load_state_dict(undo)
                learner.lr = lr
        raise SurefootError(f"--shards: processes died {DEATHS + 1} times in a row: out of memory? see Ray's logs")

    def _meet(self) -> None:
        """All ranks connected; where they are not yet, with new peers."""
        if self.group is not None:
            return
        self.actors = [self.kind.remote(self.plan) for _ in range(1, self.size)]
        self.meetings += 1
        meeting = self._meeting()
        asked = [actor.join.remote(meeting, k, self.size) for k, actor in enumerate(self.actors, 1)]
        try:
            self.group = Gloo(meeting, 0, self.size)
        except RuntimeError:
            self._refused(asked)
            raise
        self.ray.get(asked)

    def _meeting(self) -> Meeting:
        if self.on.local:
            return str(Path(self.folder.name) / f"meeting{self.meetings}"), 0
        with socket.socket() as free:  # of the machine that the cluster knows the learner by
            host = self.ray.util.get_node_ip_address()
            free.bind((host, 0))
            return host, free.getsockname()[1]

    def _refused(self, asked: Sequence[Any]) -> None:
        """What a peer raises is raised here; a connection that broke is another's death."""
        for reference in asked:
            try:
                self.ray.get(reference, timeout=10)
            except self.ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, RuntimeError):
                    raise error.cause from None
            except self.ray.exceptions.RayError:
                continue

    def _part(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors, self.group = [], None
        if dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()

    def close(self) -> None:
        self._part()
        self.folder.cleanup()
