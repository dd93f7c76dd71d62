"""What people read of a comparison, in English and in Chinese: one table, by name.

csv, json and errors stay English. `speak` is asked once, by --lang; a phrase that takes values
takes them by name, so that another language may order them otherwise.
"""

from __future__ import annotations

LANGUAGES = ("en", "zh")

_PHRASES = {
    "my dump": ("my dump", "待比对"),
    "golden": ("golden", "标杆"),
    "file": (
        "{path} ({device}, {records} records{mode})",
        "{path}（{device}，{records} 条记录{mode}）",
    ),
    "load mode": (", load mode", "，load 模式"),
    "started equal": (
        "started equal: {what}",
        "起点一致：{what}",
    ),
    "started unequal": (
        "did not start equal: {what}; what follows inherits it",
        "起点不一致：{what}；其后的差异由此而来",
    ),
    "start unknown": (
        "whether both started equal cannot be told: {why}",
        "无法判断起点是否一致：{why}",
    ),
    "start in load mode": (
        "in load mode every op ran on golden's inputs",
        "load 模式下每个算子都用标杆的输入",
    ),
    "start not recorded": (
        "no value that came from outside is in both files",
        "两个文件中没有共同的外部输入",
    ),
    "leaves equal": ("{count} {kind}", "{count} 个{kind}"),
    "leaves differ": (
        "{kind} differ: {differ} of {count}{first}",
        "{kind}不同：{count} 个中有 {differ} 个{first}",
    ),
    "first leaf": (", first {name}", "，第一个是 {name}"),
    "batch": ("inputs", "输入"),
    "weights": ("weights", "权重"),
    "optimizer_state": ("optimizer states", "优化器状态"),
    "flag differs": ("{name} {mine} against {golden}", "{name} {mine} 对 {golden}"),
    "loss scale": (
        "different loss scale {ratio}, divided out",
        "loss scale 不同（{ratio}），已除去",
    ),
    "counts": (
        "{compared} compared: {same} same, {rounding} rounding, {inherited} inherited, "
        "{differs} differ, {not_comparable} not comparable, {cannot_tell} cannot tell",
        "已比对 {compared} 个：相同 {same}，舍入 {rounding}，继承 {inherited}，"
        "不同 {differs}，不可比 {not_comparable}，无法判断 {cannot_tell}",
    ),
    "by default": (
        "{count} of {judged} judged rows ({share}) are of ops that the table has no rule for",
        "判断的 {judged} 行中有 {count} 行（{share}）的算子没有专门规则，按缺省规则判断",
    ),
    "nothing compared": (
        "nothing was compared: the two dumps have no tensor in common",
        "没有可比对的内容：两个文件没有共同的张量",
    ),
    "nothing differs": ("nothing differs beyond rounding", "除舍入外没有差异"),
    "only inherited": (
        "no op is at fault: all that differs beyond rounding is inherited from its inputs",
        "没有算子出错：舍入以外的差异都来自输入",
    ),
    "unread": (
        "{what}, but {count} parts of the files could not be read",
        "{what}，但文件中有 {count} 处无法读取",
    ),
    "first difference": (
        "first difference: {place}\n  {arg}: {reason}",
        "第一处差异：{place}\n  {arg}：{reason}",
    ),
    "not comparable first": (
        "nothing that was compared differs beyond rounding, but {count} could not be compared, "
        "first {path}: {why}",
        "已比对的内容除舍入外没有差异，但有 {count} 个无法比对，第一个是 {path}：{why}",
    ),
    "unexplained": (
        "{count} differ, and the files do not tell whether an op or its inputs are the cause",
        "{count} 个不同，但文件不足以判断原因在算子还是在输入",
    ),
    "only weak": (
        "{count} differ, all of one element each, which is too little to name a cause",
        "{count} 个不同，但都只有一个元素，不足以断定原因",
    ),
    "place": (
        "{call} ({phase}), op {op}, seqid {seqid}",
        "{call}（{phase}），算子 {op}，seqid {seqid}",
    ),
    "in module": (", module {module}", "，模块 {module}"),
    "at source": (", {source}", "，{source}"),
    "the model": ("the model itself", "模型本身"),
    "outside calls": ("outside of calls", "不在任何调用中"),
    "worst rows": ("rows that differ most:", "差异最大的行："),
    "again": (
        "{count} more have the same numbers as one of these",
        "另有 {count} 行与其中某行数值相同",
    ),
    "unpaired": ("without partner: {what}", "没有对应项：{what}"),
    "next": ("what to do next: {what}", "下一步：{what}"),
    "next show": (
        "look at the op: msaccucmp show {mine} {path} -g {golden}",
        "查看该算子：msaccucmp show {mine} {path} -g {golden}",
    ),
    "next start": (
        "make both runs start equal (the same weights, batch and flags), dump again",
        "让两次运行起点一致（相同的权重、数据和开关），重新 dump",
    ),
    "next load": (
        "feed golden's inputs to each op of mine: use_load=True, load_file_path={golden}",
        "把标杆的输入逐个喂给待比对的算子：use_load=True, load_file_path={golden}",
    ),
    "next nothing": (
        "the ops of this step agree; look at data, seeds and what runs outside of the dump",
        "这一步的算子一致；请检查数据、随机种子以及 dump 之外的代码",
    ),
    # the columns of the table
    "seqid": ("seqid", "seqid"),
    "tensor": ("tensor", "张量"),
    "verdict": ("verdict", "结论"),
    "error": ("error", "误差"),
    "allowed": ("allowed", "允许"),
    "margin": ("margin", "倍数"),
    "worst at": ("worst at", "最差位置"),
    # verdicts
    "same": ("same", "相同"),
    "rounding": ("rounding", "舍入"),
    "inherited": ("inherited", "继承"),
    "differs": ("differs", "不同"),
    "not_comparable": ("not comparable", "不可比"),
    "cannot_tell": ("cannot tell", "无法判断"),
}  # fmt: skip

_spoken = 0


def speak(language: str) -> None:
    """Choose the language of what people read from here on. Raises ValueError for others."""
    global _spoken
    _spoken = LANGUAGES.index(language)


def phrase(name: str, /, **values: object) -> str:
    """The phrase of this name in the chosen language, its places filled."""
    return _PHRASES[name][_spoken].format(**values)
