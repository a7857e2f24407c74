# SPDX-License-Identifier: Apache-2.0
"""mkdocs' hooks: adds the repository's documents to the book's own pages, and fills in what pages name in comments:

    <!-- include: PATH as NAME -->     the file PATH of the repository as a block of code; readers save it as NAME
    <!-- section: PATH#ANCHOR -->      one section of another document; without #ANCHOR all below its title
    <!-- help: COMMAND -->             what the program prints, as tables
    <!-- metrics -->                   all metrics with their help
"""

import re

import documents
import mkdocs.plugins
import reference
from mkdocs.structure.files import File

TITLES = {"README": "Overview", "USAGE": "How to use it", "TORCHRUN": "Differences from torchrun"}
LANGUAGES = {".py": "python", ".cc": "cpp", ".h": "cpp", ".proto": "protobuf", ".yaml": "yaml", ".sh": "bash"}


def room_pages(room):
    """The documents of a room: those of the room itself first."""
    pages = [path for path in documents.repository_documents() if path.parts[0] == room]
    pages.sort(key=lambda path: (len(path.parts), path.name != "README.md", str(path).lower()))
    entries = []
    for path in pages:
        title = TITLES.get(path.stem) if len(path.parts) == 2 else None
        entries.append({title: str(path)} if title else str(path))
    return entries


def on_config(config):
    for entry in config.nav:
        if "Rooms" in entry:
            entry["Rooms"] = [{f"{room}/": room_pages(room)} for room in documents.ROOMS]
            entry["Rooms"].append("CONTRIBUTING.md")
    return config


def source_page(path):
    """A source file, or the files of a folder, as a page."""
    full = documents.REPO / path
    files = sorted(file for file in full.iterdir() if file.is_file()) if full.is_dir() else [full]
    text = [f"# {path}\n"]
    for file in files:
        if full.is_dir():
            text.append(f"## {file.name}\n")
        text.append(f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text().rstrip()}\n````\n")
    return "\n".join(text)


def on_files(files, config):
    for path in documents.repository_documents():
        files.append(File.generated(config, documents.uri_of(path), abs_src_path=str(documents.REPO / path)))
    for path in documents.linked_sources():
        files.append(File.generated(config, documents.source_uri(path), content=source_page(path)))
    return files


def fill_in(match, shown_in, anchors):
    kind, rest = match.groups()
    if kind == "help":
        below_heading = re.search(r"^## ", match.string[: match.start()], re.MULTILINE)
        return reference.help_as_markdown(rest, "###" if below_heading else "##", anchors)
    if kind == "metrics":
        return reference.metrics_as_markdown()
    if kind == "section":
        path, _, anchor = rest.partition("#")
        return documents.rewrite_links(documents.section_of(path, anchor), path, shown_in)
    path, _, name = rest.partition(" as ")
    source = documents.REPO / path
    language = LANGUAGES.get(source.suffix, "text")
    lines = [line for line in source.read_text().splitlines() if "SPDX-License-Identifier" not in line]
    title = f' title="{name}"' if name else ""
    code = "\n".join(lines).strip("\n")
    return f"```{language}{title}\n{code}\n```"


def origin_of(uri):
    """The document that the page `uri` of the site shows."""
    if (documents.REPO / documents.PAGES / uri).exists():
        return documents.PAGES / uri
    return "README.md" if uri == "index.md" else uri


# Before the other plugins see it.
@mkdocs.plugins.event_priority(100)
def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    origin = origin_of(uri)
    text = documents.rewrite_links(markdown, origin, uri)
    anchors = set()
    text = documents.DIRECTIVE.sub(lambda match: fill_in(match, uri, anchors), text)
    return documents.plain_pipes(documents.separate_lists(text))
