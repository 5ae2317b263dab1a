"""Stories to tell, and a browser to look at them."""

import shutil

import pytest

from terafactor.testing import make_story


@pytest.fixture(name="story")
def story_of_pictures():
    return make_story()


@pytest.fixture(scope="session")
def chromium():
    """A headless browser of the system."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
