# The environment of scripts/demo and scripts/test: `.venv` with the project, its test extra and torch.
# Sourced by them, from any working directory; sets $root (the checkout) and $python (in .venv).
#
# torch is pinned here, not by the package: these two commands promise the same numbers everywhere.
# The project is installed editable, so that an edit needs no reinstall, and as a plain path (compat):
# the other way runs a module of setuptools at each start of Python, a tenth of what `msaccucmp` takes
# to answer. What users install, the wheel, is what tests/test_packaging.py builds and runs.
# $PYTHON chooses another interpreter than python3 to make .venv with.

torch_version=2.13.0

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
python=$venv/bin/python

# All that the environment depends on, compared as text: a moved checkout, other requirements.
wanted() {
    echo "$root"
    cat -- "$root/setup.cfg" "$root/pyproject.toml" "$root/scripts/_venv.sh"
}

pip_install() {
    "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

make_venv() {
    local base=${PYTHON:-python3}
    if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        echo "torch-dumper needs Python 3.10 or newer; $base is older or missing. Set PYTHON to one." >&2
        return 1
    fi
    echo "making .venv with torch $torch_version (CPU); later runs skip this" >&2
    [ -x "$python" ] || "$base" -m venv "$venv"
    # Plain torch from PyPI is a CUDA build of gigabytes on Linux. The CPU build, marked +cpu, is
    # taken from the configured indexes if they have it, else from PyTorch's own index.
    # On macOS the CPU build has no mark, hence no +cpu in the second try.
    pip_install "torch==$torch_version+cpu" 2>/dev/null ||
        pip_install "torch==$torch_version" --extra-index-url https://download.pytorch.org/whl/cpu
    # setuptools first and no build isolation: one download, and the test that builds the wheel
    # needs it in here anyway.
    pip_install 'setuptools>=77'
    pip_install --no-build-isolation --config-settings editable_mode=compat \
        --editable "$root[test]"
    wanted >"$venv/torch-dumper.stamp"
}

wanted | cmp -s - "$venv/torch-dumper.stamp" || make_venv
