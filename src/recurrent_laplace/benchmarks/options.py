"""What the command line can ask of a benchmark; free of JAX, so that help is quick."""

import dataclasses
from pathlib import Path

from recurrent_laplace.benchmarks.variants import VARIANTS
from recurrent_laplace.errors import check_choice, check_number, check_size


@dataclasses.dataclass(frozen=True)
class PosteriorBench:
    """Time the gradient of (unroll, one sample, KL): ours beside `jax.jacfwd` inside the scan."""

    json: Path | None = None
    """Write the rows to this file as JSON."""
    only: tuple[str, ...] = tuple(VARIANTS)
    """Variants to run."""
    batch: int = 64
    """Sequences in a batch, B."""
    steps: int = 50
    """Inputs in a sequence, T."""
    input_size: int = 512
    """Length of an input, D."""
    hidden_size: int = 128
    """Size of the LSTM, H."""
    features: int = 64
    """Size of the belief, F."""
    repeats: int = 10
    """Turns that each program gets; the fastest counts."""
    seconds: float = 120.0
    """Turns of a variant end early when they would take longer than this."""

    def check(self) -> None:
        """Refuse what cannot be run, in words."""
        for name in self.only:
            check_choice("only", name, tuple(VARIANTS))
        for name in ("batch", "steps", "input_size", "hidden_size", "features", "repeats"):
            check_size(name, getattr(self, name))
        check_number("seconds", self.seconds, above=0)
