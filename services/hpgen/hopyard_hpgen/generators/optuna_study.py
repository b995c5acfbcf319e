"""Optuna's samplers behind the generator interface: one study in memory, asked and told.

Optuna stays here: a sampler proposes from what the calls have told its study, and nothing is stored. Its random state is
seeded, so the study is a function of the calls.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from hopyard.generator import Generator, GeneratorParameterError, Result
from hopyard.policy.vocabulary import JobState
from hopyard.space import Choice, Configuration, Constant, JsonValue, LogInt, Parameter, Sequences, Space, show, stream
from hopyard_hpgen.generators.deduplication import Unseen, need_units

try:
    import optuna
except ImportError as error:
    raise ImportError("the generators tpe, gp, cmaes and nsga2 need Optuna: pip install 'hopyard[optuna]'") from error

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

# Its lines go where the service's lines go, and its news of every trial nowhere.
optuna.logging.disable_default_handler()
optuna.logging.enable_propagation()
optuna.logging.set_verbosity(optuna.logging.WARNING)

_BEST_PART: Final = 4
"""When a study becomes too long, this part of what is kept are its best trials, and the rest its newest."""


@dataclass
class _Open:
    """A job that was proposed and has not ended.

    Attributes:
        trial: its trial in the present study.
        values: what the trial has, by dotted name, in the sampler's own terms.
        losses: what the job reported, by position.
    """

    trial: Trial
    values: dict[str, Any]
    losses: dict[int, float] = field(default_factory=dict)


class OptunaGenerator(Generator):
    """What all of Optuna's samplers share.

    A job that completed is told with its best loss (the metric, turned so that smaller is better; what is not finite
    counts as the worst so far); one that was terminated is a pruned trial, one that failed a failed trial, which samplers
    pass over. Jobs that others made are told too, if their configuration is in the space. No configuration is proposed
    twice; a draw that does not fit the constraints is drawn again, and after `asks` draws a random one is taken.
    """

    report_order_matters: ClassVar[bool] = True
    asks: ClassVar[int] = 20
    """How often the sampler is asked for one configuration."""

    def __init__(self, space: Space, seed: int, *, history: int | None = None, **parameters: Any) -> None:
        """Begin with an empty study.

        Args:
            space: what to propose from.
            seed: of the sampler.
            history: how many ended jobs the sampler looks at, at least 20; when there are twice as many, the best
                quarter and the newest of the rest are kept. None: all.
            **parameters: none.

        Raises:
            GeneratorParameterError: a parameter that it does not take.
            ConstraintsError: hardly any configuration fits the constraints.
        """
        super().__init__(space, seed, **parameters)
        need_units(space, "a sampler of Optuna")
        if history is not None:
            check_whole(self, "history", history, 20)
        self._history = history
        self._unseen = Unseen(space, seed)
        self._jobs = dict[str, _Open]()
        self._worst: float | None = None
        self._studies = 0
        self._ended = 0
        self._study = self._new_study()
        space.sample_at(seed, 0)

    @abstractmethod
    def sampler(self, seed: int) -> BaseSampler:
        """A new sampler with a seed (0 <= seed < 2^32)."""

    @property
    def size(self) -> int | None:
        """The size of the space."""
        return self._unseen.size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """What the sampler proposes, if it is new and fits; else a random one that does; None when there is none."""
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
        """Tell the study how a job ended."""
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
        """A trial with values that the sampler did not choose."""
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
        # The open ones first: while the study is empty, a sampler has nothing to compute for them.
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
    """Refuses what is not a whole number of at least `least`; raises GeneratorParameterError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise GeneratorParameterError(
            f"{type(generator).__name__} needs {name} as a whole number >= {least}, found {show(value)}"
        )


def check_truth(generator: Generator, name: str, value: object) -> None:
    """Refuses what is not true or false; raises GeneratorParameterError."""
    if not isinstance(value, bool):
        raise GeneratorParameterError(f"{type(generator).__name__} needs {name} as true or false, found {show(value)}")


def check_share(generator: Generator, name: str, value: object) -> None:
    """Refuses what is not a number from 0 to 1; raises GeneratorParameterError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise GeneratorParameterError(
            f"{type(generator).__name__} needs {name} as a number from 0 to 1, found {show(value)}"
        )


def _loss(trial: FrozenTrial) -> float:
    return trial.value if trial.value is not None else math.inf


# What a sampler sees of a parameter: the number of one of several alternatives, the number of one of several ordered values,
# or a place in the unit interval.


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
