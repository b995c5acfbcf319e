"""The notebook of the examples, executed cell by cell."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require_python_packages
from tests.timing import HANG_SECONDS

NOTEBOOK = Path(__file__).parents[2] / "examples/notebook/search.ipynb"


def executed(file: Path) -> list[Any]:
    """Execute a notebook in its folder, and return its code cells with their outputs."""
    require_python_packages("nbclient", "nbformat", "ipykernel")
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]  # as nbformat declares it
    client = NotebookClient(
        notebook,
        timeout=int(2 * HANG_SECONDS),
        kernel_name="python3",
        resources={"metadata": {"path": str(file.parent)}},
    )
    client.execute(env={**os.environ, "IPYTHONDIR": str(file.parent / "ipython")})
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any, kind: str) -> str:
    """The outputs of a cell of one MIME type, one after the other."""
    return "\n".join(output["data"][kind] for output in cell.outputs if kind in output.get("data", {}))


@pytest.mark.filterwarnings("ignore")  # of the Jupyter client, for this process
def test_the_notebook_of_the_examples_runs(tmp_path: Path) -> None:
    file = tmp_path / NOTEBOOK.name
    shutil.copy(NOTEBOOK, file)
    cells = executed(file)
    by_text = {cell.source.splitlines()[-1]: cell for cell in cells}
    alone = "".join(
        output.get("text", "") for output in by_text["objective(Trial(lr=0.5, decay=0.0, batch_size=64))"].outputs
    )
    assert "position 8: value=" in alone
    wait = by_text["search.wait()"]
    assert "<progress value=" in shown(wait, "text/html")
    assert "8/8 jobs ended" in shown(wait, "text/html")
    assert shown(wait, "text/plain").splitlines()[-1].startswith("<SearchHandle <Experiment objective-")
    assert shown(by_text["search.best"], "text/plain").startswith("<Job ")
    assert "batch_size" in shown(by_text["search.best"], "text/html")
    assert shown(cells[-3], "text/html").count("<tr") == 9  # a head, and one row per job
    assert shown(by_text["search.plot()"], "image/png")


def test_the_notebook_has_no_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code" and cell["outputs"]] == []
