"""What is computed in one go: runs of equal shape, or noise for datasets of equal shape."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import ceil
from typing import ClassVar, Literal

from robustpll.bench.noise_cache import Drawn, Packed
from robustpll.bench.run import PlannedRun, Run, fields_of
from robustpll.datasets.catalog import Entry, entry_of
from robustpll.datasets.noise import InstanceDependent
from robustpll.methods import ClassicalMethod, DeepMethod, Method

Place = Literal["device", "host"]

MOST_MODELS = 100  # of a bundle: more are hardly faster, and a kill would lose more
MOST_NUMBERS = 2**30  # label weights of a bundle; a training keeps some ten copies, 40 GiB
MOST_SECONDS = 150.0  # of a bundle on a GPU: so much is lost by a kill, or waited for at the end


@dataclass(frozen=True)
class Stretch:
    """Neighbouring runs of a bundle that are of one dataset."""

    dataset: str
    seeds: tuple[int, ...]
    candidates: tuple[Packed, ...]  # one for each seed; none where the dataset has its own
    content: str = ""  # which version of the dataset


@dataclass(frozen=True)
class Bundle:
    """Runs that train at once, datasets one after the other.

    `candidates` holds those of `needs`, in this order; until they are drawn it is empty.
    """

    runs: tuple[PlannedRun, ...]
    place: Place
    candidates: tuple[Packed, ...] = field(default=(), repr=False)

    @property
    def needs(self) -> tuple[Drawn, ...]:
        """The candidates that noise must have made before."""
        return tuple(dict.fromkeys(drawn for each in self.runs if (drawn := drawn_of(each.run))))

    @property
    def keys(self) -> tuple[str, ...]:
        """Of what comes out."""
        return tuple(each.run.key for each in self.runs)

    @property
    def title(self) -> str:
        return f"{self.runs[0].run.method.title} on {_names(each.run for each in self.runs)}"

    @property
    def models(self) -> int:
        return sum(networks(each.run.method) for each in self.runs)

    def stretches(self) -> list[tuple[Stretch, tuple[PlannedRun, ...]]]:
        """The runs of each dataset, and what is to be known of it."""
        known = dict(zip(self.needs, self.candidates, strict=True))
        found = []
        for name, neighbours in groupby(self.runs, key=lambda each: each.run.dataset):
            own = tuple(neighbours)
            drawn = [drawn_of(each.run) for each in own]
            candidates = tuple(known[one] for one in drawn if one is not None)
            seeds = tuple(each.run.seed for each in own)
            found.append((Stretch(name, seeds, candidates, own[0].run.content), own))
        return found

    def parts(self) -> list["Bundle"]:
        """Its runs one by one."""
        return [replace(self, runs=(each,), candidates=()) for each in self.runs]


@dataclass(frozen=True)
class NoiseBundle:
    """Candidates that are drawn at once, by one noise for datasets of one shape."""

    drawn: tuple[Drawn, ...]
    place: Place
    needs: ClassVar[tuple[Drawn, ...]] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(each.key for each in self.drawn)

    @property
    def title(self) -> str:
        return f"noise for {_names(self.drawn)}"

    @property
    def models(self) -> int:
        return len(self.drawn)

    def parts(self) -> list["NoiseBundle"]:
        return [replace(self, drawn=(each,)) for each in self.drawn]


Job = Bundle | NoiseBundle


def bundles(planned: Iterable[PlannedRun], *, joined: bool) -> list[Bundle]:
    """Runs in bundles, the longest first.

    If `joined`, runs of equal shape train at once, as a GPU wants it. Without, each run is a bundle
    of its own: in float32 numbers depend on their neighbours in the last digit, and so would the
    results of a sweep on what was left of it when it was killed.

    >>> from robustpll.bench.grid import Grid
    >>> grid = Grid.named("paper").changed(methods=["proden"], datasets=["mnist", "kmnist"])
    >>> [bundle.title for bundle in bundles(grid.runs(), joined=True)]
    ['Proden on mnist, kmnist (10 runs)']
    >>> len(bundles(grid.runs(), joined=False))
    10
    """
    groups: dict[object, list[PlannedRun]] = {}
    for each in planned:
        alone = not joined or each.run.method.on_host
        groups.setdefault(each.run.key if alone else _agreeing(each.run), []).append(each)
    found = []
    for group in groups.values():
        place: Place = "host" if joined and group[0].run.method.on_host else "device"
        order = {name: at for at, name in enumerate(dict.fromkeys(e.run.dataset for e in group))}
        group.sort(key=lambda each: order[each.run.dataset])
        parts = ceil(len(group) / _most(group, place)) if joined else 1
        size = ceil(len(group) / parts)  # as equal as can be
        cuts = range(0, len(group), size)
        found += [Bundle(tuple(group[at : at + size]), place) for at in cuts]
    return sorted(found, key=lambda job: seconds_of(job, cuda=joined), reverse=True)


def noise_bundles(drawn: Iterable[Drawn], *, joined: bool) -> list[NoiseBundle]:
    """Noise to be drawn, all of one shape at once if `joined`, the longest first."""
    groups: dict[object, list[Drawn]] = {}
    for each in drawn:
        shape = (_shape(each.dataset), each.noise) if joined else each
        groups.setdefault(shape, []).append(each)
    found = [NoiseBundle(tuple(group), "device") for group in groups.values()]
    return sorted(found, key=lambda job: seconds_of(job, cuda=joined), reverse=True)


def drawn_of(run: Run) -> Drawn | None:
    """Whose candidates a run learns from; None if the dataset has its own."""
    if run.noise is None:
        return None
    return Drawn(run.dataset, run.noise, run.seed, run.content)


def networks(method: Method) -> int:
    """That one run of a method trains."""
    return method.members if isinstance(method, DeepMethod) else 1


def _agreeing(run: Run) -> object:
    """Equal for runs that can train at once, if the files are as usual."""
    numbers = run.method.number_names()
    fields = {name: v for name, v in fields_of(run.method).items() if name not in numbers}
    return type(run.method).__name__, repr(fields), _shape(run.dataset)


def _shape(dataset: str) -> tuple[object, ...]:
    entry = entry_of(dataset)
    return entry.kind, entry.rows, entry.features, entry.classes


def _most(group: list[PlannedRun], place: Place) -> int:
    """Runs of the group that a bundle on a GPU may have."""
    run = group[0].run
    models = networks(run.method)
    numbers = training_rows(entry_of(run.dataset)) * entry_of(run.dataset).classes * models
    most = max(1, min(len(group), MOST_MODELS // models, MOST_NUMBERS // numbers))
    while most > 1 and seconds_of(Bundle(tuple(group[:most]), place), cuda=True) > MOST_SECONDS:
        most -= 1
    return most


def training_rows(entry: Entry) -> int:
    """Of a dataset whose files are as usual."""
    official = entry.kind == "pictures" and entry.rows == 70_000
    return 60_000 if official else entry.rows * 4 // 5


def seconds_of(job: Job, *, cuda: bool = False) -> float:
    """Roughly how long a job takes on one core, or on a large GPU: for the order and time left."""
    if isinstance(job, Bundle):
        run = job.runs[0].run
        method, dataset = run.method, run.dataset
        if isinstance(method, ClassicalMethod):
            return _classical_seconds(method, len(job.runs), entry_of(dataset), cuda)
        assert isinstance(method, DeepMethod)
        epochs, batch, units = method.total_epochs, method.batch_size, method.cost
    else:
        noise, dataset, units = job.drawn[0].noise, job.drawn[0].dataset, 1.0
        if not isinstance(noise, InstanceDependent):
            return 1.0
        epochs, batch = noise.epochs, noise.batch_size
    entry = entry_of(dataset)
    steps = epochs * ceil(training_rows(entry) / batch)
    weights = 300 * (entry.features + 600 + entry.classes)  # of a network as in the paper
    if cuda:
        return 10 + steps * units * (2e-4 + 1.5e-5 * job.models * weights / 4e5)
    return 0.2 + steps * units * job.models * (5e-4 + 6 * batch * weights / 4e10)


def _classical_seconds(method: ClassicalMethod, runs: int, entry: Entry, cuda: bool) -> float:
    factor, power = method.cost
    rows, shape = training_rows(entry), (1, 1) if entry.kind == "pictures" else (1,)
    seconds: float = factor * (rows / 1e4) ** power * (entry.features / 100)
    seconds = 0.1 + (seconds / 1000 if cuda else seconds)
    return runs * seconds + method.shared_seconds(rows, shape, cuda=cuda)


def _names(several: Iterable[Run | Drawn]) -> str:
    several = list(several)
    names = ", ".join(dict.fromkeys(each.dataset for each in several))
    return f"{names} ({len(several)} run{'s' * (len(several) > 1)})"


def filled(bundle: Bundle, known: dict[Drawn, Packed]) -> Bundle:
    """The bundle with its candidates."""
    return replace(bundle, candidates=tuple(known[each] for each in bundle.needs))
