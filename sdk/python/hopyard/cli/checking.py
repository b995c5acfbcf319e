"""What a command checks of an experiment file beyond its form, before it starts anything."""

from __future__ import annotations

import re

from hopyard.client.submission import Submission
from hopyard.plugins import POLICIES, load_plugin, plugin_names, unknown_parameters
from hopyard.spec import SpecError, SpecProblem
from hopyard.spec.document import read_document


def check_policy(submission: Submission) -> None:
    """Looks whether a policy that is installed here takes its parameters. One of the user's own is not imported for that.

    Raises:
        SpecError: It does not; says where in the file.
    """
    policy = submission.spec.policy
    if policy.name not in plugin_names(POLICIES):
        return
    cls = load_plugin(POLICIES, policy.name)
    assert isinstance(cls, type)
    said = unknown_parameters(cls, policy.parameters)
    said = f"{policy.name} {said}" if said else ""
    try:
        if not said:
            cls(**policy.parameters)
    except (TypeError, ValueError) as error:
        said = f"{policy.name}: {error}"
    if said:
        named = next((word for word in re.findall(r"\w+", said) if word in policy.parameters), "")
        field = f"policy.{named}" if named else "policy"
        line = read_document(submission.text).line(("policy", named) if named else ("policy",))
        raise SpecError([SpecProblem(submission.source, line, field, said)])
