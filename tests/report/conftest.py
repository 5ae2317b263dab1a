"""Stories to tell."""

import pytest

from terafactor.testing import make_story


@pytest.fixture(name="story")
def story_of_pictures():
    return make_story()
