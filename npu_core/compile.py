"""torch.compile on npu: Dynamo captures the graph as everywhere, then it runs op by op.

inductor generates no code for npu and fails with a KeyError, so graphs that touch npu are taken out
at its door: the object that torch.compile makes for its default backend. That object is torch's
own and light, so nothing of Dynamo is imported here. Other graphs, CPU's above all, pass.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import torch

_said = False


def run_npu_graphs_eagerly() -> None:
    """Let torch.compile's default backend hand back graphs with npu tensors as they are."""
    backend = torch._TorchCompileInductorWrapper
    to_inductor = backend.__call__

    @functools.wraps(to_inductor)
    def compile_or_not(self: object, graph: Any, inputs: list, **options: Any) -> Callable:
        if not _touches_npu(graph):
            return to_inductor(self, graph, inputs, **options)
        global _said
        if not _said:
            _said = True
            logging.getLogger("npu_core").warning(
                "torch.compile: inductor has no code for the emulated npu; its graphs run eagerly"
            )
        return graph.forward

    backend.__call__ = compile_or_not


def hide_from_dynamo(functions: Iterable[FunctionType]) -> None:
    """Keep Dynamo out of functions of ours and of what they call: it would try to compile them.

    After a graph break it sees every frame that runs, also those that torch's C++ calls.
    """
    dynamo = torch._C._dynamo.eval_frame
    skip = dynamo._FrameAction.SKIP
    for code in {function.__code__ for function in functions}:
        dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(skip, skip))


def _touches_npu(graph: Any) -> bool:
    """Whether a node of a Dynamo graph makes or takes a tensor on npu."""
    values = [node.meta.get("example_value") for node in graph.graph.nodes]
    return any(
        isinstance(leaf, torch.Tensor) and leaf.device.type == "npu"
        for leaf in torch.utils._pytree.tree_leaves(values)
    )
