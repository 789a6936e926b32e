"""`robustpll bench`: runs a grid of methods, datasets and seeds, shows its state, and reports."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from robustpll.cli.messages import refusals, say
from robustpll.cli.options import Device, Text, Texts
from robustpll.errors import InputError

if TYPE_CHECKING:
    from robustpll.bench.grid import Grid
    from robustpll.bench.store import ResultStore

app = typer.Typer(help="Run methods on datasets, and compare them.", no_args_is_help=True)

GRID = Argument(metavar="GRID", help="paper, sound, quick, audit, beyond, or a TOML file.")
Store = Annotated[Path, Option(help="Folder of the results.")]


@app.command()
def run(
    grid: Annotated[str, GRID],
    *,
    store: Store,
    methods: Annotated[Text, Option(metavar="A,B", help="Run only these methods.")] = None,
    datasets: Annotated[Text, Option(metavar="A,B", help="Run on these datasets.")] = None,
    seeds: Annotated[Text, Option(metavar="N", help="Number of seeds, or a list: 0,3.")] = None,
    noise: Annotated[Text, Option(help="instance-dependent, class-dependent or uniform.")] = None,
    eps: Annotated[Text, Option(metavar="X,Y", help="Attack strengths; 0 for none.")] = None,
    epochs: Annotated[int | None, Option(help="Training epochs of all deep methods.")] = None,
    train_rows: Annotated[
        bool, Option("--train-rows", help="Store the predictions of training rows, too.")
    ] = False,
    device: Device = "auto",
    workers: Annotated[
        int | None, Option(help="Number of processes; by default one per core, or 6 per GPU.")
    ] = None,
    ray: Annotated[Text, Option(metavar="ADDRESS", help="Ray: HOST:PORT, auto or local.")] = None,
    until: Annotated[
        float | None, Option(metavar="SECONDS", help="Start no new runs after this time.")
    ] = None,
) -> None:
    """Run what the store lacks of a grid; if stopped, the same command continues."""
    from robustpll.bench.executor import run_grid
    from robustpll.bench.ray import RayExecutor

    lists = {"methods": methods, "datasets": datasets, "seeds": seeds, "epsilons": eps}
    changes: dict[str, Any] = {
        name: tuple(part.strip() for part in text.split(",") if part)
        for name, text in lists.items()
        if text is not None
    }
    single = {"noise": noise, "epochs": epochs, "train_rows": train_rows or None}
    changes |= {name: value for name, value in single.items() if value is not None}
    with refusals(stopped="Finished runs are stored; the same command runs the rest."):
        if ray is not None and workers is not None:
            raise InputError("--workers does not go with --ray: use 'ray start --num-cpus'.")
        changed = _changed_grid(grid, changes)
        executor = None if ray is None else RayExecutor(ray, device)
        limits: Any = {"device": device, "workers": workers, "until": until}
        outcome = run_grid(changed, store, executor=executor, **limits)
    say(
        f"{outcome.done:,} runs done in {outcome.seconds:,.0f} s, {outcome.known:,} were known, "
        f"{len(outcome.failed):,} failed, {outcome.left:,} are left."
    )
    if outcome.parts:
        parts = sorted(outcome.parts.items(), key=lambda part: -part[1])
        times = ", ".join(f"{name} {seconds:,.1f}" for name, seconds in parts)
        say(f"Seconds over all processes: {times}.")
    if outcome.left:
        say("Run the same command again for the rest.")
    say(f"For its tables: robustpll bench report {outcome.grid.name} --store {store} --out FOLDER")
    if outcome.failed:
        raise typer.Exit(1)


def _changed_grid(name: str, changes: dict[str, Any]) -> "Grid":
    """Return the grid, changed by the options that were passed."""
    from robustpll.bench.grid import grid_of
    from robustpll.bench.run import noise_of

    try:
        if "seeds" in changes:
            seeds = tuple(int(seed) for seed in changes["seeds"])
            changes["seeds"] = tuple(range(seeds[0])) if len(seeds) == 1 else seeds
        if "epsilons" in changes:
            changes["epsilons"] = tuple(e for e in map(float, changes["epsilons"]) if e)
    except ValueError as error:
        raise InputError(f"--seeds and --eps take numbers separated by commas: {error}.") from error
    if "noise" in changes:
        changes["noise"] = noise_of(changes["noise"])
    return grid_of(name).changed(**changes)


@app.command()
def status(store: Store, grid: Annotated[str | None, GRID] = None) -> None:
    """Show how much of the store's grids is done, what failed, and what is missing."""
    from robustpll.bench.grid import grid_of
    from robustpll.bench.store import ResultStore

    with refusals():
        results = ResultStore(store)
        grids = results.grids() if grid is None else {grid: grid_of(grid)}
        for name, planned in grids.items():
            _show_status(results, name, planned)
    if not grids:
        say(f"{store} has no grids. Run 'robustpll bench run quick --store {store}' first.")
        raise typer.Exit(1)


def _show_status(store: "ResultStore", name: str, grid: "Grid") -> None:
    from robustpll.bench.grid import present
    from robustpll.bench.store import is_stored, of_files, of_others

    (here, remedies), every = present(grid), {planned.key: planned for planned in grid.runs()}
    without_data = [planned for planned in every.values() if planned.dataset in remedies]
    can_run = of_files(here.runs()) if here else ()
    missing = store.missing(can_run)
    failed = [planned for planned in missing if store.failure(planned)]
    absent = sum(not is_stored(store, planned) for planned in without_data)
    typer.echo(
        f"{name}: {len(every) - len(missing) - absent:,} of {len(every):,} runs are here; "
        f"{len(missing) - len(failed):,} to run, {len(failed):,} failed, {absent:,} lack data"
    )
    for planned in failed:
        typer.echo(f"  {planned.name}: {store.failure(planned)}")
    for dataset, remedy in remedies.items():
        typer.echo(f"  {dataset} is not here. {remedy}")
    for sentence in (*of_others(store, can_run), *store.damaged((*can_run, *without_data))):
        typer.echo(f"  {sentence}")


@app.command()
def verify(
    store: Store,
    *,
    repair: Annotated[bool, Option("--repair", help="Move damaged files aside.")] = False,
) -> None:
    """Read the whole store and list damaged files; nothing is deleted."""
    from robustpll.bench.store import ResultStore, damage, set_aside

    with refusals():
        results = ResultStore(store)
        if not store.is_dir():
            say(f"There is no folder {store}.")
            raise typer.Exit(1)
        damaged = damage(results)
        for path, sentence in damaged.items():
            typer.echo(f"{sentence} It is now {set_aside(results, path)}." if repair else sentence)
    if not damaged and not results.grids():
        say(f"{store} has no grids, so there is nothing to verify.")
    elif not damaged:
        say("All files of the store are sound.")
    elif repair:
        say(f"{len(damaged):,} files were moved aside. The same 'bench run' makes them again.")
    else:
        raise typer.Exit(1)


@app.command()
def report(
    store: Annotated[Path, Option(help="Folder of the results, or a report's runs.parquet.")],
    out: Annotated[Path, Option(help="Folder for tables, figures and the page.")],
    grid: Annotated[
        Text, Argument(metavar="[GRID]", help="A grid of the store or library, or a TOML file.")
    ] = None,
    version: Annotated[
        Texts, Option(metavar="DATASET=VERSION", help="Version of a dataset's file; repeatable.")
    ] = None,
) -> None:
    """Write tables, figures and one page that shows everything, from the store."""
    from robustpll.bench.report import write_report
    from robustpll.bench.store import ResultStore
    from robustpll.bench.summary import read_summary, summarize

    with refusals():
        if store.is_file():
            summary = read_summary(store)
            if version or grid not in (None, summary.grid.name):
                raise InputError(
                    f"{store} holds one version of the grid {summary.grid.name!r}. Leave out GRID "
                    "and --version, or name a folder of results."
                )
        else:
            results = ResultStore(store)
            stored = _stored_grid(results, grid)
            if stored is None:
                names = ", ".join(sorted(results.grids())) or "none"
                raise InputError(f"Name one of the grids of {store}; it has {names}.")
            pairs = [text.partition("=") for text in version or ()]
            if odd := ["".join(pair) for pair in pairs if not all(pair)]:
                raise InputError(f"--version takes DATASET=VERSION, as in lost=usual; got {odd}.")
            versions = {name: chosen for name, _, chosen in pairs}
            summary = summarize(results, stored, versions)
        page = write_report(summary, out)
    typer.echo(page)


def _stored_grid(store: "ResultStore", name: str | None) -> "Grid | None":
    """Return a grid of the store, or any grid of which the store has some runs."""
    from robustpll.bench.grid import GRIDS, grid_of
    from robustpll.bench.store import is_stored

    grids = store.grids()
    if name is None:
        return next(iter(grids.values())) if len(grids) == 1 else None
    if name not in grids and (name in GRIDS or name.endswith(".toml")):
        grid = grid_of(name)
        if any(is_stored(store, planned) for planned in grid.runs()):
            return grid
    return grids.get(name)
