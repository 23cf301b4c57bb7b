"""Run the demo with ten seeds under four settings: `python -m experiments.demo_spread runs`.

The settings are one thread and two, with the processor's own instructions and with AVX2 alone. A
network is trained again in each, so its weights differ by rounding. Finished runs are kept, and the
same command resumes. Each takes about half a minute of one core. `results/demo.json` has the
settings of which all seeds are finished.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from snapsure import _files

SEEDS = range(10)
RESULTS = Path(__file__).parents[1] / "results" / "demo.json"
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
SETTINGS: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, {}),
    "1 thread, AVX2": (1, AVX2),
    "2 threads": (2, {}),
    "2 threads, AVX2": (2, AVX2),
}
_SHOWN = ("AES", "LES", "LES (3 passes)")


def main(
    out: Annotated[Path, typer.Argument(help="Folder for what is finished.")],
    one: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Run what is not finished, and gather the results."""
    if one:
        print(json.dumps(run_seed(out, int(one))))
        return
    out.mkdir(parents=True, exist_ok=True)
    for setting, (threads, instructions) in SETTINGS.items():
        for seed in SEEDS:
            path = out / f"{setting}, seed {seed}.json"
            if path.exists():
                continue
            # Passive: threads that spin while they wait take minutes for seconds on a busy machine
            openmp = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
            environment = {**os.environ, **instructions, **openmp}
            scratch = out / "scratch"
            shutil.rmtree(scratch, ignore_errors=True)
            command = [sys.executable, "-m", "experiments.demo_spread", str(scratch)]
            ran = subprocess.run(
                [*command, "--one", str(seed)],
                env=environment,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            _files.write_bytes(path, ran.stdout.encode())
            print(f"{setting}, seed {seed}: {ran.stdout}", end="", flush=True)
            shutil.rmtree(scratch)
            gather(out)
    gather(out)


def gather(out: Path) -> None:
    """Write the settings of which all seeds are finished into one file."""
    found = {}
    for setting in SETTINGS:
        paths = {str(seed): out / f"{setting}, seed {seed}.json" for seed in SEEDS}
        if all(path.exists() for path in paths.values()):
            found[setting] = {seed: json.loads(path.read_text()) for seed, path in paths.items()}
    _files.write_bytes(RESULTS, (json.dumps(found, indent=1) + "\n").encode())


def run_seed(folder: Path, seed: int) -> dict[str, Any]:
    """Train, score, compare and deploy one seed, as the demo does."""
    from snapsure.decisions import Threshold
    from snapsure.evaluation import compare
    from snapsure.paper import demo
    from snapsure.table import ScoreTable

    table = ScoreTable.open(demo.score_seed(folder, seed))
    result = compare([table], methods=("final", *_SHOWN), resamples=1000)
    gains = {name: [round(number, 3) for number in result[name].saved] for name in _SHOWN}

    check = demo.deploy(folder, table, seed)
    held_out, new = (table.rows(rows) for rows in demo.halve(table.y_hat.size))
    rest = held_out.rows(check.choice.rest)
    final = Threshold.at_risk(rest.kappa("softmax")[-1], rest.errors, demo.RISK)
    accepted = final.accepts(new.kappa("softmax")[-1])
    return {
        "error": float(table.errors.mean()),
        "gain": gains,  # percent less E-AURC than the final softmax; with the 95 % interval
        "risk": demo.RISK,
        "method": check.choice.method,
        "accepted": check.accepted,
        "wrong": check.wrong,
        "plain": float(accepted.mean()),  # by the final softmax
        "plain_wrong": float(new.errors[accepted].mean()),
    }


if __name__ == "__main__":
    typer.run(main)
