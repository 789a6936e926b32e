"""The driver of a benchmark: decides what begins next, and keeps what comes back."""

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from robustpll.bench.bundles import (
    Bundle,
    Job,
    NoiseBundle,
    Place,
    bundles,
    drawn_of,
    filled,
    noise_bundles,
    seconds_of,
)
from robustpll.bench.locks import Claims
from robustpll.bench.noise_cache import Drawn, Packed
from robustpll.bench.progress_display import Board
from robustpll.bench.run import PlannedRun
from robustpll.bench.store import ResultStore
from robustpll.bench.worker import Done
from robustpll.bench.workers import Executor, Failure, Finished

PATIENCE = 2.0  # seconds until what others are at is looked at again
BETWEEN_RECORDS = 20.0  # seconds
PLACES: tuple[Place, ...] = ("device", "host")


@contextmanager
def stops() -> Iterator[Event]:
    """An event that Ctrl-C or a plain kill sets; asked for twice, it ends the program at once."""
    asked = Event()
    if threading.current_thread() is not threading.main_thread():  # signals come to that one
        yield asked
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@dataclass
class Over:
    """Seconds of jobs that are over: as they were expected, and as they were."""

    expected: float = 0.0
    seconds: float = 0.0


class Sweep:
    """All that is to run, is at work, and is over."""

    def __init__(
        self, missing: list[PlannedRun], store: ResultStore, executor: Executor, board: Board
    ) -> None:
        self.store, self.executor, self.board = store, executor, board
        self.claims = Claims(store.root / "claims", board.say)
        self.known: dict[Drawn, Packed] = {}
        self.unknowable: dict[Drawn, Failure] = {}  # noise that failed
        needed = dict.fromkeys(drawn for each in missing if (drawn := drawn_of(each.run)))
        for drawn in needed:
            if (packed := store.candidates(drawn)) is not None:
                self.known[drawn] = packed
        noise = noise_bundles((d for d in needed if d not in self.known), joined=executor.joined)
        self.waiting: list[Job] = [*noise, *bundles(missing, joined=executor.joined)]
        self.later: list[Job] = []  # others are at it
        self.look_again = 0.0
        self.flying: dict[tuple[str, ...], tuple[Job, float]] = {}  # with when they began
        self.retried: set[tuple[str, ...]] = set()
        self.of, self.done, self.failed = len(missing), 0, dict[str, str]()
        self.begun = time.perf_counter()
        self.jobs: list[dict[str, Any]] = []  # what each took, for those who ask where time went
        self.parts: dict[str, float] = defaultdict(float)
        self.told: set[str] = set()
        self.over: dict[Place, Over] = {place: Over() for place in PLACES}
        self.recorder: Callable[[], None] = lambda: None  # told now and then where the time goes
        self.recorded = self.begun

    def go(self, until: float | None) -> None:
        """Until all is done or failed; after `until` seconds nothing begins any more.

        Ctrl-C is heeded between two writes: what is finished by then is kept.
        """
        with self.claims, stops() as stop:
            try:
                while not stop.is_set() and self._goes_on(until):
                    over = self.executor.finished(0.5)
                    self._fill(until)  # first, so that no worker waits for a file to be written
                    self._keep(over)
                    self._show()
                    self._record()
                if stop.is_set():
                    self._keep(self.executor.finished(0))
                    raise KeyboardInterrupt
            finally:
                self.executor.close()

    def _goes_on(self, until: float | None) -> bool:
        self._fill(until)
        if self.flying:
            return True
        if not (self.waiting or self.later) or self._late(until):
            return False
        time.sleep(PATIENCE / 4)  # others are at what is left
        return True

    def _record(self) -> None:
        if self.jobs and time.perf_counter() - self.recorded > BETWEEN_RECORDS:
            self.recorder()
            self.recorded = time.perf_counter()

    def _late(self, until: float | None) -> bool:
        return until is not None and time.perf_counter() - self.begun > until

    def _fill(self, until: float | None) -> None:
        """Begin what there is room for."""
        if self._late(until):
            return
        if self.later and time.monotonic() > self.look_again:
            self.waiting, self.later = self.waiting + self.later, []
        for place in PLACES:
            while self.executor.room(place) and (job := self._next(place)) is not None:
                self.flying[job.keys] = (job, time.perf_counter())
                self.executor.submit(job)

    def _next(self, place: Place) -> Job | None:
        """The next job that can begin, claimed; what others did or are at is left out of it."""
        for job in list(self.waiting):
            if job.place != place or not all(map(self._is_settled, job.needs)):
                continue
            self.waiting.remove(job)
            own = self._own_draws(job) if isinstance(job, NoiseBundle) else self._own_runs(job)
            if own is not None:
                return own
        return None

    def _is_settled(self, drawn: Drawn) -> bool:
        return drawn in self.known or drawn in self.unknowable

    def _own_runs(self, bundle: Bundle) -> Bundle | None:
        mine, theirs = [], []
        for each in bundle.runs:
            drawn = drawn_of(each.run)
            if drawn in self.unknowable:
                self._fail(each, self.unknowable[drawn], "Its noise: ")
            elif not self.claims.take(each.run.key):
                theirs.append(each)
            elif self.store.lacks(each):
                mine.append(each)
            else:  # done by others since the plan was made
                self.claims.leave([each.run.key])
                self.done += 1
        self._postpone(replace(bundle, runs=tuple(theirs)) if theirs else None)
        return filled(replace(bundle, runs=tuple(mine)), self.known) if mine else None

    def _own_draws(self, bundle: NoiseBundle) -> NoiseBundle | None:
        mine, theirs = [], []
        for each in bundle.drawn:
            if not self.claims.take(each.key):
                theirs.append(each)
            elif (packed := self.store.candidates(each)) is None:
                mine.append(each)
            else:
                self.claims.leave([each.key])
                self.known[each] = packed
        self._postpone(replace(bundle, drawn=tuple(theirs)) if theirs else None)
        return replace(bundle, drawn=tuple(mine)) if mine else None

    def _postpone(self, job: Job | None) -> None:
        if job is not None:
            self.later.append(job)
            self.look_again = time.monotonic() + PATIENCE

    def _keep(self, over: Iterable[Finished]) -> None:
        for each in over:
            job, begun = self.flying.pop(each.job.keys)
            if isinstance(each.outcome, Failure):
                self._retry(job, each.outcome)
                parts = {"failed": each.seconds}
            else:
                started = time.perf_counter()
                self._write(job, each.outcome)
                parts = dict(each.outcome.seconds)
                self.parts["write"] += time.perf_counter() - started
                self._say_once(each.outcome.notes, job)
            self.over[job.place].expected += self._expected(job)
            self.over[job.place].seconds += each.seconds
            what = "noise" if isinstance(job, NoiseBundle) else "runs"
            for name, seconds in parts.items():
                self.parts[f"{what}, {name}"] += seconds
            self.jobs.append(
                {
                    "title": job.title,
                    "runs": len(job.keys),
                    "models": job.models,
                    "worker": each.worker,
                    "begun": round(begun - self.begun, 2),  # after the beginning of the sweep
                    "seconds": round(each.seconds, 2),
                    "parts": {name: round(seconds, 2) for name, seconds in parts.items()},
                }
            )

    def _write(self, job: Job, done: Done) -> None:
        if isinstance(job, NoiseBundle):
            for drawn, packed in zip(job.drawn, done.candidates, strict=True):
                self.store.keep_candidates(drawn, packed)
                self.known[drawn] = packed
        else:
            for each, table, about in zip(job.runs, done.tables, done.about, strict=True):
                self.store.write(each.run, table, about)
                self.done += 1
        self.claims.leave(job.keys)

    def _retry(self, job: Job, failure: Failure) -> None:
        """A job that failed begins anew in parts, so that its neighbours are not lost with it."""
        if failure.died and job.keys not in self.retried:
            self.retried.add(job.keys)
            self.waiting.insert(0, job)
        elif len(job.keys) > 1:
            self.waiting[:0] = job.parts()
        elif isinstance(job, NoiseBundle):
            self.unknowable[job.drawn[0]] = failure
            self.claims.leave(job.keys)
        else:
            self._fail(job.runs[0], failure)
            self.claims.leave(job.keys)

    def _fail(self, planned: PlannedRun, failure: Failure, before: str = "") -> None:
        sentence = f"{before}{failure.sentence}"
        self.store.failed(planned.run, sentence, failure.details)
        self.failed[planned.name] = sentence
        self.board.say(f"{planned.name} failed: {sentence}")

    def _say_once(self, notes: Iterable[str], job: Job) -> None:
        for note in notes:
            if note not in self.told:
                self.told.add(note)
                self.board.say(f"{job.title}: {note}")

    def _show(self) -> None:
        share, left = self.outlook()
        flying = [job.title for job, _ in self.flying.values()]
        self.board.show(share, self.done + len(self.failed), self.of, flying, left)

    def outlook(self) -> tuple[float, float | None]:
        """The share of the work that is done, and the seconds that are left by what others took."""
        now, open_shares, left = time.perf_counter(), 0.0, 0.0
        for place in PLACES:
            over = self.over[place]
            ratio = over.seconds / over.expected if over.expected else 1.0
            flying = [(job, begun) for job, begun in self.flying.values() if job.place == place]
            expected = sum(
                self._expected(j) for j in (*self.waiting, *self.later) if j.place == place
            )
            for job, begun in flying:
                expected += max(0.0, self._expected(job) - (now - begun) / ratio)
            open_shares += expected
            left = max(left, ratio * expected / max(1, len(flying)))
        known = sum(each.expected for each in self.over.values())
        return known / (known + open_shares) if known else 0.0, left if known else None

    def _expected(self, job: Job) -> float:
        return seconds_of(job, cuda=self.executor.joined and job.place == "device")
