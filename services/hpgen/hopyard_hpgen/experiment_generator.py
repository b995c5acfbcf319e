"""One experiment's generator: found by name, asked once a job, rebuilt from its recorded calls.

Knows nothing of the wire, of threads or of time.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from hopyard._common.plugins import GENERATORS, load_plugin, unknown_parameters
from hopyard.errors import Conflict, HopyardError, InvalidInput
from hopyard.generator import Generator, Metric, Reads, Result
from hopyard.space import Configuration, canonical_json, show
from hopyard.spec import ExperimentSpec
from hopyard_hpgen.call_log import Call, CreateCall, ReportCall

_log = logging.getLogger(__name__)

T = TypeVar("T")


class GeneratorTerms(NamedTuple):
    """What there is to know of a generator before its first call.

    Attributes:
        size: how many configurations there are; None: endless, or not known beforehand.
        reads: which results it is to be told.
    """

    size: int | None
    reads: Reads


class GeneratorFailed(Conflict):
    """An experiment's generator raised or proposed what it must not; it answers no more until it is opened again."""


class ExperimentGenerator:
    """A generator with the memory that makes its calls idempotent.

    Each job is asked for once, each (job, position) is told once, in rising order, and each job ends once: repetitions
    after a crash or a lost answer change nothing. What is passed on to the generator is a function of the calls, so
    making the recorded ones again gives the same state.
    """

    def __init__(self, experiment: str, spec: ExperimentSpec, calls: Iterable[Call] = ()) -> None:
        """Make the generator that `spec` names, and make the recorded calls again.

        Raises:
            InvalidInput: no such generator, parameters it does not take, or a space it cannot propose from.
            Conflict: made again, a call proposed something else than recorded.
            GeneratorFailed: the generator broke its promises on the way.
        """
        self.experiment = experiment
        self._space = spec.search_space
        self._spec = spec.generator
        self._generator = make_generator(spec)
        self._created = dict[str, Configuration | None]()
        self._positions = dict[str, int]()
        self._ended = set[str]()
        self._exhausted = False
        self._failure: str | None = None
        self.make_again(calls)

    @property
    def terms(self) -> GeneratorTerms:
        """How many configurations there are in all, and what it is to be told."""
        return GeneratorTerms(self._generator.size, self._generator.reads)

    @property
    def failed(self) -> bool:
        """Whether it broke its promises, so that every call raises `GeneratorFailed`."""
        return self._failure is not None

    def give_up(self, reason: str) -> GeneratorFailed:
        """Nobody waits for the call under way any more: it answers no more; answers the error that says so."""
        return self._fail(reason)

    def is_for(self, spec: ExperimentSpec) -> bool:
        """Whether `spec` means this very generator: the same name, seed and parameters over the same space."""
        return spec.generator == self._spec and spec.search_space == self._space

    def create_job(self, job: str) -> Configuration | None:
        """The configuration of `job`; the same whenever it is asked for again; None: exhausted.

        Raises:
            GeneratorFailed: the generator raised, proposed something outside the space, or went on after its end.
        """
        if job not in self._created:
            proposed = self._guarded(f"create({job!r})", lambda: self._generator.create(job, len(self._created)))
            self._check(job, proposed)
            self._created[job] = proposed
        return copy.deepcopy(self._created[job])

    def report_performance(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Tell an intermediate result; one that is not beyond the job's last position is already known.

        Raises:
            InvalidInput: the position is below 0.
            GeneratorFailed: the generator raised.
        """
        if position < 0:
            raise InvalidInput(f"experiment {self.experiment}: job {job}: a position is 0 or more, found {position}")
        if job in self._ended or position <= self._positions.get(job, -1):
            return
        self._guarded(f"report({job!r}, {position})", lambda: self._generator.report(job, position, dict(metrics)))
        self._positions[job] = position

    def report_final_performance(self, job: str, result: Result) -> None:
        """Tell how a job ended, once; later results of the job are not passed on.

        Raises:
            GeneratorFailed: the generator raised.
        """
        if job in self._ended:
            return
        self._guarded(f"report_final({job!r})", lambda: self._generator.report_final(job, result))
        self._ended.add(job)

    def make_again(self, calls: Iterable[Call]) -> None:
        """Make recorded calls on the generator as it stands.

        Raises:
            Conflict: a call proposed something else than recorded.
            GeneratorFailed: the generator broke its promises on the way.
        """
        for call in calls:
            self._make_again(call)

    def _make_again(self, call: Call) -> None:
        if isinstance(call, CreateCall):
            proposed = self.create_job(call.job)
            recorded = None if call.hyperparameters is None else dict(call.hyperparameters)
            if canonical_json(proposed) != canonical_json(recorded):
                raise Conflict(
                    f"experiment {self.experiment}: the generator {self._spec.name} is not deterministic, or has "
                    f"changed: for job {call.job} it recorded {show(recorded)}, made again it proposes {show(proposed)}"
                )
        elif isinstance(call, ReportCall):
            self.report_performance(call.job, call.position, call.metrics)
        else:
            self.report_final_performance(call.job, call.result)

    def _guarded(self, what: str, call: Callable[[], T]) -> T:
        if self._failure is not None:
            raise GeneratorFailed(self._failure)
        try:
            return call()
        except (Exception, SystemExit) as error:
            # Its state may be half changed: only opening it again with the recorded calls gives a sound one.
            _log.exception("experiment %s: generator %s: %s raised", self.experiment, self._spec.name, what)
            raise self._fail(f"{what} raised {type(error).__name__}: {error}") from error

    def _check(self, job: str, proposed: Configuration | None) -> None:
        if proposed is None:
            self._exhausted = True
            return
        if self._exhausted:
            raise self._fail(f"for job {job} it proposed a configuration after it had said that it was exhausted")
        if not isinstance(proposed, dict):
            raise self._fail(f"for job {job} it proposed a {type(proposed).__name__}, allowed is a dict or None")
        if problems := self._space.problems(proposed):
            raise self._fail(f"for job {job} it proposed {show(proposed)}, but {'; '.join(problems)}")

    def _fail(self, reason: str) -> GeneratorFailed:
        self._failure = f"experiment {self.experiment}: the generator {self._spec.name} broke its promises: {reason}"
        return GeneratorFailed(self._failure)


def make_generator(experiment: ExperimentSpec) -> Generator:
    """The generator that an experiment file names, before its first call.

    Raises:
        InvalidInput: no such generator, parameters it does not take, or a space it cannot propose from.
    """
    spec = experiment.generator
    kind = load_plugin(GENERATORS, spec.name, Generator)
    assert isinstance(kind, type)
    assert issubclass(kind, Generator)
    if wrong := unknown_parameters(kind, spec.parameters, own=("space", "seed")):
        raise InvalidInput(f"generator {spec.name} {wrong}")
    try:
        made = kind(experiment.search_space, spec.seed, **spec.parameters)
    except HopyardError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"generator {spec.name}: could not be made with {show(spec.parameters)}: {type(error).__name__}: {error}"
        ) from error
    made.metric = Metric(experiment.metric.name, experiment.metric.mode)
    return made
