"""NumPy's BLAS on one thread while rankers compute."""

import threading

import pytest

from wqa.engines.sparse import threads as blas_threads
from wqa.engines.sparse.threads import one_blas_thread


@pytest.fixture
def blas(monkeypatch):
    """A BLAS that computes on four threads."""
    calls = []
    fake = blas_threads._OpenBlas(lambda: calls[-1], calls.append)
    calls.append(4)
    monkeypatch.setattr(blas_threads, "_openblas", lambda: fake)
    return calls


def test_the_number_of_threads_is_restored(blas):
    with one_blas_thread():
        assert blas == [4, 1]
    assert blas == [4, 1, 4]
    with pytest.raises(KeyboardInterrupt), one_blas_thread():
        raise KeyboardInterrupt
    assert blas == [4, 1, 4, 1, 4]


def test_the_last_of_several_users_restores_it(blas):
    entered, may_leave = threading.Event(), threading.Event()

    def use():
        with one_blas_thread():
            entered.set()
            assert may_leave.wait(60)

    other = threading.Thread(target=use)
    with one_blas_thread():
        other.start()
        assert entered.wait(60)
    assert blas == [4, 1]
    may_leave.set()
    other.join(60)
    assert blas == [4, 1, 4]


def test_another_blas_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(blas_threads, "_libraries", list)
    blas_threads._openblas.cache_clear()
    try:
        with one_blas_thread():
            pass
    finally:
        blas_threads._openblas.cache_clear()


def test_the_blas_of_a_wheel_is_found():
    blas = blas_threads._openblas()
    if blas is None:
        pytest.skip("this NumPy has no OpenBLAS of a wheel")
    before = blas.get()
    with one_blas_thread():
        assert blas.get() == 1
    assert blas.get() == before
