"""Order: dependencies between tasks, and an order in which they can be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def faults(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """List the faults of dependencies (for each id, the ids that come first); empty if they can be followed."""
    found = [
        f"{id} depends on {need}, which does not exist"
        for id, wants in needs.items()
        for need in wants
        if need not in needs
    ]
    found += [f"{id} depends on itself" for id, wants in needs.items() if id in wants]
    if not found and (circle := cycle(needs)):
        found.append(f"the dependencies run in a circle: {' → '.join(circle)}")
    return found


def ordered(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Sort the ids so that each comes after those it needs, otherwise in the given order.

    Ids in a circle are left out.
    """
    done: dict[str, None] = {}
    left = dict(needs)
    while left:
        free = [id for id, wants in left.items() if all(need in done or need not in needs for need in wants)]
        if not free:
            break
        for id in free:
            done[id] = None
            del left[id]
    return list(done)


def cycle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a circle, its first id again at its end; empty if no circle exists."""
    stuck = set(needs).difference(ordered(needs))
    if not stuck:
        return []
    path = [next(id for id in needs if id in stuck)]
    while True:
        following = next(need for need in needs[path[-1]] if need in stuck)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
