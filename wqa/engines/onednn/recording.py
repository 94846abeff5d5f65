"""Custom operations in MXNet's autograd graph, which read and write gradients in place.

`mxnet.autograd.Function` copies each gradient and ignores ``grad_req="add"``. `record` creates the
same kind of node by the same function of MXNet's C interface, but passes the addresses of the
gradients to a callable, which writes them where the optimizer reads them.
"""

from __future__ import annotations

import ctypes
import traceback
from typing import Any, Callable, Dict, NamedTuple, Sequence

import mxnet as mx
from mxnet.base import _LIB, MXCallbackList, c_array, c_handle_array, check_call

#: MXNet's numbers of the requests "null" and "add".
NULL, ADD = 0, 3

_Backward = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int),
    ctypes.c_int,
    ctypes.c_void_p,
)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_Generic = ctypes.CFUNCTYPE(ctypes.c_int)

#: Callbacks of the nodes that MXNet has not deleted yet.
_alive: Dict[int, Any] = {}


class Gradient(NamedTuple):
    """Address to which the gradient of an input is written."""

    address: int
    request: int  # NULL, ADD, or any other number for "write"


def record(
    inputs: Sequence[mx.nd.NDArray],
    outputs: Sequence[mx.nd.NDArray],
    backward: Callable[[Sequence[int], Sequence[Gradient]], None],
) -> None:
    """Add an operation to the autograd graph."""

    def call_backward(output_count, input_count, handles, requests, is_train, state) -> int:
        try:
            addresses = [_address(handles[index]) for index in range(output_count + input_count)]
            gradients = [
                Gradient(addresses[output_count + index], requests[index])
                for index in range(input_count)
            ]
            backward(addresses[:output_count], gradients)
            return 1
        except BaseException:  # noqa: B036 - an exception must not propagate into C code
            traceback.print_exc()
            return 0

    def delete(state) -> int:
        _alive.pop(key, None)
        return 1

    callbacks = [_Backward(call_backward), _Delete(delete)]
    generic = c_array(_Generic, [ctypes.cast(callback, _Generic) for callback in callbacks])
    states = c_array(ctypes.c_void_p, [None] * len(callbacks))
    entry = MXCallbackList(
        ctypes.c_int(len(callbacks)),
        ctypes.cast(generic, ctypes.POINTER(_Generic)),
        ctypes.cast(states, ctypes.POINTER(ctypes.c_void_p)),
    )
    key = id(entry)
    _alive[key] = (entry, callbacks, generic, states)
    check_call(
        _LIB.MXCustomFunctionRecord(
            ctypes.c_int(len(inputs)),
            c_handle_array(inputs),
            ctypes.c_int(len(outputs)),
            c_handle_array(outputs),
            ctypes.byref(entry),
        )
    )


def _address(handle: int) -> int:
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(ctypes.c_void_p(handle), ctypes.byref(pointer)))
    return pointer.value or 0
