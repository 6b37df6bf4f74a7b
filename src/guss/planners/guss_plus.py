"""GuSS+: an archive of policies and action sequences, with elites carried over and parents that are good or random."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from guss.errors import GussError
from guss.planners import archive as archives
from guss.planners import register_planner
from guss.planners.action_sequences import ActionSequences
from guss.planners.archive import Archive, Rule, best_of_cells
from guss.planners.candidates import Candidates, Policies
from guss.planners.components import Components, no_components, principal_components, project
from guss.planners.mixed_candidates import MixedCandidates
from guss.planners.novelty import most_novel
from guss.types import Planner, Rollout, Scores, setting
from guss.validation import check_ranges


class Memory(NamedTuple):
    """The best elites of the last plan."""

    elites: Float[Array, "E size"]
    known: Bool[Array, "E"]


class PlusState(NamedTuple):
    """The archive, what the first generation receives from the last plan, and the axes of learned descriptors."""

    archive: Archive
    memory: Memory
    components: Components | None


class PlusDraws(NamedTuple):
    """The random numbers of one generation."""

    lots: Float[Array, "M"]  # uniform in (−1, 1), one per row of the archive
    noise: Float[Array, "N size"]  # standard normal
    lines: Float[Array, "N 1"]  # standard normal


@register_planner("guss-plus", paper="–")
class GussPlus(Planner):
    """GuSS with mixed candidates (policies and action sequences), greedy parents and elites of the last plan."""

    objective = "cost"

    candidates: Literal["mixed", "policy", "sequence"] = setting(
        "mixed", "what is evolved: policy networks, action sequences, or both in one archive"
    )
    policy_share: float = setting(0.7, "share of policies among the new candidates of a mixed archive")
    num_initial: int = setting(25, "candidates evaluated before the evolution starts, those of the last plan included")
    num_new: int = setting(15, "candidates per generation")
    num_carried: int = setting(4, "elites of the last plan that start the next one")
    greedy_share: float = setting(0.5, "share of the parents that are the best elites; the others are random elites")
    parents: Literal["all", "safe"] = setting(
        "all", "random parents are drawn from all elites, or from those without cost"
    )
    line_std: float = setting(0.0, "standard deviation of the step along the line to another parent")
    policy_hidden: tuple[int, ...] = setting((5,), "units of a policy's hidden layers")
    policy_std: float = setting(0.7, "standard deviation of sampled weights")
    policy_mutation: float = setting(0.22, "standard deviation of the noise added to weights")
    sequence_std: float = setting(1.0, "standard deviation of sampled sequences, before tanh")
    sequence_mutation: float = setting(0.5, "standard deviation of the noise added to sequences, before tanh")
    noise_exponent: float = setting(1.0, "0: white noise over the steps of a sequence, 1 pink, 2 brown")
    diversity: Literal["grid", "novelty"] = setting(
        "grid",
        "elites are the best of each cell of the task's grid (grid), or those far from better ones (novelty)",
    )
    novelty_k: int = setting(3, "novelty: the nearest better candidates, whose mean distance counts")
    population: int = setting(25, "novelty: number of elites")
    descriptor: Literal["task", "pca"] = setting(
        "task", "novelty: distances between the task's descriptors, or principal components of trajectories (pca)"
    )
    components: int = setting(3, "pca: number of components")

    def __check_init__(self) -> None:
        check_ranges(self, "method", num_initial="[1, inf)", num_new="[1, inf)", num_carried="[0, inf)")
        check_ranges(
            self, "method", policy_share="[0, 1]", greedy_share="[0, 1]", line_std="[0, inf)", policy_hidden="[1, inf)"
        )
        check_ranges(self, "method", policy_std="(0, inf)", policy_mutation="[0, inf)", sequence_std="(0, inf)")
        check_ranges(self, "method", sequence_mutation="[0, inf)", noise_exponent="[0, inf)")
        check_ranges(self, "method", novelty_k="[1, inf)", population="[1, inf)", components="[1, inf)")
        if self.descriptor == "pca" and self.diversity == "grid":
            raise GussError(
                "descriptor='pca' with diversity='grid': the grid's cells are regions of the task's descriptor; "
                "set diversity='novelty', or descriptor='task'"
            )
        if self.descriptor == "pca" and self.components > (numbers := self.horizon * self.interface.obs_size):
            raise GussError(
                f"components={self.components}: a trajectory of {self.horizon} steps has only {numbers} numbers"
            )
        if self.num_carried > self.num_initial:
            raise GussError(
                f"num_carried={self.num_carried} elites of the last plan do not fit into the first generation: "
                f"num_initial={self.num_initial}"
            )
        if 0 < self.budget < self.num_initial:
            raise GussError(
                f"a budget of {self.budget} plans is smaller than the first generation: num_initial={self.num_initial}"
            )

    @property
    def representation(self) -> Candidates:
        """How numbers are read as plans."""
        policies = Policies(self.interface, self.policy_hidden, self.policy_std, self.policy_mutation)
        sequences = ActionSequences(
            self.interface, self.horizon, self.noise_exponent, self.sequence_std, self.sequence_mutation
        )
        kinds = {"policy": policies, "sequence": sequences}
        return kinds.get(self.candidates) or MixedCandidates(self.interface, policies, sequences, self.policy_share)

    def schedule(self, budget: int) -> tuple[int, ...]:
        if self.num_new < 1 or budget < self.num_initial:
            return (budget,)
        full, rest = divmod(budget - self.num_initial, self.num_new)
        return (self.num_initial,) + (self.num_new,) * full + ((rest,) if rest else ())

    def first_memory(self) -> Memory:
        """No elites."""
        size = self.representation.size
        return Memory(jnp.zeros((self.num_carried, size), jnp.float32), jnp.zeros((self.num_carried,), bool))

    def memory(self, state: PlusState) -> Memory:
        """The best elites; their predictions were finite."""
        archive = state.archive
        rows = _ranking(archive)[: self.num_carried]
        return Memory(archive.candidates[rows], archive.elite[rows])

    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: Memory) -> PlusState:
        learned = self.descriptor == "pca"
        sizes = {"grid": None, "novelty": self.components if learned else self.interface.descriptor_size}
        empty = archives.empty(jnp.zeros((self.representation.size,), jnp.float32), self.budget, sizes[self.diversity])
        axes = no_components(self.horizon, self.interface.obs_size, self.components) if learned else None
        return PlusState(empty, memory, axes)

    def draws(self, key: PRNGKeyArray, num: int) -> PlusDraws:
        size = self.representation.size
        above = jnp.nextafter(jnp.float32(-1.0), jnp.float32(0.0))  # erf⁻¹(−1) is infinite
        unit = jax.random.uniform(key, (self.budget + num * (size + 1),), minval=above, maxval=1.0)
        normal = math.sqrt(2.0) * jax.lax.erf_inv(unit[self.budget :]).reshape(num, size + 1)
        return PlusDraws(unit[: self.budget], normal[:, 1:], normal[:, :1])

    def ask(self, state: PlusState, draws: PlusDraws, num: int) -> Float[Array, "N size"]:
        """First the elites of the last plan and new candidates, then children."""
        archive, kinds = state.archive, self.representation
        sampled = kinds.sample(draws.noise)
        if num >= self.num_carried > 0:
            carried = kinds.next_step(state.memory.elites)
            kept = jnp.where(state.memory.known[:, None], carried, sampled[: self.num_carried])
            first = sampled.at[: self.num_carried].set(kept)
        else:
            first = sampled
        parents, found = self.select(archive, draws.lots, num)
        others = jnp.roll(parents, 1, axis=0)
        along = jnp.where(kinds.comparable(parents, others)[:, None], others - parents, 0.0)
        children = parents + kinds.mutation(draws.noise, parents) + self.line_std * draws.lines * along
        return jnp.where((archive.size == 0) | ~found[:, None], first, children)

    def select(
        self, archive: Archive, lots: Float[Array, "M"], num: int
    ) -> tuple[Float[Array, "N size"], Bool[Array, "N"]]:
        """Parents: random elites, and the best elites; the best also replace random ones that are missing."""
        uniform = num - round(self.greedy_share * num)
        eligible = archive.elite if self.parents == "all" else archive.elite & archive.scores.safe
        drawn, rows = jax.lax.top_k(jnp.where(eligible, lots, -1.0), uniform)
        best = _ranking(archive)[:num]
        best = best[jnp.arange(num) % jnp.clip(archive.occupancy, 1, num)]
        chosen = jnp.concatenate([jnp.where(drawn > -1.0, rows, best[:uniform]), best[: num - uniform]])
        return archive.candidates[chosen], archive.elite[chosen]

    def act(self, candidate: Float[Array, "size"], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        return self.representation.act(candidate, obs, t)

    def describe(self, rollout: Rollout, descriptor: Float[Array, "B"]) -> Float[Array, "F"] | None:
        """Nothing (grid), the task's descriptor, or the trajectory: the mean over particles of all its observations."""
        if self.diversity == "grid":
            return None
        return descriptor if self.descriptor == "task" else jnp.mean(rollout.next_obs, axis=0).ravel()

    def tell(self, state: PlusState, candidates: Float[Array, "N size"], scores: Scores) -> PlusState:
        components = state.components
        if components is not None:
            assert scores.descriptor is not None
            paths = scores.descriptor.reshape(-1, self.horizon, self.interface.obs_size)
            components = jax.lax.cond(
                state.archive.size == 0,
                lambda: principal_components(paths, scores.finite, self.components),
                lambda: components,
            )
            scores = scores._replace(descriptor=project(components, paths))
        return state._replace(
            archive=archives.store(state.archive, candidates, scores, self.rule), components=components
        )

    @property
    def rule(self) -> Rule:
        """Which candidates are elites."""
        if self.diversity == "grid":
            return best_of_cells
        return partial(most_novel, population=self.population, nearest=self.novelty_k)

    def best(self, state: PlusState) -> Float[Array, "size"]:
        return archives.best(state.archive)[0]

    def best_scores(self, state: PlusState) -> Scores:
        return archives.best(state.archive)[1]

    @property
    def keeps_archive(self) -> bool:
        return self.diversity == "grid"

    def occupancy(self, state: PlusState) -> Int[Array, ""]:
        return state.archive.occupancy


def _ranking(archive: Archive) -> Int[Array, "M"]:
    """Rows of elites from best to worst, then the other rows."""
    scores, order = archive.scores, jnp.arange(archive.elite.shape[0], dtype=jnp.int32)
    keys = ((~archive.elite).astype(jnp.int32), scores.hard, scores.cost, -scores.reward, order)
    return jax.lax.sort(keys, num_keys=4)[-1]
