"""Which environment variables processes of users' code get from the service that starts them.

Services of a cluster pass only variables that programs need on any computer, so that credentials in the environment of a service do
not reach everyone's training. A person names further variables: for a node with `--pass-env`, for an experiment with
`inherit_environment`. A cluster that a user starts for one command or session passes everything (`EVERYTHING`). Variables whose names
begin with HOPYARD_ are never passed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from hopyard.errors import InvalidInput

OWN: Final = "HOPYARD_"
"""Prefix of the names of Hopyard's own variables."""

EVERYTHING: Final = "*"
"""The pattern of all names."""

ALLOWED: Final = (
    # The user and the system.
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_DATA_HOME"),
    # The loader and the memory allocator: the service itself runs with them.
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_*", "GLIBC_TUNABLES"),
    # Python.
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_*"),
    # GPUs, numerical libraries, and communication between processes.
    *("CUDA_*", "CUBLAS_*", "CUDNN_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "UCX_*", "FI_*", "GRPC_*"),
    *("HIP_*", "HSA_*", "MIOPEN_*", "ROCM_*", "ROCR_*"),
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NUMEXPR_*"),
    *("HF_HOME", "TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "TRITON_*", "XLA_*", "JAX_*"),
    *("TF_CPP_*", "TF_CUDNN_*", "TF_DETERMINISTIC_*", "TF_ENABLE_*", "TF_FORCE_*", "TF_GPU_*", "TF_XLA_*"),
    # The network.
    *("*_proxy", "*_PROXY", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
"""Patterns of the names that every process gets; `*` stands for any characters."""

_SECRET_WORDS: Final = frozenset(
    {
        "KEY",
        "KEYS",
        "APIKEY",
        "TOKEN",
        "TOKENS",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "PASS",
        "CREDENTIAL",
        "CREDENTIALS",
        "AUTH",
    }
)
"""Words of a name by which a variable is a secret, such as NVIDIA_API_KEY. Such a variable is passed only if a person names it."""

_PATTERN: Final = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*")


def passed_environment(environment: Mapping[str, str], passed: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of an environment that a process of users' code gets.

    Args:
        environment: The environment of the service that starts the process.
        passed: Patterns of names that are passed in addition to those in `ALLOWED`, as `check_patterns` returns them.
    """
    named = tuple(passed)
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(OWN) and (_matches(name, named) or (_matches(name, ALLOWED) and not _is_secret(name)))
    }


def without_own(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without Hopyard's own variables, which name clusters, addresses and credentials."""
    return {name: value for name, value in environment.items() if not name.startswith(OWN)}


def restrict_environment(passed: Iterable[str]) -> None:
    """Remove the variables from this process that its child processes must not get; Hopyard's own ones stay.

    For services that start processes of users' code, or execute plugins, and need no other variable themselves.

    Args:
        passed: As for `passed_environment`.
    """
    kept = passed_environment(os.environ, passed)
    for name in list(os.environ):
        if name not in kept and not name.startswith(OWN):
            del os.environ[name]


def check_patterns(given: Sequence[str], option: str = "--pass-env") -> tuple[str, ...]:
    """Return the names and patterns of variables that an option specifies, without repetitions.

    Args:
        given: The values of the option: names of variables, in which `*` stands for any characters.
        option: Name of the option, for the error message.

    Raises:
        InvalidInput: A value is no name, such as NAME=VALUE, or begins with HOPYARD_.
    """
    for pattern in given:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidInput(
                f"{option}: needs the name of a variable, such as WANDB_API_KEY or SLURM_*, found {pattern.partition('=')[0]!r}"
                + (" with a value; the value is that in the environment of the service" if "=" in pattern else "")
            )
        if pattern.startswith(OWN):
            raise InvalidInput(f"{option}: names that begin with {OWN} are Hopyard's own, found {pattern!r}")
    return tuple(dict.fromkeys(given))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_secret(name: str) -> bool:
    return not _SECRET_WORDS.isdisjoint(name.upper().split("_"))
