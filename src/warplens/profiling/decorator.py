"""A function that runs inside a block, whatever kind of function it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def inside(block: AbstractContextManager[Any], function: F) -> F:
    """`function` with the whole of its body inside `block`: calling a coroutine or a generator runs nothing of it."""

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        with block:
            return await function(*args, **kwargs)

    def generated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with block:
            return (yield from function(*args, **kwargs))

    async def streamed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        with block:
            async for item in function(*args, **kwargs):
                yield item

    def called(*args: Any, **kwargs: Any) -> Any:
        with block:
            return function(*args, **kwargs)

    wrapper: Callable[..., Any] = called
    if inspect.iscoroutinefunction(function):
        wrapper = awaited
    elif inspect.isgeneratorfunction(function):
        wrapper = generated
    elif inspect.isasyncgenfunction(function):
        wrapper = streamed
    return cast(F, functools.wraps(function)(wrapper))
