"""Files and folders without read permission: errors and warnings name them, and nothing crashes."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")

CLOSED = {
    "file": ["sub-02/sub-02_bold.nii.gz"],
    "mask": ["mask.nii.gz"],
    "table": ["sub-01/sub-01_desc-confounds_timeseries.tsv"],
    "subject": ["sub-02"],
    "subjects": ["sub-01", "sub-02"],
}
"""Folders of two subjects, and what has no permissions in each."""

CALLS = {
    "image": "masked_images([root / 'file/sub-02/sub-02_bold.nii.gz'], None, None, {})",
    "glob of images": "masked_images(f'{root}/file/sub-*/*_bold.nii.gz', None, image('mask'), {})",
    "mask": "masked_images(series('mask'), None, root / 'mask/mask.nii.gz', {})",
    "masker": "masked_images(series('mask'), None, NiftiMasker(root / 'mask/mask.nii.gz'), {})",
    "atlas of regions": "atlas.label(root / 'mask/mask.nii.gz')",
    "initial maps": "atlas.set_params(dict_init=root / 'file/sub-02/sub-02_bold.nii.gz').fit(series('file'))",
    "auto": "masked_images(series('table'), 'auto', image('table'), {})",
    "table": "masked_images(series('table'), [TABLE], image('table'), {})",
    "subjects": "find_images(root / 'subject')",
    "glob": "find_images(f'{root}/subject/sub-*/*_bold.nii.gz')",
    "recursive glob": "find_images(f'{root}/subject/**/*_bold.nii.gz')",
    "glob without wildcard": "find_images(f'{root}/subject/sub-*/sub-01_bold.nii.gz')",
    "no subjects": "find_images(root / 'subjects')",
    "glob of nothing": "find_images(f'{root}/subjects/sub-*/*_bold.nii.gz')",
    "path": "find_images(root / 'subject/sub-02/sub-02_bold.nii.gz')",
}
"""Calls that cannot read everything."""

SCRIPT = f"""
import json, logging, os, sys
from pathlib import Path
import nibabel
from nilearn.maskers import NiftiMasker
from terafactor.brain import BrainDictionaryLearning
from terafactor.brain.find import find_images
from terafactor.brain.preparation import masked_images

root, logged, found = Path(sys.argv[1]), [], {{}}
TABLE = root / "table/sub-01/sub-01_desc-confounds_timeseries.tsv"
logging.getLogger("terafactor").addFilter(lambda record: logged.append(record.getMessage()))

def series(case):
    return [root / case / "sub-01/sub-01_bold.nii.gz"]

def image(case):  # in memory
    loaded = nibabel.load(root / "open" / "mask.nii.gz")
    return nibabel.Nifti1Image(loaded.get_fdata(), loaded.affine)

atlas = BrainDictionaryLearning(2, mask=image("open"), n_epochs=1, smoothing_fwhm=None, store=False, random_state=0)
atlas.fit(series("open"), confounds="auto")  # imports what the other user may not be able to read
if os.getuid() == 0:  # permissions do not bind root
    os.setgid(65534)
    os.setuid(65534)
for name, call in {CALLS!r}.items():
    logged.clear()
    try:
        result = str(eval(call))
    except Exception as error:
        result = f"{{type(error).__name__}}: {{error}}"
    found[name] = [result, *logged]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    """Return the folder, and the result or error of each call with the messages in the log."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        make_subjects(root / "open")
        for case in CLOSED:
            shutil.copytree(root / "open", root / case)
        closed = [root / case / path for case, paths in CLOSED.items() for path in paths]
        for path in closed:
            path.chmod(0)
        try:
            command = [sys.executable, "-W", "ignore", "-c", SCRIPT, name]
            done = subprocess.run(command, capture_output=True, text=True)
        finally:
            for path in closed:
                path.chmod(0o755)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    return root, json.loads(done.stdout)


def make_subjects(folder):
    for number in (1, 2):
        subject = folder / f"sub-0{number}"
        subject.mkdir(parents=True)
        values = 100 + np.random.default_rng(number).standard_normal((4, 4, 4, 12))
        nibabel.Nifti1Image(values.astype(np.float32), np.eye(4)).to_filename(subject / f"{subject.name}_bold.nii.gz")
        table = "trans_x\n" + "\n".join(map(str, np.sin(np.arange(12)))) + "\n"
        (subject / f"{subject.name}_desc-confounds_timeseries.tsv").write_text(table)
    nibabel.Nifti1Image(np.ones((4, 4, 4), np.uint8), np.eye(4)).to_filename(folder / "mask.nii.gz")


@pytest.mark.parametrize(
    ("call", "case"),
    [
        ("image", "file"),
        ("glob of images", "file"),
        ("mask", "mask"),
        ("masker", "mask"),
        ("atlas of regions", "mask"),
        ("initial maps", "file"),
        ("auto", "table"),
        ("table", "table"),
    ],
)
def test_a_file_without_read_permission_is_named(found, call, case):
    """indexed_gzip, which nibabel reads .nii.gz files with, crashes the interpreter on such a file."""
    root, results = found
    error = results[call][0]
    assert error.startswith("DataError")
    assert f"cannot read {root / case / CLOSED[case][0]}: Permission denied" in error


@pytest.mark.parametrize("call", ["subjects", "glob", "recursive glob", "glob without wildcard"])
def test_folders_without_read_permission_are_skipped_with_a_warning(found, call):
    root, results = found
    images, warning = results[call]
    assert images == str([str(root / "subject/sub-01/sub-01_bold.nii.gz")])
    assert warning == f"skipped 1 folder(s) without read permission: {root / 'subject/sub-02'}"


@pytest.mark.parametrize("call", ["no subjects", "glob of nothing"])
def test_without_a_readable_folder_there_is_an_error(found, call):
    root, results = found
    error = results[call][0]
    assert error.startswith("DataError")
    assert f"2 folder(s) without read permission: {root / 'subjects/sub-01'}, {root / 'subjects/sub-02'}" in error


def test_a_path_in_a_folder_without_permission_is_named(found):
    root, results = found
    expected = f"DataError: cannot read {root / 'subject/sub-02/sub-02_bold.nii.gz'}: Permission denied"
    assert results["path"][0].startswith(expected)
