"""What to pass as `callbacks` and `checkpoint` of the classifiers.

A callback is any object with a method ``on_epoch_end(state)``; `EpochState` says what it gets. A
true result stops the training after this epoch.

>>> from robustpll import PLLClassifier
>>> from robustpll.methods import Proden
>>> class StopBelow:
...     def on_epoch_end(self, state: EpochState) -> bool:
...         return bool(state.loss.mean() < 0.2)
>>> model = PLLClassifier(Proden(epochs=1000), callbacks=[StopBelow()], random_state=0)
>>> len(model.fit([[0.0], [1.0]] * 9, ["a", "b"] * 9).history_["loss"]) < 1000
True
"""

import csv
import math
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustpll._files import refuse_missing_folder, refuse_replacing, write_whole
from robustpll.engine.checkpoint import Checkpoint
from robustpll.engine.history import EpochState
from robustpll.errors import InputError

__all__ = ["CSVLogger", "Checkpoint", "EpochState", "TensorBoard"]

HEADER = "training,epoch,loss,covering_rate,seconds"


@dataclass(frozen=True)
class CSVLogger:
    """Adds a line for each epoch to a CSV file, which can be read at any time.

    Loss and covering rate are means over models. If the file is a log already, lines are added. A
    fit that is resumed replaces the lines of epochs that it repeats.

    >>> import tempfile
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = CSVLogger(f"{folder}/log.csv")
    ...     _ = PLLClassifier(Proden(epochs=2), callbacks=[log]).fit([[0.0], [1.0]], ["a", "b"])
    ...     print(Path(log.path).read_text())
    training,epoch,loss,covering_rate,seconds
    Proden,1,...,,...
    Proden,2,...,,...
    """

    path: str | Path

    def on_epoch_end(self, state: EpochState) -> None:
        path = Path(self.path)
        refuse_missing_folder(path)
        refuse_replacing(path, lambda start: start.startswith(HEADER.encode()), "a CSVLogger's log")
        is_new = not path.exists() or path.stat().st_size == 0
        if state.resumed and not is_new:
            self._cut(path, state)
        rate = "" if state.covering_rate is None else f"{state.covering_rate.mean():.6g}"
        numbers = (f"{state.loss.mean():.6g}", rate, f"{state.seconds:.3f}")
        with path.open("a", newline="", encoding="utf-8") as file:  # closed, so a crash loses none
            file.write(f"{HEADER}\n" if is_new else "")
            csv.writer(file, lineterminator="\n").writerow((state.title, state.epoch, *numbers))

    def _cut(self, path: Path, state: EpochState) -> None:
        """Drop the last lines if they are of this training, and not before this epoch."""
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        count = len(lines)
        # Epochs rise within a training. One that begins anew did not reach its last epoch.
        following = state.epochs if state.epoch == 1 else math.inf
        while count > 1:
            title, epoch, *_ = [*next(csv.reader([lines[count - 1]])), "", ""]
            number = int(epoch) if epoch.isdecimal() else 0
            is_whole = lines[count - 1].endswith("\n")  # else a crash cut it off
            if is_whole and not (title == state.title and state.epoch <= number < following):
                break
            following = number if is_whole else following
            count -= 1
        if count < len(lines):
            write_whole(path, "".join(lines[:count]).encode())


class TensorBoard:
    """Writes loss and covering rate of each epoch, as means over models, for TensorBoard.

    It needs ``pip install 'robustpll[tensorboard]'``. Then ``tensorboard --logdir FOLDER`` shows
    the curves while the training runs. Each training has a folder of its name there.

    >>> import tempfile
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = PLLClassifier(Proden(epochs=2), callbacks=[TensorBoard(folder)])
    ...     _ = model.fit([[0.0], [1.0]], ["a", "b"])
    ...     [path.name for path in Path(folder).iterdir()]
    ['Proden']
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError as error:
            raise InputError(
                f"TensorBoard needs {error.name or 'tensorboard'}. Run pip install "
                "'robustpll[tensorboard]', or use CSVLogger."
            ) from error
        self.folder = folder
        writers = self._writers = dict[str, tuple[Any, int]]()  # by title, with the last epoch
        # Each writer has a thread.
        weakref.finalize(self, lambda: [writer.close() for writer, _ in writers.values()])

    def on_epoch_end(self, state: EpochState) -> None:
        from torch.utils.tensorboard import SummaryWriter

        writer, last = self._writers.get(state.title, (None, 0))
        # A fit that is resumed repeats epochs, maybe in the process that began it.
        if writer is None or (state.resumed and state.epoch != last + 1):
            if writer is not None:
                writer.close()
            folder, purged = Path(self.folder) / state.title, state.epoch if state.resumed else None
            writer = SummaryWriter(str(folder), purge_step=purged)
        self._writers[state.title] = writer, state.epoch
        writer.add_scalar("loss", state.loss.mean(), state.epoch)
        if state.covering_rate is not None:
            writer.add_scalar("covering rate", state.covering_rate.mean(), state.epoch)
        writer.flush()

    def __reduce__(self) -> Any:
        return TensorBoard, (self.folder,)  # threads cannot be copied

    def __repr__(self) -> str:
        return f"TensorBoard({str(self.folder)!r})"
