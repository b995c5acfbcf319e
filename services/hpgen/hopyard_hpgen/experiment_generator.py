"""The generator of one experiment: created by its name, called once per job, and restored from recorded calls.

This module is independent of protobuf messages, threads and time.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from hopyard._common.plugins import GENERATORS, load_plugin, unknown_parameters
from hopyard.errors import Aborted, Conflict, HopyardError, InvalidInput
from hopyard.generator import Generator, ObjectiveMetric, Reads, Result
from hopyard.space import Configuration, canonical_json, show
from hopyard.spec import ExperimentSpec
from hopyard_hpgen.call_log import Call, CreateCall, ReportCall

_log = logging.getLogger(__name__)

T = TypeVar("T")


class GeneratorTerms(NamedTuple):
    """The properties of a generator that are known before its first call.

    Attributes:
        size: Number of configurations that it proposes in total; None: unlimited or unknown.
        reads: Which results it learns from: "nothing", "finals" (of ended jobs), or "reports" (also intermediate ones).
    """

    size: int | None
    reads: Reads


class GeneratorFailed(Conflict):
    """A generator raised an error, made an invalid proposal or took too long. It must be opened again before further calls."""


class GeneratorEnded(Aborted):
    """The process of a generator ended. After the generator is opened again with the recorded calls, the call may be repeated."""


class CallFailed(Exception):
    """A generator in a process raised an exception, or its answer is invalid.

    Args:
        text: How the call failed, such as "raised ValueError: no ideas".
        traceback: Its traceback; empty: there is none.
    """

    def __init__(self, text: str, traceback: str = "") -> None:
        super().__init__(text)
        self.traceback = traceback


class ExperimentGenerator:
    """The generator of one experiment with a record of its calls, which makes the calls idempotent.

    Each job gets one configuration. Each (job, position) is reported to the generator once, in ascending order of the positions of a
    job, and each job gets one final result. A call that is repeated after a crash or a lost response has no further effect. The
    generator's state is a function of the calls, so repeating the recorded calls restores it.

    Args:
        experiment: Id of the experiment.
        spec: The specification of the experiment, which names the generator.
        calls: The recorded calls, in order; they are repeated on the new generator. Empty: nothing is repeated.
        make: Creates the generator; None: `make_generator`.

    Raises:
        InvalidInput: The generator does not exist, rejects a parameter, or does not support the space.
        Conflict: The generator proposed another configuration than the recorded one.
        GeneratorFailed: The generator raised an error or made an invalid proposal.
        GeneratorEnded: Its process ended.
    """

    def __init__(
        self,
        experiment: str,
        spec: ExperimentSpec,
        calls: Iterable[Call] = (),
        make: Callable[[ExperimentSpec], Generator] | None = None,
    ) -> None:
        self.experiment = experiment
        self._space = spec.search_space
        self._spec = spec.generator
        try:
            self._generator = (make or make_generator)(spec)
        except GeneratorEnded as error:
            raise self._located(error) from error
        self._created = dict[str, Configuration | None]()
        self._positions = dict[str, int]()
        self._ended = set[str]()
        self._exhausted = False
        self._failure: HopyardError | None = None
        self.replay_calls(calls)

    @property
    def terms(self) -> GeneratorTerms:
        """The properties of the generator: how many configurations it proposes, and which results it needs."""
        return GeneratorTerms(self._generator.size, self._generator.reads)

    @property
    def failed(self) -> bool:
        """Whether the generator has failed. Every call then raises `GeneratorFailed`, or `GeneratorEnded` if its process ended."""
        return self._failure is not None

    def give_up(self, reason: str) -> GeneratorFailed:
        """Mark the generator as failed because a call took too long. Return the error to raise.

        `reason` is the end of the error's message: which call took too long, and the time limit.
        """
        return self._fail(reason)

    def is_for(self, spec: ExperimentSpec) -> bool:
        """Return whether `spec` describes this generator: equal name, seed, parameters and space."""
        return spec.generator == self._spec and spec.search_space == self._space

    def create_job(self, job: str) -> Configuration | None:
        """Return the configuration of `job`, the same for every call; None: the generator is exhausted.

        Raises:
            GeneratorFailed: The generator raised an error, proposed a configuration outside the space, proposed one after it was
                exhausted, or had failed before; if it had failed, configurations proposed before are still returned.
            GeneratorEnded: Its process ended.
        """
        if job not in self._created:
            proposed = self._guarded(f"create({job!r})", lambda: self._generator.create(job, len(self._created)))
            self._created[job] = self._checked(job, proposed)
        return copy.deepcopy(self._created[job])

    def report_performance(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Report an intermediate result of a job to the generator.

        A report is ignored if the job has a final result, or has a report at this or a later position.

        Args:
            job: Id of the job.
            position: Position of the report.
            metrics: The metrics of the report, by name.

        Raises:
            InvalidInput: The position is negative.
            GeneratorFailed: The generator raised an error.
            GeneratorEnded: Its process ended.
        """
        if position < 0:
            raise InvalidInput(f"experiment {self.experiment}: job {job}: a position is 0 or more, found {position}")
        if job in self._ended or position <= self._positions.get(job, -1):
            return
        self._guarded(f"report({job!r}, {position})", lambda: self._generator.report(job, position, dict(metrics)))
        self._positions[job] = position

    def report_final_performance(self, job: str, result: Result) -> None:
        """Report the final result of a job to the generator. Only the first final result of a job has an effect.

        Raises:
            GeneratorFailed: The generator raised an error.
            GeneratorEnded: Its process ended.
        """
        if job in self._ended:
            return
        self._guarded(f"report_final({job!r})", lambda: self._generator.report_final(job, result))
        self._ended.add(job)

    def replay_calls(self, calls: Iterable[Call]) -> None:
        """Repeat recorded calls, in order, on the generator in its present state. Calls that it received before have no further effect.

        Raises:
            Conflict: The generator proposed another configuration than the recorded one.
            GeneratorFailed: The generator raised an error or made an invalid proposal.
            GeneratorEnded: Its process ended.
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
                    f"changed: for job {call.job} it proposed {show(recorded)}, repeated it proposes {show(proposed)}; restore its "
                    "earlier code, or begin a new experiment"
                )
        elif isinstance(call, ReportCall):
            self.report_performance(call.job, call.position, call.metrics)
        else:
            self.report_final_performance(call.job, call.result)

    def _guarded(self, what: str, call: Callable[[], T]) -> T:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))
        try:
            return call()
        except GeneratorEnded as error:
            self._failure = self._located(error)
            raise self._failure from error
        except CallFailed as error:
            if error.traceback:
                _log.error(
                    "experiment %s: generator %s: %s raised\n%s",
                    self.experiment,
                    self._spec.name,
                    what,
                    error.traceback,
                )
            raise self._fail(f"{what} {error}") from error
        except (Exception, SystemExit) as error:
            # Its state may be inconsistent; only opening it again with the recorded calls restores it.
            _log.exception("experiment %s: generator %s: %s raised", self.experiment, self._spec.name, what)
            raise self._fail(f"{what} raised {type(error).__name__}: {error}") from error

    def _checked(self, job: str, proposed: Configuration | None) -> Configuration | None:
        if proposed is None:
            self._exhausted = True
            return None
        if self._exhausted:
            raise self._fail(f"for job {job} it proposed a configuration although it was exhausted")
        if not isinstance(proposed, dict):
            raise self._fail(f"for job {job} it proposed a {type(proposed).__name__}, allowed is a dict or None")
        if problems := self._space.problems(proposed):
            raise self._fail(f"for job {job} it proposed {show(proposed)}, but {'; '.join(problems)}")
        return self._space.normalize(proposed)

    def _fail(self, reason: str) -> GeneratorFailed:
        self._failure = failure = GeneratorFailed(
            f"experiment {self.experiment}: generator {self._spec.name}: {reason}"
        )
        return failure

    def _located(self, error: GeneratorEnded) -> GeneratorEnded:
        return GeneratorEnded(f"experiment {self.experiment}: {error}")


def make_generator(experiment: ExperimentSpec) -> Generator:
    """Create the generator that an experiment's specification names.

    Raises:
        InvalidInput: The generator does not exist, rejects a parameter, or does not support the space.
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
    made.metric = ObjectiveMetric(experiment.metric.name, experiment.metric.mode)
    return made
