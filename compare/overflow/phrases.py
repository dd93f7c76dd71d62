"""What people read of overflows that CANN reports, in English and in Chinese: one table, by name.

The summary file stays English.
"""

from __future__ import annotations

from dumper.language import Spoken
from ir2tbe.cann.status import ATOMIC, CORE_BITS, UNKNOWN

_PHRASES = {
    "none": (
        "no report of an overflow (Opdebug.Node_OpDebug.*) in {folder}: nothing overflowed, or "
        "dump_debug was off when it was dumped",
        "{folder} 中没有溢出报告（Opdebug.Node_OpDebug.*）：没有溢出，或 dump 时未打开 dump_debug",
    ),
    "found": ("{count} reports of overflows in {folder}", "{folder} 中有 {count} 个溢出报告"),
    "one found": ("1 report of an overflow in {folder}", "{folder} 中有 1 个溢出报告"),
    "quiet": ("{path}: status 0, no overflow", "{path}：状态为 0，没有溢出"),
    "odd": ("{path}: {note}", "{path}：{note}"),
    "passed": ("not looked at: {path} ({why})", "未查看：{path}（{why}）"),
    "op": ("[{number}] {type} {name}", "[{number}] {type} {name}"),
    "no op": (
        "[{number}] the op's dump is not in {folder}",
        "[{number}] {folder} 中没有该算子的 dump 文件",
    ),
    "place": ("task {task}, stream {stream}, {time}", "任务 {task}，流 {stream}，{time}"),
    "thread": (
        "context {context}, thread {thread}",
        "上下文 {context}，线程 {thread}",
    ),
    "status": ("{unit}, status {status}: {meaning}", "{unit}，状态 {status}：{meaning}"),
    "semicolon": ("; ", "；"),
    "bits": ("{mask} {meaning}", "{mask} {meaning}"),
    "word": ("{mask} of word {word}: {meaning}", "第 {word} 个字的 {mask}：{meaning}"),
    "guessed": (
        "its file's name has no {ids}: it was taken by the rest",
        "文件名中没有 {ids}，按其余字段匹配",
    ),
    "others": (
        "{count} more dumps have these ids; this is the earliest",
        "另有 {count} 个 dump 文件的编号相同，这里取最早的",
    ),
    "one others": (
        "1 more dump has these ids; this is the earlier",
        "另有 1 个 dump 文件的编号相同，这里取较早的",
    ),
    "nothing": ("nothing overflowed in these reports", "这些报告中没有溢出"),
    "rest": (
        "{count} later reports were not looked at; -n {all} looks at all",
        "其后的 {count} 个报告没有查看；-n {all} 查看全部",
    ),
    "one rest": (
        "1 later report was not looked at; -n {all} looks at all",
        "其后的 1 个报告没有查看；-n {all} 查看全部",
    ),
    "tensor": ("tensor", "张量"),
    "format": ("format", "格式"),
    "dtype": ("dtype", "类型"),
    "shape": ("shape", "形状"),
    "min": ("min", "最小"),
    "max": ("max", "最大"),
    "mean": ("mean", "均值"),
    "saturated": ("saturated", "饱和"),
    "count": ("{number} {what}", "{what} {number} 个"),
    "first": ("first at {index}", "首个在 {index}"),
    "comma": (", ", "，"),
    "unread": ("not read", "未读取"),
    ATOMIC: (ATOMIC, "原子加溢出"),
    UNKNOWN: (UNKNOWN, "含义没有文档说明"),
}  # fmt: skip

_BITS = {
    0x8: "对最小的有符号整数取负溢出",
    0x10: "整数加、减、乘、乘加溢出",
    0x20: "浮点计算溢出",
    0x80: "负的浮点数转为无符号整数",
    0x100: "fp32 转 fp16 或 int32 转 fp16 溢出",
    0x400: "CUBE 累加溢出",
}
_PHRASES |= {text: (text, _BITS[bit]) for bit, text in CORE_BITS.items()}


class Words(Spoken):
    """These phrases in one language."""

    phrases = _PHRASES
