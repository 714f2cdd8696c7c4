"""Names of joints: which two are confused, which belong to one limb, and in which other orders they often are."""

import itertools
from collections.abc import Iterator, Sequence

from surefoot.fault import Fault, Names, Order, Times, swapped
from surefoot.robot import kind_of, mirror_of

FEW = 6  # motors: of more, only those of one kind are tried as exchanged
MOST_LIMBS = 4  # whose every order is tried; of more, only exchanges of two


def exchanges(column: str, names: Sequence[str], words: str, alike: bool = False) -> Iterator[Fault]:
    """Two parts of a column exchanged; with `alike`, of many parts only the same joint of two limbs."""
    for i, j in itertools.combinations(range(len(names)), 2):
        if not alike or len(names) <= FEW or kind_of(names[i]) == kind_of(names[j]):
            order = Order((column,), swapped(len(names), i, j))
            yield Fault("order", words.format(names[i], names[j]), (order,))


def signs(column: str, names: Sequence[str], words: str) -> Iterator[Fault]:
    """One part of a column with the other sign."""
    for i, name in enumerate(names):
        yield Fault("sign", words.format(name), (Times((column,), (i,)),))


def limbs(names: Sequence[str]) -> dict[str, list[int]]:
    """Groups of joints, such as legs, of one size: joints whose names have the same side, or the same text before the first
    underscore; none where the names show no groups."""
    by_side, by_word = dict[str, list[int]](), dict[str, list[int]]()
    for i, name in enumerate(names):
        by_side.setdefault(_limb(name), []).append(i)
        by_word.setdefault(name.split("_")[0], []).append(i)
    sided = {k: v for k, v in by_side.items() if k and len(v) > 1}  # joints of a torso belong to no limb
    alike = lambda found: len(found) > 1 and len({len(v) for v in found.values()}) == 1  # noqa: E731
    return next((x for x in (sided, by_word) if alike(x) and len(next(iter(x.values()))) > 1), {})


def _limb(name: str) -> str:
    """FL of FL_hip_joint; empty where the name has no side."""
    kind = kind_of(name)
    if kind == name:
        return ""
    return name[: name.index(kind)].strip("_") if kind in name else name.replace(kind, "").strip("_")


def orders(joints: Sequence[str], by_kind: bool = True) -> Iterator[tuple[str, Names]]:
    """(name, joints) of other orders that are in use: limbs exchanged, and joint by joint across limbs."""
    own = limbs(joints)
    keys = list(own)
    swaps = ([keys[k] for k in swapped(len(keys), i, j)] for i, j in itertools.combinations(range(len(keys)), 2))
    for other in map(list, itertools.permutations(keys)) if len(keys) <= MOST_LIMBS else swaps:
        if other != keys:
            order = list(joints)
            for a, b in zip(keys, other):
                for i, j in zip(own[a], own[b]):
                    order[i] = joints[j]
            yield " ".join(other), tuple(order)
    across = tuple(joints[limb[k]] for k in range(len(own[keys[0]])) for limb in own.values()) if own else ()
    if by_kind and len(across) == len(joints) and across != tuple(joints):
        yield "all first joints, all second joints, ...", across


def mirrored_pairs(joints: Sequence[str]) -> Iterator[tuple[str, Names]]:
    """(name, joints) with one joint and its mirror image exchanged."""
    for i, name in enumerate(joints):
        j = joints.index(mirror_of(name)) if mirror_of(name) in joints else -1
        if j > i:
            yield f"{name} and {joints[j]}", tuple(joints[k] for k in swapped(len(joints), i, j))
