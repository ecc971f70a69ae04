"""Figures of the report: the paper's, and three more."""

import dataclasses
from collections.abc import Callable

from recurrent_laplace.report.figures.ablations import figure_05
from recurrent_laplace.report.figures.control import figure_02, figure_03, figure_10, figure_12, figure_13
from recurrent_laplace.report.figures.finetuning import figure_06, figure_09, figure_11
from recurrent_laplace.report.figures.predictive import figure_14
from recurrent_laplace.report.figures.problems import figure_04
from recurrent_laplace.report.figures.regression import figure_01, figure_07, figure_08
from recurrent_laplace.report.figures.seeds import figure_16
from recurrent_laplace.report.figures.timing import figure_15
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.panels import Drawing


@dataclasses.dataclass(frozen=True, kw_only=True)
class FigureEntry:
    """A figure: its number in the paper, file name, texts, and the function that draws it."""

    number: int
    name: str
    title: str
    alt: str
    caption: str
    draw: Callable[[Frames], Drawing]

    @property
    def stem(self) -> str:
        """File name without suffix."""
        return f"figure-{self.number:02d}-{self.name}"


COLUMNS = "Columns: from scratch, fine-tuned from an RNN, post hoc on an RNN."
FUNCTIONS = (
    "Exact Bayes is Bayesian linear regression on the same functions. Without noise, it knows the function "
    "exactly after as many observations as there are weights, and its line leaves the panel."
)
BANDITS = (
    "Exact Bayes pulls the arm with the highest mean under the exact belief (with independent arms, the one "
    "with the highest Gittins index)"
)
GRIDS = "goes to the nearest tile that may still be the goal"
ZOOM = (
    "around the update where an RNN becomes Bayesian. Marks at the right edge: the mean of the last tenth of "
    "training from scratch (open: diagonal)."
)
REGRET = "Cumulative regret on test tasks; lower is better, and a concave line is sub-linear."

FIGURES = (
    FigureEntry(
        number=1,
        name="regression-cross-entropy",
        title="Regression: cross-entropy against observations",
        alt="Three panels of lines: predictive cross-entropy of each method on the regression task against "
        "the number of observations, from scratch, fine-tuned and post hoc.",
        caption=f"Predictive cross-entropy on test functions; lower is better. {COLUMNS} The RNN is the "
        "one that fine-tuned and post-hoc runs come from. The sum of means and precisions is in figure 8. "
        f"{FUNCTIONS}",
        draw=figure_01,
    ),
    FigureEntry(
        number=2,
        name="gridworld-beliefs",
        title="Gridworld: consecutive KL and entropy of the beliefs",
        alt="Six panels of lines: consecutive KL divergence on top and entropy below, against steps in the "
        "gridworld, from scratch, fine-tuned and post hoc.",
        caption=f"Beliefs over the steps of a test task. {COLUMNS} For an exact belief, the KL would tend to "
        "zero and the entropy would fall. The sum of means and precisions is in figure 13.",
        draw=figure_02,
    ),
    FigureEntry(
        number=3,
        name="training-return",
        title="Return during training, by samples in the loss",
        alt="Panels of lines: average return against updates for bandit and gridworld, with a row for each "
        "number of samples of the belief in the loss.",
        caption="Return of training tasks; higher is better. A row for each number of samples of the belief "
        "in the loss, one and five in the paper; 'mean' is the mean of the belief, as released. The RNN has "
        "no samples and is the same in all rows. "
        f"{BANDITS}, or {GRIDS}; its level is the mean over tasks sampled as in training.",
        draw=figure_03,
    ),
    FigureEntry(
        number=4,
        name="tasks",
        title="Sampled tasks of the three kinds",
        alt="Three panels: random Fourier series with observations of one, a bandit's chances of reward with "
        "the best arm marked, and a grid with start, hidden goal and shortest path.",
        caption="Problems of each task, sampled from the training distribution.",
        draw=figure_04,
    ),
    FigureEntry(
        number=5,
        name="regression-ablations",
        title="Regression: predictive error during training, all ablations",
        alt="Six panels of lines: squared error against updates, grouped by method, covariance, weight of "
        "the KL, samples in the loss, window and size of the belief.",
        caption="Squared error of the predicted mean on training batches, from scratch. Each panel groups "
        "the Bayesian runs by one option, and uses only runs with a counterpart that differs in that option "
        "alone. An agent is a seed of a run.",
        draw=figure_05,
    ),
    FigureEntry(
        number=6,
        name="regression-finetuning",
        title="Regression: zoom on the fine-tunes",
        alt="Two panels of lines: squared error against updates around the snapshots at one half and three "
        "quarters of the RNN's training, where Bayesian training takes over.",
        caption=f"Squared error on training batches {ZOOM}",
        draw=figure_06,
    ),
    FigureEntry(
        number=7,
        name="regression-beliefs",
        title="Regression: posterior statistics at test",
        alt="Six panels of lines: consecutive KL divergence on top and entropy below, against observations "
        "of test functions, from scratch, fine-tuned and post hoc.",
        caption=f"Beliefs over the observations of a test function. {COLUMNS}",
        draw=figure_07,
    ),
    FigureEntry(
        number=8,
        name="regression-cross-entropy-all",
        title="Regression: figure 1 with all methods",
        alt="Three panels of lines as in figure 1, with the sum of means and precisions in blue.",
        caption=f"Predictive cross-entropy on test functions; lower is better. {COLUMNS} {FUNCTIONS}",
        draw=figure_08,
    ),
    FigureEntry(
        number=9,
        name="bandit-finetuning",
        title="Bandit: zoom on fine-tuning",
        alt="Two panels of lines: return against updates around the snapshots at one half and three quarters "
        "of the RNN's training on the bandit.",
        caption=f"Return of training tasks {ZOOM}",
        draw=figure_09,
    ),
    FigureEntry(
        number=10,
        name="bandit-regret",
        title="Bandit: cumulative regret, all agents and the better half",
        alt="Six panels of lines: cumulative regret against steps of the bandit; upper row all agents, lower "
        "row the half of each line with the lower final regret.",
        caption=f"{REGRET} {COLUMNS} Every seed of every run of a method is an agent. Lower row: for each "
        f"line, the agents whose final regret is at most the median. {BANDITS}, on the same tasks.",
        draw=figure_10,
    ),
    FigureEntry(
        number=11,
        name="gridworld-finetuning",
        title="Gridworld: zoom on fine-tuning",
        alt="Two panels of lines: return against updates around the snapshots at one half and three quarters "
        "of the RNN's training on the gridworld.",
        caption=f"Return of training tasks {ZOOM}",
        draw=figure_11,
    ),
    FigureEntry(
        number=12,
        name="gridworld-regret",
        title="Gridworld: cumulative regret",
        alt="Three panels of lines: cumulative regret against steps of the gridworld, from scratch, "
        "fine-tuned and post hoc.",
        caption=f"{REGRET} {COLUMNS} Exact Bayes {GRIDS}, on the same tasks.",
        draw=figure_12,
    ),
    FigureEntry(
        number=13,
        name="gridworld-beliefs-all",
        title="Gridworld: figure 2 with all methods",
        alt="Six panels of lines as in figure 2, with the sum of means and precisions in blue.",
        caption=f"Beliefs over the steps of a test task. {COLUMNS}",
        draw=figure_13,
    ),
    FigureEntry(
        number=14,
        name="regression-predictions",
        title="Regression: predictions with uncertainty",
        alt="Two rows of panels, a column for each method: a test function, its observations, the predicted "
        "mean and bands of two standard deviations; observed on the whole interval above, in strips below.",
        caption="One test function after 15 observations, predicted by the first seed of each method; dense "
        "and from scratch where there are such runs. Not in the paper.",
        draw=figure_14,
    ),
    FigureEntry(
        number=15,
        name="update-time",
        title="Time per update of every variant, relative to the RNN",
        alt="Three panels of dots, one for each task: time of a training update of each variant as a "
        "multiple of the RNN's.",
        caption="Shortest time of an update per seed of each run from scratch, relative to the RNN's on the "
        "same task. A dot is a run. Not in the paper.",
        draw=figure_15,
    ),
    FigureEntry(
        number=16,
        name="every-seed",
        title="Final test result of every seed",
        alt="Three panels of dots, one for each task: the test result at the cut-off of every seed of each "
        "method from scratch, as released and as written.",
        caption="Test result after T steps, from scratch: a dot is a seed, open as released and filled as "
        "written. Dashed: exact Bayes, on control tasks. On the gridworld, the interquartile mean over test "
        "tasks of the return as a share of that of exact Bayes, with its 99% bootstrap interval. Not in the "
        "paper.",
        draw=figure_16,
    ),
)
"""All figures, ordered by number."""
