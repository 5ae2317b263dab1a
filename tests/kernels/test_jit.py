"""Compiled kernels: dropped when a file that they reach has changed, and announced when they are made."""

import numba
import pytest

from terafactor.kernels import jit


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Three kernel files, of which the first imports from the second."""
    folder = tmp_path / "terafactor" / "kernels"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("from terafactor.kernels.two import helper\n")
    (folder / "two.py").write_text("from terafactor._absent import nothing\n")
    (folder / "three.py").write_text("")
    monkeypatch.setattr(jit, "PACKAGE", tmp_path / "terafactor")
    jit.drop_stale_cache.cache_clear()
    yield folder
    jit.drop_stale_cache.cache_clear()


def compiled(package, cache):
    """Check the three files, as importing them does; return which of them have machine code."""
    jit.drop_stale_cache.cache_clear()
    for name in ("one", "two", "three"):
        jit.drop_stale_cache(cache, package / f"{name}.py")
    return sorted(path.name for path in cache.glob("*.nb[ci]"))


def test_a_change_drops_what_reaches_it(package, tmp_path):
    cache = tmp_path / "cache"
    assert compiled(package, cache) == []
    files = [f"{name}.kernel-1.py311.{kind}" for name in ("one", "two", "three") for kind in ("nbi", "1.nbc")]
    for name in files:
        (cache / name).write_text("")
    assert compiled(package, cache) == sorted(files)
    (package / "three.py").write_text("# changed")
    assert compiled(package, cache) == sorted(files[:4])
    (package / "two.py").write_text("# changed")
    assert compiled(package, cache) == []


def test_a_damaged_stamp_is_no_stamp(package, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "kernels.json").write_text("{")
    (cache / "one.kernel-1.py311.nbi").write_text("")
    assert compiled(package, cache) == []


def test_compilation_is_announced_with_its_purpose_and_time(caplog):
    @numba.njit
    def double(x):
        return 2 * x

    with caplog.at_level("WARNING"):
        with jit.announcing_compilation("a test"):
            assert double(2) == 4
        assert caplog.messages[0] == "compiling kernels for a test, once on this machine ..."
        assert caplog.messages[1].startswith("compiled kernels for a test in ")
        caplog.clear()
        with jit.announcing_compilation("a test"):
            assert double(3) == 6
        assert not caplog.messages
