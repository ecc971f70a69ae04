"""`python -m recurrent_laplace`: the command line."""

from recurrent_laplace.cli import main

main()
