"""The cache of compiled kernels is dropped when a source changes; compilation is logged."""

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


def test_a_change_drops_the_files_that_import_it(package, tmp_path):
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


def test_a_damaged_stamp_drops_the_cache(package, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "one.sha256").write_text("damaged")
    (cache / "one.kernel-1.py311.nbi").write_text("")
    assert compiled(package, cache) == []


def test_compilation_is_logged_with_its_purpose_and_time(caplog):
    @numba.njit
    def double(x):
        return 2 * x

    with caplog.at_level("WARNING"):
        with jit.announcing_compilation("a test"):
            assert double(2) == 4
        assert caplog.messages[0] == "compiling kernels for a test, once on this machine ..."
        assert caplog.messages[1].startswith("compiled kernels for a test in ")
        assert all(record.is_notice for record in caplog.records)
        caplog.clear()
        with jit.announcing_compilation("a test"):
            assert double(3) == 6
        assert not caplog.messages


def test_processes_that_start_together_keep_the_stamps_of_each_other(package, tmp_path, monkeypatch):
    cache, digest = tmp_path / "cache", jit.source_digest

    def interrupted(file):
        """Let another process check a second file while this one is at work on the first."""
        monkeypatch.setattr(jit, "source_digest", digest)
        jit.drop_stale_cache(cache, package / "three.py")
        return digest(file)

    monkeypatch.setattr(jit, "source_digest", interrupted)
    jit.drop_stale_cache(cache, package / "one.py")
    files = ["one.kernel-1.py311.nbi", "three.kernel-1.py311.nbi"]
    for name in files:
        (cache / name).write_text("")
    assert compiled(package, cache) == files


def test_an_inner_block_announces_nothing(caplog):
    @numba.njit
    def triple(x):
        return 3 * x

    with caplog.at_level("WARNING"), jit.announcing_compilation("outside"):
        with jit.announcing_compilation("inside"):
            assert triple(2) == 6
        assert caplog.messages == ["compiling kernels for outside, once on this machine ..."]
    assert caplog.messages[1].startswith("compiled kernels for outside in ")
