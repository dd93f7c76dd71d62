"""Memory figures of the emulated device, whose memory is the host's.

No figure is invented: they are those of the process. So they count what Python and torch hold for
CPU tensors too; what a script reads from them, growth and peak, is right.

allocated  bytes in use by malloc (glibc's mallinfo2), which all tensors live in; the resident size
           where the C library has no mallinfo2.
reserved   the resident size (VmRSS), at least what is allocated.
max_*      the peak of the resident size (VmHWM) since `reset_peak_memory_stats`, at least the
           present figure: the system keeps one peak, so both peaks are that one.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from .streams import Device, index

# The fields of struct mallinfo2: size_t each.
_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
           "fordblks", "keepcost")  # fmt: skip
_RESET_PEAK = "5"  # what proc(5) says to write to clear_refs


class _MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def _find_mallinfo() -> object:
    found = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if found is not None:
        found.restype = _MallInfo
    return found


_mallinfo = _find_mallinfo()


def _proc(file: str, key: str) -> int:
    """Bytes of one line of a /proc file. Raises RuntimeError where the system has none."""
    path = Path("/proc") / file
    if not path.exists():
        raise RuntimeError(f"memory figures of the emulated npu need {path}, which Linux has")
    return 1024 * int(re.search(rf"^{key}:\s+(\d+) kB", path.read_text(), re.M).group(1))


def memory_allocated(device: Device = None) -> int:
    """Bytes in use by malloc in this process."""
    index(device)
    if _mallinfo is None:
        return _proc("self/status", "VmRSS")
    info = _mallinfo()
    return info.uordblks + info.hblkhd


def memory_reserved(device: Device = None) -> int:
    """Bytes resident, at least those allocated (malloc touches a page at its first use)."""
    return max(_proc("self/status", "VmRSS"), memory_allocated(device))


def max_memory_reserved(device: Device = None) -> int:
    """Peak of the bytes resident since the last reset, at least the bytes reserved now."""
    return max(_proc("self/status", "VmHWM"), memory_reserved(device))


max_memory_allocated = max_memory_cached = max_memory_reserved
memory_cached = memory_reserved  # torch's older name for it


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start a new peak at the present figure. Raises OSError where the system refuses."""
    index(device)
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def memory_stats(device: Device = None) -> dict[str, int]:
    """The four figures in bytes, under torch's names."""
    peak = max_memory_reserved(device)
    return {
        "allocated_bytes.all.current": memory_allocated(device),
        "allocated_bytes.all.peak": peak,
        "reserved_bytes.all.current": memory_reserved(device),
        "reserved_bytes.all.peak": peak,
    }


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The four figures as text, one a line; `abbreviated` has nothing to leave out."""
    return "\n".join(f"{key:<32} {n / 2**20:10.1f} MiB" for key, n in memory_stats(device).items())


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Bytes available and bytes in all, of the host."""
    index(device)
    return _proc("meminfo", "MemAvailable"), _proc("meminfo", "MemTotal")


def empty_cache() -> None:
    """Release cached memory: the emulator keeps none."""
