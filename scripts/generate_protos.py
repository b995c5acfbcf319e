"""Generate the Python stubs of the contracts into the SDK.

Run as `make proto`. The proto path is the proto package is the Python import path, so protoc's absolute imports work as
they are. With --check nothing is written: the code is generated into a temporary folder and compared byte for byte.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("hopyard/v1")
PLUGINS = ("python", "grpc_python", "mypy", "mypy_grpc")
GENERATED_PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
_CALLABLE = r"grpc\.(?:aio\.)?\w+\[\n(?: {8}.*\n)+ {4}\]"
_TWO_ALLOWED = re.compile(rf"(TypeVar\(\n    '\w+',\n)    ({_CALLABLE}),\n    ({_CALLABLE}),\n")


class GenerationError(Exception):
    """Generation failed; the message holds what the compiler said."""


def generate(protos: Path, target: Path) -> None:
    """Compile every proto of the package below `protos` into `target`.

    Args:
        protos: The root of the buf module; the protos lie in its `hopyard/v1`.
        target: The folder that stands for the import root; `hopyard/v1` is made in it.

    Raises:
        GenerationError: There is no proto, or the compiler refused one.
    """
    sources = sorted(path.relative_to(protos).as_posix() for path in (protos / PACKAGE).glob("*.proto"))
    if not sources:
        raise GenerationError(f"no .proto file in {protos / PACKAGE}")
    (target / PACKAGE).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={protos}"]
    command += [f"--{plugin}_out={target}" for plugin in PLUGINS]
    # protoc finds the mypy plugins on PATH; they lie beside the interpreter, whose folder need not be on it.
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    done = subprocess.run([*command, *sources], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GenerationError(f"protoc ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    for stub in (target / PACKAGE).glob("*_pb2_grpc.pyi"):
        stub.write_text(bounded(stub.read_text()))


def bounded(stub: str) -> str:
    """A stub whose type variables have one bound each in place of two allowed types, which means the same here.

    mypy checks a class once for each combination of allowed types: twice as long for each further method of a service.
    """
    return _TWO_ALLOWED.sub(r"\1    bound=typing.Union[\2, \3],\n", stub)


def generated_files(folder: Path) -> dict[str, bytes]:
    """The generated files of an import root, by name."""
    return {
        path.name: path.read_bytes()
        for pattern in GENERATED_PATTERNS
        for path in sorted((folder / PACKAGE).glob(pattern))
    }


def differences(protos: Path, target: Path) -> list[str]:
    """Compare what lies in `target` with a fresh generation.

    Returns:
        One line for each file that is missing, left over or differs; empty when all is current.

    Raises:
        GenerationError: The fresh generation failed.
    """
    with tempfile.TemporaryDirectory(prefix="hopyard-protos-") as folder:
        generate(protos, Path(folder))
        fresh = generated_files(Path(folder))
    present = generated_files(target)
    lines = [f"missing: {name}" for name in sorted(fresh.keys() - present.keys())]
    lines += [f"left over: {name}" for name in sorted(present.keys() - fresh.keys())]
    lines += [f"differs: {name}" for name in sorted(fresh.keys() & present.keys()) if fresh[name] != present[name]]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate, or compare with --check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Generate the Python stubs of the contracts into the SDK.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the committed stubs differ")
    parser.add_argument("--protos", type=Path, default=ROOT / "protos", help="root of the buf module")
    parser.add_argument("--target", type=Path, default=ROOT / "sdk" / "python", help="import root of the stubs")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            lines = differences(options.protos, options.target)
            for line in lines:
                print(line)
            if lines:
                print(f"{len(lines)} generated files are not current: run `make proto` and commit the result")
            return 1 if lines else 0
        generate(options.protos, options.target)
        fresh_names = {path.stem for path in (options.protos / PACKAGE).glob("*.proto")}
        for name in generated_files(options.target):
            # A stub whose proto was renamed or removed would go on being importable.
            if name.split("_pb2")[0] not in fresh_names:
                (options.target / PACKAGE / name).unlink()
    except GenerationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
