"""Adapts Optuna's samplers to the generator interface.

A sampler proposes from the results in its study, which is an Optuna object in memory; nothing is stored on disk. Each proposal is a
trial of the study. The sampler's random numbers are seeded, so the study is a function of the generator's calls.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from hopyard._common.extras import install_command
from hopyard.generator import Generator, GeneratorParameterError, Result
from hopyard.policy.vocabulary import JobState
from hopyard.space import Choice, Configuration, Constant, JsonValue, LogInt, Parameter, Sequences, Space, show, stream
from hopyard_hpgen.generators.deduplication import UnproposedConfigurations, need_units

try:
    import optuna
except ImportError as error:
    raise ImportError(f"the generators tpe, gp, cmaes and nsga2 need Optuna: {install_command('optuna')}") from error

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

# Use the log of the service, without Optuna's messages about every trial.
optuna.logging.disable_default_handler()
optuna.logging.enable_propagation()
optuna.logging.set_verbosity(optuna.logging.WARNING)

_BEST_PART: Final = 4
"""When a study is shortened, one in `_BEST_PART` of the kept trials is one of the best; the rest are the newest."""


@dataclass
class _Open:
    """A job that was proposed and has not ended.

    Attributes:
        trial: The job's trial in the current study.
        values: The values of the trial by dotted name of the parameter, as the sampler represents them: the index of a value, or, if
            the values are not enumerated, a number in [0, 1].
        losses: The reported losses by position; the loss is the metric with a sign such that smaller is better.
    """

    trial: Trial
    values: dict[str, Any]
    losses: dict[int, float] = field(default_factory=dict)


class OptunaGenerator(Generator):
    """Base class of the generators with Optuna's samplers.

    The sampler minimizes the loss, which is the metric with a sign such that smaller is better. A completed job is reported as a
    complete trial with its best loss; a loss that is not finite is replaced by the worst one so far. A terminated job is a pruned
    trial. A failed job is a failed trial, which samplers ignore. Jobs whose configurations come from elsewhere (such as forks by a
    policy) are reported, too, if these configurations are in the space.

    No configuration is proposed twice. A draw that violates the constraints or repeats a configuration is discarded. After `asks`
    such draws (a constant of the class), a random configuration is proposed.

    Args:
        space: The search space.
        seed: Seed of the sampler.
        history: Number of ended jobs that the sampler uses, at least 20. Whenever `2 * history` have
            ended, all but `history` are dropped: the best `history / 4` are kept, and the newest of the others. None: all are used.
        **parameters: Any other parameter is an error.

    Raises:
        GeneratorParameterError: A parameter is unknown or invalid.
        SpaceError: The space has sequences that cannot be enumerated.
        ConstraintsError: Hardly any configuration satisfies the constraints.
    """

    report_order_matters: ClassVar[bool] = True
    asks: ClassVar[int] = 20
    """Maximum number of draws of the sampler for one configuration."""

    def __init__(self, space: Space, seed: int, *, history: int | None = None, **parameters: Any) -> None:
        super().__init__(space, seed, **parameters)
        need_units(space, "a sampler of Optuna")
        if history is not None:
            check_whole(self, "history", history, 20)
        self._history = history
        self._unseen = UnproposedConfigurations(space, seed)
        self._jobs = dict[str, _Open]()
        self._worst: float | None = None
        self._studies = 0
        self._ended = 0
        self._study = self._new_study()
        space.sample_at(seed, 0)

    @abstractmethod
    def sampler(self, seed: int) -> BaseSampler:
        """Return a new sampler of the generator's kind, with a seed (0 <= seed < 2^32). It is called once per study.

        A new study begins when old jobs are dropped (`history`).
        """

    @property
    def size(self) -> int | None:
        """The number of configurations of the space; None: infinite or, with constraints, unknown."""
        return self._unseen.size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Return a new configuration that satisfies the constraints: the sampler's proposal, else a random one.

        Args:
            job: Id of the job that gets the configuration.
            ordinal: Number of the proposal, from 0; the random configuration depends on it.

        Returns:
            The configuration; None: no new configuration was found.
        """
        for _ in range(self.asks):
            opened, configuration = self._ask()
            if self.space.fits(configuration) and self._unseen.add(configuration):
                self._jobs[job] = opened
                return configuration
            self._study.tell(opened.trial, state=TrialState.FAIL)
        found = self._unseen.first(ordinal, lambda attempt: self.space.sample_at(self.seed, ordinal, attempt))
        if found is not None:
            self._jobs[job] = self._adopt(self._values(found))
        return found

    def report_final(self, job: str, result: Result) -> None:
        """Report the final result of a job to the study.

        A job that `create` did not propose, such as a policy's fork, becomes an additional trial if `result` contains a configuration
        of the space; otherwise it is ignored.
        """
        opened = self._jobs.pop(job, None)
        if opened is None:
            self._learn_of_another(result)
        else:
            state, loss = self._judged(result)
            if state is TrialState.PRUNED and not opened.losses and result.metrics:
                opened.trial.report(self.metric.loss(result.metrics), result.position)
            self._study.tell(opened.trial, loss if state is TrialState.COMPLETE else None, state)
        self._ended += 1
        if self._history is not None and self._ended >= 2 * self._history:
            self._shorten(self._history)

    def _judged(self, result: Result) -> tuple[TrialState, float]:
        loss = self.metric.loss(result.metrics)
        if math.isfinite(loss):
            self._worst = loss if self._worst is None else max(self._worst, loss)
        if result.outcome is JobState.TERMINATED:
            return TrialState.PRUNED, loss
        if result.outcome is JobState.FAILED:
            return TrialState.FAIL, loss
        if math.isfinite(loss):
            return TrialState.COMPLETE, loss
        return (TrialState.FAIL, loss) if self._worst is None else (TrialState.COMPLETE, self._worst)

    def _learn_of_another(self, result: Result) -> None:
        if result.hyperparameters is None or not self.space.contains(result.hyperparameters):
            return
        self._unseen.add(result.hyperparameters)
        state, loss = self._judged(result)
        values = self._values(result.hyperparameters)
        self._study.add_trial(
            create_trial(
                state=state,
                value=loss if state is TrialState.COMPLETE else None,
                params=values,
                distributions={name: _distribution(self.space[name]) for name in values},
                intermediate_values={result.position: loss} if result.metrics else {},
            )
        )

    def _new_study(self) -> optuna.Study:
        seed = stream(self.seed, "optuna", self._studies).getrandbits(32)
        self._studies += 1
        return optuna.create_study(sampler=self.sampler(seed), direction="minimize")

    def _ask(self) -> tuple[_Open, Configuration]:
        trial, values = self._study.ask(), dict[str, Any]()

        def suggested(name: str, parameter: Parameter) -> JsonValue:
            if isinstance(parameter, Constant):
                return parameter.at(0)
            values[name] = _suggest(trial, name, parameter)
            return _value(parameter, values[name])

        configuration = self.space.build(suggested)
        return _Open(trial, values), configuration

    def _values(self, configuration: Configuration) -> dict[str, Any]:
        flat = self.space.flat(configuration)
        found = {name: (self.space[name], value) for name, value in flat.items()}
        return {name: _own(kind, value) for name, (kind, value) in found.items() if not isinstance(kind, Constant)}

    def _adopt(self, values: dict[str, Any]) -> _Open:
        """Add a trial with given values to the current study, for a job that has not ended; return the job.

        The values come from an earlier study or from outside the generator, so the study's sampler did not choose them. `values` has
        them by dotted name of the parameter, as in `_Open.values`.
        """
        self._study.enqueue_trial(values)
        trial = self._study.ask()
        for name in values:
            _suggest(trial, name, self.space[name])
        return _Open(trial, values)

    def _shorten(self, history: int) -> None:
        ended = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        ranked = sorted(ended, key=lambda trial: (trial.state is not TrialState.COMPLETE, _loss(trial), trial.number))
        best = {trial.number for trial in ranked[: history // _BEST_PART]}
        others = [trial for trial in ended if trial.number not in best][-(history - len(best)) :]
        kept = best | {trial.number for trial in others}
        self._study = self._new_study()
        # Add open trials first: while the study is empty, the sampler does no work for them.
        for job, opened in self._jobs.items():
            self._jobs[job] = self._adopt(opened.values)
            for position, loss in opened.losses.items():
                self._note(self._jobs[job], position, loss)
        for trial in ended:
            if trial.number in kept:
                self._study.add_trial(trial)
        self._ended = len(kept)

    def _note(self, opened: _Open, position: int, loss: float) -> None:
        if position not in opened.losses:
            opened.losses[position] = loss
            opened.trial.report(loss, position)


def check_whole(generator: Generator, name: str, value: object, least: int) -> None:
    """Raise GeneratorParameterError unless the value of the generator's parameter `name` is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise GeneratorParameterError(
            f"{type(generator).__name__} needs {name} as a whole number >= {least}, found {show(value)}"
        )


def check_truth(generator: Generator, name: str, value: object) -> None:
    """Raise GeneratorParameterError unless the value of the generator's parameter `name` is a boolean."""
    if not isinstance(value, bool):
        raise GeneratorParameterError(f"{type(generator).__name__} needs {name} as true or false, found {show(value)}")


def check_share(generator: Generator, name: str, value: object) -> None:
    """Raise GeneratorParameterError unless the value of the generator's parameter `name` is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise GeneratorParameterError(
            f"{type(generator).__name__} needs {name} as a number from 0 to 1, found {show(value)}"
        )


def _loss(trial: FrozenTrial) -> float:
    return trial.value if trial.value is not None else math.inf


# The sampler represents a parameter's value by the index of an alternative (choices), by the index of an ordered value
# (integers), or by a number in the unit interval (continuous ranges, and integers on a logarithmic scale).


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Choice | Sequences) and parameter.size is not None:
        return CategoricalDistribution(range(parameter.size))
    if parameter.size is None or isinstance(parameter, LogInt):
        return FloatDistribution(0.0, 1.0)
    return IntDistribution(0, parameter.size - 1)


def _suggest(trial: Trial, name: str, parameter: Parameter) -> int | float:
    match _distribution(parameter):
        case CategoricalDistribution(choices=choices):
            chosen = trial.suggest_categorical(name, choices)
            assert isinstance(chosen, int)
            return chosen
        case IntDistribution(high=high):
            return trial.suggest_int(name, 0, high)
    return trial.suggest_float(name, 0.0, 1.0)


def _value(parameter: Parameter, own: float) -> JsonValue:
    return parameter.at(own) if isinstance(own, int) else parameter.from_unit(own)


def _own(parameter: Parameter, value: JsonValue) -> int | float:
    unit = isinstance(_distribution(parameter), FloatDistribution)
    return parameter.to_unit(value) if unit else parameter.index(value)
