"""What people read of a comparison of folders, in English and in Chinese: one table, by name.

csv and errors stay English.
"""

from __future__ import annotations

from dumper.language import Spoken

_PHRASES = {
    "my dump": ("my dump", "待比对"),
    "golden": ("golden", "标杆"),
    "operators": ("{path} ({count} operators)", "{path}（{count} 个算子）"),
    "one operators": ("{path} (1 operator)", "{path}（1 个算子）"),
    "npy files": ("{path} ({count} npy files)", "{path}（{count} 个 npy 文件）"),
    "one npy files": ("{path} (1 npy file)", "{path}（1 个 npy 文件）"),
    "records": ("{path} ({count} records)", "{path}（{count} 条记录）"),
    "one records": ("{path} (1 record)", "{path}（1 条记录）"),
    "passed": ("passed over {path}: {why}", "略过 {path}：{why}"),
    "more passed": ("{count} more passed over", "另略过 {count} 个"),
    "one more passed": ("1 more passed over", "另略过 1 个"),
    "npy beside": (
        "{path} has CANN dump files, which are compared; its {count} npy files are passed over",
        "{path} 中有 CANN dump 文件，只比对它们；其中 {count} 个 npy 文件被略过",
    ),
    "one npy beside": (
        "{path} has CANN dump files, which are compared; its npy file is passed over",
        "{path} 中有 CANN dump 文件，只比对它们；其中 1 个 npy 文件被略过",
    ),
    "counts": (
        "{ops} of my operators, {rows} rows; tensors compared: {compared}, of which {equal} "
        "bit-equal, {alike} equal in value and {differing} differing; {unpaired} without partner, "
        "{incomparable} not comparable",
        "待比对算子 {ops} 个，共 {rows} 行：已比对张量 {compared} 个，其中逐位相同 {equal}，"
        "数值相同 {alike}，不同 {differing}；没有对应项 {unpaired}，不可比 {incomparable}",
    ),
    "expected": (
        "{count} more have no partner, as is to be expected: {what}",
        "另有 {count} 行没有对应项，属于正常情况：{what}",
    ),
    "one expected": (
        "1 more has no partner, as is to be expected: {what}",
        "另有 1 行没有对应项，属于正常情况：{what}",
    ),
    "code unnamed": (
        "{count} that no file gives a place in golden",
        "{count} 个没有文件说明其在标杆中的位置",
    ),
    "one code unnamed": (
        "1 that no file gives a place in golden",
        "1 个没有文件说明其在标杆中的位置",
    ),
    "code empty": ("{count} without a tensor", "{count} 个没有张量"),
    "code inserted": ("{count} that the compiler made", "{count} 个由编译器插入"),
    "code quantized": (
        "{count} quantized, which golden has not",
        "{count} 个为量化值，标杆中没有",
    ),
    "code repeated": (
        "{count} that golden has of what was compared",
        "{count} 个是标杆中已比对张量的另一份",
    ),
    "code fused": ("{count} inside fused operators", "{count} 个在融合算子内部"),
    "code intermediate": (
        "{count} between two operators of one record",
        "{count} 个在同一条记录的两个算子之间",
    ),
    "code not_run": (
        "{count} records that no file is of",
        "{count} 条记录没有对应的文件",
    ),
    "one code not_run": (
        "1 record that no file is of",
        "1 条记录没有对应的文件",
    ),
    "code unmade": (
        "{count} results that no file names",
        "{count} 个结果没有文件给出",
    ),
    "one code unmade": (
        "1 result that no file names",
        "1 个结果没有文件给出",
    ),
    "code converted": (
        "{count} npy files that convert made of CANN dumps (compare the folders of those dumps)",
        "{count} 个由 convert 从 CANN dump 转换而来的 npy 文件（请直接比对 CANN dump 目录）",
    ),
    "one code converted": (
        "1 npy file that convert made of a CANN dump (compare the folders of those dumps)",
        "1 个由 convert 从 CANN dump 转换而来的 npy 文件（请直接比对 CANN dump 目录）",
    ),
    "comma": (", ", "，"),
    "nothing compared": (
        "nothing was compared: the two have no tensor in common",
        "没有可比对的内容：两侧没有共同的张量",
    ),
    "nothing differs": ("nothing differs", "没有差异"),
    "parts": (
        "the first operator that parts from equal inputs: {op}\n  {tensor}: {what}",
        "第一个输入相同而输出不同的算子：{op}\n  {tensor}：{what}",
    ),
    "adds most": (
        "the operator that adds most to what it was given: {op}\n  {tensor}: {what}\n"
        "  {factor} times what its inputs and the rounding of its dtype account for",
        "相对其输入新增差异最大的算子：{op}\n  {tensor}：{what}\n"
        "  为其输入差异与数据类型舍入所能解释的 {factor} 倍",
    ),
    "first output": (
        "the first output that is not as in golden: {op}\n  {tensor}: {what}\n  {why}",
        "第一个与标杆不同的输出：{op}\n  {tensor}：{what}\n  {why}",
    ),
    "before it": (
        "before it {tensor} of {op} is not as in golden, on inputs that are not either",
        "在此之前 {op} 的 {tensor} 已与标杆不同，其输入也不同",
    ),
    "before it unknown": (
        "before it {tensor} of {op} is not as in golden; its inputs were not compared",
        "在此之前 {op} 的 {tensor} 已与标杆不同，其输入没有比对",
    ),
    "inputs differ": ("its inputs are not as in golden either", "其输入也与标杆不同"),
    "inputs unknown": (
        "whether its inputs are equal is not known: they were not compared",
        "其输入没有比对，无法判断是否相同",
    ),
    "first row": (
        "no output differs, but {tensor} of {op} is not as in golden: {what}",
        "没有不同的输出，但 {op} 的 {tensor} 与标杆不同：{what}",
    ),
    "first unread": (
        "no output that was compared differs, but {tensor} of {op} could not be compared: {what}",
        "已比对的输出没有不同，但 {op} 的 {tensor} 无法比对：{what}",
    ),
    "operator": ("{type} {name}, Index {index}", "{type} {name}，Index {index}"),
    "distance": (
        "RelativeEuclideanDistance {relative}, MaxAbsoluteError {absolute}, {exact} of the "
        "elements equal",
        "RelativeEuclideanDistance {relative}，MaxAbsoluteError {absolute}，相同元素占 {exact}",
    ),
    "worst rows": ("tensors that differ most:", "差异最大的张量："),
    "again": (
        "{count} more have the same numbers as one of these",
        "另有 {count} 行与其中某行数值相同",
    ),
    "one again": (
        "1 more has the same numbers as one of these",
        "另有 1 行与其中某行数值相同",
    ),
    "type": ("type", "类型"),
    "tensor": ("tensor", "张量"),
    "mapped damaged": ("{count} files could not be read", "{count} 个文件无法读取"),
    "one mapped damaged": ("1 file could not be read", "1 个文件无法读取"),
    "mapped": (
        "{count} rows, {unpaired} without partner",
        "{count} 行，{unpaired} 行没有对应项",
    ),
}  # fmt: skip


class Words(Spoken):
    """These phrases in one language."""

    phrases = _PHRASES
