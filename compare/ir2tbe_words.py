"""What people read of the table from ops to TBE ops, in English and in Chinese: one table, by name.

What the table itself says (conditions, notes, sources) and JSON stay English.
"""

from __future__ import annotations

from dumper.language import Spoken

_PHRASES = {
    # one op
    "op": ("{name} (IR {ir})", "{name}（IR {ir}）"),
    "overloads": (", also {names}", "，同样：{names}"),
    "others": ("other overloads: {names}", "其他重载：{names}"),
    "approximate": ("approximate: {why}", "近似：{why}"),
    "step": ("{number}  {op}", "{number}  {op}"),
    "ports": ("inputs {inputs}; outputs {outputs}", "输入 {inputs}；输出 {outputs}"),
    "attributes": ("; attributes {attributes}", "；属性 {attributes}"),
    "or": ("or {ops}", "或 {ops}"),
    "no ports": ("inputs and outputs: not in the table", "输入和输出：表中没有"),
    "none needed": ("runs no TBE op", "不执行任何 TBE 算子"),
    "not known": ("what it runs is not known", "执行什么未知"),
    "aclnn only": (
        "has no TBE sequence, only aclnn: 910B and later",
        "没有 TBE 序列，只有 aclnn：910B 及以后",
    ),
    "when": ("when {when}: {tbe}", "当 {when}：{tbe}"),
    "in release": ("in {release}: {tbe}", "在 {release} 中：{tbe}"),
    "by rules": ("rules alone had made of it: {tbe}", "仅按规则得到的是：{tbe}"),
    "unresolved": ("what it calls and is not above: {names}", "调用了但上面没有列出的：{names}"),
    "aclnn": ("aclnn (910B and later): {names}", "aclnn（910B 及以后）：{names}"),
    "note": ("note: {text}", "说明：{text}"),
    "source": ("source: {source}; confidence {mark}", "来源：{source}；可信度 {mark}"),
    "by hand": ("by hand", "人工整理"),
    "empty": ("none", "无"),
    # why a sequence is approximate
    "mark curated": ("", ""),
    "mark aclnn-only": ("", ""),
    "mark static": (
        "read from the source by rules, checked by nobody",
        "按规则从源码读出，未经人工检查",
    ),
    "mark static-lowmatch": (
        "read by rules from what is only probably its source, checked by nobody",
        "按规则从可能对应的源码读出，未经人工检查",
    ),
    "mark curated-low": ("set down by hand, depends on the release", "人工整理，随版本而变"),
    "mark formula": (
        "made of the ops in PyTorch's formula of the derivative",
        "由 PyTorch 求导公式中的算子拼成",
    ),
    "mark formula-partial": (
        "made of the ops in PyTorch's formula of the derivative, of which some are not known",
        "由 PyTorch 求导公式中的算子拼成，其中有些未知",
    ),
    "mark derived": ("put together from the sequences of ops", "由各算子的序列拼成"),
    # how a name led there
    "how exact": ("", ""),
    "how any overload": (
        "{name} has several overloads; they do not agree",
        "{name} 有多个重载，序列不一致",
    ),
    "how another overload": (
        "the table has no {name}, only another overload",
        "表中没有 {name}，只有其他重载",
    ),
    "how not in place": (
        "the table has no {name}, only the op that is not in place",
        "表中没有 {name}，只有非原地的算子",
    ),
    "how another device's": (
        "{name} is what another device runs in its place",
        "{name} 是其他设备上执行的对应算子",
    ),
    # who uses a TBE op
    "used": ("{tbe} is used by {count} ops", "{count} 个算子用到 {tbe}"),
    "one used": ("{tbe} is used by 1 op", "1 个算子用到 {tbe}"),
    "used sequence": ("in the sequence", "在序列中"),
    "used alternative": ("under a condition the source has", "在源码的某个条件下"),
    "used condition": ("when {where}", "当 {where}"),
    "used release": ("in {where}", "在 {where} 中"),
    "used aclnn": ("as its aclnn kernel (910B and later)", "作为其 aclnn 内核（910B 及以后）"),
    # ops of a file
    "file": ("{path}: {count} ops, {calls} calls", "{path}：{count} 种算子，{calls} 次调用"),
    "one file": ("{path}: 1 op, {calls} calls", "{path}：1 种算子，{calls} 次调用"),
    "state unknown": ("unknown", "未知"),
    "state aclnn_only": ("aclnn only (910B and later)", "只有 aclnn（910B 及以后）"),
    "state sequence": ("has a TBE sequence", "有 TBE 序列"),
    "state nothing": ("runs no TBE op", "不执行 TBE 算子"),
    "state composite": ("made of other ops", "由其他算子组成"),
    "sum": ("{what}: {count}, {calls} calls", "{what}：{count} 种，{calls} 次调用"),
    "sum approximate": (
        "{what}: {count}, {calls} calls; approximate: {approximate}",
        "{what}：{count} 种，{calls} 次调用；其中近似 {approximate} 种",
    ),
    "op title": ("op", "算子"),
    "calls title": ("calls", "调用"),
    "tbe title": ("TBE ops", "TBE 算子"),
    "confidence title": ("confidence", "可信度"),
    "source title": ("source", "来源"),
    "approximate mark": ("{mark}, approximate", "{mark}，近似"),
    "of": ("{mark}, of {name}", "{mark}，取自 {name}"),
    "nested": (
        "a profile counts an op that another one calls too, and does not say which overload ran",
        "profile 也统计被其他算子调用的算子，且不区分重载",
    ),
    "full": (
        "the table has {rows} rows, as many as are printed by default: there may be more ops; "
        "row_limit=-1 prints all",
        "表中有 {rows} 行，正好是缺省的行数上限，可能还有更多算子；row_limit=-1 打印全部",
    ),
    "cut": (
        "the table cut {count} names of ops; max_name_column_width=200 prints them whole",
        "表中有 {count} 个算子名被截断；max_name_column_width=200 可完整打印",
    ),
    "one cut": (
        "the table cut 1 name of an op; max_name_column_width=200 prints it whole",
        "表中有 1 个算子名被截断；max_name_column_width=200 可完整打印",
    ),
}  # fmt: skip


class Words(Spoken):
    """These phrases in one language."""

    phrases = _PHRASES
