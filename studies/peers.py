"""This package next to other libraries on the gridworld: return against seconds, compilation included.

Each system trains in a process of its own, one after another, and the peers in virtual environments that the
script creates. Settings are chosen by trials on a validation seed. Finished trainings are kept: the same
command continues a study that was stopped.

    python studies/peers.py --environments build/peers-environments --out build/peers
"""

import argparse
from pathlib import Path

from peers_page import draw, write_page
from peers_study import ROOT, SYSTEMS, Study

from recurrent_laplace.report.style import save_figure


def main() -> None:
    """Run the study, and write the page and its figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path, required=True, help="folder of the virtual environments")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--seconds", type=float, default=600, help="training time of a seed")
    parser.add_argument("--trial-seconds", type=float, default=300, help="training time of a trial")
    parser.add_argument("--every", type=float, default=10, help="training time between evaluations")
    parser.add_argument("--tasks", type=int, default=1024, help="test tasks of an evaluation")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the comparison")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=tuple(SYSTEMS), help="systems")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "lab", help="folder of the page")
    options = vars(parser.parse_args())
    docs = options.pop("docs")
    # Virtual environments and children are addressed by absolute paths.
    folders = {name: options.pop(name).absolute() for name in ("environments", "out")}
    study = Study(**folders, **options | {"systems": tuple(options["systems"])})
    study.execute()
    written = save_figure(draw(study), docs / "figures" / "peers.png")
    (docs / "peers.md").write_text(write_page(study, f"figures/{written.name}"))
    print(f"written: {docs / 'peers.md'}")


if __name__ == "__main__":
    main()
