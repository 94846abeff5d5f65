"""NumPy's BLAS on one thread while rankers compute."""

import pytest

from wqa.engines.sparse import engine
from wqa.engines.sparse.engine import one_blas_thread


def test_the_number_of_threads_is_restored(monkeypatch):
    threads = [4]
    monkeypatch.setattr(engine, "_openblas", lambda: (lambda: threads[-1], threads.append))
    with one_blas_thread():
        assert threads == [4, 1]
    assert threads == [4, 1, 4]
    with pytest.raises(KeyboardInterrupt), one_blas_thread():
        raise KeyboardInterrupt
    assert threads == [4, 1, 4, 1, 4]


def test_the_blas_of_a_wheel_is_found():
    functions = engine._openblas()
    if functions is None:
        pytest.skip("this NumPy has no OpenBLAS of a wheel")
    before = functions[0]()
    with one_blas_thread():
        assert functions[0]() == 1
    assert functions[0]() == before
