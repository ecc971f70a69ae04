"""The gates, the claims table and the figures of a directory of runs, for docs/results.md.

    python scripts/results_page.py build/laptop --figures docs/figures

prints Markdown, and writes the figures as PNG.
"""

import argparse
from pathlib import Path

from recurrent_laplace.report.claims import judge, judge_gates
from recurrent_laplace.report.figures import FIGURES
from recurrent_laplace.report.frames import load_frames
from recurrent_laplace.report.oracles import with_oracles


def main() -> None:
    """Print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    frames = with_oracles(load_frames(options.folder))
    print("| column | gate | |\n|---|---|---|")
    for gate in judge_gates(frames):
        word = "unknown" if gate.passed is None else "passed" if gate.passed else "failed"
        print_row(gate.column, gate.words, f"**{word}**")
    print("\n| claim | | column | verdict | numbers |\n|---|---|---|---|---|")
    for verdict in judge(frames):
        print_row(verdict.id, verdict.claim, verdict.column, f"**{verdict.verdict}**", verdict.evidence)
    options.figures.mkdir(parents=True, exist_ok=True)
    print()
    for entry in FIGURES:
        entry.draw(frames).savefig(options.figures / f"{entry.stem}.png", dpi=90)
        print(f"![Figure {entry.number}: {entry.title}](figures/{entry.stem}.png)\n")


def print_row(*cells: str) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |")


if __name__ == "__main__":
    main()
