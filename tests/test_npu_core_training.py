"""What training uses of a device works on npu with the CPU's bits: optimizers, autograd, saving,
data loading, generators."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from oracle import assert_same, gradient, on_both
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.usefixtures("exact")


# Optimizers

LOOP, FOREACH, FUSED = {"foreach": False}, {"foreach": True}, {"fused": True}
O = torch.optim  # noqa: E741 (short in the table)
OPTIMIZERS = [
    *((o, how) for o in (O.SGD, O.Adam, O.AdamW, O.Adagrad) for how in (LOOP, FOREACH, FUSED)),
    *((o, how) for o in (O.NAdam, O.RAdam, O.ASGD, O.RMSprop) for how in (LOOP, FOREACH)),
    *((o, how) for o in (O.Adadelta, O.Adamax, O.Rprop, O.Adafactor) for how in (LOOP, FOREACH)),
    (O.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "fused": True}),
    (O.AdamW, {"amsgrad": True, "maximize": True, "foreach": True}),
    (O.LBFGS, {"line_search_fn": "strong_wolfe"}),
]  # fmt: skip


def mlp(device: str) -> nn.Module:
    """Made on the CPU, so that every device starts with the same weights."""
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).to(device)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, steps: int = 4
) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_an_optimizer_steps_to_the_cpus_bits(optimizer: type, options: dict) -> None:
    def trained(device: str) -> list[torch.Tensor]:
        model, x = mlp(device), torch.randn(6, 4).to(device)
        train(model, optimizer(model.parameters(), lr=0.1, **options), x)
        return [p.detach() for p in model.parameters()]

    on_both(trained)


def test_gradients_are_clipped_and_accumulated() -> None:
    def gradients(device: str) -> list[torch.Tensor]:
        model, x = mlp(device), torch.randn(6, 4).to(device)
        for part in x.chunk(3):
            model(part).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=True)
        return [norm, *(p.grad for p in model.parameters())]

    on_both(gradients)


# Autograd


def test_double_backward() -> None:
    def second(device: str) -> torch.Tensor:
        model, x = mlp(device), torch.randn(3, 4).to(device).requires_grad_()
        (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        first.square().sum().backward()
        return x.grad

    on_both(second)


def test_gradients_are_those_of_finite_differences() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x @ w).logsumexp(1)

    inputs = [torch.randn(*s, dtype=torch.float64, device="npu", requires_grad=True)
              for s in ((3, 4), (4, 2))]  # fmt: skip
    assert torch.autograd.gradcheck(f, inputs)
    assert torch.autograd.gradgradcheck(f, inputs)


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.grad(lambda x: x.sin().sum()),
        torch.func.vmap(torch.func.grad(lambda x: x.prod())),
        torch.func.jacrev(lambda x: x.cumsum(0)),
        torch.func.hessian(lambda x: (x**3).sum()),
        lambda x: torch.func.jvp(torch.exp, (x,), (x,))[1],
    ],
    ids=["grad", "vmap", "jacrev", "hessian", "jvp"],
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_function_transforms(transform: Callable) -> None:
    x = torch.randn(2, 3)
    assert_same(transform(x.npu()), transform(x))


class Clamp(torch.autograd.Function):
    """Values beyond 1 are cut, their gradients are not."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.sign() * ctx.limit, None


def test_a_custom_function() -> None:
    on_both(lambda device: gradient(lambda x: Clamp.apply(x, 0.5), torch.randn(4, 3).to(device)))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("keep_random_state", [True, False])
def test_checkpoint_draws_the_same_dropout_again(reentrant: bool, keep_random_state: bool) -> None:
    seen: list[torch.Tensor] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.dropout(x * 1, 0.5)
        seen.append(y.detach().cpu())
        return y.exp()

    x = torch.ones(64, device="npu", requires_grad=True)
    y = checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=keep_random_state)
    state = torch.npu.get_rng_state()
    y.sum().backward()
    first, again = seen
    assert torch.equal(first, again) is keep_random_state
    assert torch.equal(state, torch.npu.get_rng_state()) is keep_random_state
    if keep_random_state:
        assert torch.equal(x.grad.cpu(), torch.where(first > 0, 2 * torch.exp(first), 0.0))


def test_a_graph_runs_twice_when_it_is_kept_and_once_when_not() -> None:
    x = torch.ones(3, device="npu", requires_grad=True)
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(x.grad.cpu(), 2 * torch.ones(3).exp())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_every_kind_of_hook_is_called_on_npu_tensors() -> None:
    model, x = mlp("npu"), torch.randn(3, 4, device="npu", requires_grad=True)
    calls: dict[str, list[str]] = {}

    def note(kind: str, *tensors: torch.Tensor) -> None:
        calls.setdefault(kind, []).extend(t.device.type for t in tensors)

    model[0].register_forward_pre_hook(lambda m, args: note("pre", *args))
    model[0].register_forward_hook(lambda m, args, out: note("forward", out))
    model[2].register_full_backward_pre_hook(lambda m, out: note("backward pre", *out))
    model[2].register_full_backward_hook(lambda m, into, out: note("backward", *into, *out))
    weight = model[0].weight
    weight.register_hook(lambda grad: note("tensor", grad))
    weight.register_post_accumulate_grad_hook(lambda p: note("accumulated", p.grad))
    y = model(x)
    y.grad_fn.register_hook(lambda into, out: note("node", *out))
    y.sum().backward()
    assert calls == {
        "pre": ["npu"], "forward": ["npu"], "node": ["npu"], "backward pre": ["npu"],
        "backward": ["npu"] * 2, "tensor": ["npu"], "accumulated": ["npu"],
    }  # fmt: skip


def test_a_tensor_hook_changes_the_gradient() -> None:
    x = torch.ones(2, device="npu", requires_grad=True)
    x.register_hook(lambda grad: grad * 3)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_anomaly_mode_names_the_function_that_made_a_nan() -> None:
    x = torch.zeros(2, device="npu", requires_grad=True)
    with (
        pytest.warns(UserWarning, match="Anomaly Detection|Error detected in SqrtBackward0"),
        pytest.raises(RuntimeError, match="SqrtBackward0.*nan"),
        torch.autograd.detect_anomaly(),
    ):
        (x.sqrt() * 0).sum().backward()


def test_saved_tensors_can_wait_on_the_cpu() -> None:
    waited: list[str] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        waited.append(tensor.device.type)
        return tensor.cpu()

    x = torch.ones(3, device="npu", requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.npu()):
        y = x.exp()
    with torch.autograd.graph.save_on_cpu():
        y = y.sin()
    y.sum().backward()
    on_cpu = torch.ones(3, requires_grad=True)
    on_cpu.exp().sin().sum().backward()
    assert waited == ["npu"]
    assert_same(x.grad, on_cpu.grad)


# Saving, loading, moving


def round_trip(state: object, where: object = None, safely: bool = True) -> object:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, map_location=where, weights_only=safely)


PLACES = [
    (None, "npu"), ("npu", "npu"), ("npu:0", "npu"), ("cpu", "cpu"),
    (torch.device("npu"), "npu"), (torch.device("cpu"), "cpu"),
    ({"npu:0": "cpu"}, "cpu"), (lambda storage, place: storage, "cpu"),
    (lambda storage, place: storage.npu() if place == "npu:0" else storage, "npu"),
]  # fmt: skip


@pytest.mark.parametrize("safely", [True, False], ids=["weights_only", "pickle"])
@pytest.mark.parametrize(("where", "loaded"), PLACES, ids=[str(i) for i in range(len(PLACES))])
def test_what_was_saved_on_npu_is_loaded_anywhere(where: object, loaded: str, safely: bool) -> None:
    x = torch.randn(3, 4, device="npu")
    state = round_trip({"x": x, "view": x[1], "half": x.half()}, where, safely)
    assert {t.device.type for t in state.values()} == {loaded}
    assert torch.equal(state["x"].cpu(), x.cpu())
    assert torch.equal(state["half"].cpu(), x.half().cpu())
    state["x"].zero_()
    assert state["view"].abs().sum().item() == 0  # still one storage


@pytest.mark.parametrize("where", ["npu", {"cpu": "npu:0"}], ids=["name", "table"])
def test_what_was_saved_on_cpu_is_loaded_on_npu(where: object) -> None:
    x = torch.randn(3, 4)
    assert_same(round_trip(x, where), x)


def test_a_file_cannot_be_loaded_on_a_device_that_is_not_there() -> None:
    with pytest.raises(RuntimeError, match="NPU device 1 but torch.npu.device_count"):
        round_trip(torch.ones(2, device="npu"), "npu:1")


@pytest.mark.parametrize("options", [LOOP, FOREACH, FUSED], ids=["loop", "foreach", "fused"])
@pytest.mark.parametrize("resumed", ["cpu", "npu"])
def test_training_goes_on_from_a_checkpoint_file(resumed: str, options: dict) -> None:
    torch.manual_seed(0)
    model, x = mlp("npu"), torch.randn(6, 4)
    optimizer = torch.optim.Adam(model.parameters(), **options)
    train(model, optimizer, x.npu())
    state = round_trip([model.state_dict(), optimizer.state_dict()], resumed)
    train(model, optimizer, x.npu())
    other = mlp(resumed)
    its_optimizer = torch.optim.Adam(other.parameters(), **options)
    other.load_state_dict(state[0])
    its_optimizer.load_state_dict(state[1])
    train(other, its_optimizer, x.to(resumed))
    for mine, its in zip(model.parameters(), other.parameters(), strict=True):
        assert its.device.type == resumed
        assert torch.equal(mine.cpu(), its.cpu())


def test_a_module_is_copied_pickled_and_saved_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).npu()
    x = torch.randn(5, 4, device="npu")
    expected = model(x).cpu()
    for other in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        round_trip(model, safely=False),
    ):
        assert {t.device.type for t in other.state_dict().values()} == {"npu"}
        assert torch.equal(other(x).cpu(), expected)
        other[0].weight.data.zero_()
    assert model[0].weight.abs().sum().item() > 0


def test_a_module_made_on_meta_gets_memory_on_npu() -> None:
    model = nn.Linear(4, 3, device="meta").to_empty(device="npu")
    source = nn.Linear(4, 3)
    model.load_state_dict(source.state_dict())
    assert_same(model.weight.detach(), source.weight.detach())
    assigned = nn.Linear(4, 3, device="meta")
    assigned.load_state_dict(model.state_dict(), assign=True)
    assert assigned.weight.data_ptr() == model.weight.data_ptr()


def test_a_module_that_moves_keeps_its_parameters_ties_and_optimizer() -> None:
    def trained(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5, bias=False))
        tied = model[2].weight = model[0].weight
        parameters = list(model.parameters())
        optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9)
        model(torch.arange(5)).sum().backward()
        grad = tied.grad
        for place in (device, "cpu", device):
            model.to(place)
            assert model[0].weight is model[2].weight is tied
            assert (tied.device.type, tied.grad.device.type) == (place, place)
            assert tied.grad is grad
        for mine, its in zip(model.parameters(), parameters, strict=True):
            assert mine is its
        train(model, optimizer, torch.arange(5).to(device))
        return [p.detach() for p in parameters]

    on_both(trained)


def test_data_of_another_kind_cannot_be_assigned() -> None:
    x = torch.ones(2, device="npu")
    for other in (torch.ones(2, device="meta"), torch.ones(2).to_sparse()):
        for tensor, data in ((x, other), (other, x)):
            with pytest.raises(RuntimeError, match="incompatible tensor type"):
                tensor.data = data


def test_no_dispatch_mode_sees_the_question_whether_data_fits() -> None:
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
            ops.append(op)
            return op(*args, **(kwargs or {}))

    ops: list = []
    model = nn.Linear(4, 3)
    with Seen():
        model.npu()
    assert ops == [torch.ops.aten._to_copy.default] * 2


@pytest.mark.parametrize("move", [lambda m: m.npu(), lambda m: m.to("npu")], ids=["npu", "to"])
def test_a_lazy_module_moves_before_it_has_a_shape(move: Callable[[nn.Module], nn.Module]) -> None:
    model = move(nn.LazyLinear(3))
    assert model(torch.ones(2, 4, device="npu")).device.type == model.weight.device.type == "npu"


def test_swapping_moves_a_module_under_its_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    model = nn.Linear(4, 3)
    optimizer, weight = torch.optim.SGD(model.parameters(), 0.1), model.weight
    model.npu()
    assert model.weight is weight
    assert weight.is_npu
    model(torch.ones(1, 4, device="npu")).sum().backward()
    before = weight.detach().clone()
    optimizer.step()
    assert (before - weight).flatten().tolist() == pytest.approx([0.1] * 12, rel=1e-5)


@pytest.mark.parametrize(
    "normalise",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        partial(nn.utils.parametrizations.orthogonal, orthogonal_map="matrix_exp"),
    ],
    ids=["weight_norm", "spectral_norm", "orthogonal"],
)
def test_a_parametrised_module(normalise: Callable[[nn.Module], nn.Module]) -> None:
    def trained(device: str) -> list[torch.Tensor]:
        model = normalise(nn.Linear(3, 3)).to(device)
        train(
            model,
            torch.optim.SGD(model.parameters(), 0.1, foreach=True),
            torch.ones(2, 3).to(device),
        )
        return [p.detach() for p in model.parameters()]  # fmt: skip

    on_both(trained)


# Data loading


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_data_loader(workers: int, pinned: bool) -> None:
    data = TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
    loader = DataLoader(data, 2, num_workers=workers, pin_memory=pinned)
    seen = []
    for x, y in loader:
        assert x.is_pinned() is y.is_pinned() is pinned
        seen.append((x.npu(non_blocking=True).sum().item(), y.npu(non_blocking=True).tolist()))
    assert seen == [(6, [0, 1]), (22, [2, 3]), (38, [4, 5])]


def test_workers_may_hand_out_tensors_on_npu() -> None:
    data = TensorDataset(torch.arange(4.0).npu())
    batches = [x for (x,) in DataLoader(data, 2, num_workers=1, timeout=30)]
    assert [(x.device.type, x.tolist()) for x in batches] == [("npu", [0, 1]), ("npu", [2, 3])]


def test_a_tensor_passes_a_queue_as_what_it_is_and_no_more() -> None:
    weight = nn.Parameter(torch.ones(2, device="npu"))
    big = torch.arange(10_000.0, device="npu")
    row = big[3:5].requires_grad_()
    for sent in (weight, weight.detach().bool(), row):
        pickled = ForkingPickler.dumps(sent)
        came = pickle.loads(pickled)
        assert (type(came), came.requires_grad) == (type(sent), sent.requires_grad)
        assert_same(came.detach(), sent.detach().cpu())
        assert len(pickled) < 4000
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        ForkingPickler.dumps(row * 2)


def test_to_pin_is_to_copy_once() -> None:
    x = torch.arange(6.0).view(2, 3).t()
    pinned = x.pin_memory()
    assert (x.is_pinned(), pinned.is_pinned(), pinned[1:].is_pinned()) == (False, True, True)
    assert pinned.pin_memory() is pinned
    assert (pinned.tolist(), pinned.stride()) == (x.tolist(), x.stride())
    assert pinned.data_ptr() != x.data_ptr()
    assert not pinned.clone().is_pinned()


# Generators


def numbers(generator: torch.Generator | None = None) -> list[float]:
    return torch.rand(4, device="npu", generator=generator).tolist()


def test_a_generator_on_npu_has_a_stream_of_its_own() -> None:
    generator = torch.Generator(device="npu").manual_seed(5)
    assert isinstance(generator, torch.Generator)
    assert (generator.device, generator.initial_seed()) == (torch.device("npu:0"), 5)
    before = torch.npu.get_rng_state(), torch.get_rng_state()
    assert numbers(generator) == torch.rand(4, generator=torch.Generator().manual_seed(5)).tolist()
    assert torch.equal(before[0], torch.npu.get_rng_state())
    assert torch.equal(before[1], torch.get_rng_state())


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g)), lambda g: g.clone_state()],
    ids=["deepcopy", "pickle", "clone_state"],
)
def test_a_copied_generator_goes_on_alike_and_apart(duplicate: Callable) -> None:
    generator = torch.Generator("npu").manual_seed(5)
    numbers(generator)
    other = duplicate(generator)
    assert other.device == generator.device
    mine = [numbers(generator), numbers(generator)]
    assert [numbers(other), numbers(other)] == mine


def test_other_generators_are_torchs_own() -> None:
    for made in (torch.Generator(), torch.Generator("cpu"), torch.Generator(device="cpu")):
        assert (type(made), made.device.type) == (torch.Generator, "cpu")
    with pytest.raises(RuntimeError, match="npu:1 does not exist"):
        torch.Generator(device="npu:1")
    with pytest.raises(RuntimeError):
        torch.Generator(device="meta")


def test_fork_rng_gives_the_random_state_back() -> None:
    state = torch.npu.get_rng_state()
    with torch.random.fork_rng(device_type="npu"):
        torch.manual_seed(1)
        numbers()
    assert torch.equal(state, torch.npu.get_rng_state())
