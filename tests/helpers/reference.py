"""Alg. 2–6 in plain Python: slow, obvious, one policy at a time. The compiled planner must agree with it."""

from dataclasses import dataclass


@dataclass
class Entry:
    """What the collection keeps of a policy."""

    policy: object
    cell: int
    hard: float
    cost: float
    reward: float
    arrival: int


class Collection:
    """A_ME with the STORE, SELECT and final choice of the paper."""

    def __init__(self, safety=True):
        self.cells = {}
        self.arrivals = 0
        self.safety = safety  # False: Alg. 3, reward alone

    def store(self, policy, cell, hard, cost, reward, finite):
        """Alg. 5 (or Alg. 3): called for one policy after the other."""
        new = Entry(policy, cell, hard if self.safety else 0, cost if self.safety else 0, reward, self.arrivals)
        self.arrivals += 1
        if not finite:
            return
        if cell not in self.cells:
            self.cells[cell] = new
            return
        old = self.cells[cell]
        if new.hard != old.hard:
            replace = new.hard < old.hard
        elif new.cost != old.cost:
            replace = new.cost < old.cost
        else:
            replace = new.reward > old.reward
        if replace:
            self.cells[cell] = new

    def eligible(self):
        """Elites without cost, by arrival."""
        free = [e for e in self.cells.values() if e.hard == 0 and e.cost == 0]
        return sorted(free, key=lambda e: e.arrival)

    def select(self, num, lots):
        """Alg. 6, line 3: up to `num` elites; `lots[arrival]` is each one's random number, the highest are drawn."""
        return sorted(self.eligible(), key=lambda e: -lots[e.arrival])[:num]

    def best(self):
        """Alg. 4, lines 16–17."""
        entries = sorted(self.cells.values(), key=lambda e: e.arrival)
        lowest_hard = [e for e in entries if e.hard == min(e.hard for e in entries)]
        lowest_cost = [e for e in lowest_hard if e.cost == min(e.cost for e in lowest_hard)]
        best = lowest_cost[0]
        for entry in lowest_cost:
            if entry.reward > best.reward:
                best = entry
        return best


def walk(policy_act, start, areas, goal, size, horizon):
    """ROLLOUT in the toy world in whole numbers: reward, cost and final position of one policy."""
    x, y = start
    reward, cost = 0, 0
    for _ in range(horizon):
        dx, dy = policy_act((x, y))
        x, y = min(max(x + dx, 0), size), min(max(y + dy, 0), size)
        reward -= (x - goal[0]) ** 2 + (y - goal[1]) ** 2
        cost += any(x0 <= x <= x1 and y0 <= y <= y1 for x0, x1, y0, y1 in areas)
    return reward, cost, (x, y)


class Fronts:
    """A Pareto front per cell, one policy stored after the other."""

    def __init__(self):
        self.cells = {}
        self.arrivals = 0

    def store(self, policy, cell, hard, cost, reward, finite):
        """Leave it if someone in the cell is as good in everything; otherwise put out whom it beats."""
        new = Entry(policy, cell, hard, cost, reward, self.arrivals)
        self.arrivals += 1
        front = self.cells.get(cell, [])
        if not finite or any(equal(old, new) or dominates(old, new) for old in front):
            return
        self.cells[cell] = [old for old in front if not dominates(new, old)] + [new]


def equal(a, b):
    return (a.hard, a.cost, a.reward) == (b.hard, b.cost, b.reward)


def dominates(a, b):
    if a.hard != b.hard:
        return a.hard < b.hard
    at_least = a.cost <= b.cost and a.reward >= b.reward
    return at_least and (a.cost < b.cost or a.reward > b.reward)


class Population(Collection):
    """Dominated novelty search: newcomers are stored one by one, then `survive` ends the generation.

    An entry's cell is its descriptor. `cells` has the entries by arrival, so that the rest works as in a collection.
    """

    def __init__(self, size, nearest):
        super().__init__()
        self.size, self.nearest = size, nearest
        self.descriptors = []  # of all plans so far

    def store(self, policy, descriptor, hard, cost, reward, finite):
        if finite:
            self.cells[self.arrivals] = Entry(policy, descriptor, hard, cost, reward, self.arrivals)
            self.descriptors.append(descriptor)
        self.arrivals += 1

    def scale(self):
        """The standard deviation of each dimension, over all plans so far."""
        columns = list(zip(*self.descriptors, strict=True))
        means = [sum(column) / len(column) for column in columns]
        return [
            (sum((x - mean) ** 2 for x in column) / len(column)) ** 0.5
            for column, mean in zip(columns, means, strict=True)
        ]

    def offsets(self, entry, scale):
        """How the nearest fitter entries differ from this one: (distance, absolute differences), nearest first."""
        key = lambda e: (e.hard, e.cost, -e.reward, e.arrival)  # noqa: E731
        found = []
        for other in self.cells.values():
            if key(other) < key(entry):
                apart = [abs(a - b) for a, b in zip(entry.cell, other.cell, strict=True)]
                distance = sum((d / s) ** 2 for d, s in zip(apart, scale, strict=True) if s > 0) ** 0.5
                found.append((distance, tuple(apart)))
        return sorted(found)[: self.nearest]

    def survive(self, rows):
        """Whether `rows` may be the survivors, which they then are.

        Equal offsets are a tie, which the earlier arrival wins. Where only rounding errors decide, both may survive.
        """
        scale = self.scale() if self.cells else []
        nearest = {arrival: self.offsets(entry, scale) for arrival, entry in self.cells.items()}
        fitness = {
            arrival: sum(d for d, _ in near) / len(near) if near else float("inf") for arrival, near in nearest.items()
        }
        assert set(rows) <= set(self.cells), "only finite newcomers and members of the population survive"
        assert len(rows) == min(self.size, len(self.cells))
        for out in set(self.cells) - set(rows):
            for row in rows:
                if nearest[row] == nearest[out]:
                    assert row < out
                else:
                    assert fitness[row] >= fitness[out] - 1e-5 * (1.0 + fitness[out])
        self.cells = {arrival: entry for arrival, entry in self.cells.items() if arrival in set(rows)}
