"""Studies: experiments whose configurations a client requests one evaluation at a time (docs/studies.md).

    async with await AsyncStudy(client).create("experiment.yaml") as study:
        answer = await study.eval({"lr": 0.1}, 9)
        print(answer.value)

`Study` has the same interface for code without an event loop. Training that several evaluations have in common is executed
once (Hippo, section 5.2).
"""

from hopyard.study.async_study import AsyncStudy
from hopyard.study.results import Evaluation, EvaluationFailed
from hopyard.study.sync_study import Study

__all__ = ["AsyncStudy", "Evaluation", "EvaluationFailed", "Study"]
