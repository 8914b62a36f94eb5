"""A solver for Inspect that asks otherwise than the task says."""

from __future__ import annotations

from inspect_ai.solver import Solver, chain, generate, solver, system_message


@solver  # type: ignore[untyped-decorator]
def kind() -> Solver:
    return chain(system_message("Be kind."), generate())
