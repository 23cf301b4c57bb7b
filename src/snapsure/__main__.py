"""`python -m snapsure`: the command line, where its script is not on the path."""

from snapsure.cli import app

app(prog_name="snapsure")
