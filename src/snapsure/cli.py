"""The command line: thin over the library.

Errors are one sentence on stderr and exit code 2. Ctrl-C leaves what is done, and says how to go on
with it.
"""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from snapsure import _inputs as inputs
from snapsure.errors import InvalidInput, SnapsureError
from snapsure.table import ScoreTable

app = typer.Typer(
    help="Which of my classifier's predictions can I trust?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

_EXTRAS = {
    "torch": "torch",
    "lightning": "lightning",
    "datasets": "data",
    "pyarrow": "data",
    "PIL": "data",
    "h5py": "keras",
    "matplotlib": "report",
    "jinja2": "report",
    "vl_convert": "report",
}


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for snapshots, scores and plots.")] = Path(
        "snapsure-demo"
    ),
) -> None:
    """Train three small networks on real digits and go the whole way, in about two minutes."""
    console = _wide_console()
    with _told("run the same command again: trained networks are kept"):
        from snapsure.reproduce import demo as digits
        from snapsure.reproduce import demo_report

        tell = _teller(console)
        tables, ensemble = digits.run(out, tell)
        tell("comparing AES, PES and LES with the final κ")
        pixels = digits.load_digits().test[0][:, 0].numpy()
        demo_report.show(tables, ensemble, pixels, out, console)
        tell("done")


@app.command()
def score(
    model: Annotated[str, typer.Option(help="package.module:factory that makes the network.")],
    snapshots: Annotated[
        Path, typer.Option(help="Folder of snapshots, or of another tool's checkpoints.")
    ],
    data: Annotated[
        str,
        typer.Option(help="package.module:function that gives the data, or an .npz of x and y."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the score table.")],
    kappa: Annotated[
        str, typer.Option(help=f"Of {', '.join(inputs.KAPPAS)}; separated by commas.")
    ] = "softmax",
    reference: Annotated[
        str | None, typer.Option(help="Training data for nn and knn, given as --data is.")
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local: this process; ray: this machine's cores, or a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster: auto, host:port, ray://host:port.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line for programs.")] = False,
) -> None:
    """Score every point with every snapshot; interrupted, the same command goes on."""
    with _told("run the same command again: what is scored is kept"):
        from snapsure.scoring import score as run

        by = inputs.executor(executor, address)
        kappas = inputs.kappas(kappa.split(","), reference)
        network, points = inputs.named(model, "--model"), inputs.data_of(data, "--data")
        with redirect_stdout(sys.stderr):  # where Ray tells of lost nodes is for the answer
            table = run(network, snapshots, points, kappas, out=out, executor=by)
    told = {"table": str(out), "names": table.names, "shape": list(table.labels.shape)}
    typer.echo(json.dumps(told) if as_json else f"{table}\nNow: snapsure evaluate {out}")


@app.command()
def rebuild(
    folder: Annotated[Path, typer.Argument(help="Folder of snapshots: epoch-1.safetensors …")],
) -> None:
    """Write a lost or damaged manifest of snapshots again, from the files, each read and hashed."""
    with _told("run the same command again: nothing was changed"):
        from snapsure.snapshots import SnapshotStore

        store = SnapshotStore(folder)
        with Console(stderr=True).status("reading snapshots …"):
            store.rebuild()
        epochs = store.epochs
        typer.echo(f"{len(epochs)} snapshots, epochs {epochs[0]}…{epochs[-1]}: {folder} is a store")


@app.command()
def evaluate(
    table: Annotated[Path, typer.Argument(help="Folder of a score table.")],
    splits: Annotated[int, typer.Option(help="70/30 splits for PES, LES and Platt.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of the splits and resamples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Compare AES, PES and LES with the final κ, with intervals."""
    with _told("run the same command again"):
        from snapsure.report.build import evaluate as judge
        from snapsure.report.display import results_table

        scores = ScoreTable.open(table)
        wait = Console(stderr=True).status("resampling …")
        with wait:
            results = judge(scores, splits=splits, seed=seed)
        if as_json:
            content = {
                "points": scores.y_hat.size,
                "snapshots": scores.epochs.size,
                "error": float(scores.errors.mean()),
                "results": [result.as_dict() for result in results],
            }
            typer.echo(json.dumps(content, indent=1))
            return
        title = (
            f"{scores.y_hat.size} points, {scores.errors.mean():.1%} wrong, "
            f"{scores.epochs.size} snapshots"
        )
        _wide_console().print(results_table(results, title))


@app.command()
def compare(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of score tables; those of the same points are seeds."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A packed contest, such as results/contest.")
    ] = None,
    apart: Annotated[
        bool, typer.Option("--apart", help="Every table is a data set of its own, no seed.")
    ] = False,
    reference: Annotated[
        str | None, typer.Option(help="What gains are against; the first κ if not given.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=1, help="Of the paired bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of the halves and resamples.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="A picture of quality against price, to be written.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="terminal, markdown, latex or json.")
    ] = "terminal",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Rank every way to a confidence on the same checkpoints, with its price and intervals."""
    with _told("run the same command again"):
        from snapsure.contest import compare as rank
        from snapsure.report import leaderboard

        forms = ("terminal", "markdown", "latex", "json")
        form = "json" if as_json else form
        if form not in forms:
            raise InvalidInput(f"--format must be of {', '.join(forms)}, got {form!r}: choose one")
        if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
            raise InvalidInput(f"--plot must end in .png, .svg or .pdf, got {plot}: name it so")
        runs = inputs.contest_runs(tables or [], source, apart=apart)
        with Console(stderr=True).status("resampling …"):
            outcome = rank(runs, reference=reference, resamples=resamples, seed=seed)
        if plot is not None:
            leaderboard.plot(outcome, plot)
            typer.echo(f"written: {plot}", err=True)
        if form == "json":
            typer.echo(json.dumps(outcome.as_dict(), indent=1))
        elif form == "terminal":
            console = Console(width=max(Console().width, 200))
            for board in leaderboard.boards_of(outcome):
                console.print(leaderboard.as_table(board, outcome))
        else:
            written = leaderboard.as_markdown if form == "markdown" else leaderboard.as_latex
            typer.echo(written(outcome), nl=False)


@app.command()
def report(
    tables: Annotated[list[Path], typer.Argument(help="Folders of score tables.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    kappa: Annotated[str | None, typer.Option(help="Which κ; the first if not given.")] = None,
    images: Annotated[
        Path | None, typer.Option(help="The points as pictures: .npy, or .npz with x.")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(help="Names of the classes, one per line.")
    ] = None,
    contest: Annotated[
        bool, typer.Option("--contest", help="Add every way to a confidence, as compare does.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the splits and resamples.")] = 0,
) -> None:
    """One HTML page: did it help, what to accept, where training spoilt it, which points to see."""
    with _told("run the same command again"):
        from snapsure.report.page import Report, origin_of

        inputs.refuse_twice(tables)
        opened = {str(path): ScoreTable.open(path) for path in tables}
        origin = {"command": shlex.join(["snapsure", *sys.argv[1:]])}
        for path in tables:
            origin |= origin_of(path, str(path))
        names = None if classes is None else inputs.lines(classes)
        pixels = None if images is None else inputs.images_of(images)
        from snapsure.contest import compare as rank

        with Console(stderr=True).status("resampling …"):
            found = rank(inputs.contest_runs(tables, None), seed=seed) if contest else None
            page = Report(
                next(iter(opened.values())) if len(opened) == 1 else opened,
                kappa=kappa,
                images=pixels,
                classes=names,
                origin=origin,
                contest=found,
                seed=seed,
            ).save(out)
        typer.echo(f"written: {page}")


_DataSet = Annotated[str, typer.Option(help="cifar10, cifar100, svhn or imagenet-1k.")]
_Scale = Annotated[
    str, typer.Option(help="paper (a GPU, days), cpu or cpu-underfitted (two cores, hours).")
]
_Data = Annotated[
    Path | None,
    typer.Option(help="Folder of the parquet files or images; the Hugging Face hub if not given."),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for all that comes out; if not given, snapsure-DATASET-SCALE, and nothing is "
        "written with --from."
    ),
]
_Accelerator = Annotated[str, typer.Option(help="As Lightning Fabric calls it: cpu, cuda, mps.")]
_Devices = Annotated[int, typer.Option(min=1, help="Processes that train together (DDP).")]
_Precision = Annotated[str, typer.Option(help="As Fabric calls it: 32-true, 16-mixed, bf16-mixed.")]


@app.command()
def train(
    dataset: _DataSet = "cifar100",
    scale: _Scale = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Of weights, order and augmentation.")] = 0,
    data: _Data = None,
    out: _Out = None,
    accelerator: _Accelerator = "auto",
    devices: _Devices = 1,
    precision: _Precision = "32-true",
) -> None:
    """Train a network of the paper, a snapshot per epoch; stopped, the same command goes on."""
    with _told("run the same command again: whole epochs are kept"):
        from snapsure.reproduce import run

        plan = _plan(dataset, scale, data, out)
        run.claim(plan)
        tell = _teller(Console(stderr=True))
        fabric = run.fabric(accelerator, devices, precision)
        run.train_one(plan, seed, plan.parts(tell), fabric, tell)
        if fabric.is_global_zero:
            typer.echo(f"snapshots: {plan.folder(seed) / 'snapshots'}")


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(help="table1 … table4, saturation, figures, or all.")],
    dataset: _DataSet = "cifar100",
    scale: _Scale = "cpu",
    data: _Data = None,
    out: _Out = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Results of an earlier run: nothing is trained, seconds."),
    ] = None,
    accelerator: _Accelerator = "auto",
    devices: _Devices = 1,
    precision: _Precision = "32-true",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """The paper's tables and figures, ours beside its: from a training, or from its results."""
    with _told("run the same command again: networks and scores that are done are kept"):
        from snapsure.reproduce import outcome
        from snapsure.reproduce.archive import Experiment

        names = outcome.named(what)
        if source is None:
            from snapsure.reproduce import run

            plan = _plan(dataset, scale, data, out)
            fabric = run.fabric(accelerator, devices, precision)
            done = run.run(plan, fabric, _teller(Console(stderr=True)))
            if done is None:  # another process of the same training has it
                return
            source = out = plan.out / "results"
            done.save(source)
        experiment = Experiment.open(source)
        shown = outcome.compute(experiment, names)
        written = [] if out is None else outcome.write(experiment, names, shown, out)
        if as_json:
            typer.echo(json.dumps({name: part.content for name, part in shown.items()}, indent=1))
            return
        for part in shown.values():
            _wide_console().print(part.display())
        for path in written:
            typer.echo(f"written: {path}")


def _plan(dataset: str, scale: str, data: Path | None, out: Path | None) -> Any:
    from snapsure.reproduce import run

    return run.Plan(dataset, scale, out or Path(f"snapsure-{dataset}-{scale}"), data)


def _teller(console: Console) -> Callable[[str], None]:
    """Lines with the time since the start before them."""
    start = time.monotonic()

    def tell(step: str) -> None:
        console.print(
            f"[dim]{time.monotonic() - start:5.0f} s[/dim]  {step}", highlight=False, soft_wrap=True
        )

    return tell


def _wide_console() -> Console:
    """A console that leaves tables their columns: a narrow terminal wraps lines instead."""
    return Console(width=max(Console().width, 130))


@contextmanager
def _told(go_on: str) -> Iterator[None]:
    """Turn what the library raises into a sentence and an exit code."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(str(error.name).partition(".")[0])
        hint = f": pip install 'snapsure[{extra}]'" if extra else ""
        typer.echo(f"snapsure: {error}{hint}", err=True)
        raise typer.Exit(2) from None
    except (SnapsureError, OSError) as error:
        typer.echo(f"snapsure: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"snapsure: interrupted. To go on, {go_on}.", err=True)
        raise typer.Exit(130) from None
