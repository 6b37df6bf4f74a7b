"""Common base of MAP-Elites (Alg. 2) and GuSS (Alg. 4): they evolve policies in an archive of elites."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from guss.errors import GussError
from guss.limits import MAX_WEIGHTS
from guss.planners import archive as archives
from guss.planners import policy
from guss.planners.archive import Archive
from guss.types import Planner, Scores, setting
from guss.validation import check_ranges

MOST_DRAWS = 2**26
"""Up to this many random numbers are drawn before a plan starts: a quarter of a gigabyte."""


class Draws(NamedTuple):
    """The random numbers of one generation."""

    lots: Float[Array, "M"]  # uniform in (−1, 1), for SELECT, one per row of the archive
    noise: Float[Array, "N params"]  # standard normal, for SAMPLE and mutation


class ElitePlanner(Planner):
    """Evolves an archive of small policies; `ranking_scores` defines which policy is better."""

    keeps_archive = True

    num_initial: int = setting(25, "n: policies sampled before the evolution starts")
    num_new: int = setting(5, "n_new: policies per generation")
    mutation_variance: float = setting(0.05, "Σ: variance of the noise added to every parameter")
    sample_std: float = setting(1.0, "standard deviation of freshly sampled weights and biases")
    policy_hidden: tuple[int, ...] = setting((5,), "units of the policy's hidden layers")
    warm_start: bool = setting(True, "include the last plan's policy in the initial ones (not in the paper)")

    def __check_init__(self) -> None:
        check_ranges(self, "method", num_initial="[1, inf)", num_new="[1, inf)", policy_hidden="[1, inf)")
        check_ranges(self, "method", mutation_variance="[0, inf)", sample_std="(0, inf)")
        if 0 < self.budget < self.num_initial:
            raise GussError(
                f"a budget of {self.budget} plans is smaller than the {self.num_initial} initial policies; "
                f"raise the budget or lower num_initial"
            )
        weights = policy.num_parameters(self.sizes)
        MAX_WEIGHTS.check(f"an archive of {self.budget} policies with {weights} weights each", self.budget * weights)

    @abstractmethod
    def ranking_scores(self, scores: Scores) -> Scores:
        """The scores that STORE, SELECT and the final choice compare."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units per layer of a policy."""
        return policy.layer_sizes(self.interface, self.policy_hidden)

    def schedule(self, budget: int) -> tuple[int, ...]:
        """n policies, then n_new at a time; the last generation is smaller if M requires it."""
        if self.num_new < 1 or budget < self.num_initial:
            return (budget,)
        full, rest = divmod(budget - self.num_initial, self.num_new)
        return (self.num_initial,) + (self.num_new,) * full + ((rest,) if rest else ())

    def first_memory(self) -> Float[Array, "params"]:
        """NaN: no policy to start from."""
        return jnp.full((policy.num_parameters(self.sizes),), jnp.nan, jnp.float32)

    def memory(self, state: Archive) -> Float[Array, "params"]:
        """The chosen policy (`warm_start`): it is closed-loop, so it suits the next step as well."""
        return self.best(state) if self.warm_start else self.first_memory()

    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: Float[Array, "params"]) -> Archive:
        """A_ME = ∅ (Alg. 4, line 3). Row 0 holds the remembered policy until the first arrival overwrites it."""
        empty = archives.empty(memory, self.budget)
        return empty._replace(candidates=empty.candidates.at[0].set(memory))

    def draws(self, key: PRNGKeyArray, num: int) -> Draws | PRNGKeyArray:
        """The numbers of one generation; the key itself if those of a whole plan would take too much memory."""
        room = len(self.schedule(self.budget)) * (self.budget + num * policy.num_parameters(self.sizes))
        return key if room > MOST_DRAWS else self._drawn(key, num)

    def _drawn(self, key: PRNGKeyArray, num: int) -> Draws:
        """Draw all numbers in one call: each call has a fixed overhead."""
        shape = (num, policy.num_parameters(self.sizes))
        above = jnp.nextafter(jnp.float32(-1.0), jnp.float32(0.0))  # erf⁻¹(−1) is infinite
        unit = jax.random.uniform(key, (self.budget + math.prod(shape),), minval=above, maxval=1.0)
        noise = math.sqrt(2.0) * jax.lax.erf_inv(unit[self.budget :])
        return Draws(unit[: self.budget], noise.reshape(shape))

    def ask(self, state: Archive, draws: Draws | PRNGKeyArray, num: int) -> Float[Array, "N params"]:
        """SAMPLE for the first generation (line 4), SELECT and mutate for the others (lines 10–12)."""
        lots, noise = draws if isinstance(draws, Draws) else self._drawn(draws, num)
        first = state.size == 0
        remembered = state.candidates[0]
        sampled = self.sample_std * noise
        sampled = sampled.at[0].set(jnp.where(jnp.all(jnp.isfinite(remembered)), remembered, sampled[0]))
        parents, found = self.select(state, lots, num)
        mutated = parents + self.mutation_variance**0.5 * noise
        # Alg. 6, line 5: missing policies are sampled, then mutated: together, one wider normal.
        missing = (self.sample_std**2 + self.mutation_variance) ** 0.5 * noise
        return jnp.where(first, sampled, jnp.where(found[:, None], mutated, missing))

    def select(
        self, state: Archive, lots: Float[Array, "M"], num: int
    ) -> tuple[Float[Array, "N params"], Bool[Array, "N"]]:
        """SELECT (Alg. 6): parents, and which of them are valid."""
        return archives.select(state, lots, num)

    def act(self, candidate: Float[Array, "params"], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        return policy.act(candidate, obs, self.interface, self.sizes)

    def tell(self, state: Archive, candidates: Float[Array, "N params"], scores: Scores) -> Archive:
        """STORE (lines 8 and 15)."""
        return archives.store(state, candidates, self.ranking_scores(scores))

    def best(self, state: Archive) -> Float[Array, "params"]:
        """Lowest cost, then highest reward, over the archive (lines 16–17)."""
        return archives.best(state)[0]

    def best_scores(self, state: Archive) -> Scores | None:
        """The stored scores; None if `ranking_scores` removed the cost or merged it into the reward."""
        return archives.best(state)[1] if self.objective == "cost" else None

    def occupancy(self, state: Archive) -> Int[Array, ""]:
        return state.occupancy
