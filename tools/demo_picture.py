"""Takes the picture in the README out of the report that `make demo` leaves.

    make demo && python -m tools.demo_picture

It is the first plot of the page: what two producers and their consumers did, with the kills.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"


def first_plot(page: str) -> str:
    """The first plot of a report, small: names and numbers of a tenth of a point will do."""
    found = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    if found is None:
        raise SystemExit("no plot on this page; was it written by `make demo`?")
    text = re.sub(r"<metadata>.*?</metadata>", "", found[0], flags=re.DOTALL)
    text = re.sub(r"(\d+\.\d)\d+", r"\1", text)
    return re.sub(r"\s*\n\s*", " ", text) + "\n"


def main(arguments: list[str]) -> int:
    page = Path(arguments[0]) if arguments else ROOT / "build" / "demo" / "index.html"
    PICTURE.write_text(first_plot(page.read_text()))
    print(f"written: {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
