"""The test suite for generators.

Subclass it in a test module and define one fixture:

```python
class TestMine(GeneratorConformance):
    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return Mine
```

Class attributes exclude tests that do not apply. This module can be imported without pytest, because it is part of the
library.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from hopyard.generator.base import Generator, Result
from hopyard.policy.vocabulary import JobState
from hopyard.space import (
    Choice,
    Configuration,
    Constant,
    IntUniform,
    LogInt,
    LogUniform,
    Space,
    Uniform,
    When,
    canonical_json,
    json_problem,
)


class MakeGenerator(Protocol):
    """The type of the fixture `make_generator`: a function that creates a generator, such as the generator's class."""

    def __call__(self, space: Space, seed: int) -> Generator:
        """Create a new generator for a space with a seed."""


class Call(NamedTuple):
    """A call to a generator, for repetition.

    Attributes:
        kind: The method: "create", "report" or "report_final"; "foreign": a report_final for a job that the generator
            did not propose.
        job: The id of the job.
        ordinal: For "create", the argument of that name; for "foreign", the number from which the configuration of the
            job is derived; else unused.
        position: The position of the report or of the result; 0 for "create", which has none.
        value: The value of the metric at that position; may be NaN.
        outcome: The state in which the job ended; only for "report_final".
    """

    kind: str
    """create, report, report_final, or foreign (the end of a job that the generator did not propose)."""
    job: str
    ordinal: int = 0
    position: int = 0
    value: float = 0.0
    outcome: JobState = JobState.COMPLETED


MIXED = Space(
    {
        "lr": LogUniform(1e-4, 1.0, count=4),
        "momentum": Uniform(0.0, 0.99, count=3),
        "layers": IntUniform(1, 4),
        "width": LogInt(8, 512, count=3),
        "activation": Choice(("relu", "tanh", None, [1, 2])),
        "epochs": Constant(20),
    }
)
"""A space with every kind of parameter; infinite, but with a finite grid."""

NESTED = Space(
    {
        "optimizer": Choice(("sgd", "adam")),
        "momentum": When(Uniform(0.0, 0.99, count=4), {"optimizer": "sgd"}),
        "model": {
            "kind": Choice(("cnn", "mlp")),
            "depth": When(IntUniform(1, 4), {"model.kind": "mlp"}),
            "rate": LogUniform(1e-4, 1.0, count=3),
        },
        "warmup": When({"epochs": IntUniform(1, 3)}, {"optimizer": "adam", "model.kind": ["cnn", "mlp"]}),
    }
)
"""A space with groups and conditions."""

CONSTRAINED = Space(
    {
        "batch_size": Choice((16, 32, 64, 128)),
        "width": IntUniform(1, 64, count=16),
        "dropout": Uniform(0.0, 0.9, count=4),
        "kind": Choice(("a", "b")),
        "extra": When(IntUniform(1, 3), {"kind": "b"}),
    },
    ["batch_size * width <= 2048", "extra < 3 or dropout < 0.5"],
)
"""A space in which about half of the configurations fit the constraints."""

FINITE = Space({"batch_size": Choice((32, 64, 128)), "layers": IntUniform(1, 4), "nesterov": Choice((True, False))})
"""A space with 24 configurations."""


class GeneratorConformance:
    """The tests that every generator must pass. Name the subclass `Test...` and define the fixture `make_generator`.

    Attributes:
        spaces: The spaces with which the tests create generators. Omit those that the generator does not support.
        seeds_matter: Whether different seeds give different proposals. Set it to False if the seed has no effect (a
            grid without shuffling).
        job_count: Maximum number of proposals that a test requests; a generator with fewer configurations stops earlier.
    """

    spaces: ClassVar[Sequence[Space]] = (MIXED, NESTED, CONSTRAINED, FINITE)
    seeds_matter: ClassVar[bool] = True
    job_count: ClassVar[int] = 20

    def test_values_are_inside_the_space(self, make_generator: MakeGenerator) -> None:
        """Check that each proposal has an allowed value for each name and nothing else."""
        for space in self.spaces:
            for found in self._proposals(make_generator(space, 1)):
                problems = space.problems(found)
                assert not problems, f"proposed {found}, but {'; '.join(problems)}"

    def test_values_are_json(self, make_generator: MakeGenerator) -> None:
        """Check that each proposal is a dict of plain JSON values. A NumPy number or a tuple would change when it is sent."""
        for space in self.spaces:
            for found in self._proposals(make_generator(space, 1)):
                assert type(found) is dict, f"proposed a {type(found).__name__}, not a dict"
                problem = json_problem(found)
                assert problem is None, f"proposed {found!r}, but {problem}"
                assert json.loads(json.dumps(found)) == found, f"{found!r} changes on its way through JSON"

    def test_equal_seeds_propose_equally(self, make_generator: MakeGenerator) -> None:
        """Check that instances with the same seed give the same answers to the same calls, without use of Python's global generator."""
        for space in self.spaces:
            first = self._answers(make_generator(space, 7), self._story())
            random.random()  # This changes the proposals of a generator that uses the global random generator.
            second = self._answers(make_generator(space, 7), self._story())
            assert first == second, "two generators with the same seed and the same calls proposed differently"

    def test_different_seeds_propose_differently(self, make_generator: MakeGenerator) -> None:
        """Check that different seeds give different sequences of proposals; skipped if `seeds_matter` is False."""
        if not self.seeds_matter:
            return
        for space in self.spaces:
            sequences = {canonical_json(list(self._proposals(make_generator(space, seed)))) for seed in range(4)}
            assert len(sequences) == 4, f"4 seeds gave only {len(sequences)} different sequences of proposals"

    def test_jobs_ids_do_not_influence_values(self, make_generator: MakeGenerator) -> None:
        """Check that job ids do not influence the proposals. Ids differ between repetitions of an experiment."""
        for space in self.spaces:
            first = self._proposals(make_generator(space, 3), prefix="a")
            second = self._proposals(make_generator(space, 3), prefix="job-")
            assert first == second, "the same calls under other job ids gave other proposals"

    def test_instances_share_nothing(self, make_generator: MakeGenerator) -> None:
        """Check that two generators in one process, for two experiments, do not influence each other."""
        for space in self.spaces:
            alone = self._proposals(make_generator(space, 5))
            one, other = make_generator(space, 5), make_generator(space, 6)
            together = list[Configuration]()
            for ordinal in range(self.job_count):
                found = one.create(f"one-{ordinal}", ordinal)
                other.create(f"other-{ordinal}", ordinal)
                if found is not None:
                    together.append(found)
            assert together == alone, "a second generator in the process changed the proposals of the first"

    def test_callers_may_change_what_they_get(self, make_generator: MakeGenerator) -> None:
        """Check that modifying a returned proposal does not change later proposals."""
        for space in self.spaces:
            expected = self._proposals(make_generator(space, 2))
            generator, found = make_generator(space, 2), list[str]()
            for ordinal in range(self.job_count):
                proposal = generator.create(f"job-{ordinal}", ordinal)
                if proposal is not None:
                    found.append(canonical_json(proposal))
                    _empty(proposal)
            assert found == [canonical_json(proposal) for proposal in expected], "a caller's change leaked back"

    def test_exhaustion_is_final(self, make_generator: MakeGenerator) -> None:
        """Check that after the first None all answers are None, and that `size` is the number of proposals."""
        for space in self.spaces:
            generator = make_generator(space, 1)
            size, made, exhausted = generator.size, 0, False
            limit = self.job_count if size is None else min(size, 1000) + 3
            for ordinal in range(limit):
                if generator.create(f"job-{ordinal}", ordinal) is None:
                    exhausted = True
                else:
                    assert not exhausted, "proposed a configuration although it was exhausted"
                    made += 1
            if size is not None and size <= 1000:
                assert made == size, f"declared {size} configurations, but proposed {made}"

    def test_the_same_calls_rebuild_the_state(self, make_generator: MakeGenerator) -> None:
        """Check that a new instance that gets the recorded calls, as after a crash, continues as the first one would have."""
        for space in self.spaces:
            story = self._story()
            whole = self._answers(make_generator(space, 11), story)
            for cut in (0, 1, len(story) // 2, len(story)):
                recovered = make_generator(space, 11)
                replayed = self._answers(recovered, story[:cut])
                rest = self._answers(recovered, story[cut:])
                assert replayed + rest == whole, f"re-fed {cut} recorded calls, it proposed something else than before"

    def test_report_order_as_claimed(self, make_generator: MakeGenerator) -> None:
        """Check that the proposals are the same for any order of reports, if `report_order_matters` is False."""
        for space in self.spaces:
            if make_generator(space, 1).report_order_matters:
                continue
            story = self._story()
            creates = [call for call in story if call.kind == "create"]
            others = [call for call in story if call.kind != "create"]
            half = len(creates) // 2
            one = self._answers(make_generator(space, 1), [*creates[:half], *others, *creates[half:]])
            two = self._answers(make_generator(space, 1), [*creates[:half], *reversed(others), *creates[half:]])
            assert one == two, "claims that the order of reports plays no part, but it does"

    def test_what_it_does_not_read_plays_no_part(self, make_generator: MakeGenerator) -> None:
        """Check that results that the generator does not declare in `reads` have no effect on its proposals."""
        sent = {"nothing": {"create"}, "finals": {"create", "report_final", "foreign"}}
        for space in self.spaces:
            reads = make_generator(space, 4).reads
            assert reads in ("nothing", "finals", "reports"), f"reads {reads!r}; allowed: nothing, finals, reports"
            story = self._story()
            heard = [call for call in story if call.kind in sent.get(reads, {call.kind})]
            one, two = self._answers(make_generator(space, 4), story), self._answers(make_generator(space, 4), heard)
            assert one == two, f"says that it reads {reads}, but other results change its proposals"

    def test_strange_reports_are_survived(self, make_generator: MakeGenerator) -> None:
        """Check that proposals continue and are valid after NaN, infinities, missing metrics and reports of unknown jobs."""
        for space in self.spaces:
            generator = make_generator(space, 1)
            generator.create("job-0", 0)
            for value in (float("nan"), float("inf"), float("-inf")):
                generator.report("job-0", 1, {"metric": value})
                generator.report("never-proposed", 1, {"metric": value})
            generator.report_final("job-0", Result({}))
            generator.report_final("never-proposed", Result({}, JobState.FAILED))
            elsewhere: Configuration = {"of": ["another", "space"]}
            generator.report_final("a-forked-job", Result({"metric": float("nan")}, hyperparameters=elsewhere))
            inside = space.sample_at(3, 3)
            generator.report_final("a-made-job", Result({"metric": float("inf")}, position=1, hyperparameters=inside))
            found = generator.create("job-1", 1)
            assert found is None or space.contains(found), f"after strange reports it proposed {found}"

    def _proposals(self, generator: Generator, prefix: str = "job-") -> list[Configuration]:
        found = (generator.create(f"{prefix}{ordinal}", ordinal) for ordinal in range(self.job_count))
        return [proposal for proposal in found if proposal is not None]

    def _story(self) -> list[Call]:
        """Return a fixed sequence of calls: `job_count` times `create`, with intermediate, final and foreign results between them."""
        story, rng = list[Call](), random.Random(42)
        for ordinal in range(self.job_count):
            story.append(Call("create", f"job-{ordinal}", ordinal))
            job = f"job-{rng.randrange(ordinal + 1)}"
            story.append(Call("report", job, position=ordinal + 1, value=rng.random()))
            if ordinal % 3 == 2:
                outcome = (JobState.COMPLETED, JobState.TERMINATED, JobState.FAILED)[rng.randrange(3)]
                value = rng.random() if rng.random() < 0.8 else float("nan")
                story.append(Call("report_final", f"job-{ordinal - 2}", ordinal, ordinal + 1, value, outcome))
            if ordinal % 5 == 3:
                story.append(Call("foreign", f"made-{ordinal}", ordinal, ordinal + 1, rng.random()))
        return story

    def _answers(self, generator: Generator, story: Sequence[Call]) -> list[Configuration | None]:
        answers = list[Configuration | None]()
        for call in story:
            if call.kind == "create":
                answers.append(generator.create(call.job, call.ordinal))
            elif call.kind == "report":
                generator.report(call.job, call.position, {"metric": call.value})
            else:
                given = generator.space.sample_at(99, call.ordinal) if call.kind == "foreign" else None
                metrics = {"metric": call.value}
                generator.report_final(call.job, Result(metrics, call.outcome, call.position, given))
        return answers


def _empty(value: object) -> None:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _empty(inner)
        value.clear()
