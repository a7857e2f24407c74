# SPDX-License-Identifier: Apache-2.0
"""The commands of the book's pages about Python's frameworks, which take many seconds to load (nightly)."""

import book_blocks
import pytest
from test_book_commands import SLOW


@pytest.mark.parametrize("page", SLOW)
def test_every_command_of_a_page_does_what_the_page_says(page, tmp_path):
    assert book_blocks.run_page(page, tmp_path, timeout=400) == []
