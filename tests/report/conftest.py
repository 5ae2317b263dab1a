"""Runs to report on."""

import pytest

from terafactor.testing import make_report_context


@pytest.fixture(name="context")
def context_of_pictures():
    return make_report_context()
