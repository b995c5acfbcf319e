"""The class `Reason`: a code with arguments for programs, from which `explain` composes a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Union

from hopyard.policy.vocabulary.reasons.codes import ReasonCode
from hopyard.policy.vocabulary.reasons.experiments import EXPERIMENTS
from hopyard.policy.vocabulary.reasons.jobs import JOBS
from hopyard.policy.vocabulary.reasons.nodes import NODES
from hopyard.policy.vocabulary.reasons.notes import NOTES
from hopyard.policy.vocabulary.reasons.policies import POLICIES
from hopyard.policy.vocabulary.reasons.refusals import REFUSALS
from hopyard.policy.vocabulary.reasons.runs import RUNS
from hopyard.policy.vocabulary.reasons.template import Sentence
from hopyard.policy.vocabulary.reasons.waits import WAITS

SECTIONS: Final[Mapping[str, Mapping[ReasonCode, Sentence]]] = {
    "Reasons of the state of an experiment": EXPERIMENTS,
    "Reasons of the state of a job": JOBS,
    "Reasons of the end and the state of a run": RUNS,
    "Failures of a policy: causes of POLICY_ERROR": POLICIES,
    "What a job waits for now": WAITS,
    "Why a command is refused": REFUSALS,
    "The state of a node": NODES,
    "Notes on what happened, and refusals of requests": NOTES,
}
"""The codes in the order of the page docs/reasons.md, by the title of their section."""

SENTENCES: Final[Mapping[ReasonCode, Sentence]] = {
    code: sentence for section in SECTIONS.values() for code, sentence in section.items()
}
"""The sentence of each code."""

Argument = Union[str, int, float, "Reason"]
"""An argument of a reason. An argument that is a reason is a cause or another reason that also applies."""

MAX_CHARACTERS: Final = 20_000
"""Maximum number of characters of a text argument; longer texts are cut."""

_ADDED: Final = {"waits": "reason", "last": "reason"}
"""Optional arguments of every code: what is waited for now, and the previous reason. They are appended to the sentence.
"""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is in its state, waits, ended, failed or was refused. `str()` returns the sentence for people.

    Attributes:
        code: The code, for programs.
        args: The arguments of the code, by name. docs/reasons.md lists them for each code. Every reason may also have
            the arguments `waits` (what is waited for now) and `last` (the previous reason), which are reasons
            themselves.

    Raises:
        TypeError: The arguments do not match the code.
    """

    code: ReasonCode
    args: Mapping[str, Argument] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check the arguments, cut texts to 20,000 characters, and replace characters that cannot be encoded in UTF-8 by `?`.

        Raises:
            TypeError: An argument is unknown or has the wrong type, or a required one is missing.
        """
        sentence = SENTENCES[self.code]
        declared = sentence.arguments
        checked: dict[str, Argument] = {}
        for name, value in self.args.items():
            kind = declared.get(name) or _ADDED.get(name)
            if kind is None:
                raise TypeError(f"reason {self.code.name}: found argument {name}, allowed are {_names(declared)}")
            checked[name] = self._checked(name, kind, value)
        if missing := sentence.required - checked.keys():
            raise TypeError(f"reason {self.code.name}: arguments {_names(missing)} are missing")
        object.__setattr__(self, "args", checked)

    def _checked(self, name: str, kind: str, value: Any) -> Argument:
        if kind == "str" and isinstance(value, str):
            return _storable(value[:MAX_CHARACTERS])
        if kind == "int" and isinstance(value, int):
            return int(value)
        if kind == "float" and isinstance(value, float | int):
            return float(value)
        if kind == "reason" and isinstance(value, Reason):
            return value
        raise TypeError(f"reason {self.code.name}: found {name}={value!r:.80}, needed is {kind}")

    @classmethod
    def of(cls, code: ReasonCode, **args: Argument | None) -> Reason:
        """Create a reason from a code and the arguments that are not None.

        Raises:
            TypeError: The arguments do not match the code.
        """
        return cls(code, {name: value for name, value in args.items() if value is not None})

    def plus(self, **args: Argument | None) -> Reason:
        """Return a copy of the reason with additional or replaced arguments. An argument that is given as None is removed.

        Raises:
            TypeError: The arguments do not match the code.
        """
        return Reason.of(self.code, **{**self.args, **args})

    def __str__(self) -> str:
        """Return the sentence for people, as `explain` does."""
        return explain(self)

    def plain(self) -> dict[str, Any]:
        """Return the reason as a JSON object, such as `{"code": "NODE_LOST", "args": {"node": "n1"}}`.

        The object has no `args` if the reason has no arguments.
        """
        args = {name: value.plain() if isinstance(value, Reason) else value for name, value in self.args.items()}
        return {"code": self.code.value, "args": args} if args else {"code": self.code.value}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Reason:
        """Create a reason from a JSON object that `plain` returned.

        Raises:
            TypeError, ValueError, KeyError: The object is not a reason.
        """
        given = plain.get("args", {})
        if not isinstance(given, Mapping):
            raise TypeError(f"reason: args: found {given!r:.80}, needed is an object")
        args = {name: cls.from_plain(value) if isinstance(value, Mapping) else value for name, value in given.items()}
        return cls(ReasonCode(plain["code"]), args)


def explain(reason: Reason | None) -> str:
    """Return the sentence of a reason for people; an empty text for None."""
    if reason is None:
        return ""
    text = SENTENCES[reason.code].text(reason.args)
    if "waits" in reason.args:
        text = f"{text}; {reason.args['waits']}"
    return f"{text}; last: {reason.args['last']}" if "last" in reason.args else text


def _storable(text: str) -> str:
    """Replace lone surrogates in a text by `?`. They occur in the names of some files, and messages can contain Unicode only."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _names(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"
