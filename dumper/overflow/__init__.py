"""Overflow and underflow: which op, which element, and how it got there.

`watch` looks at every op of a step, `verdict` says what it means. `events`, `ranges` and `scales`
are what is said of it, as data and without torch, and `report` tells it to people.
"""
