"""The test suite that every generator passes; yours too.

Derive from it in a test module and give it one fixture:

```python
class TestMine(GeneratorConformance):
    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return Mine
```

Class attributes tell the suite what does not apply. Nothing here needs pytest at import, so the suite ships with the
library.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from hopyard.generator.base import Generator
from hopyard.space import (
    Choice,
    Configuration,
    Constant,
    IntUniform,
    LogInt,
    LogUniform,
    Space,
    Uniform,
    canonical_json,
    json_problem,
)


class MakeGenerator(Protocol):
    """What the fixture `make_generator` gives: a call that makes a fresh generator, such as the class itself."""

    def __call__(self, space: Space, seed: int) -> Generator:
        """A generator that has not been called yet."""


class Call(NamedTuple):
    """A recorded call, as the service keeps it."""

    kind: str
    """create, report or report_final."""
    job: str
    ordinal: int = 0
    position: int = 0
    value: float = 0.0


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
"""Every kind of parameter; endless, and divisible into a grid."""

FINITE = Space({"batch_size": Choice((32, 64, 128)), "layers": IntUniform(1, 4), "nesterov": Choice((True, False))})
"""24 configurations."""


class GeneratorConformance:
    """Subclass it, name the subclass `Test...` and give it the fixture `make_generator`.

    Attributes:
        spaces: what the generator is tried on; leave out what it cannot search.
        seeds_matter: set to False if the seed plays no part (an unshuffled grid).
        job_count: how many proposals each test asks for.
    """

    spaces: ClassVar[Sequence[Space]] = (MIXED, FINITE)
    seeds_matter: ClassVar[bool] = True
    job_count: ClassVar[int] = 20

    def test_values_are_inside_the_space(self, make_generator: MakeGenerator) -> None:
        """Each proposal has an allowed value for each name and nothing else."""
        for space in self.spaces:
            for found in self._proposals(make_generator(space, 1)):
                problems = space.problems(found)
                assert not problems, f"proposed {found}, but {'; '.join(problems)}"

    def test_values_are_json(self, make_generator: MakeGenerator) -> None:
        """Each proposal is a dict of plain JSON values: a NumPy number or a tuple would not survive the journey."""
        for space in self.spaces:
            for found in self._proposals(make_generator(space, 1)):
                assert type(found) is dict, f"proposed a {type(found).__name__}, not a dict"
                problem = json_problem(found)
                assert problem is None, f"proposed {found!r}, but {problem}"
                assert json.loads(json.dumps(found)) == found, f"{found!r} changes on its way through JSON"

    def test_equal_seeds_propose_equally(self, make_generator: MakeGenerator) -> None:
        """Two instances with the same seed answer the same calls alike, whatever Python's global generator holds."""
        for space in self.spaces:
            first = self._answers(make_generator(space, 7), self._story())
            random.random()  # a generator that draws from the global one is moved by this
            second = self._answers(make_generator(space, 7), self._story())
            assert first == second, "two generators with the same seed and the same calls proposed differently"

    def test_different_seeds_propose_differently(self, make_generator: MakeGenerator) -> None:
        """Another seed gives another sequence (not applicable when `seeds_matter` is False)."""
        if not self.seeds_matter:
            return
        for space in self.spaces:
            sequences = {canonical_json(list(self._proposals(make_generator(space, seed)))) for seed in range(4)}
            assert len(sequences) == 4, f"4 seeds gave only {len(sequences)} different sequences of proposals"

    def test_jobs_ids_do_not_influence_values(self, make_generator: MakeGenerator) -> None:
        """Ids differ from one repetition of an experiment to the next; values must not."""
        for space in self.spaces:
            first = self._proposals(make_generator(space, 3), prefix="a")
            second = self._proposals(make_generator(space, 3), prefix="job-")
            assert first == second, "the same calls under other job ids gave other proposals"

    def test_instances_share_nothing(self, make_generator: MakeGenerator) -> None:
        """Two experiments in one process do not disturb each other."""
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
        """A proposal belongs to the caller: changing it changes no later one."""
        for space in self.spaces:
            expected = self._proposals(make_generator(space, 2))
            generator, found = make_generator(space, 2), list[str]()
            for ordinal in range(self.job_count):
                proposal = generator.create(f"job-{ordinal}", ordinal)
                if proposal is not None:
                    found.append(canonical_json(proposal))
                    for value in proposal.values():
                        if isinstance(value, list):
                            value.clear()
                    proposal.clear()
            assert found == [canonical_json(proposal) for proposal in expected], "a caller's change leaked back"

    def test_exhaustion_is_final(self, make_generator: MakeGenerator) -> None:
        """After the first None there is nothing but None, and `size` was true."""
        for space in self.spaces:
            generator = make_generator(space, 1)
            size, made, exhausted = generator.size, 0, False
            limit = self.job_count if size is None else min(size, 1000) + 3
            for ordinal in range(limit):
                if generator.create(f"job-{ordinal}", ordinal) is None:
                    exhausted = True
                else:
                    assert not exhausted, "proposed a configuration after it had said that it was exhausted"
                    made += 1
            if size is not None and size <= 1000:
                assert made == size, f"said that it has {size} configurations and proposed {made}"

    def test_the_same_calls_rebuild_the_state(self, make_generator: MakeGenerator) -> None:
        """Recovery: a fresh instance that is given the recorded calls goes on exactly as the first would have."""
        for space in self.spaces:
            story = self._story()
            whole = self._answers(make_generator(space, 11), story)
            for cut in (0, 1, len(story) // 2, len(story)):
                recovered = make_generator(space, 11)
                replayed = self._answers(recovered, story[:cut])
                rest = self._answers(recovered, story[cut:])
                assert replayed + rest == whole, f"re-fed {cut} recorded calls, it proposed something else than before"

    def test_report_order_as_claimed(self, make_generator: MakeGenerator) -> None:
        """A generator whose `report_order_matters` is False proposes the same under any order of reports."""
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

    def test_strange_reports_are_survived(self, make_generator: MakeGenerator) -> None:
        """NaN, infinities, no metrics and unknown jobs are everyday: proposals go on."""
        for space in self.spaces:
            generator = make_generator(space, 1)
            generator.create("job-0", 0)
            for value in (float("nan"), float("inf"), float("-inf")):
                generator.report("job-0", 1, {"metric": value})
                generator.report("a-forked-job", 1, {"metric": value})
            generator.report_final("job-0", {})
            generator.report_final("a-forked-job", {"metric": float("nan")})
            found = generator.create("job-1", 1)
            assert found is None or space.contains(found), f"after strange reports it proposed {found}"

    def _proposals(self, generator: Generator, prefix: str = "job-") -> list[Configuration]:
        found = (generator.create(f"{prefix}{ordinal}", ordinal) for ordinal in range(self.job_count))
        return [proposal for proposal in found if proposal is not None]

    def _story(self) -> list[Call]:
        """Creates with reports between them, the same for each call of this method."""
        story, rng = list[Call](), random.Random(42)
        for ordinal in range(self.job_count):
            story.append(Call("create", f"job-{ordinal}", ordinal))
            job = f"job-{rng.randrange(ordinal + 1)}"
            story.append(Call("report", job, position=ordinal + 1, value=rng.random()))
            if ordinal % 3 == 2:
                story.append(Call("report_final", f"job-{ordinal - 2}", value=rng.random()))
        return story

    def _answers(self, generator: Generator, story: Sequence[Call]) -> list[Configuration | None]:
        answers = list[Configuration | None]()
        for call in story:
            if call.kind == "create":
                answers.append(generator.create(call.job, call.ordinal))
            elif call.kind == "report":
                generator.report(call.job, call.position, {"metric": call.value})
            else:
                generator.report_final(call.job, {"metric": call.value})
        return answers
