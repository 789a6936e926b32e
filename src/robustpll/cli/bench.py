"""`robustpll bench`: runs a grid of methods, datasets and seeds, shows its state, and reports."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from robustpll.cli.messages import errors_as_messages, say
from robustpll.cli.tables import Device, Text, Texts
from robustpll.errors import InputError, counted

if TYPE_CHECKING:
    from robustpll.bench.grid import Grid
    from robustpll.bench.store import ResultStore

app = typer.Typer(help="Run methods on datasets, and compare them.", no_args_is_help=True)

GRID = Argument(
    metavar="GRID", help="paper, sound, quick, audit, tables, crowds, cifar, ..., or a TOML file."
)
STORED_GRID = Argument(metavar="[GRID]", help="A grid of the store or library, or a TOML file.")
TRAIN_ROWS = Option("--train-rows", help="Store the predictions of training rows, too.")
WORKERS = Option(help="Number of processes; by default one per core, or 6 per GPU.")
UNTIL = Option(metavar="SECONDS", help="Start no new runs after this time.")
VERSION = Option(metavar="DATASET=VERSION", help="Version of a dataset's file; repeatable.")
Store = Annotated[Path, Option(help="Folder of the results.")]


@app.command()
def run(
    grid: Annotated[str, GRID],
    *,
    store: Store,
    methods: Annotated[Text, Option(metavar="A,B", help="Run only these methods.")] = None,
    datasets: Annotated[Text, Option(metavar="A,B", help="Run on these datasets.")] = None,
    seeds: Annotated[Text, Option(metavar="N", help="Number of seeds, or a list: 0,3.")] = None,
    noise: Annotated[Text, Option(help="instance-dependent, annotators, uniform, ...")] = None,
    eps: Annotated[Text, Option(metavar="X,Y", help="Attack strengths; 0 for none.")] = None,
    epochs: Annotated[int | None, Option(help="Training epochs of all deep methods.")] = None,
    train_rows: Annotated[bool, TRAIN_ROWS] = False,
    device: Device = "auto",
    workers: Annotated[int | None, WORKERS] = None,
    ray: Annotated[Text, Option(metavar="ADDRESS", help="Ray: HOST:PORT, auto or local.")] = None,
    until: Annotated[float | None, UNTIL] = None,
) -> None:
    """Run what the store lacks of a grid; if stopped, the same command continues."""
    from robustpll.bench.executor import run_grid
    from robustpll.bench.grid import grid_of, noise_of
    from robustpll.engine.cluster import RayExecutor

    with errors_as_messages(stopped="Finished runs are stored; the same command runs the rest."):
        if ray is not None and workers is not None:
            raise InputError("--workers does not go with --ray: use 'ray start --num-cpus'.")
        numbers, strengths = _listed(seeds, int), _listed(eps, float)
        changes = {
            "methods": _listed(methods, str),
            "datasets": _listed(datasets, str),
            "seeds": tuple(range(*numbers)) if numbers and len(numbers) == 1 else numbers,
            "epsilons": strengths and tuple(filter(None, strengths)),  # 0 is no attack
            "noise": noise_of(noise),
            "epochs": epochs,
            "train_rows": train_rows or None,
        }
        passed = {name: value for name, value in changes.items() if value is not None}
        executor = None if ray is None else RayExecutor(ray, device)
        limits: Any = {"device": device, "workers": workers, "until": until}
        outcome = run_grid(grid_of(grid).changed(**passed), store, executor=executor, **limits)
    say(
        f"{counted(outcome.done, 'run')} done in {outcome.seconds:,.0f} s, {outcome.known:,} known "
        f"before, {len(outcome.failed):,} failed, {outcome.left:,} left."
    )
    say(f"For its tables: robustpll bench report {outcome.grid.name} --store {store} --out FOLDER")
    if outcome.failed:
        raise typer.Exit(1)


def _listed(text: str | None, kind: Any) -> tuple[Any, ...] | None:
    """Return the values of an option such as --seeds 0,3; None if it is not passed."""
    try:
        return None if text is None else tuple(kind(p.strip()) for p in text.split(",") if p)
    except ValueError as error:
        raise InputError(f"--seeds and --eps take numbers, as in 0,3: {error}.") from error


@app.command()
def status(store: Store, grid: Annotated[str | None, GRID] = None) -> None:
    """Show how much of the store's grids is done, what failed, and what is missing."""
    from robustpll.bench.grid import grid_of
    from robustpll.bench.store import ResultStore

    with errors_as_messages():
        results = ResultStore(store)
        grids = results.grids() if grid is None else {grid: grid_of(grid)}
        for name, planned in grids.items():
            _show_status(results, name, planned)
        if not grids:
            raise InputError(f"{store} has no grids. Run 'robustpll bench run' first.")


def _show_status(store: "ResultStore", name: str, grid: "Grid") -> None:
    from robustpll.bench.grid import runs_here
    from robustpll.bench.store import other_versions

    (can_run, remedies), runs = runs_here(grid), {run.key: run for run in grid.runs()}.values()
    without_data = [run for run in runs if {run.dataset, run.label} & remedies.keys()]
    missing = store.missing(can_run)
    failures = [f"{run.name}: {error}" for run in missing if (error := store.failure(run))]
    absent = sum(not store.has_any_version(run) for run in without_data)
    done = f"{len(runs) - len(missing) - absent:,} of {len(runs):,} runs are here"
    to_run = f"{len(missing) - len(failures):,} to run, {len(failures):,} failed"
    typer.echo(f"{name}: {done}; {to_run}, {absent:,} lack data or a package")
    advice = [f"{name} is not here. {remedy}" for name, remedy in remedies.items()]
    for message in (*failures, *advice, *other_versions(store, can_run)):
        typer.echo(f"  {message}")


@app.command()
def verify(
    store: Store,
    *,
    repair: Annotated[bool, Option("--repair", help="Move damaged files aside.")] = False,
) -> None:
    """Read the whole store and list damaged files; nothing is deleted."""
    from robustpll.bench.store import ResultStore, damage, set_aside

    with errors_as_messages():
        if not store.is_dir():
            raise InputError(f"There is no folder {store}.")
        results = ResultStore(store)
        damaged = damage(results)
        for path, message in damaged.items():
            typer.echo(f"{message} It is now {set_aside(results, path)}." if repair else message)
    if not damaged:
        say("All files of the store are sound.")
    elif not repair:
        raise typer.Exit(1)


@app.command()
def report(
    store: Annotated[Path, Option(help="Folder of the results, or a report's runs.parquet.")],
    out: Annotated[Path, Option(help="Folder for tables, figures and the page.")],
    grid: Annotated[Text, STORED_GRID] = None,
    version: Annotated[Texts, VERSION] = None,
) -> None:
    """Write tables, figures and one page that shows everything, from the store."""
    from robustpll.bench.report import write_report
    from robustpll.bench.store import ResultStore
    from robustpll.bench.summary import read_summary, summarize

    with errors_as_messages():
        versions = {text.partition("=")[0]: text.partition("=")[2] for text in version or ()}
        if not all(versions.values()):
            raise InputError(f"--version takes DATASET=VERSION, as in lost=usual; got {version}.")
        if store.is_file():
            summary = read_summary(store)
            if version or grid not in (None, summary.grid.name):
                raise InputError(f"{store} holds one version of the grid {summary.grid.name!r}.")
        else:
            results = ResultStore(store)
            summary = summarize(results, _stored_grid(results, grid), versions)
        page = write_report(summary, out)
    typer.echo(page)


def _stored_grid(store: "ResultStore", name: str | None) -> "Grid":
    """Return a grid of the store, or any grid of which the store has some runs."""
    from robustpll.bench.grid import GRIDS, grid_of

    grids = store.grids()
    if name is None and len(grids) == 1:
        return next(iter(grids.values()))
    if name in grids:
        return grids[name]
    if name and (name in GRIDS or name.endswith(".toml")):
        grid = grid_of(name)
        if any(store.has_any_version(planned) for planned in grid.runs()):
            return grid
    raise InputError(f"Name a grid of {store.root}; it has {', '.join(sorted(grids)) or 'none'}.")
