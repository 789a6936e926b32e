"""Trainings that go on: from a checkpoint in files, or from a network that was trained before."""

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from robustpll._files import write_whole
from robustpll.engine.history import EpochState, History, is_stopped, set_within
from robustpll.engine.layers import stacks_of
from robustpll.errors import AT_LEAST_1, InputError, Rule, check_fields, is_number, some_of

if TYPE_CHECKING:
    from robustpll.engine.train import Average, EarlyStopping, Schedule, Training

Tensors = dict[str, Tensor]

FORMAT = 1  # raised whenever an older reader would misread a file
FIT = "fit.json"  # the file that describes a fit
KEY, SUM = "robustpll.checkpoint", "robustpll.sha256"  # of the description and its checksum
HASHED = ("rows", "candidates", "weights", "start")  # whose values are checksums
PATH = Rule("the path of a folder", lambda path: isinstance(path, str | Path) and bool(str(path)))
MINUTES = Rule("a number above 0, or None", lambda m: m is None or (is_number(m) and m > 0))


@dataclass(frozen=True)
class Checkpoint:
    """A folder for the state of a fit, and how often it is written.

    Parameters
    ----------
    path : str or Path
        A new or an empty folder. ``fit(X, y, resume=path)`` goes on from it.
    epochs : int
        Number of epochs between two checkpoints. The last epoch of a training is always written.
    minutes : float or None
        Least time between two checkpoints.

    Examples
    --------
    >>> import tempfile
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = PLLClassifier(Proden(epochs=4), checkpoint=Checkpoint(folder, epochs=2))
    ...     first = model.fit([[0.0], [1.0]], ["a", "b"]).predict_proba([[0.5]])
    ...     again = model.fit([[0.0], [1.0]], ["a", "b"], resume=folder).predict_proba([[0.5]])
    >>> bool((first == again).all())
    True
    """

    path: Annotated[str | Path, PATH]
    epochs: Annotated[int, AT_LEAST_1] = 1
    minutes: Annotated[float | None, MINUTES] = None

    def __post_init__(self) -> None:
        check_fields(self)


def _options(path: Any) -> Checkpoint:
    return path if isinstance(path, Checkpoint) else Checkpoint(path)


@dataclass
class Session:
    """The checkpoint of one fit: a folder with a description and a file for each training."""

    options: Checkpoint
    stored: dict[str, str] | None  # the description of the fit that is resumed
    finished: int = 0  # trainings

    @classmethod
    def of(cls, checkpoint: Any, resume: Any) -> Self | None:
        """Check the folders that a user named; None without a checkpoint."""
        if checkpoint is None and resume is None:
            return None
        options = _options(resume if checkpoint is None else checkpoint)
        folder = Path(options.path)
        if resume is None:
            _refuse_used(folder)
            return cls(options, None)
        resume = Path(_options(resume).path)
        if resume.resolve() != folder.resolve():
            raise InputError(
                f"resume={str(resume)!r} must be the folder that checkpoint names, "
                f"{str(folder)!r}. Pass one of them, or the same folder."
            )
        return cls(options, _described(folder))

    @property
    def folder(self) -> Path:
        return Path(self.options.path)

    def seed(self, drawn: int) -> int:
        """The seed of the fit that is resumed, or the one that is drawn for a new fit."""
        text = str((self.stored or {}).get("seed"))
        return int(text) if text.isdecimal() else drawn

    def begin(self, about: dict[str, str]) -> None:
        """Write the description of a new fit; refuse to resume a fit of another description."""
        if self.stored is None:
            content = {"format": FORMAT, "fit": about}
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                write_whole(self.folder / FIT, json.dumps(content, indent=1).encode())
            except OSError as error:
                raise InputError(f"checkpoint: {self.folder} cannot be written: {error}") from error
            return
        names = [n for n in self.stored | about if self.stored.get(n) != about.get(n)]
        if names:
            before = self.stored
            changes = [
                name if name in HASHED else f"{name} ({before.get(name)}, now {about.get(name)})"
                for name in names
            ]
            raise InputError(
                f"The checkpoint in {self.folder} is of another fit. These differ: "
                f"{some_of(changes)}. Pass what it was begun with, or fit without resume."
            )


@dataclass
class Start:
    """Where a training begins, if not at its usual start."""

    net: nn.Module | None  # trained before
    epoch: int | None = None  # the only one to run, counted from 0; None: all
    optimizer: Tensors = field(default_factory=dict)  # its state, also after the training


_beginning: ContextVar[tuple[Session | None, Start | None]] = ContextVar("beginning")


def going_on(session: Session | None, start: Start | None = None) -> AbstractContextManager[None]:
    """Write checkpoints of all trainings within the context, and start them from a network."""
    return set_within(_beginning, (session, start))


class Keeper:
    """Everything of a training that the next epoch depends on; it is read and written here."""

    def __init__(
        self,
        net: nn.Module,
        training: "Training",
        history: History,
        average: "Average",
        *,
        stopping: "EarlyStopping | None",
        schedule: "Schedule | None",
    ) -> None:
        self.net, self.training, self.history, self.average = net, training, history, average
        self.stopping, self.schedule = stopping, schedule
        (self.session, self.start), self.path = _beginning.get((None, None)), Path()
        if self.session is not None:  # halves of a bundle that exceeds the memory differ in models
            name = f"training-{self.session.finished + 1}-models-{training.task.models}"
            self.path = self.session.folder / f"{name}.safetensors"
        self.began = self.written = time.monotonic()
        self.last = training.method.total_epochs - 1

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self.began

    def epochs(self) -> range:
        """Restore what is stored, and return the epochs to run."""
        first = 0
        if self.start is not None:
            first = self._begin(self.start)
        if self.session is not None and self.session.stored and self.path.exists():
            first = self._restore(self.session)
        return range(first, self.last + 1)

    @torch.no_grad()
    def _begin(self, start: Start) -> int:
        """Copy a trained network; return the first epoch."""
        tensors = _tensors(self.net)
        former = tensors if start.net is None else _tensors(start.net)
        if _layout(former) != _layout(tensors):
            raise InputError(
                "The network has other layers than the one to go on from. Keep the method's "
                "network and members, or set warm_start=False."
            )
        for name, tensor in tensors.items():
            tensor.copy_(former[name])
        if start.epoch is None:
            return 0
        self.last = start.epoch
        self._fill_optimizer(start.optimizer)
        if self.schedule is not None:
            batches = self.schedule.steps // self.training.method.total_epochs
            self.schedule.step = start.epoch * batches
        return start.epoch

    def end_epoch(self, epoch: int) -> bool:
        """Call callbacks, and write a checkpoint if it is due; return whether this is the end."""
        method, history = self.training.method, self.history
        resumed = self.session is not None and self.session.stored is not None
        rate = history.covering_rates[-1] if history.covering_rates else None
        about = (self._seconds, resumed, history.losses[-1], rate, self.net)
        stop = is_stopped(EpochState(method.title, epoch + 1, method.total_epochs, *about))
        if self.training.shard is not None:  # callbacks are called in the first process
            stop = bool(self.training.shard.of_first(self.training.total.new_tensor(float(stop))))
        is_last = stop or epoch == self.last
        if self.session is not None:
            options, minutes = self.session.options, (time.monotonic() - self.written) / 60
            is_due = (epoch + 1) % options.epochs == 0 and minutes >= (options.minutes or 0)
            if is_last or is_due:
                self._write(epoch, stop=stop)
                self.written = time.monotonic()
            self.session.finished += is_last
        if is_last and self.start is not None:
            self.start.optimizer = {n: t.clone() for n, t in self._optimizer().items()}
        return is_last

    def _optimizer(self) -> Tensors:
        """The state of the optimizer by the number of a parameter."""
        states = self.training.optimizer.state_dict()["state"].items()
        parts = ((f"optimizer.{n}.{name}", v) for n, s in states for name, v in s.items())
        return {name: value for name, value in parts if isinstance(value, Tensor)}

    def _fill_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the state of the optimizer; each part is laid out in memory as its parameter."""
        parameters = self._parameters()
        for name, tensor in tensors.items():
            _, number, part = name.split(".")
            parameter = parameters[int(number)]
            value = tensor.to(parameter.device)
            if tensor.shape == parameter.shape:
                value = torch.empty_like(parameter, dtype=tensor.dtype).copy_(tensor)
            self.training.optimizer.state[parameter][part] = value.detach()

    def _parameters(self) -> list[Any]:
        return [p for group in self.training.optimizer.param_groups for p in group["params"]]

    def _live(self) -> Tensors:
        """The tensors that epochs change in place, without those of the optimizer."""
        state, stopping = self.training.state, self.stopping
        named = {f"net.{name}": tensor for name, tensor in _tensors(self.net).items()}
        named |= {f"rows.{name}": tensor for name, tensor in state.rows.items()}
        named |= {f"memory.{name}": tensor for name, tensor in state.memory.items()}
        named |= {f"mean.{number}": tensor for number, tensor in enumerate(self.average.means)}
        if stopping is not None:
            named |= {f"best.{number}": tensor for number, tensor in enumerate(stopping.best)}
            named["best rate"] = stopping.rate
        return named

    def _generators(self) -> dict[str, torch.Generator]:
        draws = self.training.draws
        named = {f"generator.{number}": one for number, one in enumerate(draws.generators)}
        return named | ({} if draws.in_step is None else {"generator.step": draws.in_step})

    def _write(self, epoch: int, *, stop: bool) -> None:
        from safetensors.torch import save

        history = {"loss": self.history.losses, "covering rate": self.history.covering_rates}
        tensors = self._live() | self._optimizer()
        tensors |= {name: generator.get_state() for name, generator in self._generators().items()}
        tensors |= {f"history.{name}": torch.stack(v) for name, v in history.items() if v}
        # cloned, as safetensors refuses tensors that share memory
        tensors = {n: t.detach().cpu().clone().contiguous() for n, t in tensors.items()}
        about = {
            "format": FORMAT,
            "training": self.training.method.title,
            "epoch": epoch + 1,
            "stopped": stop,
            "calls": [stack.calls for stack in stacks_of(self.net)],
            "step": 0 if self.schedule is None else self.schedule.step,
            "seconds": self._seconds,
        }
        text = json.dumps(about)
        write_whole(self.path, save(tensors, {KEY: text, SUM: checksum(text, tensors)}))

    @torch.no_grad()
    def _restore(self, session: Session) -> int:
        """Set everything to what the file has; return the first epoch to run."""
        about, tensors = _read(self.path)
        live, generators = self._live(), self._generators()
        history = {n: tensors.pop(f"history.{n}", None) for n in ("loss", "covering rate")}
        optimizer = {n: tensors.pop(n) for n in [*tensors] if n.startswith("optimizer.")}
        states = {name: tensors.pop(name) for name in generators if name in tensors}
        title, is_whole = self.training.method.title, states.keys() == generators.keys()
        if about["training"] != title or not is_whole or _layout(tensors) != _layout(live):
            raise InputError(
                f"{self.path} is not a checkpoint of this training of {title}: its network or its "
                "rows have another form. Pass the same network, or fit without resume."
            )
        for name, tensor in live.items():
            tensor.copy_(tensors[name])
        self._fill_optimizer(optimizer)
        for name, generator in generators.items():
            generator.set_state(states[name])
        device = self.training.total.device
        losses, rates = ([] if v is None else [*v.to(device)] for v in history.values())
        self.history.losses, self.history.covering_rates = losses, rates
        self.began = time.monotonic() - about["seconds"]
        for stack, calls in zip(stacks_of(self.net), about["calls"], strict=True):
            stack.calls = calls
        if self.schedule is not None:
            self.schedule.step = about["step"]
        is_complete = about["stopped"] or about["epoch"] > self.last
        session.finished += is_complete
        return self.last + 1 if is_complete else int(about["epoch"])


def _tensors(net: nn.Module) -> Tensors:
    """Parameters and buffers by name, also those buffers that a state dict leaves out."""
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}


def _layout(tensors: Mapping[str, Tensor]) -> dict[str, tuple[Any, Any]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def has_checkpoint(folder: Path) -> bool:
    """Whether a folder has the description of a fit."""
    return (folder / FIT).is_file()


def _refuse_used(folder: Path) -> None:
    """Raise InputError unless a new checkpoint may be written to a folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"checkpoint must be a folder, but {folder} is a file. Name another one.")
    if has_checkpoint(folder):
        raise InputError(
            f"{folder} has a checkpoint already, and nothing is replaced. Go on from it by "
            f"fit(X, y, resume={str(folder)!r}), or name another folder."
        )
    if folder.is_dir() and (names := sorted(path.name for path in folder.iterdir())):
        raise InputError(
            f"checkpoint must be a new or an empty folder, but {folder} holds {some_of(names)}. "
            "Name another one."
        )


def _described(folder: Path) -> dict[str, str]:
    """The description of the fit in a folder."""
    if not has_checkpoint(folder):
        raise InputError(
            f"resume: there is no checkpoint in {folder}, because it has no file {FIT}. Pass the "
            "folder that checkpoint named, or fit without resume."
        )
    try:
        content = json.loads((folder / FIT).read_bytes()[: 2**24])
        version, about = content["format"], dict(content["fit"])
    except Exception as error:
        raise InputError(_damaged(folder / FIT, error, "fit into another folder")) from error
    if version != FORMAT:
        raise InputError(
            f"{folder} has a checkpoint of another version of robustpll. Use that one."
        )
    return about


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Description and tensors of a file that is whole."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as opened:
            metadata = opened.metadata()
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        if metadata[SUM] != checksum(metadata[KEY], tensors):
            raise ValueError("its checksum is wrong")  # noqa: TRY301
        about: dict[str, Any] = json.loads(metadata[KEY])
    except Exception as error:
        remedy = "move it away to repeat this training from its start"
        raise InputError(_damaged(path, error, remedy)) from error
    return about, tensors


def _damaged(path: Path, error: Exception, remedy: str) -> str:
    reason = str(error)[:200]
    return (
        f"{path} is damaged or is no file of a checkpoint ({reason}). Restore it from a copy, or "
        f"{remedy}."
    )


def checksum(description: str, tensors: Tensors) -> str:
    """SHA-256 of the description and of the tensors' names, types, shapes and bytes, in hex."""
    text = description.encode()
    digest = hashlib.sha256(f"{len(text)}:".encode() + text)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(np.asarray(flat).data)
    return digest.hexdigest()
