"""Executed notebooks as Markdown, with their stored outputs; nothing is run."""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return the page of a notebook, and its pictures by their name in the page's folder."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(re.sub(r"\]\(([\w-]+)\.ipynb", r"](\1.md", source))
        elif source.strip():
            if cell["execution_count"] is None:
                raise SystemExit(f"{path}: this cell was not executed:\n{source}")
            parts += ["````python", source, "````", ""]
            parts += (part for one in cell["outputs"] for part in shown(one, path, pictures))
        parts.append("")
    title, _, rest = "\n".join(parts).partition("\n")
    download = f"[Download this notebook]({path.name}){{ .download }}"
    return f"{title}\n\n{download}\n{rest}", pictures


def shown(output: dict[str, Any], path: Path, pictures: dict[str, bytes]) -> Iterator[str]:
    """Yield an output as Markdown; a picture goes to `pictures`."""
    if output["output_type"] == "error":
        raise SystemExit(f"{path}: a cell failed with {output['ename']}: {output['evalue']}")
    data = output.get("data", {"text/plain": output.get("text", "")})
    texts = {kind: "".join(text) for kind, text in data.items() if kind.startswith(("text", "im"))}
    html = re.sub(r"<style scoped>.*?</style>", "", texts.get("text/html", ""), flags=re.S)
    kind = next((kind for kind in PICTURES if kind in texts), "")
    if kind:
        name = f"{path.stem}_files/{len(pictures) + 1}.{PICTURES[kind]}"
        picture = texts[kind]
        pictures[name] = picture.encode() if kind.endswith("xml") else b64decode(picture)
        yield f"![Output of the code above]({name})"
    elif html and "<script" not in html:  # scikit-learn's diagrams are scripts; their text is not
        plain = re.sub(r'<table border="1" class="dataframe">', "<table>", html)
        yield f'<div class="output" markdown="0">\n{plain}\n</div>'
    elif "text/markdown" in texts:
        yield texts["text/markdown"]
    elif text := re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", texts.get("text/plain", "")).rstrip():
        yield f"````text {{ .output }}\n{text}\n````"
    yield ""
