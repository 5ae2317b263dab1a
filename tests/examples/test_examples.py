"""Every example runs. Those that complete a matrix draw a picture, and do better than a mean."""

import ast
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from PIL import Image

FOLDER = Path(__file__).parents[2] / "examples"
ON_CLUSTERS = ("local_cluster.py", "slurm_cluster.py")
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.name not in ON_CLUSTERS)


def load(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Import an example from its file. Dataclasses look for their module by name, so it must be known by one."""
    spec = spec_from_file_location(f"example_{path.stem}", path)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_there_are_examples() -> None:
    """Without this test, a wrong path of the examples would go unnoticed."""
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_draws_and_beats_the_mean(path: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "new" / "picture.png"
    errors = load(path, monkeypatch).main(["--fast", "--out", str(out)])
    assert errors["terafactor"] < errors["mean"]
    assert "terafactor" in capsys.readouterr().out
    with Image.open(out) as picture:
        picture.load()
        assert picture.width > 1000
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_a_local_cluster_gives_the_bits_of_one_machine() -> None:
    pytest.importorskip("distributed")
    done = subprocess.run(
        [sys.executable, FOLDER / "local_cluster.py"], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "same bits as on one machine: True" in done.stdout


def test_the_slurm_example_uses_parameters_that_exist() -> None:
    """There is no queue here: check the call of the estimator only."""
    dask = pytest.importorskip("terafactor.dask")
    code = (FOLDER / "slurm_cluster.py").read_text()
    call = ast.parse(code[code.index("MaskedDictionaryLearning(\n") : code.index("# Checkpoints")].strip())
    names = {keyword.arg for keyword in call.body[0].value.keywords}
    assert names <= set(dask.MaskedDictionaryLearning()._get_param_names()) | {"client", "timeout"}
