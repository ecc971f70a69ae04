"""Command line entry point of `python -m recurrent_laplace`."""

from recurrent_laplace.cli import main

main()
