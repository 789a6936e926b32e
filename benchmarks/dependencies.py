"""The packages that come with the library and with each extra: versions, licences, and an SBOM.

    python benchmarks/dependencies.py [--page docs/dependencies.md] [--sbom dist/sbom.cdx.json]

Reads what is installed in this environment; all extras must be. The table is a page of the site,
the SBOM (software bill of materials) has the form CycloneDX 1.6.
"""

import argparse
import json
import re
import tomllib
import uuid
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from robustpll import __version__

ROOT = Path(__file__).parents[1]
ORDER = {"runtime": 0, "dev": 2, "docs": 2}  # of the tables; the extras for users are between
PAGE = """# Dependencies and licences

Packages that come with the library, in the versions that are tested (`constraints.txt`), \
and further ones of each extra. Licences are those that the packages declare. Made by \
`python benchmarks/dependencies.py` with Python 3.11 on Linux; `make dist` also writes a software \
bill of materials (CycloneDX).

On Linux, the package `torch` of PyPI also brings CUDA libraries under licences of NVIDIA. The \
builds for CPUs, which are listed here, do not.
"""


def normal(name: str) -> str:
    """Return a package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(name: str) -> str:
    """Return the licence that an installed package declares."""
    about: Any = metadata.metadata(name)
    if about["License-Expression"]:
        return str(about["License-Expression"])
    classifiers = [text for text in about.get_all("Classifier", []) if "License ::" in text]
    names = [text.split(" :: ")[-1] for text in classifiers if not text.endswith("OSI Approved")]
    files = [path for path in metadata.files(name) or [] if "LICENSE" in path.name.upper()]
    text = about["License"] or (files[0].read_text() if files else "not declared")
    return " AND ".join(names) or text.strip().splitlines()[0][:80]


def needs(requirement: Requirement) -> list[Requirement]:
    """Return what an installed package needs here, with the extras that are asked for."""
    extras = ["", *requirement.extras]
    lines = map(Requirement, metadata.requires(requirement.name) or [])
    return [
        line
        for line in lines
        if not line.marker or any(line.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def brought_by(lines: list[str]) -> dict[str, set[str]]:
    """Return all packages that requirements bring, with those that each needs itself."""
    brought: dict[str, set[str]] = {}
    waiting, seen = [*map(Requirement, lines)], set()
    while waiting:
        one = waiting.pop()
        if (key := (normal(one.name), frozenset(one.extras))) in seen:
            continue
        seen.add(key)
        further = needs(one)
        brought.setdefault(normal(one.name), set()).update(normal(line.name) for line in further)
        waiting += further
    return brought


def component(name: str, groups: list[str]) -> dict[str, Any]:
    """Return the entry of a package in the SBOM."""
    version = metadata.version(name).partition("+")[0]
    expression = metadata.metadata(name).json.get("license_expression")
    licence = {"expression": expression}
    if not expression:
        licence = {"license": {"name": licence_of(name)}}
    return {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [licence],
        "properties": [{"name": "robustpll:brought-by", "value": group} for group in groups],
    }


def sbom(project: dict[str, Any], version: str) -> dict[str, Any]:
    """Return the bill of materials of the library with all its extras."""
    groups = {"runtime": project["dependencies"], **project["optional-dependencies"]}
    brought = {group: brought_by(lines) for group, lines in groups.items()}
    names = sorted(set().union(*brought.values()))
    direct = sorted({normal(Requirement(line).name) for line in project["dependencies"]})
    links = {name: set[str]().union(*(b.get(name, ()) for b in brought.values())) for name in names}
    own = {"type": "library", "bom-ref": "robustpll", "name": "robustpll", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": own | {"licenses": [{"license": {"id": project["license"]}}]},
        },
        "components": [
            component(name, [group for group in groups if name in brought[group]]) for name in names
        ],
        "dependencies": [
            {"ref": "robustpll", "dependsOn": direct},
            *({"ref": name, "dependsOn": sorted(links[name])} for name in names),
        ],
    }


def page(bill: dict[str, Any]) -> str:
    """Return the licence table of each group; packages of the runtime are listed once."""
    rows: dict[str, list[str]] = {}
    for one in bill["components"]:
        groups = [entry["value"] for entry in one["properties"]]
        line = f"| {one['name']} | {one['version']} | {licence_of(one['name'])} |"
        for group in groups[:1] if groups[0] == "runtime" else groups:
            rows.setdefault(group, []).append(line)
    parts = [PAGE]
    for group, lines in sorted(rows.items(), key=lambda item: (ORDER.get(item[0], 1), item[0])):
        title = "With the library" if group == "runtime" else f"With the extra `{group}`"
        parts.append(f"\n## {title}\n\n| package | version | licence |\n|---|---|---|\n")
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path, help="the licence table, in Markdown")
    parser.add_argument("--sbom", type=Path, help="the bill of materials, as CycloneDX JSON")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    try:
        bill = sbom(project, __version__)
    except metadata.PackageNotFoundError as error:
        extras = ",".join(project["optional-dependencies"])
        remedy = f"pip install -c constraints.txt -e '.[{extras}]'"
        raise SystemExit(f"{error.name} is not installed. Run: {remedy}") from error
    for path, text in ((options.page, page(bill)), (options.sbom, json.dumps(bill, indent=1))):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
