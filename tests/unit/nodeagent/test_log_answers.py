"""What a node answers to the scheduler about the logs of experiments."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._net.server import Background
from hopyard._runtime.job_log import LogQuery, log_answer, logs_answered
from hopyard_nodeagent.paths import AgentFolders
from hopyard_nodeagent.runs.logs.answers import LogAnswers

pytestmark = pytest.mark.quick


def test_logs_are_measured_and_deleted(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    for experiment, job in (("e1", "1"), ("e1", "2"), ("e/2", "1")):
        log = folders.job_log(experiment, job)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("12345")
    answers = LogAnswers(folders, Background("test"), lambda answer: None)
    found = answers.carry_out(LogQuery(measure=("e1", "none"), delete=("e/2",)))
    assert found == {"e1": (2, 10), "e/2": (1, 5)}
    assert folders.job_log("e1", "1").exists()
    assert not folders.job_log("e/2", "1").parent.exists()
    assert answers.carry_out(LogQuery(delete=("e/2",))) == {}


def test_questions_and_answers_survive_the_wire() -> None:
    query = LogQuery(measure=("a",), delete=("b", "c"))
    assert LogQuery.from_json(query.to_json()) == query
    assert logs_answered(log_answer({"a": (1, 2)})) == {"a": (1, 2)}
    for text in ("[]", '{"measure": "a", "delete": []}', "nonsense"):
        with pytest.raises(ValueError, match=r"found|Expecting"):
            LogQuery.from_json(text)
    with pytest.raises(ValueError, match="found"):
        logs_answered('{"a": 1}')
    for answer in ("[" * 100_000, '{"a": [1e999, 1]}', '{"a": ["9", 1]}', '{"a": [1, -1]}', f'{{"a": [1, {2**63}]}}'):
        with pytest.raises(ValueError, match=r"levels|logs: found"):
            logs_answered(answer)
