"""Generate the Python stubs of the protobuf contracts into the SDK.

Run as `make proto`. The path of a proto, its package and its Python import path are equal, so protoc's absolute imports work without
changes. With --check nothing is written: the code is generated into a temporary folder and compared byte for byte.
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
    """Generation failed; the message contains the output of the compiler."""


def generate(protos: Path, target: Path) -> None:
    """Compile every proto of the package below `protos` into `target`.

    Args:
        protos: Root of the buf module; the protos are in its folder `hopyard/v1`.
        target: Import root of the stubs; the folder `hopyard/v1` is created in it.

    Raises:
        GenerationError: There is no proto, or the compiler rejected one.
    """
    sources = sorted(path.relative_to(protos).as_posix() for path in (protos / PACKAGE).glob("*.proto"))
    if not sources:
        raise GenerationError(f"no .proto file in {protos / PACKAGE}")
    (target / PACKAGE).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={protos}"]
    command += [f"--{plugin}_out={target}" for plugin in PLUGINS]
    # protoc searches PATH for the mypy plugins. They are in the folder of the interpreter, which need not be in PATH.
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    done = subprocess.run([*command, *sources], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GenerationError(f"protoc ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    for stub in (target / PACKAGE).glob("*_pb2_grpc.pyi"):
        stub.write_text(bounded(stub.read_text()))


def bounded(stub: str) -> str:
    """Return a stub file in which each type variable with two allowed types is bound by their union instead, with the same effect.

    mypy checks a class once for each combination of allowed types, so its time would double with each further method of a service.
    """
    return _TWO_ALLOWED.sub(r"\1    bound=typing.Union[\2, \3],\n", stub)


def generated_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of the generated files below an import root, by file name."""
    return {
        path.name: path.read_bytes()
        for pattern in GENERATED_PATTERNS
        for path in sorted((folder / PACKAGE).glob(pattern))
    }


def differences(protos: Path, target: Path) -> list[str]:
    """Compare the stubs in `target` with freshly generated ones.

    Returns:
        One line for each file that is missing, left over or different; empty if all files are current.

    Raises:
        GenerationError: The generation failed.
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
    """Generate the stubs, or compare them with --check. Return the exit code."""
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
            # Without this, a stub whose proto was renamed or removed could still be imported.
            if name.split("_pb2")[0] not in fresh_names:
                (options.target / PACKAGE / name).unlink()
    except GenerationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
