"""What is installed, and what `import torch` does once it is.

Everything runs on an installed copy, made from the wheel, in processes of their own: what an entry
point does to `import torch` can be seen only there.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("npu_core", "dumper", "ir2tbe", "compare")  # lowest floor first
BOOTSTRAP = "_torch_dumper_bootstrap"

DUMP_A_STEP = """
model = torch.nn.Linear(3, 2)
with torch.utils.dumper(use_dump=True, dump_path="step.h5"):
    model(torch.ones(4, 3)).sum().backward()
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy: setuptools builds inside the source folder, and what an earlier build left there
    # would get into the wheel.
    source = tmp_path_factory.mktemp("source") / "torch-dumper"
    out = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=left_out)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed copy, as a folder for PYTHONPATH; the tests must not change it."""
    target = tmp_path_factory.mktemp("site")
    pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    return target


@pytest.fixture
def own_site(site: Path, tmp_path: Path) -> Path:
    """A copy of the installed copy that a test may damage."""
    return shutil.copytree(site, tmp_path / "own site")


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """A training folder that has modules of our names."""
    folder = tmp_path / "training"
    (folder / "compare").mkdir(parents=True)
    for file in ("dumper.py", "npu_core.py", "compare/__init__.py"):
        (folder / file).write_text("OWNER = 'training'\n")
    return folder


@pytest.fixture
def torch_npu(tmp_path: Path) -> Path:
    """A stub of the vendor's distribution: it registers a backend module, as the real one does."""
    folder = tmp_path / "vendor"
    (folder / "torch_npu").mkdir(parents=True)
    (folder / "torch_npu" / "__init__.py").write_text(
        "import sys, torch\n"
        "def _autoload():\n"
        "    torch.utils.rename_privateuse1_backend('npu')\n"
        "    torch._register_device_module('npu', sys.modules[__name__])\n"
    )
    info = folder / "torch_npu-2.13.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.13.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    return folder


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def python(
    code: str, *path: Path, cwd: Path, options: tuple[str, ...] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a new process that finds the installed copies in path; it must succeed."""
    done = run([sys.executable, *options, "-c", code], *path, cwd=cwd, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def run(
    command: list[str], *path: Path, cwd: Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    ours = ("NPU_CORE", "TORCH_DEVICE_BACKEND_AUTOLOAD")
    clean = {k: v for k, v in os.environ.items() if k not in ours and not k.startswith("PYTHON")}
    environ = {**clean, "PYTHONPATH": os.pathsep.join(map(str, path)), **environ}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True)


def imports(package: str) -> set[str]:
    """Top-level names that the modules import absolutely, the standard library aside."""
    names = set()
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names


def distribution(site: Path) -> Distribution:
    (info,) = site.glob("*.dist-info")
    return PathDistribution(info)


# What is in it


def test_wheel_holds_the_packages_and_the_bootstrap_and_nothing_else(wheel: Path) -> None:
    files = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    modules = {file.relative_to(ROOT).as_posix() for p in PACKAGES for file in modules_of(p)}
    assert {name for name in files if name.endswith(".py")} == modules | {f"{BOOTSTRAP}.py"}
    assert {name.partition("/")[0] for name in files} == {*PACKAGES, f"{BOOTSTRAP}.py"}


def modules_of(package: str) -> list[Path]:
    found = list((ROOT / package).rglob("*.py"))
    assert found, f"{package} has no modules"
    return found


def test_metadata(site: Path) -> None:
    found = distribution(site)
    assert (found.metadata["Name"], found.metadata["License-Expression"]) == (
        "torch-dumper",
        "BSD-3-Clause",
    )
    assert found.metadata.get_all("License-File") == ["LICENSE"]
    assert {(e.group, e.name, e.value) for e in found.entry_points} == {
        ("console_scripts", "msaccucmp", "_torch_dumper_bootstrap:msaccucmp"),
        ("torch.backends", "torch_dumper", f"{BOOTSTRAP}:autoload"),
        ("npu_core.acl_dump", "ir2tbe", "ir2tbe.acl.serve:handler"),
    }


def test_torch_is_an_extra_and_never_pinned(site: Path) -> None:
    needed = [r for r in map(Requirement, distribution(site).requires) if r.name == "torch"]
    assert [(str(r.specifier), str(r.marker)) for r in needed] == [(">=2.6", 'extra == "torch"')]


def test_what_is_required_is_what_is_imported(site: Path) -> None:
    required = map(Requirement, distribution(site).requires)
    declared = {canonicalize_name(r.name) for r in required if r.marker is None}
    imported = set().union(*map(imports, PACKAGES)) - {*PACKAGES, "torch", BOOTSTRAP}
    named = {{"google": "protobuf"}.get(name, name) for name in imported}
    assert {canonicalize_name(name) for name in named} == declared


@pytest.mark.parametrize("floor", range(len(PACKAGES)), ids=PACKAGES)
def test_a_floor_imports_only_from_floors_below(floor: int) -> None:
    assert not imports(PACKAGES[floor]) & {*PACKAGES[floor + 1 :]}


@pytest.mark.parametrize("package", ["npu_core", "dumper"])
def test_what_may_be_loaded_under_another_name_imports_itself_relatively(package: str) -> None:
    assert not imports(package) & {*PACKAGES}


def test_console_script(site: Path, tmp_path: Path) -> None:
    done = run([str(site / "bin" / "msaccucmp"), "--help"], site, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "compare" in done.stdout


# What `import torch` does


def test_import_torch_gives_the_dumper(site: Path, tmp_path: Path) -> None:
    python(
        """
import inspect, torch
from torch.utils import dumper as lazy
assert lazy is torch.utils.dumper
assert "dumper" not in __import__("sys").modules
import dumper

def parameters(function):
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]

assert parameters(lazy) == parameters(dumper.dumper)
assert all(name in lazy.__doc__ for name, _ in parameters(lazy))
assert isinstance(lazy(enabled=False), dumper.dumper)
""",
        site,
        cwd=tmp_path,
    )


def test_import_torch_pays_only_for_the_bootstrap(site: Path, tmp_path: Path) -> None:
    done = python(
        f"""
import sys, torch
before = set(sys.modules)
import {BOOTSTRAP}
{BOOTSTRAP}.autoload()
print(*set(sys.modules) - before)
""",
        site,
        cwd=tmp_path,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.stdout.split() == [BOOTSTRAP]


def test_dumping_imports_torch_numpy_and_h5py_only(site: Path, tmp_path: Path) -> None:
    others = {r.name for r in map(Requirement, distribution(site).requires)} | {"scipy"}
    others -= {"torch", "numpy", "h5py", "setuptools"}  # torch itself may import setuptools
    done = python(
        f"import sys, torch\n{DUMP_A_STEP}\nprint(*(m.partition('.')[0] for m in sys.modules))",
        site,
        cwd=tmp_path,
    )
    assert (tmp_path / "step.h5").exists()
    assert not set(done.stdout.split()) & (others | {"compare", "ir2tbe", "npu_core"})


THEIRS = """
import compare, dumper, npu_core
assert {module.OWNER for module in (compare, dumper, npu_core)} == {"training"}
"""


@pytest.mark.parametrize(
    "code",
    [
        THEIRS + "import torch" + DUMP_A_STEP,
        "import torch" + THEIRS + DUMP_A_STEP,
        "import torch" + DUMP_A_STEP + THEIRS,
    ],
    ids=["imported before torch", "after torch", "after use"],
)
def test_a_training_folder_keeps_its_names(site: Path, training: Path, code: str) -> None:
    python(code + "import h5py\nassert 'addmm' in h5py.File('step.h5')", site, cwd=training)


def test_without_autoload_importing_the_dumper_does_it(site: Path, tmp_path: Path) -> None:
    python(
        """
import torch
assert not hasattr(torch.utils, "dumper")
assert not hasattr(torch, "npu")
import dumper
assert isinstance(torch.utils.dumper(enabled=False), dumper.dumper)
""",
        site,
        cwd=tmp_path,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        NPU_CORE="exact",
    )


def break_the_package(site: Path) -> None:
    (site / "dumper" / "__init__.py").write_text("def")


def remove_the_package(site: Path) -> None:
    shutil.rmtree(site / "dumper")


def remove_h5py(site: Path) -> None:
    """Hide h5py from the process: an entry of None makes its import a ModuleNotFoundError."""
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['h5py'] = None\n")


@pytest.mark.parametrize(
    "damage, advice",
    [
        (break_the_package, "pip install --force-reinstall"),
        (remove_the_package, "pip install --force-reinstall"),
        (remove_h5py, "pip install h5py"),
    ],
)
def test_a_damaged_installation_says_so_at_first_use(
    own_site: Path, training: Path, damage: Callable[[Path], None], advice: str
) -> None:
    damage(own_site)
    done = python(
        """
import torch
try:
    with torch.utils.dumper(use_dump=True, dump_path="step.h5"):
        torch.ones(2) + 1
except ImportError as error:
    assert error.__cause__ is not None
    print(error)
""",
        own_site,
        cwd=training,
    )
    assert "torch.utils.dumper" in done.stdout
    assert advice in done.stdout


# The emulated device


@pytest.mark.parametrize("profile", ["910A", "910B", "exact"])
def test_npu_core_in_the_environment_registers_the_device(
    site: Path, tmp_path: Path, profile: str
) -> None:
    done = python(
        "import torch\nassert torch.ones(2, device='npu').is_npu\n"
        "import npu_core\nprint(npu_core.profile())",
        site,
        cwd=tmp_path,
        NPU_CORE=profile,
    )
    assert done.stdout.split() == [profile]


def test_npu_core_is_found_by_file(site: Path, training: Path) -> None:
    python(
        "import torch\nassert (torch.ones(2, device='npu') + 1).cpu().tolist() == [2, 2]\n"
        "import npu_core\nassert npu_core.OWNER == 'training'",
        site,
        cwd=training,
        NPU_CORE="exact",
    )


@pytest.mark.parametrize("order", ["npu_core, torch", "torch, npu_core"])
def test_importing_npu_core_registers_the_device(site: Path, tmp_path: Path, order: str) -> None:
    done = python(
        f"import {order}\nassert torch.ones(2, device='npu').is_npu\nprint(npu_core.profile())",
        site,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["910A"]


def test_npu_core_may_be_asked_before_torch_is_imported(site: Path, tmp_path: Path) -> None:
    # Registering imports torch, torch calls our entry point, and that asks npu_core again.
    done = python(
        "import npu_core\nnpu_core.register('exact')\nprint(npu_core.profile())",
        site,
        cwd=tmp_path,
    )
    assert (done.stdout.split(), done.stderr) == (["exact"], "")


@pytest.mark.parametrize("options", [(), ("-W", "error")], ids=["default", "warnings are errors"])
@pytest.mark.parametrize("fault", ["unknown profile", "broken package"])
def test_npu_core_that_cannot_register_is_one_warning(
    own_site: Path, tmp_path: Path, options: tuple[str, ...], fault: str
) -> None:
    profile = "310" if fault == "unknown profile" else "910A"
    if fault == "broken package":
        (own_site / "npu_core" / "__init__.py").write_text("def")
    done = python(
        "import torch\nassert torch.ones(2).sum() == 2\nassert torch.utils.dumper(enabled=False)",
        own_site,
        cwd=tmp_path,
        options=options,
        NPU_CORE=profile,
    )
    assert done.stderr.count("emulated npu device is not registered") == 1
    assert f"NPU_CORE={profile}" in done.stderr
    if fault == "unknown profile":
        assert all(valid in done.stderr for valid in ("910A", "910B", "exact"))


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_a_real_torch_npu_wins(site: Path, tmp_path: Path, torch_npu: Path, first: str) -> None:
    # torch calls the entry points in the order of sys.path.
    path = (torch_npu, site) if first == "theirs" else (site, torch_npu)
    done = python(
        "import sys, torch\nassert torch.npu is sys.modules['torch_npu']\n"
        "torch.utils.dumper(enabled=False)",
        *path,
        cwd=tmp_path,
        NPU_CORE="910A",
    )
    assert "not registered" not in done.stderr
    assert "torch_npu" in done.stderr


# Laptops that only compare


def test_comparing_needs_no_torch(site: Path, tmp_path: Path, golden: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    mine, theirs = golden / "tiny" / "npu.h5", golden / "tiny" / "gpu.h5"
    command = [sys.executable, str(site / "bin" / "msaccucmp"), "compare"]
    options = ["-m", str(mine), "-g", str(theirs), "-out", "out"]
    done = run([*command, *options], tmp_path, site, cwd=tmp_path)
    assert done.returncode == 1, done.stderr  # differences found
    assert list((tmp_path / "out").glob("result_*.csv"))


def test_the_command_is_ours_whatever_pythonpath_holds(
    site: Path, training: Path, golden: Path
) -> None:
    assert (training / "compare").is_dir() and (training / "dumper.py").exists()
    mine, theirs = golden / "load" / "npu.h5", golden / "load" / "gpu.h5"
    command = [sys.executable, str(site / "bin" / "msaccucmp"), "compare", "-m", str(mine)]
    done = run([*command, "-g", str(theirs)], training, site, cwd=training)
    assert done.returncode == 1, done.stderr
    assert list(training.glob("result_*.csv"))
