"""The samplers of Optuna that are generators: `tpe`, `gp`, `cmaes`, `nsga2`. Parameters have Optuna's names."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from hopyard.generator import GeneratorParameterError
from hopyard.space import Configuration, Space, show
from hopyard_hpgen.generators.optuna_study import OptunaGenerator, check_share, check_truth, check_whole

from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, TPESampler  # isort: skip - says what is missing first


class TpeGenerator(OptunaGenerator):
    """Tree-structured Parzen estimators: quick, and at home in every space, conditional ones included.

    It learns from terminated jobs as well, by how far they came and how well they did there.
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
        """Begin with an empty study.

        Args:
            space: what to propose from.
            seed: of the sampler.
            n_startup_trials: ended jobs before which proposals are random.
            n_ei_candidates: candidates drawn for each proposal.
            multivariate: model parameters together, where all jobs have them.
            constant_liar: count running jobs as bad ones, so that parallel jobs differ.
            history: see `OptunaGenerator`.
            **parameters: none.
        """
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
        """Optuna's TPESampler."""
        return TPESampler(seed=seed, **self._options)

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """An intermediate value of the job's trial: what counts if it is terminated."""
        opened = self._jobs.get(job)
        if opened is not None:
            self._note(opened, position, self.metric.loss(metrics))


class GpGenerator(OptunaGenerator):
    """Bayesian optimisation with a Gaussian process: the fewest jobs for a good result, and the most thought for each.

    For some ten parameters and some hundred jobs. Parameters under conditions are left to `tpe`. Needs torch.
    """

    asks: ClassVar[int] = 3

    def __init__(
        self, space: Space, seed: int, *, n_startup_trials: int = 10, history: int = 100, **parameters: Any
    ) -> None:
        """Begin with an empty study.

        Args:
            space: what to propose from.
            seed: of the sampler.
            n_startup_trials: completed jobs before which proposals are random.
            history: see `OptunaGenerator`; the time of a proposal grows faster than it.
            **parameters: none.
        """
        check_whole(self, "n_startup_trials", n_startup_trials, 1)
        if importlib.util.find_spec("torch") is None:
            raise GeneratorParameterError("the generator gp needs torch: pip install 'hopyard[optuna,torch]'")
        self._startup = n_startup_trials
        super().__init__(space, seed, history=history, **parameters)

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """See `OptunaGenerator`; computed by one thread."""
        with _one_thread():
            return super().create(job, ordinal)

    def sampler(self, seed: int) -> BaseSampler:
        """Optuna's GPSampler."""
        independent = TPESampler(seed=seed, n_startup_trials=self._startup)
        return GPSampler(
            seed=seed,
            n_startup_trials=self._startup,
            independent_sampler=independent,
            warn_independent_sampling=False,
        )


class CmaEsGenerator(OptunaGenerator):
    """Covariance matrix adaptation: for many jobs over numbers, when the best combination is a narrow valley.

    Choices and parameters under conditions are left to `tpe`.
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
        """Begin with an empty study.

        Args:
            space: what to propose from.
            seed: of the sampler.
            n_startup_trials: completed jobs before which proposals are random.
            sigma0: the first step size, as a part (0 to 1) of each parameter's range; none: 1/6.
            popsize: jobs in a generation, at least 5; none: by the number of parameters.
            **parameters: none.
        """
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
        """Optuna's CmaEsSampler."""
        independent = TPESampler(seed=seed)
        return CmaEsSampler(
            seed=seed, independent_sampler=independent, warn_independent_sampling=False, **self._options
        )


class Nsga2Generator(OptunaGenerator):
    """A genetic algorithm with generations (NSGA-II): for many jobs, and spaces of choices."""

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
        """Begin with an empty study.

        Args:
            space: what to propose from.
            seed: of the sampler.
            population_size: completed jobs in a generation, at least 2; the first generation is random.
            mutation_prob: chance (0 to 1) that a child's parameter is drawn anew; none: 1 in the number of parameters.
            crossover_prob: chance that a child has two parents.
            swapping_prob: chance that a parameter comes from the second one.
            **parameters: none.
        """
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
        """Optuna's NSGAIISampler."""
        return NSGAIISampler(seed=seed, **self._options)


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch with one thread: beside training, threads that share such small matrices mostly wait for each other."""
    import torch  # late, for it takes long and only `gp` needs it

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
