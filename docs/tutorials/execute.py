"""Execute the tutorials and store their outputs: all of them, or those that are named."""

import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from robustpll._files import write_whole

HERE = Path(__file__).parent
# What a reader does not see: equal pictures have equal bytes, and a warning is an error, but for
# those that Jupyter's own packages cause.
SETUP = """\
import warnings
import matplotlib.pyplot as plt
%config InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "dpi": 90, \
"metadata": {"Software": None}}
plt.close(plt.figure())
warnings.simplefilter("error")
warnings.simplefilter("ignore", PendingDeprecationWarning)
del plt, warnings
"""
SECONDS = 600  # that one cell may take


def executed(notebook: Any, folder: Path, checks: str = "") -> Any:
    """Return a notebook with its outputs, executed in a folder.

    `checks` is the code of a last cell that is not kept. A cell that fails raises an error.
    """
    notebook = nbformat.from_dict(notebook)
    shown = len(notebook.cells)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SETUP))
    notebook.cells.append(nbformat.v4.new_code_cell(checks))
    environment = {name: text for name, text in os.environ.items() if name != "ROBUSTPLL_DATA"}
    commands = [str(Path(sys.executable).parent), environment.get("PATH", "")]
    environment |= {"PATH": os.pathsep.join(commands), "IPYTHONDIR": str(folder / ".ipython")}
    environment |= {"PYTHONHASHSEED": "0", "COLUMNS": "100"}  # the order of sets, and widths
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
        record_timing=False,
        extra_arguments=["--Application.log_level=50"],  # sockets on this machine are no news
    )
    client.execute(env=environment)
    notebook.cells = notebook.cells[1 : shown + 1]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    if errors := [output.text for output in outputs if output.get("name") == "stderr"]:
        raise RuntimeError(f"A tutorial writes to the error stream: {errors[0]}")
    return cleaned(notebook)


def cleaned(notebook: Any) -> Any:
    """Return a notebook without what differs between machines and runs."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": kernel, "language_info": {"name": "python"}}
    )
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    for number, cell in enumerate(cells, start=1):
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
            if "text" in output:  # a command draws progress bars
                lines = re.sub(r"\x1b\[[?\d;]*[A-Za-z]|\r", "", output.text).splitlines()
                output.text = "\n".join([line for line in lines if line and "━" not in line])
    return notebook


def main(names: list[str]) -> None:
    for path in [HERE / f"{name}.ipynb" for name in names] or sorted(HERE.glob("*.ipynb")):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(nbformat.read(path, as_version=4), Path(folder))
        write_whole(path, (nbformat.writes(notebook, indent=1) + "\n").encode())
        sys.stdout.write(f"{path.name}: {time.perf_counter() - start:.0f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
