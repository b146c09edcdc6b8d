"""Packs the checkpoints of transformers.Trainer while it trains on, and resumes from them.

    trainer = Trainer(..., callbacks=[bitsnap.transformers.PackCheckpoints()])
    trainer.train(resume_from_checkpoint=True)               # of a packed checkpoint, too
"""
from __future__ import annotations

import os
import threading
import warnings
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from . import auto, torch  # noqa: F401  # with torch, the thread has nothing to import
from .pack import pack_folder

__all__ = ["PackCheckpoints"]


class PackCheckpoints(TrainerCallback):
    """Packs each checkpoint, weights and optimizer, in a thread, after it is written. Packed files are called NAME.bsnap. Files that hold more
    than states (training_args.bin, rng_state.pth) or would not become smaller stay plain. A process that is killed leaves each file plain,
    packed, or both. To resume from packed files, it enables bitsnap.auto.

    Training waits for the thread before the next checkpoint is written, and at its end. If packing fails, the rest stays plain, with a warning.
    In a distributed training, the first process packs. A program that loads a checkpoint imports bitsnap.auto.

    level, threads, references: as in bitsnap.pack.pack_folder.
    """

    def __init__(self, *, level: str | int = "default", threads: int = 1, references: bool = True) -> None:
        auto.enable()  # resuming needs it
        self._options: dict[str, Any] = {"level": level, "threads": threads, "references": references}
        self._thread: threading.Thread | None = None
        self._failure: str | None = None

    def wait(self) -> None:
        """Until the last checkpoint is packed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            warnings.warn(failure, stacklevel=2)

    def on_save(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Starts to pack the checkpoint that was written."""
        self.wait()
        if state.is_world_process_zero:
            folder = os.path.join(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
            self._thread = threading.Thread(target=self._pack, args=[folder], name="bitsnap: pack a checkpoint")
            self._thread.start()

    def _pack(self, folder):
        try:
            pack_folder(folder, remove=True, **self._options)
        except Exception as error:  # wait() reports it in the thread that trains
            self._failure = f"{folder} is not packed, or not all of it, and stays as it is: {error!r}"

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Waits if a checkpoint follows, as old ones are removed then."""
        if control.should_save:
            self.wait()

    on_epoch_end = on_step_end

    def on_evaluate(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Waits: the best model so far may be saved next."""
        self.wait()

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Waits."""
        self.wait()
