"""Strategies for megatron.core.dist_checkpointing (Megatron-Core 0.16), on bitsnap.dcp:

    save(state, "step-20", sharded_strategy=SaveStrategy(base="step-10"))     # async_sharded_save=True, too
    load(state, "step-20")                                                    # once this module is imported
"""
from __future__ import annotations

import contextlib
import functools
import json
import os
from typing import Any

import torch
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.strategies import torch as stock
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.base import AsyncSaveShardedStrategy, StrategyAction, register_default_strategy
from torch.distributed.checkpoint.metadata import BytesStorageMetadata
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.checkpoint.utils import _DistWrapper

from .dcp import BitsnapReader, BitsnapWriter, entries, result


class _Staged:
    """A copy of what a rank writes, in the host's memory: what a planner is asked for later, perhaps in another process."""

    def __init__(self, plan, planner):
        self._data = {item.index: planner.resolve_data(item) for item in plan.items}
        for item in plan.items:
            if item.type != WriteItemType.BYTE_IO:
                self._data[item.index] = self._data[item.index].detach().to("cpu", copy=True)

    def resolve_data(self, item):
        return self._data[item.index]


def _write(writer, staged, plan):
    results = writer.write_data(plan, staged).value()
    with open(_results(writer, plan), "w", encoding="utf-8") as f:
        json.dump([_save(plan), entries(results)], f)


def _results(writer, plan):
    """What a process that writes leaves for the one that finishes."""
    return os.path.join(writer.path, f".{plan.storage_data[0]}.results")


def _save(plan):
    """The id of the save."""
    return plan.storage_data[1][-1][1]


class SaveStrategy(AsyncSaveShardedStrategy):
    """base: the directory of an earlier checkpoint, or what gives it of the new one's; other options are BitsnapWriter's."""

    def __init__(self, base: Any = None, **options: Any) -> None:
        super().__init__("bitsnap", 1)
        self._base, self._options = base, options
        BitsnapWriter(**options)

    can_handle_sharded_objects = True

    def async_save(self, sharded_state_dict: Any, checkpoint_dir: Any) -> Any:
        state, _, _ = stock._replace_state_dict_keys_with_sharded_keys(sharded_state_dict, True)
        state = stock.mcore_to_pyt_state_dict(state, False)
        writer = BitsnapWriter(checkpoint_dir, base=self._base(checkpoint_dir) if callable(self._base) else self._base, **self._options)
        planner = stock.MCoreSavePlanner(dedup_replicated_tensors=False, flatten_state_dict=False)
        group, metadata = _DistWrapper(None, True, 0), None

        def local_step():
            planner.set_up_planner(state, is_coordinator=group.is_coordinator)
            writer.set_up_storage_writer(group.is_coordinator)
            return writer.prepare_local_plan(planner.create_local_plan())

        def global_step(plans):
            nonlocal metadata
            plans, metadata = planner.create_global_plan(plans)
            return writer.prepare_global_plan(plans)

        plan = planner.finish_plan(group.reduce_scatter("plan", local_step, global_step))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_results(writer, plan))  # left by an attempt that did not end

        def finish():
            def read():
                with open(_results(writer, plan), encoding="utf-8") as f:
                    save, results = json.load(f)
                if save != _save(plan):
                    raise ValueError(f"{_results(writer, plan)} is of the save {save}, not of {_save(plan)}: another process writes into the "
                                     "same directory; end it and save again")
                return list(map(result, results))

            group.all_reduce("write", read, lambda results: writer.finish(metadata, results))
            os.unlink(_results(writer, plan))

        return AsyncRequest(_write, (writer, None, plan), [finish], preload_fn=functools.partial(_Staged, plan, planner))


class LoadStrategy(stock.TorchDistLoadShardedStrategy):
    """Reads what SaveStrategy wrote. Importing this module makes it the one for the backend "bitsnap"."""

    def load(self, sharded_state_dict: Any, checkpoint_dir: Any) -> Any:
        """As the one of Megatron does it, with another reader."""
        tensors = [x for x in nested_values(sharded_state_dict) if isinstance(x, ShardedTensor)]
        state, flat, renamed = stock._replace_state_dict_keys_with_sharded_keys(sharded_state_dict)
        state = stock.mcore_to_pyt_state_dict(state, True)
        planner = stock.MCoreLoadPlanner(shapes_validation_sharded_tensors=[x for x in tensors if not x.allow_shape_mismatch],
                                         allow_shape_mismatch_sharded_tensors={x.key: x for x in tensors if x.allow_shape_mismatch})
        load_state(state, storage_reader=BitsnapReader(checkpoint_dir), planner=planner)
        loaded = {name: stock._unwrap_pyt_sharded_tensor(x) for name, x in state.items()}
        loaded = stock._replace_sharded_keys_with_state_dict_keys(loaded, flat, renamed)
        stock._restore_dict_types(loaded, sharded_state_dict)
        return loaded

    def load_tensors_metadata(self, checkpoint_dir: Any, metadata: Any = None) -> Any:
        return super().load_tensors_metadata(checkpoint_dir, metadata or BitsnapReader(checkpoint_dir).read_metadata())

    def load_sharded_metadata(self, checkpoint_dir: Any) -> Any:
        metadata = BitsnapReader(checkpoint_dir).read_metadata()
        objects = map(ShardedObject.empty_from_unique_key,
                      (name for name, x in metadata.state_dict_metadata.items() if isinstance(x, BytesStorageMetadata)))
        return {**{x.unique_key: x for x in objects}, **self.load_tensors_metadata(checkpoint_dir, metadata)}

    def remove_sharded_tensors(self, checkpoint_dir: str, key_prefix: str) -> None:
        raise NotImplementedError("a checkpoint that is whole is never written again")

    def check_backend_compatibility(self, loaded_backend: Any) -> None:
        if loaded_backend != "bitsnap":
            raise ValueError(f"a checkpoint of the backend {loaded_backend}, not bitsnap")


register_default_strategy(StrategyAction.LOAD_SHARDED, "bitsnap", 1, LoadStrategy())
register_default_strategy(StrategyAction.SAVE_SHARDED, "bitsnap", 1, SaveStrategy())
