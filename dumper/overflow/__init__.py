"""Overflow and underflow: which op, which element, and how it got there.

`events` is what is said of it, without torch; `watch` looks at every op of a step.
"""
