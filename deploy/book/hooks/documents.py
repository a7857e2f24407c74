# SPDX-License-Identifier: Apache-2.0
"""Which documents of the repository are pages of the book, where they are in the site, and how their links are changed. Needs
only the standard library: tests/e2e/test_book.py uses it too."""

import os
import pathlib
import re

REPO = pathlib.Path(__file__).resolve().parents[3]
PAGES = pathlib.PurePosixPath("deploy/book/pages")
ROOMS = ("launcher", "rendezvous", "worker", "proto", "deploy", "tests")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
DIRECTIVE = re.compile(r"^<!-- (include|section|help|metrics):? ?(.*?) -->$", re.MULTILINE)


def repository_documents():
    """Paths in the repository of all that is written in Markdown, the book's own pages left out."""
    found = [pathlib.PurePosixPath("README.md"), pathlib.PurePosixPath("CONTRIBUTING.md")]
    for room in ROOMS:
        for path in sorted((REPO / room).rglob("*.md")):
            inside = pathlib.PurePosixPath(path.relative_to(REPO).as_posix())
            if PAGES not in inside.parents and not any(part.startswith(".") for part in inside.parts):  # a tool's cache
                found.append(inside)
    return found


def book_pages():
    return [pathlib.PurePosixPath(path.relative_to(REPO).as_posix()) for path in sorted((REPO / PAGES).rglob("*.md"))]


def uri_of(path):
    """Where the file `path` of the repository is in the site; None: it is no page of it."""
    path = pathlib.PurePosixPath(path)
    if PAGES in path.parents:
        return str(path.relative_to(PAGES))
    if str(path) == "README.md":
        return "index.md"
    if path.suffix == ".md":
        return str(path)
    return None


def source_uri(path):
    """The page that shows a source file or the files of a folder, to which a document has a link."""
    return f"source/{path}.md"


def target_of(page, link):
    """(path in the repository, anchor) of a link in the document `page`."""
    path, _, anchor = link.partition("#")
    if not path:
        return pathlib.PurePosixPath(page), anchor
    joined = os.path.normpath(pathlib.PurePosixPath(page).parent / path)
    return pathlib.PurePosixPath(joined), anchor


def outside_fences(text, change):
    """`text` with `change` applied to all that is outside fenced blocks."""
    parts, last = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[last : fence.start()]), fence.group(0)]
        last = fence.end()
    return "".join([*parts, change(text[last:])])


def links_of(text):
    found = []
    outside_fences(text, lambda part: found.extend(link for _, link in LINK.findall(part)) or part)
    return found


def linked_sources():
    """Files and folders that are no documents and that documents have links to: the site gets a page for each."""
    found = set()
    for page in [*repository_documents(), *book_pages()]:
        for link in links_of((REPO / page).read_text()):
            if "://" not in link and not link.startswith("#"):
                path, _ = target_of(page, link)
                if uri_of(path) is None and (REPO / path).exists() and path.suffix != ".svg":
                    found.add(path)
    return sorted(found)


def rewrite_links(text, origin, shown_in):
    """`text` of the document `origin` with the links that it needs on the site's page `shown_in`."""

    def change(match):
        words, link = match.groups()
        if "://" in link or (link.startswith("#") and uri_of(origin) == shown_in):
            return match.group(0)
        path, anchor = target_of(origin, link)
        if PAGES in path.parents and path.suffix != ".md":
            uri = str(path.relative_to(PAGES))
        else:
            uri = uri_of(path) or source_uri(path)
        relative = os.path.relpath(uri, pathlib.PurePosixPath(shown_in).parent)
        return f"{words}({relative}{'#' + anchor if anchor else ''})"

    return outside_fences(text, lambda part: LINK.sub(change, part))


def separate_lists(text):
    """GitHub begins a list right after a paragraph, Python-Markdown only after an empty line; and what is in an item is
    indented by four spaces there, where GitHub takes two."""

    def change(part):
        lines, in_list, paragraphs = [], False, False
        for line in part.split("\n"):
            item = re.match(r"([-*]|\d+\.) ", line)
            before = lines[-1] if lines else ""
            if item and before.strip() and (not in_list or paragraphs):
                lines.append("")
            paragraphs = in_list and not item and (paragraphs or not line.strip())
            if line.strip():
                in_list = bool(item) or (in_list and (line.startswith(" ") or bool(before.strip())))
            if in_list and not item:
                indent = len(line) - len(line.lstrip())
                line = " " * (4 * (indent // 2)) + line.lstrip()
            lines.append(line)
        return "\n".join(lines)

    return outside_fences(text, change)


def plain_pipes(text):
    """In a table GitHub wants a pipe escaped within code, and Python-Markdown does not."""
    return outside_fences(text, lambda part: re.sub(r"`[^`\n]*`", lambda code: code.group(0).replace("\\|", "|"), part))


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return text.replace(" ", "-")


def headings_of(text):
    """(depth, words, position) of each heading outside fences."""
    fences = [fence.span() for fence in FENCE.finditer(text)]
    return [
        (len(match.group(1)), match.group(2), match.start())
        for match in re.finditer(r"^(#+) (.*)$", text, re.MULTILINE)
        if not any(begin <= match.start() < end for begin, end in fences)
    ]


def section_of(path, anchor):
    """The text below one heading of a document, up to the next heading of its depth; without an anchor below its title."""
    text = (REPO / path).read_text()
    headings = headings_of(text)
    for index, (depth, words, start) in enumerate(headings):
        if slug(words) == anchor or not anchor:
            end = next((at for deep, _, at in headings[index + 1 :] if deep <= depth), len(text))
            return text[start:end].partition("\n")[2].strip() + "\n"
    raise ValueError(f"{path} has no heading #{anchor}")
