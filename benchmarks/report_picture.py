"""Draws docs/bench-page.png: the first screen of a report's page.

    python benchmarks/report_picture.py [reports/paper/index.html]

Needs Chromium.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent


def main() -> None:
    report = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "reports" / "paper" / "index.html")
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.screenshot(path=ROOT / "docs" / "bench-page.png")
        browser.close()


if __name__ == "__main__":
    main()
