"""Files of answers, read as their formats say."""

import csv
import json

import pyarrow.parquet as pq


def read_answers(path):
    """Return a dict per row; of CSV, of strings."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    with path.open(newline="") as file:
        if path.suffix == ".csv":
            return list(csv.DictReader(file))
        return [json.loads(line) for line in file.read().split("\n")[:-1]]
