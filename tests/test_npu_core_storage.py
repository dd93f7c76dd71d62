"""Formats of npu tensors: labels, casts, autograd, weights of modules, and what a dump says."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from recorders import Calls, Ops
from torch import nn

import npu_core
from dumper import dumper, open_dump
from npu_core import storage
from npu_core.formats import Format

ND, NCHW, NZ = int(Format.ND), int(Format.NCHW), int(Format.FRACTAL_NZ)


@pytest.fixture(autouse=True)
def profile() -> Iterator[None]:
    """910A, whose options a test may set: leaving the block restores them."""
    with npu_core.use("910A"):
        yield


def matrix() -> torch.Tensor:
    return torch.arange(60.0).reshape(3, 20).npu()


# Labels


@pytest.mark.parametrize(("rank", "code"), [(0, 2), (1, 2), (3, 2), (4, 0), (5, 30), (6, 2)])
def test_a_fresh_tensor_has_the_format_of_its_rank(rank: int, code: int) -> None:
    assert storage.get_format(torch.ones((1,) * rank).npu()) == code


@pytest.mark.parametrize("tensor", [torch.ones(2), 3, None])
def test_what_is_not_on_npu_has_no_format(tensor) -> None:
    for call in (storage.get_format, storage.storage_shape, storage.storage_size):
        with pytest.raises(TypeError, match="needs a tensor on npu, got one on"):
            call(tensor)
    for call in (storage.format_cast, storage.format_cast_):
        with pytest.raises(TypeError, match="needs a tensor on npu, got one on"):
            call(tensor, NZ)
        with pytest.raises(TypeError, match="needs a tensor on npu, got one on"):
            call(matrix(), torch.ones(2))
    with pytest.raises(TypeError, match="needs a tensor on npu, got one on"):
        storage.format_cast_(tensor, matrix())


def test_a_label_belongs_to_the_storage() -> None:
    x = storage.format_cast(matrix(), NZ)
    for view in (x.t(), x[1:], x.view(60), x.detach(), x.data):
        assert storage.get_format(view) == NZ
        assert storage.storage_shape(view) == (2, 1, 16, 16)
    x.add_(1)
    assert storage.get_format(x) == NZ
    for result in (x + 1, x.clone(), x.half(), x.cpu().npu()):
        assert storage.get_format(result) == ND


def test_a_label_lives_and_dies_with_the_memory() -> None:
    x = storage.format_cast(matrix(), NZ)
    gc.collect()
    assert storage.get_format(x) == NZ
    for _ in range(200):  # new memory at old addresses
        storage.format_cast(matrix(), NZ)
        assert storage.get_format(torch.empty(3, 20, device="npu")) == ND


def test_storage_of_a_plain_tensor_is_the_tensor() -> None:
    assert storage.storage_shape(matrix()) == (3, 20)
    assert storage.storage_size(matrix()) == 60


@pytest.mark.parametrize(
    ("shape", "code", "stored"),
    [
        ((3, 20), NZ, (2, 1, 16, 16)),
        ((8, 3, 5, 5), Format.FRACTAL_Z, (25, 1, 16, 16)),
        ((8, 3, 5, 5), Format.NC1HWC0, (8, 1, 5, 5, 16)),
        ((4,), Format.NC1HWC0, (1, 1, 1, 1, 16)),
        ((8, 3, 2, 5, 5), Format.FRACTAL_Z_3D, (50, 1, 16, 16)),
        ((8, 3, 2, 5, 5), Format.NDC1HWC0, (8, 2, 1, 5, 5, 16)),
        ((8, 3, 2, 5, 5), Format.NDHWC, (8, 2, 5, 5, 3)),
    ],
)
def test_storage_shape_of_a_cast_tensor(shape, code, stored) -> None:
    x = torch.rand(shape).npu()
    cast = storage.format_cast(x, code)
    assert cast is not x and torch.equal(cast, x)
    assert (storage.get_format(cast), storage.storage_shape(cast)) == (code, stored)
    assert storage.storage_size(cast) == torch.Size(stored).numel()
    back = storage.format_cast(cast, storage.get_format(x))
    assert storage.get_format(back) == storage.get_format(x) and torch.equal(back, x)


def test_bytes_have_longer_rows() -> None:
    x = torch.zeros(3, 20, dtype=torch.int8).npu()
    assert storage.storage_shape(storage.format_cast(x, NZ)) == (1, 1, 16, 32)


# Casts


def test_a_cast_to_the_same_format_is_the_tensor_itself() -> None:
    x = matrix()
    assert storage.format_cast(x, ND) is x
    cast = storage.format_cast(x, NZ)
    assert storage.format_cast(cast, NZ) is cast


def test_a_cast_between_plain_formats_relabels() -> None:
    x = torch.rand(2, 3, 4, 5).npu()
    pointer = x.data_ptr()
    for code in (ND, Format.NHWC, NCHW):
        assert storage.format_cast(x, code) is x
        assert storage.get_format(x) == code
    assert x.data_ptr() == pointer


def test_the_source_of_a_cast_stays_as_it_was() -> None:
    x = matrix()
    cast = storage.format_cast(x, NZ)
    cast.zero_()
    assert storage.get_format(x) == ND
    assert torch.equal(x, matrix())


def test_a_cast_to_the_format_of_another_tensor() -> None:
    like = storage.format_cast(matrix(), NZ)
    cast = storage.format_cast(matrix(), like)
    assert storage.get_format(cast) == NZ
    assert torch.equal(cast, matrix())


def test_a_view_keeps_size_stride_and_offset() -> None:
    view = torch.arange(60.0).reshape(6, 10).npu()[1:, ::2]
    cast = storage.format_cast(view, NZ)
    assert torch.equal(cast, view)
    assert (cast.shape, cast.stride(), cast.storage_offset()) == ((5, 5), (10, 2), 10)
    assert storage.storage_shape(cast) == (1, 1, 16, 16)  # of the (6, 10) it was taken from


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 5, 2)])
def test_tensors_of_few_or_no_elements(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape).npu()
    cast = storage.format_cast(x, NZ)
    assert storage.get_format(cast) == NZ
    assert torch.equal(cast, x)


def test_casting_in_place_gives_new_memory_and_keeps_the_object() -> None:
    x = matrix()
    old = x.view(60)
    assert storage.format_cast_(x, NZ) is x
    assert storage.get_format(x) == NZ
    assert torch.equal(x, matrix())
    old.zero_()
    assert torch.equal(x, matrix())
    pointer = x.data_ptr()
    assert storage.format_cast_(x, NZ) is x
    assert x.data_ptr() == pointer


def test_casting_a_tensor_into_another_keeps_the_others_format() -> None:
    target = storage.format_cast(torch.zeros(3, 20).npu(), NZ)
    assert storage.format_cast_(target, matrix()) is target
    assert storage.get_format(target) == NZ
    assert torch.equal(target, matrix())


@pytest.mark.parametrize(
    ("shape", "good", "bad", "match"),
    [
        ((1, 2, 3, 4), Format.NHWC, 99, "unknown format 99"),
        ((1, 2, 3, 4), Format.NC1HWC0, Format.NC1HWC0_C04, "layout of format NC1HWC0_C04"),
        ((2, 3, 4), NCHW, Format.NHWC, "NHWC holds tensors of 4 axes"),
        ((1, 2, 3, 4, 5), Format.NDC1HWC0, Format.NC1HWC0, "at most 4 axes"),
        ((1, 2, 3, 4, 5), Format.FRACTAL_Z_3D, Format.FRACTAL_Z, "at most 4 axes"),
        ((1, 2, 3, 4), Format.FRACTAL_Z, Format.FRACTAL_Z_3D, "5 axes"),
    ],
)
@pytest.mark.parametrize("cast", [storage.format_cast, storage.format_cast_])
def test_formats_that_cannot_hold_a_tensor(cast, shape, good, bad, match) -> None:
    x = torch.rand(shape).npu()
    before = storage.get_format(x)
    with pytest.raises(ValueError, match=match):
        cast(x, bad)
    assert storage.get_format(x) == before
    assert storage.get_format(cast(x, good)) == good


# Autograd and modes


def test_gradients_pass_a_cast() -> None:
    x = matrix().requires_grad_()
    y = storage.format_cast(x * 3, NZ)
    assert storage.get_format(y) == NZ
    (y * y).sum().backward()
    assert torch.equal(x.grad, 18 * matrix())


def test_second_gradients_pass_a_cast() -> None:
    x = matrix().requires_grad_()
    (first,) = torch.autograd.grad((storage.format_cast(x, NZ) ** 3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, 6 * matrix())


def test_a_cast_that_returns_its_tensor_keeps_the_history() -> None:
    x = matrix().requires_grad_()
    y = x * 2
    for code in (ND, NCHW):
        assert storage.format_cast(y, code) is y
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3, 20), 2.0).npu())


def test_a_parameter_can_be_cast_in_place_between_forward_and_backward() -> None:
    x = matrix().requires_grad_()
    y = (x * x).sum()
    storage.format_cast_(x, NZ)
    y.backward()
    assert x.is_leaf and storage.get_format(x) == NZ
    assert torch.equal(x.grad, 2 * matrix())


def test_no_graph_is_made_where_none_is_asked_for() -> None:
    x = matrix().requires_grad_()
    with torch.no_grad():
        assert storage.format_cast(x, NZ).grad_fn is None
    with torch.inference_mode():
        assert storage.get_format(storage.format_cast(matrix(), NZ)) == NZ


@pytest.mark.parametrize("grad", [False, True])
def test_modes_see_one_op_and_nothing_below_it(grad: bool) -> None:
    x = matrix().requires_grad_(grad)
    with Ops() as ops:
        torch.ops.npu.npu_format_cast(x, NZ)
        torch.ops.npu.npu_format_cast_(x, NZ)
        assert torch.ops.npu.get_npu_format(x) == NZ
        assert torch.ops.npu.get_storage_size(x) == 512
    assert ops.seen == [
        "npu.npu_format_cast.default",
        "npu.npu_format_cast_.acl_format",
        "npu.get_npu_format.default",
        "npu.get_storage_size.default",
    ]
    x = matrix().requires_grad_(grad)
    with Calls() as calls:
        torch.ops.npu.npu_format_cast(x, NZ)
    assert len(calls.seen) == 1


# Copies


def test_copies_have_the_values_and_no_label() -> None:
    x = storage.format_cast(matrix(), NZ)
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    for other in (copy.deepcopy(x), torch.load(file), copy.copy(x).clone()):
        assert other.device.type == "npu"
        assert torch.equal(other, matrix())
        assert storage.get_format(other) == ND
    assert torch.equal(x.cpu(), matrix().cpu())


# Weights of modules


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, groups=2)
        self.attention = nn.MultiheadAttention(4, 2, kdim=6, vdim=5)
        self.bare = nn.BatchNorm1d(4, affine=False, track_running_stats=False)
        self.volume = nn.Conv3d(1, 2, 2)
        self.linear = nn.Linear(8, 2)


CAST = {
    "conv.weight": Format.FRACTAL_Z,
    "norm.weight": Format.NC1HWC0,
    "norm.bias": Format.NC1HWC0,
    "norm.running_mean": Format.NC1HWC0,
    "norm.running_var": Format.NC1HWC0,
    "attention.q_proj_weight": Format.FRACTAL_NZ,
    "attention.k_proj_weight": Format.FRACTAL_NZ,
    "attention.v_proj_weight": Format.FRACTAL_NZ,
    "attention.out_proj.weight": Format.FRACTAL_NZ,
    "volume.weight": Format.FRACTAL_Z_3D,
    "linear.weight": Format.FRACTAL_NZ,
}


def cast_in(module: nn.Module) -> dict[str, int]:
    """The formats of a module's weights that are not plain."""
    found = {name: storage.get_format(value) for name, value in module.state_dict().items()}
    return {name: code for name, code in found.items() if code not in (0, 2, 30)}


@pytest.mark.parametrize(
    "move",
    [
        lambda m: m.npu(),
        lambda m: m.to("npu"),
        lambda m: m.to(torch.device("npu", 0)),
        lambda m: m.to(device="npu", dtype=torch.float32),
        lambda m: m.to(torch.ones(1).npu()),
    ],
)
def test_moving_a_module_casts_its_weights(move) -> None:
    net = Net()
    values = {name: value.clone() for name, value in net.state_dict().items()}
    assert move(net) is net
    assert cast_in(net) == CAST
    for name, value in net.state_dict().items():
        expected = values[name].half().float() if name == "volume.weight" else values[name]
        assert torch.equal(value.cpu(), expected), name


def test_only_a_move_to_npu_casts() -> None:
    net = Net()
    net.to(torch.float64).to("cpu")
    with npu_core.use("exact"):
        net.npu()
    assert cast_in(net.to(torch.float32)) == {}
    assert cast_in(net.npu()) == CAST


@pytest.mark.parametrize(
    ("profile", "option", "casts"),
    [
        ("910A", None, True),
        ("910A", "enable", True),
        ("910A", "disable", False),
        ("910B", None, False),
        ("910B", "enable", True),
        ("exact", None, False),
        ("exact", "enable", True),
    ],
)
def test_the_chip_and_an_option_say_whether_formats_change(profile, option, casts) -> None:
    with npu_core.use(profile):
        if option:
            torch.npu.set_option({"ALLOW_INTERNAL_FORMAT": option})
        assert bool(cast_in(nn.Linear(2, 2).npu())) is casts


def test_matrices_stay_plain_where_asked() -> None:
    torch.npu.set_option({"MM_BMM_ND_ENABLE": "enable"})
    assert cast_in(Net().npu()) == {n: f for n, f in CAST.items() if f is not Format.FRACTAL_NZ}


def test_parameters_on_npu_stay_the_same_objects() -> None:
    with npu_core.use("exact"):
        net = nn.Linear(3, 2).npu()
    weight, optimizer = net.weight, torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    assert net.npu().weight is weight
    assert storage.get_format(weight) == NZ
    before = weight.detach().clone()
    net(torch.ones(1, 3).npu()).sum().backward()
    optimizer.step()
    assert torch.equal(weight, before - 0.5)
    assert weight in optimizer.state
    pointer = weight.data_ptr()
    assert net.npu().weight.data_ptr() == pointer  # cast once


def test_what_is_no_weight_yet_or_no_parameter_is_left_alone() -> None:
    lazy = nn.LazyLinear(3, device="npu").to("npu")
    assert nn.parameter.is_lazy(lazy.weight)
    assert lazy(torch.ones(2, 4).npu()).shape == (2, 3)
    assert cast_in(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).npu()) == {}


def trained(option: str) -> list[torch.Tensor]:
    torch.npu.set_option({"ALLOW_INTERNAL_FORMAT": option})
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3))
    x, y = torch.randn(8, 1, 6, 6).npu(), torch.arange(8).npu() % 3
    net.npu()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert bool(cast_in(net)) is (option == "enable")
    return [value.cpu() for value in net.state_dict().values()]


def test_formats_change_no_value_of_a_training() -> None:
    pairs = zip(trained("enable"), trained("disable"), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


# What a dump says


def test_a_dump_names_the_format_and_links_a_weight_once_per_value(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).npu()
    x = torch.rand(3, 4).npu()
    path = tmp_path / "step.h5"
    with dumper(use_dump=True, dump_path=path):
        net(x)
        net(x)
    with open_dump(path) as dump:
        uses = [
            (entry.format_type, entry.address)
            for record in dump.records
            for entry in record.inputs
            if record.ir == "addmm" and entry.name == "mat2"
        ]
    assert [code for code, _ in uses] == [NZ] * 4
    assert len({address for _, address in uses}) == 2
