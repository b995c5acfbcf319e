"""Which variables processes of users' code get."""

from __future__ import annotations

import os

import pytest

from hopyard._common.environment import (
    EVERYTHING,
    check_patterns,
    passed_environment,
    restrict_environment,
    without_own,
)
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick

NEEDED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "PYTHONPATH"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
    *("XDG_CACHE_HOME", "XDG_DATA_HOME", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
)
SECRET = (
    *("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD", "OPENAI_API_KEY"),
    *("KUBECONFIG", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "GOOGLE_APPLICATION_CREDENTIALS", "TF_VAR_db", "path"),
    # Their prefixes are allowed, their last words are not.
    *("NVIDIA_API_KEY", "CONDA_TOKEN", "PYTHON_INDEX_PASSWORD", "TORCH_HUB_SECRET", "GRPC_AUTH"),
)
OWN = ("HOPYARD_TOKEN", "HOPYARD_USER_TOKEN", "HOPYARD_DATA")
ALL = dict.fromkeys((*NEEDED, *SECRET, *OWN), "value")


def test_what_programs_need_is_passed_and_secrets_are_not() -> None:
    assert set(passed_environment(ALL)) == set(NEEDED)


@pytest.mark.parametrize(
    ("passed", "more"),
    [
        (["WANDB_API_KEY"], {"WANDB_API_KEY"}),
        (["AWS_*", "NVIDIA_API_KEY"], {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "NVIDIA_API_KEY"}),
        (["ABSENT"], set[str]()),
        ([EVERYTHING], set(SECRET)),
    ],
)
def test_named_variables_are_passed_also_if_they_are_secrets(passed: list[str], more: set[str]) -> None:
    assert set(passed_environment(ALL, passed)) == {*NEEDED, *more}


def test_a_process_of_the_user_gets_all_but_hopyards_own_variables() -> None:
    assert set(without_own(ALL)) == {*NEEDED, *SECRET}


def test_a_service_removes_what_it_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(ALL))
    restrict_environment(["HF_TOKEN"])
    assert set(os.environ) == {*NEEDED, *OWN, "HF_TOKEN"}


def test_repeated_patterns_are_taken_once() -> None:
    assert check_patterns(["AWS_*", "HF_TOKEN", "AWS_*"]) == ("AWS_*", "HF_TOKEN")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "A=very-secret",
            "--pass-env: needs the name of a variable, such as .*found 'A' with a value; the value is that in",
        ),
        ("A-B", "--pass-env: needs the name of a variable, .*found 'A-B'$"),
        ("", "--pass-env: needs the name of a variable, .*found ''$"),
        ("HOPYARD_TOKEN", "--pass-env: names that begin with HOPYARD_ are Hopyard's own, found 'HOPYARD_TOKEN'"),
    ],
)
def test_what_is_no_name_is_refused_without_its_value(given: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        check_patterns([given])
    assert "very-secret" not in str(caught.value)
