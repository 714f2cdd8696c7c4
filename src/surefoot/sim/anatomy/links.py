"""A robot as links and joints. A link is a group of bodies welded to each other; its number is that of its topmost body.

link(b) = body_weldid[b]        path(l) = root link, ..., l        joints(l): between l and its parent link
"""

from functools import cached_property

import mujoco
import numpy as np

from surefoot.sim.layout import FREE, SCALAR


class Links:
    """The tree of a model's moving links; the world is link 0."""

    def __init__(self, model: mujoco.MjModel):
        self.m = model

    @cached_property
    def all(self) -> list[int]:
        return [b for b in range(1, self.m.nbody) if self.m.body_weldid[b] == b]

    def parent(self, link: int) -> int:
        return int(self.m.body_weldid[self.m.body_parentid[link]])

    @cached_property
    def children(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {link: [] for link in (0, *self.all)}
        for link in self.all:
            found[self.parent(link)].append(link)
        return found

    def below(self, link: int) -> list[int]:
        """The link and all that hangs on it."""
        return [link, *(x for child in self.children[link] for x in self.below(child))]

    def path(self, link: int) -> list[int]:
        """From the root, which hangs on the world, to the link."""
        return [] if link == 0 else [*self.path(self.parent(link)), link]

    def joints(self, link: int) -> list[int]:
        """Hinges and slides that move a link against its parent."""
        first, count = int(self.m.body_jntadr[link]), int(self.m.body_jntnum[link])
        return [j for j in range(first, first + count) if self.m.jnt_type[j] in SCALAR] if count else []

    def bodies(self, link: int) -> list[int]:
        return [int(b) for b in np.flatnonzero(self.m.body_weldid == link)]

    def geoms(self, link: int) -> list[int]:
        return [int(g) for g in np.flatnonzero(self.m.body_weldid[self.m.geom_bodyid] == link)]

    @cached_property
    def free(self) -> int | None:
        """The free joint whose body carries the most joints, then mass; None where what is bolted down has more joints."""
        m, roots = self.m, [int(j) for j in np.flatnonzero(self.m.jnt_type == FREE)]
        size = {j: len(self.below(int(m.jnt_bodyid[j]))) - 1 for j in roots}
        bolted = len(self.all) - sum(size.values()) - len(roots)
        most = max(size.values(), default=-1)
        if most < bolted:
            return None
        return max(
            (j for j in roots if size[j] == most), key=lambda j: m.body_subtreemass[m.jnt_bodyid[j]], default=None
        )

    @cached_property
    def base(self) -> int:
        """Link with the free joint, or the world of a robot that is bolted down."""
        return 0 if self.free is None else int(self.m.jnt_bodyid[self.free])

    @cached_property
    def ends(self) -> list[int]:
        """Links of the robot on which nothing hangs."""
        return [link for link in self.robot if not self.children[link]]

    @cached_property
    def robot(self) -> list[int]:
        """Links of the robot: objects that lie about, free to move by themselves, are not."""
        if self.base:
            return self.below(self.base)
        return [x for root in self.children[0] if self.joints(root) for x in self.below(root)]

    @cached_property
    def moved(self) -> list[int]:
        """The robot's hinges and slides, as the model numbers them."""
        return sorted(j for link in self.robot for j in self.joints(link))


def posed(m: mujoco.MjModel, q: np.ndarray) -> mujoco.MjData:
    """Positions of everything at q."""
    d = mujoco.MjData(m)
    d.qpos[:] = q
    mujoco.mj_kinematics(m, d)
    mujoco.mj_comPos(m, d)
    return d
