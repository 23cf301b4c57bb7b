"""`python -m experiments.contest`: what `trainings.py` says."""

import typer

from experiments.contest.trainings import main

typer.run(main)
