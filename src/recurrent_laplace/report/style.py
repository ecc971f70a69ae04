"""Style of figures: palette, Matplotlib settings, and saving to a file."""

import os
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple

from recurrent_laplace.errors import check_choice
from recurrent_laplace.files import replacing

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "0.75"
OTHERS = ("#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8A7B00")
"""Okabe and Ito's colour-blind-safe palette, with a darker yellow that is visible on white."""

SUFFIXES = (".png", ".pdf", ".svg")
"""Supported file formats."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "figure.titlesize": 10,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
}
"""Matplotlib settings for text and lines of the size used in papers."""

TUPLES = {tuple: HandlerTuple(ndivide=None, pad=0.2)}
"""Legend handler that shows a tuple of lines side by side."""


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure atomically, and return its path.

    The suffix of `path` is the format: .png, .pdf or .svg. A missing folder is created. The same figure gives
    the same bytes, since no date is written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    check_choice("the suffix of a figure's file name", suffix, SUFFIXES)
    path.parent.mkdir(parents=True, exist_ok=True)
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    settings = {"svg.hashsalt": "recurrent-laplace", "pdf.fonttype": 42}
    with replacing(path) as unfinished, matplotlib.rc_context(settings):
        figure.savefig(unfinished, format=suffix[1:], dpi=200, metadata=dates.get(suffix))
    return path
