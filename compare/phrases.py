"""What people read of a comparison, in English and in Chinese: one table, by name.

csv, json and errors stay English. `speak` is asked once, by --lang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dumper.language import LANGUAGES, Spoken

if TYPE_CHECKING:
    from .judging.verdict import Verdict

_PHRASES = {
    "my dump": ("my dump", "待比对"),
    "golden": ("golden", "标杆"),
    "file": (
        "{path} ({device}, {count} records{mode})",
        "{path}（{device}，{count} 条记录{mode}）",
    ),
    "one file": (
        "{path} ({device}, 1 record{mode})",
        "{path}（{device}，1 条记录{mode}）",
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
        "in load mode every op ran on the recorded inputs",
        "load 模式下每个算子都用记录的输入",
    ),
    "start not recorded": (
        "the files do not say which values came from outside",
        "文件没有说明哪些值来自外部",
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
    "one batch": ("input", "输入"),
    "one weights": ("weight", "权重"),
    "one optimizer_state": ("optimizer state", "优化器状态"),
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
        "no op is at fault: inputs, and what the devices are known to do, explain all that differs "
        "beyond rounding",
        "没有算子出错：舍入以外的差异都来自输入，或来自设备已知的行为",
    ),
    "unread": (
        "no op is shown to be at fault, but {count} parts of the files could not be read",
        "没有发现出错的算子，但文件中有 {count} 处无法读取",
    ),
    "one unread": (
        "no op is shown to be at fault, but 1 part of the files could not be read",
        "没有发现出错的算子，但文件中有 1 处无法读取",
    ),
    "first difference": (
        "first difference: {place}\n  {arg}: {reason}",
        "第一处差异：{place}\n  {arg}：{reason}",
    ),
    "before it": (
        "before it {path} is not as in golden: {why}",
        "在此之前 {path} 已与标杆不同：{why}",
    ),
    "not comparable first": (
        "nothing that was compared differs beyond rounding, but {count} could not be compared, "
        "first {path}: {why}",
        "已比对的内容除舍入外没有差异，但有 {count} 个无法比对，第一个是 {path}：{why}",
    ),
    "unexplained": (
        "{count} differ, and the files do not tell whether an op or its inputs are the cause, "
        "first {path}: {why}",
        "{count} 个不同，但文件不足以判断原因在算子还是在输入，第一个是 {path}：{why}",
    ),
    "one unexplained": (
        "1 differs, and the files do not tell whether an op or its inputs are the cause: "
        "{path}: {why}",
        "1 个不同，但文件不足以判断原因在算子还是在输入：{path}：{why}",
    ),
    "only weak": (
        "{count} differ, all of one element each, which is too little to name a cause",
        "{count} 个不同，但都只有一个元素，不足以断定原因",
    ),
    "one only weak": (
        "1 differs, of one element, which is too little to name a cause",
        "1 个不同，但只有一个元素，不足以断定原因",
    ),
    "in call": ("{call} ({phase}), ", "{call}（{phase}），"),
    "place": ("op {op}, seqid {seqid}", "算子 {op}，seqid {seqid}"),
    "in module": (", module {module}", "，模块 {module}"),
    "at source": (", {source}", "，{source}"),
    "the model": ("the model itself", "模型本身"),
    "outside calls": ("outside of calls", "不在任何调用中"),
    "worst rows": ("rows that differ most:", "差异最大的行："),
    "again": (
        "{count} more have the same numbers as one of these",
        "另有 {count} 行与其中某行数值相同",
    ),
    "one again": (
        "1 more has the same numbers as one of these",
        "另有 1 行与其中某行数值相同",
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
        "feed golden's inputs to each op of mine: use_load=True, load_file_path={golden!r}",
        "把标杆的输入逐个喂给待比对的算子：use_load=True, load_file_path={golden!r}",
    ),
    "next nothing": (
        "the ops of this step agree; look at data, seeds and what runs outside of the dump",
        "这一步的算子一致；请检查数据、随机种子以及 dump 之外的代码",
    ),
    "comma": (", ", "，"),
    "semicolon": ("; ", "；"),
    # why a row is judged as it is; English has the verdict's own words
    "why": ("{reason}", "{code}；误差 {actual}，允许 {allowed}，倍数 {margin}{culprit}"),
    "culprit mine": ("", "；待比对一侧与其输入不符"),
    "culprit golden": ("", "；标杆一侧与其输入不符"),
    "culprit both": ("", "；两侧都与各自的输入不符"),
    "code beyond_rounding": ("", "输入相同，超出舍入所能解释的范围"),
    "code beyond_inherited": ("", "超出舍入和输入差异所能解释的范围"),
    "code beyond_default": ("", "输入相同，超出缺省允许范围（该算子没有专门规则）"),
    "code beyond_boundary": ("", "在调用边界处超出其输入差异所能解释的范围"),
    "code not_exact": ("", "输入相同，该算子不做舍入，但结果不同"),
    "code nonfinite": ("", "只有一侧出现 NaN 或无穷"),
    "code values_differ": ("", "数值不同"),
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


class _Words(Spoken):
    phrases = _PHRASES


_words = _Words(LANGUAGES[0])


def speak(language: str) -> None:
    """Choose the language of what people read from here on. Raises ValueError for others."""
    global _words
    _words = _Words(language)


def why(verdict: Verdict) -> str:
    """Why a row is judged as it is, for people."""
    code, culprit = f"code {verdict.code}", f"culprit {verdict.culprit}"  # may be a file's
    if _words.lang == LANGUAGES[0] or code not in _PHRASES:
        return verdict.reason
    numbers = {
        name: "-" if value is None else f"{value:.3g}"
        for name in ("actual", "allowed", "margin")
        for value in [getattr(verdict, name)]
    }
    who = phrase(culprit) if culprit in _PHRASES else ""
    return phrase("why", reason="", code=phrase(code), culprit=who, **numbers)


def phrase(name: str, /, **values: object) -> str:
    """The phrase of this name in the chosen language, as `Spoken` gives it."""
    return _words(name, **values)
