"""More of `scenarios`: kinds of tensors, memory, writes that nothing announces, random numbers."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import torch
from scenarios import FORWARD, batch, learned, mlp, scenario
from torch import nn
from torch.nn import functional as F


@scenario(devices=("cpu",), phases=FORWARD)
def numpy_writes(device: str) -> Any:
    array = np.ones(4, np.float32)
    x = torch.from_numpy(array)
    found = [x.exp()]
    array[:] = 2
    found.append(x.exp())
    x.numpy()[1] = 5
    found.append(x.exp())
    x.add_(1)
    return found, torch.from_numpy(array.copy()), torch.tensor(x.tolist())


@scenario()
def data_writes(device: str) -> Any:
    model, x = mlp(device), batch(device)
    for parameter in model.parameters():
        parameter.data.mul_(0.5)
        parameter.data = parameter.data + 0.01
    y = model(x)
    y.sum().backward()
    model[0].weight.grad.data.zero_()
    return learned(model, y)


@scenario()
def writes_through_views(device: str) -> Any:
    x = batch(device, 4, 6).requires_grad_()
    y = x * 2
    y[1:3, ::2] = 0
    y.t()[0].mul_(3)
    y.diagonal().add_(1)
    y.view(-1)[5:9].copy_(torch.arange(4.0, device=device))
    one, two = y.split(3, 1)
    y.square().sum().backward()
    spread = x.detach()[:, :1].expand(4, 3)
    windows = x.detach().unfold(1, 3, 1)
    strided = torch.as_strided(x.detach(), (3, 3), (6, 1), 2)
    return y, one, two, x.grad, spread, windows, strided, spread + windows[:, 0]


@scenario(phases=FORWARD)
def memory_that_moves(device: str) -> Any:
    x = batch(device, 6)
    y = x.clone()
    y.resize_(3)
    z = torch.empty(0, device=device)
    torch.add(y, 1, out=z)
    z.set_(x)
    w = x.clone().reshape(2, 3)
    w.t_()
    w.unsqueeze_(0)
    return x, y, z, w, z.data_ptr() == x.data_ptr(), w.untyped_storage().nbytes()


@scenario()
def copies_and_checkpoints_of_a_model(device: str) -> Any:
    """Copying, saving, loading, printing: what training scripts do between steps."""
    model = mlp(device)
    twin, file = copy.deepcopy(model), io.BytesIO()
    torch.save(model.state_dict(), file)
    nn.init.kaiming_normal_(model[0].weight)
    model(batch(device)).sum().backward()
    twin.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    text = f"{model} {model[6].weight} {twin[0].bias[:3]}"
    return learned(model, list(twin.parameters()), text)


@scenario(phases=FORWARD)
def random_numbers(device: str) -> Any:
    own = torch.Generator(device).manual_seed(5)
    found = [
        torch.randn(3, device=device),
        torch.rand(3, device=device, generator=own),
        torch.randint(9, (3,), device=device),
        torch.randperm(7, device=device),
        torch.empty(4, device=device).uniform_(-1, 1, generator=own),
        torch.bernoulli(torch.full((6,), 0.5, device=device)),
        torch.multinomial(torch.ones(5, device=device), 3),
        torch.normal(torch.zeros(3, device=device), 2.0),
        F.dropout(torch.ones(8, device=device), 0.5),
        torch.rrelu(torch.full((4,), -1.0, device=device), training=True),
    ]
    state = torch.get_rng_state()
    found += [torch.randn(2), torch.nn.init.trunc_normal_(torch.empty(3, device=device))]
    torch.set_rng_state(state)
    return found, torch.randn(2), own.get_state(), torch.initial_seed()


@scenario()
def chosen_by_values(device: str) -> Any:
    """Python decides by what the tensors hold."""
    x = batch(device).requires_grad_()
    y = x[x > 0].sum() if x.sum().item() < 1e9 else x.prod()
    rows = (x[:, 0] > 0).nonzero().squeeze(1)
    z = x.index_select(0, rows).topk(3).values.sum() + torch.where(x > 1, x, 0.0).sum()
    (y + z).backward()
    return y, z, rows, x.grad, x.max().item(), [bool(v) for v in x[0] > 0]


@scenario()
def infinite_losses(device: str) -> Any:
    model = mlp(device)
    y = model(batch(device) * 1e30).exp() * 0
    y.sum().backward()
    return learned(model, y)


@scenario()
def complex_numbers(device: str) -> Any:
    x = torch.randn(8, dtype=torch.complex64).to(device).requires_grad_()
    y = torch.view_as_real(x * x.conj() + 2j * x)
    y.square().sum().backward()
    return y, x.grad, x.detach().conj(), x.detach().conj().imag


@scenario()
def double_precision(device: str) -> Any:
    model, x = mlp("cpu").double().to(device), batch(device).double().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    return learned(model, y, x.grad)


@scenario(devices=("cpu",))
def sparse_tensors(device: str) -> Any:
    dense = (torch.rand(6, 6) > 0.6).float()
    coo, csr = dense.to_sparse().requires_grad_(), dense.to_sparse_csr()
    x = batch(device, 6, 2).requires_grad_()
    y = torch.sparse.mm(coo, x) + csr @ x
    y.sum().backward()
    return y, x.grad, coo.grad, coo.detach(), coo.grad.to_dense()


@scenario(devices=("cpu",), phases=FORWARD)
def nested_tensors(device: str) -> Any:
    parts = [torch.randn(2, 4), torch.randn(3, 4)]
    strided = torch.nested.nested_tensor(parts)
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        return layer(strided).to_padded_tensor(0.0), layer(jagged).values()


@scenario(devices=("cpu",), phases=FORWARD)
def tensors_without_data(device: str) -> Any:
    with torch.device("meta"):
        hollow = nn.Linear(4, 3)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2, 4)) @ torch.ones(4, 3)
    y = hollow(torch.ones(2, 4, device="meta"))
    return str(y.shape), str(fake.shape), str(fake.device), torch.ones(2) + 1
