"""Generators based on Optuna's samplers: `tpe`, `gp`, `cmaes`, `nsga2`. Their parameters have the names that Optuna uses."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from hopyard._common.extras import install_command
from hopyard.generator import GeneratorParameterError
from hopyard.space import Configuration, Space, show
from hopyard_hpgen.generators.optuna_study import OptunaGenerator, check_share, check_truth, check_whole

from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, TPESampler  # isort: skip - after optuna_study's check


class TpeGenerator(OptunaGenerator):
    """Tree-structured Parzen estimators: fast, and suitable for every space, including conditional ones.

    It also learns from terminated jobs: those that reached a later position are considered better, at equal positions those with the
    better value.

    Args:
        space: The search space.
        seed: Seed of the sampler.
        n_startup_trials: Number of ended jobs before which proposals are random.
        n_ei_candidates: Number of candidates drawn for each proposal.
        multivariate: Whether to model the parameters that all jobs have jointly; otherwise each one independently.
        constant_liar: Whether to treat running jobs as bad results, so that parallel jobs get different configurations.
        history: Number of ended jobs that the sampler uses, at least 20. Whenever `2 * history` have ended, only
            `history` are kept: the best `history / 4`, and the newest of the others.
        **parameters: Any other parameter is an error.

    Raises:
        GeneratorParameterError: A parameter is unknown or invalid.
        SpaceError: The space has sequences that cannot be enumerated.
        ConstraintsError: Hardly any configuration satisfies the constraints.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        n_startup_trials: int = 10,
        n_ei_candidates: int = 24,
        multivariate: bool = True,
        constant_liar: bool = True,
        history: int = 500,
        **parameters: Any,
    ) -> None:
        check_whole(self, "n_startup_trials", n_startup_trials, 0)
        check_whole(self, "n_ei_candidates", n_ei_candidates, 1)
        check_truth(self, "multivariate", multivariate)
        check_truth(self, "constant_liar", constant_liar)
        self._options: dict[str, Any] = {
            "n_startup_trials": n_startup_trials,
            "n_ei_candidates": n_ei_candidates,
            "multivariate": multivariate,
            "constant_liar": constant_liar,
        }
        super().__init__(space, seed, history=history, **parameters)

    def sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's TPESampler with the options of this generator and the seed `seed`."""
        return TPESampler(seed=seed, **self._options)

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Record the metric of a job at a position. The sampler uses it if the job is terminated before completion."""
        opened = self._jobs.get(job)
        if opened is not None:
            self._note(opened, position, self.metric.loss(metrics))


class GpGenerator(OptunaGenerator):
    """Bayesian optimization with a Gaussian process: needs the fewest jobs for a good result, and the most time for each proposal.

    Suitable for about ten parameters and some hundred jobs. Conditional parameters are sampled by `tpe`. Requires
    torch.

    Args:
        space: The search space.
        seed: Seed of the sampler.
        n_startup_trials: Number of completed jobs before which proposals are random.
        history: Number of ended jobs that the sampler uses, at least 20. Whenever `2 * history` have ended, only
            `history` are kept: the best `history / 4`, and the newest of the others. The time of a
            proposal grows faster than linearly with this number.
        **parameters: Any other parameter is an error.

    Raises:
        GeneratorParameterError: A parameter is unknown or invalid, or torch is not installed.
        SpaceError: The space has sequences that cannot be enumerated.
        ConstraintsError: Hardly any configuration satisfies the constraints.
    """

    asks: ClassVar[int] = 3

    def __init__(
        self, space: Space, seed: int, *, n_startup_trials: int = 10, history: int = 100, **parameters: Any
    ) -> None:
        check_whole(self, "n_startup_trials", n_startup_trials, 1)
        if importlib.util.find_spec("torch") is None:
            raise GeneratorParameterError(f"the generator gp needs torch: {install_command('torch')}")
        self._startup = n_startup_trials
        super().__init__(space, seed, history=history, **parameters)

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Return a proposal as `OptunaGenerator.create` does, with PyTorch limited to one thread."""
        with _one_thread():
            return super().create(job, ordinal)

    def sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's GPSampler with the seed `seed`; TPESampler samples the parameters that GPSampler does not support."""
        independent = TPESampler(seed=seed, n_startup_trials=self._startup)
        return GPSampler(
            seed=seed,
            n_startup_trials=self._startup,
            independent_sampler=independent,
            warn_independent_sampling=False,
        )


class CmaEsGenerator(OptunaGenerator):
    """Covariance matrix adaptation: for many jobs over numeric parameters, when the best combinations form a narrow valley.

    Choices and conditional parameters are sampled by `tpe`.

    Args:
        space: The search space.
        seed: Seed of the sampler.
        n_startup_trials: Number of completed jobs before which proposals are random.
        sigma0: Initial step size as a fraction (0 to 1) of each parameter's range; None: 1/6.
        popsize: Number of jobs in a generation, at least 5; None: depends on the number of parameters.
        **parameters: Any other parameter is an error.

    Raises:
        GeneratorParameterError: A parameter is unknown or invalid.
        SpaceError: The space has sequences that cannot be enumerated.
        ConstraintsError: Hardly any configuration satisfies the constraints.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        n_startup_trials: int = 1,
        sigma0: float | None = None,
        popsize: int | None = None,
        **parameters: Any,
    ) -> None:
        check_whole(self, "n_startup_trials", n_startup_trials, 0)
        if sigma0 is not None:
            check_share(self, "sigma0", sigma0)
            if sigma0 == 0:
                raise GeneratorParameterError(f"{type(self).__name__} needs sigma0 above 0, found {show(sigma0)}")
        if popsize is not None:
            check_whole(self, "popsize", popsize, 5)
        self._options: dict[str, Any] = {"n_startup_trials": n_startup_trials, "sigma0": sigma0, "popsize": popsize}
        super().__init__(space, seed, **parameters)

    def sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's CmaEsSampler with the seed `seed`; TPESampler samples the parameters that CmaEsSampler does not support."""
        independent = TPESampler(seed=seed)
        return CmaEsSampler(
            seed=seed, independent_sampler=independent, warn_independent_sampling=False, **self._options
        )


class Nsga2Generator(OptunaGenerator):
    """A genetic algorithm with generations (NSGA-II): for many jobs and spaces of choices.

    Each configuration after the first generation is a child: it combines configurations of good jobs (parents) of earlier generations.

    Args:
        space: The search space.
        seed: Seed of the sampler.
        population_size: Number of completed jobs in a generation, at least 2; the first generation is random.
        mutation_prob: Probability (0 to 1) that a child's parameter is resampled; None: 1 divided by the number of
            parameters.
        crossover_prob: Probability (0 to 1) that a child has two parents.
        swapping_prob: Probability (0 to 1) that a parameter of a child of two parents comes from the second parent.
        **parameters: Any other parameter is an error.

    Raises:
        GeneratorParameterError: A parameter is unknown or invalid.
        SpaceError: The space has sequences that cannot be enumerated.
        ConstraintsError: Hardly any configuration satisfies the constraints.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        population_size: int = 50,
        mutation_prob: float | None = None,
        crossover_prob: float = 0.9,
        swapping_prob: float = 0.5,
        **parameters: Any,
    ) -> None:
        check_whole(self, "population_size", population_size, 2)
        for name, value in (
            ("mutation_prob", mutation_prob),
            ("crossover_prob", crossover_prob),
            ("swapping_prob", swapping_prob),
        ):
            if value is not None:
                check_share(self, name, value)
        self._options: dict[str, Any] = {
            "population_size": population_size,
            "mutation_prob": mutation_prob,
            "crossover_prob": crossover_prob,
            "swapping_prob": swapping_prob,
        }
        super().__init__(space, seed, **parameters)

    def sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's NSGAIISampler with the options of this generator and the seed `seed`."""
        return NSGAIISampler(seed=seed, **self._options)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Return a context in which PyTorch uses one thread: with small matrices, several threads mostly wait for each other."""
    import torch  # Imported late, because it is slow and only `gp` needs it.

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
