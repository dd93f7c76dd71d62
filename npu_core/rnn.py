"""The fused LSTM and GRU cells, which PyTorch asks of every device but the CPU.

The CPU has no kernel to borrow, so the formulas of ATen's RNN.cpp (LSTMCell, GRUCell with unfused
gates) and of their derivatives stand here, on CPU tensors, op by op. The gates arrive as matrix
products made before by mm on the device, so the profile's narrowing has been done; the products
come without bias, which the cells add in the order of the unfused CPU path.
"""

from __future__ import annotations

import torch
from torch import Tensor

_aten = torch.ops.aten


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """_thnn_fused_lstm_cell: gates (B, 4H) in the order i, f, g, o; cx (B, H).

    Returns hy, cy (B, H) and the workspace of the backward: the activated gates (B, 4H).
    """
    gates = _add_bias(hidden_gates, hidden_bias) + _add_bias(input_gates, input_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """_thnn_fused_lstm_cell_backward_impl: gradients of the gates (B, 4H), of cx (B, H), of a bias.

    The bias gradient (4H,) is None without bias; all are None where no gradient arrives.
    """
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    tanh_cy = cy.tanh()
    if grad_hy is None:
        grad_o = torch.zeros_like(o)
    else:
        grad_o = _aten.sigmoid_backward(grad_hy * tanh_cy, o)
        through = _aten.tanh_backward(grad_hy * o, tanh_cy)
        grad_cy = through if grad_cy is None else grad_cy + through
    grad_gates = torch.cat(
        (
            _aten.sigmoid_backward(grad_cy * g, i),
            _aten.sigmoid_backward(grad_cy * cx, f),
            _aten.tanh_backward(grad_cy * i, g),
            grad_o,
        ),
        1,
    )
    return grad_gates, grad_cy * f, grad_gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """_thnn_fused_gru_cell: gates (B, 3H) in the order r, z, n; hx (B, H).

    Returns hy (B, H) and the workspace of the backward (B, 5H): r, z, n, hx, and the hidden part
    of n with its bias.
    """
    ir, iz, in_ = _add_bias(input_gates, input_bias).chunk(3, 1)
    hr, hz, hn = _add_bias(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (hr + ir).sigmoid(), (hz + iz).sigmoid()
    n = (in_ + hn * r).tanh()
    return (hx - n) * z + n, torch.cat((r, z, n, hx, hn), 1)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """_thnn_fused_gru_cell_backward: gradients of both gates (B, 3H), of hx (B, H), of both biases.

    The bias gradients (3H,) are None without bias.
    """
    r, z, n, hx, hn = workspace.chunk(5, 1)
    # (hx - n) * z + n, from the right: n gets grad_hy directly and through the difference
    through = grad_hy * z
    grad_n = _aten.tanh_backward(grad_hy - through, n)
    grad_z = _aten.sigmoid_backward(grad_hy * (hx - n), z)
    grad_r = _aten.sigmoid_backward(grad_n * hn, r)
    grad_input = torch.cat((grad_r, grad_z, grad_n), 1)
    grad_hidden = torch.cat((grad_r, grad_z, grad_n * r), 1)
    if not has_bias:
        return grad_input, grad_hidden, through, None, None
    return grad_input, grad_hidden, through, grad_input.sum(0), grad_hidden.sum(0)


def _add_bias(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


CELLS = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
