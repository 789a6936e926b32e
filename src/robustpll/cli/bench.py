"""`robustpll bench`: run a grid of methods, datasets and seeds, see how far it is, report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustpll.cli.messages import refusals, say

if TYPE_CHECKING:
    from robustpll.bench.executor import Outcome
    from robustpll.bench.grid import Grid
    from robustpll.bench.ray import RayExecutor
    from robustpll.bench.store import ResultStore

app = typer.Typer(help="Run methods on datasets, and compare them.", no_args_is_help=True)

GRID = typer.Argument(metavar="GRID", help="paper, sound, quick, audit, beyond, or a TOML file.")
STORE = typer.Option(help="Folder of the results.")


@app.command()
def run(
    grid: Annotated[str, GRID],
    *,
    store: Annotated[Path, STORE],
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these of the grid's methods.")
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(metavar="A,B", help="These datasets instead of the grid's.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N", help="So many seeds from 0 on instead; or a list, as in 0,3."),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="instance-dependent, class-dependent or uniform, instead of the grid's."),
    ] = None,
    eps: Annotated[
        str | None, typer.Option(metavar="X,Y", help="These attack strengths instead; 0 for none.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of all methods that have such, instead.")
    ] = None,
    train_rows: Annotated[
        bool, typer.Option("--train-rows", help="Store predictions of training rows, too.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that train; else one for each core, or 6 for each GPU."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="On a Ray cluster: HOST:PORT, auto, or local."),
    ] = None,
    until: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="After them nothing begins any more.")
    ] = None,
) -> None:
    """Run what the store lacks of a grid. Stop it at will: the same command runs the rest."""
    from robustpll.bench.executor import run_grid

    changes: dict[str, Any] = {"methods": methods, "datasets": datasets, "seeds": seeds}
    changes |= {"noise": noise, "epsilons": eps, "epochs": epochs, "train_rows": train_rows or None}
    with refusals():
        asked = _changed(
            grid, {name: value for name, value in changes.items() if value is not None}
        )
        try:
            executor = None if ray is None else _on_ray(ray, device, workers)
            outcome = run_grid(
                asked, store, device=device, workers=workers, until=until, executor=executor
            )
        except KeyboardInterrupt:
            say("Stopped. What was finished is kept; the same command runs the rest.")
            raise typer.Exit(130) from None
    _tell(outcome, store)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def status(store: Annotated[Path, STORE], grid: Annotated[str | None, GRID] = None) -> None:
    """How much of the store's grids is done, what failed, and what is missing."""
    from robustpll.bench.grid import grid_of
    from robustpll.bench.store import ResultStore

    with refusals():
        kept = ResultStore(store)
        grids = kept.grids() if grid is None else {grid: grid_of(grid)}
        for name, asked in grids.items():
            _tell_status(kept, name, asked)
    if not grids:
        say(f"{store} has no grids. Run 'robustpll bench run quick --store {store}' first.")
        raise typer.Exit(1)


def _tell_status(kept: "ResultStore", name: str, grid: "Grid") -> None:
    from robustpll.bench.grid import present
    from robustpll.bench.store import is_stored, of_files, of_others

    (here, absent), every = present(grid), {planned.run.key: planned for planned in grid.runs()}
    away = [planned for planned in every.values() if planned.run.dataset in absent]
    can_run = of_files(here.runs()) if here else ()
    missing = kept.missing(can_run)
    lacking = [planned for planned in away if not is_stored(kept, planned)]
    failed = [planned for planned in missing if kept.failure(planned.run)]
    done, waiting = len(every) - len(missing) - len(lacking), len(missing) - len(failed)
    typer.echo(
        f"{name}: {done:,} of {len(every):,} runs are here; {waiting:,} to run, "
        f"{len(failed):,} failed, {len(lacking):,} lack data"
    )
    for planned in failed:
        typer.echo(f"  {planned.name}: {kept.failure(planned.run)}")
    for dataset, way in absent.items():
        typer.echo(f"  {dataset} is not here. {way}")
    for sentence in (*of_others(kept, can_run), *kept.damaged((*can_run, *away))):
        typer.echo(f"  {sentence}")


@app.command()
def verify(
    store: Annotated[Path, STORE],
    *,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Move damaged files aside, so that they are made anew."),
    ] = False,
) -> None:
    """Read all that the store holds, and list what is damaged. Nothing is ever deleted."""
    from robustpll.bench.store import ResultStore, damage, set_aside

    with refusals():
        kept = ResultStore(store)
        if not store.is_dir():
            say(f"There is no folder {store}.")
            raise typer.Exit(1)
        damaged = damage(kept)
        for path, sentence in damaged.items():
            typer.echo(f"{sentence} It is now {set_aside(kept, path)}." if repair else sentence)
    if not damaged and not kept.grids():
        say(f"{store} holds no grid that was run, so there is nothing to verify.")
    elif not damaged:
        say("All files of the store are sound.")
    elif repair:
        say(f"{len(damaged):,} files were moved aside. The same 'bench run' makes them anew.")
    else:
        raise typer.Exit(1)


@app.command()
def report(
    store: Annotated[Path, STORE],
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and the page.")],
    grid: Annotated[
        str | None,
        typer.Argument(
            metavar="[GRID]",
            help="One of the store's grids, if it has several; or one of the library's, or a TOML "
            "file, of which the store has some runs.",
        ),
    ] = None,
    version: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATASET=VERSION",
            help="Of a dataset's file, if the store has runs on several; may be given repeatedly.",
        ),
    ] = None,
) -> None:
    """Write tables, figures and one page that shows everything, from what the store has."""
    from robustpll.bench.report import write_report
    from robustpll.bench.store import ResultStore
    from robustpll.bench.summary import summarize

    with refusals():
        kept = ResultStore(store)
        found = _held(kept, grid)
        if found is None:
            names = ", ".join(sorted(kept.grids())) or "none"
            say(f"Name one of the grids of {store}; it has {names}.")
            raise typer.Exit(1)
        page = write_report(summarize(kept, found, _versions(version or [])), out)
    typer.echo(page)


def _versions(given: list[str]) -> dict[str, str]:
    from robustpll.errors import InputError

    pairs = [word.partition("=") for word in given]
    if odd := [name for name, equals, chosen in pairs if not (name and equals and chosen)]:
        msg = f"--version takes DATASET=VERSION, such as lost=usual; got {', '.join(odd)}."
        raise InputError(msg)
    return {name: chosen for name, _, chosen in pairs}


def _held(kept: "ResultStore", asked: str | None) -> "Grid | None":
    """A grid of the store, or one that was run there in parts."""
    from robustpll.bench.grid import GRIDS, grid_of
    from robustpll.bench.store import is_stored

    grids = kept.grids()
    if asked is None:
        return next(iter(grids.values())) if len(grids) == 1 else None
    if asked not in grids and (asked in GRIDS or asked.endswith(".toml")):
        whole = grid_of(asked)
        if any(is_stored(kept, planned) for planned in whole.runs()):
            return whole
    return grids.get(asked)


def _on_ray(address: str, device: str, workers: int | None) -> "RayExecutor":
    from robustpll.bench.ray import RayExecutor
    from robustpll.errors import InputError

    if workers is not None:
        msg = (
            "--workers does not go with --ray: a job takes a CPU or a share of a GPU. Say how many "
            "a machine gives by 'ray start --num-cpus'."
        )
        raise InputError(msg)
    return RayExecutor(address, device)


def _changed(name: str, changes: dict[str, Any]) -> "Grid":
    """The grid with what the options say."""
    from robustpll.bench.grid import grid_of
    from robustpll.bench.run import noise_of
    from robustpll.errors import InputError

    for listed in ("methods", "datasets", "seeds", "epsilons"):
        if listed in changes:
            changes[listed] = tuple(part.strip() for part in changes[listed].split(",") if part)
    try:
        if "seeds" in changes:
            changes["seeds"] = tuple(int(seed) for seed in changes["seeds"])
        if "epsilons" in changes:
            changes["epsilons"] = tuple(e for e in map(float, changes["epsilons"]) if e)
    except ValueError as error:
        msg = f"--seeds and --eps take numbers with commas between them: {error}."
        raise InputError(msg) from error
    if len(changes.get("seeds", ())) == 1:
        changes["seeds"] = tuple(range(changes["seeds"][0]))
    if "noise" in changes:
        changes["noise"] = noise_of(changes["noise"])
    return grid_of(name).changed(**changes)


def _tell(outcome: "Outcome", store: Path) -> None:
    say(
        f"{outcome.done:,} runs done in {outcome.seconds:,.0f} s, {outcome.known:,} were known, "
        f"{len(outcome.failed):,} failed, {outcome.left:,} are left."
    )
    if outcome.parts:
        slowest = sorted(outcome.parts.items(), key=lambda part: -part[1])
        shown = ", ".join(f"{name} {seconds:,.1f}" for name, seconds in slowest)
        say(f"Seconds over all processes: {shown}.")
    if outcome.left:
        say("Run the same command again for the rest.")
    name = outcome.grid.name
    say(f"For its tables: robustpll bench report {name} --store {store} --out FOLDER")
