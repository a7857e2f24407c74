# SPDX-License-Identifier: Apache-2.0
"""Every command of the book's pages is run (book_blocks.py says how); those of SLOW by test_book_frameworks.py."""

import book_blocks
import pytest
from conftest import REPO

# They load frameworks of Python that take many seconds: a nightly test.
SLOW = ("moving/accelerate.md", "moving/lightning.md", "moving/transformers.md")
PAGES_WITH_COMMANDS = [page for page in book_blocks.pages() if book_blocks.commands_of(page)]


@pytest.mark.parametrize("page", [page for page in PAGES_WITH_COMMANDS if page not in SLOW])
def test_every_command_of_a_page_does_what_the_page_says(page, tmp_path):
    assert book_blocks.run_page(page, tmp_path, timeout=240) == []


def test_blocks_have_a_language_and_marks_a_reason():
    for page in book_blocks.pages():
        for match, line in book_blocks.blocks_of(page):
            assert match["language"] in book_blocks.RUN + book_blocks.SHOWN, f"{page}:{line}: {match['language']!r}"
        for command in book_blocks.commands_of(page):
            where = f"{page}:{command.line}: {command.mark} {command.about}"
            assert command.mark in ("", "exit", "together", "dry-run", "stand-in", "by"), where
            if command.mark == "by":
                test, _, reason = command.about.partition(", ")
                assert (REPO / test).is_file() and reason, where
            elif command.mark in ("dry-run", "stand-in"):
                assert command.about, where


def test_few_commands_are_not_run_as_they_are():
    commands = [command for page in book_blocks.pages() for command in book_blocks.commands_of(page)]
    others = [command for command in commands if command.mark in ("dry-run", "stand-in", "by")]
    assert len(others) < len(commands) / 3, (len(others), len(commands))
