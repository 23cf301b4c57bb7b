"""A contest in a few megabytes, which NumPy alone opens in a second.

A folder with `contest.json` and, for each data set and recipe, `seed-0.npz` …: κ of the rivals for
some of the snapshots and of the test examples, each snapshot's labels, perhaps the final logits,
and scores of the final snapshot alone. κ is packed as in `table/_packed.py`, logits in steps of
1/256 and without their mean. Archives older than `ScoreTable.final` have its numbers as κ or among
the scores, or their logits give them.

In `contest.json`, `files` has the SHA-256 of each file; `renamed`, if there, has names of κ that
have changed since, old to new; `known`, if there, names data sets that are others without their
examples of none of the classes (y = −1) and have no files of their own. A score whose name ends
with KNOWN is for these, in place of the one without.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from snapsure import _files, _json
from snapsure._logit_scores import FINAL_NUMBERS, final_numbers
from snapsure._types import Array, Floats
from snapsure._validate import NO_CLASS
from snapsure.errors import CorruptFile, InvalidInput, UnsafeFile
from snapsure.evaluation._run import Rival, Run
from snapsure.table import ScoreTable
from snapsure.table._packed import decode_final, decode_kappa, encode_kappa, shrink, write_arrays

ABOUT = "contest.json"
KNOWN = ", known classes"
_CENTRED = " of centred logits"
_STEPS = 256
_AGAIN = "take it from the archive again"


class _Contest(TypedDict):
    """What `contest.json` holds."""

    runs: dict[str, _json.Count]
    files: dict[str, str]
    renamed: NotRequired[dict[str, str]]
    known: NotRequired[dict[str, str]]


def locate_run(folder: Path, name: str, seed: int) -> Path:
    """Return the path of a run."""
    return folder / name / f"seed-{seed}.npz"


def pack(run: Run, path: Path) -> None:
    """Write one run, whole or not at all."""
    table = run.table
    passes = run.passes | {name: rival.passes for name, rival in run.others.items()}
    kept = {name: rival.kept for name, rival in run.others.items()}
    trainings = {name: rival.trainings for name, rival in run.others.items()}
    arrays: dict[str, Any] = {
        "labels": shrink(table.labels),
        "y_hat": shrink(table.y_hat),
        "y": shrink(run.y),
        "epochs": shrink(table.epochs),
        "price": json.dumps([passes, kept, run.snapshot_bytes, trainings]),
    }
    for name in table.names:
        arrays[f"kappa.{name}"] = encode_kappa(table.kappa(name))
    for name, rival in run.others.items():
        arrays[f"other.{name}"] = encode_kappa(rival.kappa[None])
        if not np.array_equal(rival.y_hat, table.y_hat):  # most score the final classifier's
            arrays[f"answer.{name}"] = shrink(rival.y_hat)
    if table.logits is not None:
        steps = np.rint(_STEPS * (table.logits - table.logits.mean(axis=1, keepdims=True)))
        arrays["logits"] = steps.clip(-(2**15), 2**15 - 1).astype(np.int16)
    if table.final is not None:
        arrays["final"] = encode_kappa(table.final.T)

    _files.make_folder(path.parent)
    write_arrays(path, arrays)


def write_manifest(counts: Mapping[str, int], about: Mapping[str, Any], folder: Path) -> None:
    """Write the manifest that makes a folder of runs a contest."""
    names = counts.keys() - about.get("known", {}).keys()
    paths = [locate_run(folder, name, i) for name in sorted(names) for i in range(counts[name])]
    files = {path.relative_to(folder).as_posix(): _files.sha256(path) for path in paths}
    content = {**about, "runs": dict(counts), "files": files}
    path = folder / ABOUT
    before = json.loads(path.read_text()) if path.exists() else {}
    if "renamed" in before:  # files that stay have the old names
        content = {"renamed": before["renamed"], **content}
    _files.write_bytes(path, _json.text(content) + b"\n")


def open_contest(folder: Path) -> dict[str, list[Run]]:
    """Read the runs of a contest, by data set."""
    path = folder / ABOUT
    if not path.is_file():
        raise InvalidInput(
            f"--from must be a folder with {ABOUT}, got none in {folder}. Check the path."
        )
    about = _json.load(path, "the manifest of a contest", _Contest, _AGAIN)
    files, renamed, known = about["files"], about.get("renamed", {}), about.get("known", {})
    try:
        whole = {
            name: [_read(folder, locate_run(folder, name, i), files, renamed) for i in range(count)]
            for name, count in about["runs"].items()
            if name not in known
        }
        return {
            name: [_select(run, name in known) for run in whole[known.get(name, name)]]
            for name in about["runs"]
        }
    except (CorruptFile, UnsafeFile):
        raise
    except Exception as error:  # damaged bytes make NumPy and zipfile raise many things
        raise CorruptFile(
            f"{folder} must hold a whole contest, got one that cannot be read ({error}). "
            "Take it from the archive again."
        ) from None


def _select(run: Run, is_known: bool) -> Run:
    """Return a run with its own scores: of all examples, or of those that belong to a class."""
    if is_known:
        run = run.rows(np.flatnonzero(run.y != NO_CLASS))
    others = {name: rival for name, rival in run.others.items() if not name.endswith(KNOWN)}
    for name, rival in run.others.items():
        if is_known and name.endswith(KNOWN):
            others[name.removesuffix(KNOWN)] = rival
    return run.replace(run.table, others)


def _read(folder: Path, path: Path, files: Mapping[str, str], renamed: Mapping[str, str]) -> Run:
    _files.check_sha256(path, files.get(path.relative_to(folder).as_posix()), _AGAIN)
    _files.refuse_packed_bomb(path, _AGAIN)
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        arrays = dict(file)
    shape = arrays["labels"].shape
    passes, kept, size, trainings = json.loads(str(arrays["price"]))
    kappas, others, passes_of_kappa = {}, {}, {}
    for key, values in arrays.items():
        kind, _, name = key.partition(".")
        if kind == "kappa":
            kappas[renamed.get(name, name)] = decode_kappa(values, shape)
            passes_of_kappa[renamed.get(name, name)] = passes[name]
        elif kind == "other":
            kappa = decode_kappa(values, (1, shape[1]))[0]
            y_hat: Any = arrays.get(f"answer.{name}", arrays["y_hat"])
            cost = passes[name], kept[name], trainings.get(name, 1.0)  # not in the oldest archives
            others[renamed.get(name, name)] = Rival(kappa, y_hat, *cost)
    logits = arrays["logits"] / _STEPS if "logits" in arrays else None
    table = ScoreTable(
        kappas,
        arrays["labels"],
        arrays["y"],
        y_hat=arrays["y_hat"],
        epochs=arrays["epochs"],
        logits=logits,
        final=_find_final(arrays, kappas, others, logits),
    )
    return Run(table, others=others, passes=passes_of_kappa, snapshot_bytes=size)


def _find_final(
    arrays: Mapping[str, Array],
    kappas: Mapping[str, Floats],
    others: Mapping[str, Rival],
    logits: Floats | None,
) -> Floats | None:
    """Return the five numbers of the final logits, (n, 5), from whatever the archive has."""
    n = arrays["y_hat"].size
    if "final" in arrays:
        return decode_final(arrays["final"], n)
    known = {name: kappa[-1] for name, kappa in kappas.items()}
    known |= {name.removesuffix(_CENTRED): rival.kappa for name, rival in others.items()}
    if logits is not None:
        by_logits = final_numbers(logits, arrays["y_hat"].astype(np.int64)).T
        known = dict(zip(FINAL_NUMBERS, by_logits, strict=True)) | known
    if not known.keys() >= {*FINAL_NUMBERS}:
        return None
    return np.stack([known[name] for name in FINAL_NUMBERS], axis=1)
