# SPDX-License-Identifier: Apache-2.0
"""The book (deploy/book): its links lead somewhere, its reference has all flags, metrics and events, the sentences of its
troubleshooting are those of the programs, and the site is built without a warning and needs no network."""

import html
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import BIN, REPO, clean_environment, run

BOOK = REPO / "deploy" / "book"
PAGES = BOOK / "pages"
USERS_CACHE = os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")
CACHE = pathlib.Path(os.environ.get("DDPRUN_CACHE_DIR", pathlib.Path(USERS_CACHE, "ddprun")))
sys.path.insert(0, str(BOOK / "hooks"))
import documents  # noqa: E402
import reference  # noqa: E402

ALL_DOCUMENTS = [*documents.repository_documents(), *documents.book_pages()]


def text_of(path):
    return (REPO / path).read_text()


def literals(path):
    """A source's strings, those that follow each other joined, without the escapes of its language."""
    text = re.sub(r'"\s*\n?\s*"', "", path.read_text())
    return text.replace('\\"', '"').replace("\\n", "\n")


# Links


def test_caches_of_tools_are_no_documents(tmp_path, monkeypatch):
    for path in ("tests/README.md", "tests/e2e/.pytest_cache/README.md"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    monkeypatch.setattr(documents, "REPO", tmp_path)
    assert [str(page) for page in documents.repository_documents()] == ["README.md", "CONTRIBUTING.md", "tests/README.md"]


@pytest.mark.parametrize("page", ALL_DOCUMENTS, ids=str)
def test_links_lead_to_a_file_and_a_heading(page):
    wrong = []
    for link in documents.links_of(text_of(page)):
        if "://" in link:
            continue
        path, anchor = documents.target_of(page, link)
        if not (REPO / path).exists():
            wrong.append(f"{link}: no such file")
        elif anchor and path.suffix == ".md":
            anchors = {documents.slug(words) for _, words, _ in documents.headings_of(text_of(path))}
            if anchor not in anchors and documents.PAGES not in path.parents:
                wrong.append(f"{link}: no such heading; there are {sorted(anchors)}")
    assert wrong == []


def test_directives_name_what_is_there():
    for page in documents.book_pages():
        for kind, rest in documents.DIRECTIVE.findall(text_of(page)):
            if kind == "include":
                assert (REPO / rest.partition(" as ")[0]).is_file(), (page, rest)
            elif kind == "section":
                assert documents.section_of(*rest.partition("#")[::2]), (page, rest)
            elif kind == "help" and (BIN / rest.split()[0]).exists():
                assert reference.help_of(*rest.split()), (page, rest)


def test_every_page_is_in_the_contents():
    contents = (BOOK / "mkdocs.yml").read_text()
    missing = [page for page in documents.book_pages() if documents.uri_of(page) not in contents]
    assert missing == []


# The reference


def flags_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


@pytest.mark.parametrize("command", ["ddprun --help all", "ddpctl stop --help", "ddprun-rendezvous --help", "train --help"])
def test_the_reference_has_each_flag_of_a_program(command):
    if not (BIN / command.split()[0]).exists():
        pytest.skip("built without LibTorch")
    said = {line.split()[0].rstrip(",") for line in reference.help_of(*command.split()).splitlines() if line.startswith("  -")}
    rows = [row for _, _, rows, _ in reference.parse(reference.help_of(*command.split())) for row in rows]
    assert len(said) > 3
    assert {entry.split()[0].rstrip(",") for entry, _ in rows if entry.startswith("-")} == said
    assert [entry for entry, meaning in rows if not meaning] == []


def expand(names):
    """`a_{b,c}_d` of a document as a_b_d and a_c_d; labels in braces at the end left out."""
    found = set()
    for name in names:
        braces = re.search(r"\{([a-z,]+)\}_", name)
        plain = [re.sub(r"\{[a-z,]+\}(?=_)", one, name) for one in braces.group(1).split(",")] if braces else [name]
        found |= {re.sub(r"\{.*", "", one) for one in plain}
    return found


def test_the_metrics_of_the_documents_are_those_of_the_sources():
    section = documents.section_of("launcher/agent/OBSERVING.md", "metrics")
    listed = expand(re.findall(r"`((?:ddprun|process)_[a-z_{},]+)`", section))
    assert listed == set(reference.metrics())


def test_the_events_of_the_documents_are_those_of_the_sources():
    section = documents.section_of("launcher/agent/OBSERVING.md", "events")
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([a-z_.]+)`", row)}
    service = re.search(r"kNames = \{(.*?)\};", text_of("rendezvous/observe/run_event.cc"), re.DOTALL).group(1)
    agent = re.findall(r'(?:Named|WithReason|Notice)\("([a-z_.]+)"', text_of("launcher/supervisor/agent_events.cc"))
    agent += re.findall(r'event = "([a-z_]+\.[a-z_]+)"', text_of("launcher/agent/agent_observer.cc"))
    assert listed == {*re.findall(r'"([^"]+)"', service), *agent}


def test_the_exit_codes_and_variables_of_the_manual_page_are_in_the_reference():
    manual = run([BIN / "ddprun", "--print-man"]).stdout.replace("\\-", "-")
    codes = documents.section_of("launcher/USAGE.md", "exit-codes")
    for entry in re.findall(r"^\\fB(.*)\\fR$", re.search(r"\.SH EXIT STATUS(.*?)\.SH", manual, re.DOTALL).group(1), re.MULTILINE):
        assert f"| {entry} |" in codes, entry
    variables = documents.section_of("launcher/USAGE.md", "environment")
    for entry in re.findall(r"^\\fB(.*)\\fR$", re.search(r"\.SH ENVIRONMENT(.*?)\.SH", manual, re.DOTALL).group(1), re.MULTILINE):
        assert f"`{entry.replace('_NAME', '_<NAME>')}`" in variables, entry


def test_the_variables_of_the_workers_are_in_the_reference():
    """Those that a dry run shows, on a node of several."""
    command = [BIN / "ddprun", "--dry-run", "--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1", "true"]
    shown = run(command).stdout.partition("environment of the workers")[2]
    names = re.findall(r"^ +([A-Z_]+)=", shown, re.MULTILINE)
    text = documents.section_of("launcher/USAGE.md", "environment")
    text += documents.section_of("launcher/TORCHRUN.md", "environment-variables-of-the-workers")
    assert len(names) > 15 and [name for name in names if not re.search(rf"\b{name}\b", text)] == []


# Troubleshooting


def messages():
    """(message, what a block of its section shows) for each heading of the page. test_book_commands.py runs the blocks."""
    parts = re.split(r"^###? (.*)$", text_of(documents.PAGES / "troubleshooting.md"), flags=re.MULTILINE)
    shown = ["\n".join(re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)) for text in parts[2::2]]
    return [(heading.strip("`"), block) for heading, block in zip(parts[1::2], shown) if heading.startswith("`")]


def all_sources():
    for room in ("launcher", "rendezvous", "worker"):
        yield from (path for path in (REPO / room).rglob("*") if path.suffix in (".cc", ".h"))
    yield from (path for path in (REPO / "deploy").iterdir() if path.suffix in (".sh", ".slurm"))


SOURCES = [(path, literals(path)) for path in all_sources()]


@pytest.mark.parametrize(("message", "shown"), messages(), ids=[message for message, _ in messages()])
def test_a_message_of_the_troubleshooting_is_one_of_the_programs(message, shown):
    """A command of its section prints it; without one, all parts of it that do not differ are strings of the sources."""
    parts = [part.strip() for part in message.split("…") if len(part.strip()) > 3]
    assert max(map(len, parts)) >= 8, message
    if shown:
        assert [part for part in parts if part not in shown] == []
    else:
        assert [part for part in parts if not any(part in text for _, text in SOURCES)] == []


# The site: nightly


def build(tmp_path):
    if not (BIN / "train").exists():
        pytest.skip("built without LibTorch")
    if not (CACHE / "book" / "bin" / "mkdocs").exists():
        pytest.skip("mkdocs-material is not installed; deploy/setup.sh --book does it")
    env = clean_environment(DDPRUN_CACHE_DIR=str(CACHE))
    done = run([REPO / "deploy" / "book.sh", "--programs", BIN, "--output", tmp_path / "site"], env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("book"))


@pytest.mark.nightly
def test_the_strict_build_has_every_document(site):
    missing = []
    for page in ALL_DOCUMENTS:
        uri = pathlib.PurePosixPath(documents.uri_of(page))
        name = "index.html" if uri.name in ("README.md", "index.md") else f"{uri.stem}.html"
        if not (site / uri.parent / name).is_file():
            missing.append(str(page))
    assert missing == []


@pytest.mark.nightly
def test_nothing_of_the_site_is_on_another_host(site):
    outside = []
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text()):
            outside += re.findall(r'(?:src|href)="((?:https?:)?//[^"]*)"', tag)
    for style in site.rglob("*.css"):
        outside += re.findall(r"url\(['\"]?((?:https?:)?//[^)]*)\)", style.read_text())
    assert outside == []


@pytest.mark.nightly
def test_the_search_works_from_a_disk(site):
    """The index is a script, as browsers read no JSON from a disk, and a script stands in for the worker."""
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = {")
    worker = site / "assets" / "iframe-worker.js"
    for name in ("index.html", "moving/torchrun.html", "launcher/hang/HANGS.html"):
        page = site / name
        scripts = re.findall(r'<script src="([^"]*iframe-worker[^"]*)"', page.read_text())
        assert [(page.parent / script).resolve() for script in scripts] == [worker.resolve()], name


@pytest.mark.nightly
def test_links_of_the_site_lead_to_a_page_and_a_place_on_it(site):
    places, wrong = {}, []

    def places_of(page):
        if page not in places:
            places[page] = set(re.findall(r'\bid="([^"]+)"', page.read_text()))
        return places[page]

    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue  # is served at any address
        for link in re.findall(r'<a\b[^>]*\bhref="([^"]+)"', page.read_text()):
            path, _, anchor = html.unescape(link).partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            target = pathlib.Path(os.path.normpath(page.parent / path)) if path else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or (anchor and target.suffix == ".html" and anchor not in places_of(target)):
                wrong.append(f"{page.relative_to(site)}: {link}")
    assert wrong == []


@pytest.mark.nightly
def test_the_reference_of_the_site_has_the_flags(site):
    for name, command in (("ddprun", "ddprun --help all"), ("train", "train --help")):
        shown = html.unescape(re.sub(r"<[^>]+>", "", (site / "reference" / f"{name}.html").read_text()))
        assert flags_of(reference.help_of(*command.split())) <= flags_of(shown)


@pytest.mark.nightly
def test_lists_and_tables_became_lists_and_tables(site):
    """No line of the text begins as one does in Markdown."""
    found = {}
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        article = re.search(r"<article.*?</article>", text, re.DOTALL)
        prose = re.sub(r"<[^>]+>", "", article.group(0)) if article else ""
        lines = re.findall(r"^ *(?:- \w.*|\|.*\||#{2,} .*|```.*)$", prose, re.MULTILINE)
        found |= {str(page.relative_to(site)): lines} if lines else {}
    assert found == {}


def test_a_mistake_in_the_command_line_is_one_sentence(tmp_path):
    done = run([REPO / "deploy" / "book.sh", "--colour"])
    assert done.returncode == 1 and "'--colour'" in done.stderr
    done = run(
        [REPO / "deploy" / "book.sh", "--programs", BIN, "--output", tmp_path], env=clean_environment(DDPRUN_CACHE_DIR=str(tmp_path))
    )
    assert done.returncode == 1 and "run deploy/setup.sh --book" in done.stderr
    assert subprocess.run(["bash", "-n", REPO / "deploy" / "book.sh"]).returncode == 0
