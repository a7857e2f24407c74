# SPDX-License-Identifier: Apache-2.0
"""The rooms and the doors between them: proto <- rendezvous <- {launcher, worker}."""

import pathlib
import re
import sys

from class_sizes import sizes

REPO = pathlib.Path(__file__).resolve().parents[2]
MAY_INCLUDE = {
    "proto": {"proto"},
    "rendezvous": {"proto", "rendezvous"},
    "launcher": {"proto", "rendezvous", "launcher"},
    "worker": {"proto", "rendezvous", "worker"},
}
# The folders of each room, bottom to top: a file includes only its own folder and those before it. The room's own files
# (its programs) come last. Of the worker's room, library/ is what libddprun is made of, and train/ stands upon it.
FOLDERS = {
    "rendezvous": """base process tcpstore values security membership observe store wire streams journal etcd proxy client listener
        service election""".split(),
    "launcher": """base options node runs chaos supervisor ctl top web replay simulate notices command_line placement collectives output
        processes notify trace hang workers agent hosts doctor commands""".split(),
    "worker": [
        "include",
        *(f"library/{name}" for name in "base files math accelerator rounds distributed ddp progress checkpoint core".split()),
        *(f"train/{name}" for name in """config kernels data datasets loader layers models metrics profile export pipeline plot
            optimizer speedrun parallel step replicas evaluation observers training app""".split()),
        "python",
        "examples",
    ],
}
WINGS = {"worker/library", "worker/train"}
# What is within libddprun for a program's ranks to work together. `train` has it through the public headers, as any other program
# has; only where its process enters and leaves rounds on a GPU too, it reaches further than Main() does.
LIBRARY_INSIDES = {f"worker/library/{name}" for name in ("distributed", "ddp", "rounds", "progress", "core")}
# What the worker's room may include of rendezvous: nothing there knows gRPC or Protobuf.
FOR_WORKERS = {"base", "tcpstore", "values"}
MAY_LOOK_INSIDE = {"worker/train/app/train_command.cc", "worker/train/app/setup.cc"}
FILES_PER_FOLDER_MAX = 25
MEMBERS_PER_CLASS_MAX = 25
METHODS_PER_CLASS_MAX = 40
LINES_PER_FILE_MAX = 500
LINES_OF_LOOP_MAX = 200
# The pure cores, functions of state, event and now, are the files whose header says "pure" at its top, and these, which belong to
# one that does. (<csignal> gives them names for numbers.)
CORES = (
    "rendezvous/membership/join_rules",
    "rendezvous/membership/membership_preemption",
    "rendezvous/membership/operator_rules",
    "rendezvous/membership/rank_assignment",
    "rendezvous/membership/rank_reports",
    "rendezvous/membership/report_rules",
    "rendezvous/membership/roster",
    "rendezvous/membership/rounds",
    "rendezvous/membership/waiting_nodes",
    "rendezvous/tcpstore/request_reader",
    "launcher/supervisor/supervisor_notices",
    "launcher/supervisor/supervisor_stepper",
    "launcher/supervisor/supervisor_stopping",
    "launcher/supervisor/supervisor_texts",
    "launcher/hosts/hosts_gathering",
    "launcher/hosts/hosts_stepper",
)
CORES_MIN = 90  # that many there are
IMPURE = re.compile(
    r'#include\s*[<"](grpc|google/|torch/|ATen/|c10/|spdlog|thread|mutex|condition_variable|atomic|random|fstream|'
    r"iostream|cstdio|unistd|sys/|fcntl|poll|absl/synchronization|absl/time/clock)|"
    r"\b(steady_clock|system_clock)::now\("
)
INCLUDE = re.compile(r'^\s*#\s*include\s*"((?:proto|rendezvous|launcher|worker|tests)/[^"]+)"', re.MULTILINE)


def sources(room):
    return sorted(path for path in (REPO / room).rglob("*") if path.suffix in (".h", ".cc"))


def test_every_room_has_sources_and_a_readme():
    for room in MAY_INCLUDE:
        assert sources(room), room
        assert (REPO / room / "README.md").is_file(), room


def test_rooms_include_only_what_they_may():
    wrong = []
    for room, allowed in MAY_INCLUDE.items():
        for path in sources(room):
            for included in INCLUDE.findall(path.read_text()):
                if included.split("/")[0] not in allowed:
                    wrong.append(f"{path.relative_to(REPO)} includes {included}")
    assert not wrong, wrong


def test_workers_include_only_the_plain_folders_of_rendezvous():
    for path in sources("worker"):
        for included in INCLUDE.findall(path.read_text()):
            if included.startswith("rendezvous/"):
                assert included.split("/")[1] in FOR_WORKERS, f"{path.relative_to(REPO)} includes {included}"
    wire = re.compile(r'#include\s*[<"](google/|grpc|proto/(ddprun|journal)\.|proto/limits/)')
    for folder in FOR_WORKERS:
        for path in (REPO / "rendezvous" / folder).glob("*.[hc]*"):
            assert not wire.search(path.read_text()), path


def folder(path):
    """That of FOLDERS which holds the file, or the room's name for the room's own files."""
    room, *parts = path.relative_to(REPO).parent.parts
    return "/".join(parts[:2] if f"{room}/{parts[0]}" in WINGS else parts[:1]) if parts else room


def folders_within(path):
    return {str(one.relative_to(REPO)) for one in path.iterdir() if one.is_dir()}


def test_folders_include_only_those_before_them():
    wrong = []
    for room, folders in FOLDERS.items():
        found = folders_within(REPO / room)
        found = found - WINGS | {one for wing in found & WINGS for one in folders_within(REPO / wing)}
        assert found == {f"{room}/{name}" for name in folders}
        order = [*folders, room]
        for path in sources(room):
            for included in INCLUDE.findall(path.read_text()):
                if included.split("/")[0] == room and order.index(folder(REPO / included)) > order.index(folder(path)):
                    wrong.append(f"{path.relative_to(REPO)} includes {included}")
    assert not wrong, wrong


def test_train_is_made_upon_the_public_headers():
    looking = set()
    for path in sources("worker/train"):
        if any(included.rpartition("/")[0] in LIBRARY_INSIDES for included in INCLUDE.findall(path.read_text())):
            looking.add(str(path.relative_to(REPO)))
    assert looking == MAY_LOOK_INSIDE


def test_folders_and_files_are_small():
    for room in MAY_INCLUDE:
        for folder in {path.parent for path in sources(room)}:
            files = [path for path in folder.iterdir() if path.is_file()]
            assert len(files) <= FILES_PER_FOLDER_MAX, f"{folder.relative_to(REPO)} has {len(files)} files"
        for path in sources(room):
            lines = len(path.read_text().splitlines())
            assert lines <= LINES_PER_FILE_MAX, f"{path.relative_to(REPO)} has {lines} lines"


def test_the_training_loop_is_one_screen():
    """A LibTorch user reads the whole loop in one file; all else follows its events."""
    loop = (REPO / "worker/train/step/training_loop.cc").read_text()
    assert len(loop.splitlines()) <= LINES_OF_LOOP_MAX
    steps = ["BeginEpoch(", "OnStepBegin", "ForwardBackward(", "BeforeUpdate", "optimizer.Step(", "average->Update("]
    places = [loop.index(step) for step in steps]
    assert places == sorted(places), "the loop does not read in the order of what it does"


def test_no_file_sees_both_torch_and_protobuf():
    """The wheel carries protobuf headers of another version than the system's."""
    torch = re.compile(r'#include\s*[<"](torch|ATen|c10)/')
    wire = re.compile(r'#include\s*[<"](google/protobuf|grpc|proto/(ddprun|journal)\.)')
    for room in MAY_INCLUDE:
        for path in sources(room):
            text = path.read_text()
            assert not (torch.search(text) and wire.search(text)), path
            if room == "worker":
                assert not wire.search(text), path
            else:
                assert not torch.search(text), path


def test_a_name_is_that_of_one_class():
    """The linker merges what two classes of one name have inline, such as their destructors, and says nothing."""
    declared = re.compile(r"^(?:class|struct)\s+(?:ABSL_\w+\s+)?(\w+)(?:\s+final)?\s*(?::[^{;()]*)?\{", re.MULTILINE)
    shared = [path for room in ("proto", "rendezvous") for path in sources(room)]
    for_workers = [path for path in shared if path.parent.name in FOR_WORKERS]
    for linked in ([*shared, *sources("launcher")], [*for_workers, *sources("worker")]):
        places = {}
        for path in (path for path in linked if path.suffix == ".h"):
            for name in declared.findall(path.read_text()):
                places.setdefault(name, []).append(str(path.relative_to(REPO)))
        assert len(places) > 200
        assert not {name: where for name, where in places.items() if len(where) > 1}


def test_classes_hold_what_one_can_keep_in_mind():
    found = [(path, *one) for room in MAY_INCLUDE for path in sources(room) if path.suffix == ".h" for one in sizes(path.read_text())]
    assert len(found) > 200
    large = [one for one in found if one[2] > MEMBERS_PER_CLASS_MAX or one[3] > METHODS_PER_CLASS_MAX]
    assert not large, large


def test_the_sizes_of_classes_are_counted():
    header = """
    class One final : public Base {
     public:
      explicit One(int a);  // a constructor
      ~One() { Close(); }
      int Value() const { return value_; }
      template <typename T> void Take(const std::map<int, T>& all = {});
      void operator()(const A&);
      void operator()(const B&) {}

     private:
      struct Inner { int x_; void F(); };
      enum class State { kOpen };
      static constexpr int kMax = 3;
      int value_ ABSL_GUARDED_BY(mutex_) = Compute(1);
      std::function<void(int)> on_end_;
      const Thing thing_{value_};
    };
    """
    assert list(sizes(header)) == [("One", 3, 3)]


def cores():
    """Without their suffixes. Of the worker's room they compute with tensors."""
    headers = [path for room in MAY_INCLUDE for path in sources(room) if path.suffix == ".h"]
    saying = [path for path in headers if re.search(r"\bpure\b", path.read_text().split("#pragma once")[0], re.I)]
    return {*CORES, *(str(path.relative_to(REPO).with_suffix("")) for path in saying)}


def test_cores_are_pure():
    assert len(cores()) >= CORES_MIN
    for core in cores():
        paths = [REPO / (core + suffix) for suffix in (".h", ".cc") if (REPO / (core + suffix)).exists()]
        assert paths, core
        for path in paths:
            found = [one for one in IMPURE.findall(path.read_text()) if not (core.startswith("worker/") and one[0] == "ATen/")]
            assert not found, f"{path.relative_to(REPO)}: {found}"


def test_every_source_names_its_licence():
    listed = [path for room in (*MAY_INCLUDE, "tests", "deploy") for path in (REPO / room).rglob("*")]
    for path in listed:
        if path.suffix in (".h", ".cc", ".py", ".sh", ".proto"):
            assert "SPDX-License-Identifier: Apache-2.0" in "\n".join(path.read_text().splitlines()[:4]), path


def test_links_of_the_readmes_lead_somewhere():
    for readme in [REPO / "README.md", *(page for room in MAY_INCLUDE for page in (REPO / room).rglob("*.md"))]:
        prose = re.sub(r"^```.*?^```", "", readme.read_text(), flags=re.MULTILINE | re.DOTALL)  # a lambda looks like a link
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
            if "://" not in link:
                assert (readme.parent / link).exists(), f"{readme.relative_to(REPO)}: {link}"


ROOMS = (*MAY_INCLUDE, "tests", "deploy")
PAGES = [*REPO.glob("*.md"), *(page for room in ROOMS for page in sorted((REPO / room).rglob("*.md")))]
OTHERS_PATHS = {"torch/torch.h", "test_store.py"}  # of PyTorch


def missing_paths(text, known):
    """The backticked paths of a page that `known`, the files and folders of the repository, does not have: those that begin with a
    room, and names of sources, which may be given from any folder on. A word in capitals is a placeholder."""
    missing = []
    for quoted in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        source = re.fullmatch(r"[\w./-]+\.(h|cc|cu|cuh|py|sh|proto|cmake|\{h,cc\})", quoted)
        if not source and not (re.fullmatch(r"[\w./-]+", quoted) and quoted.startswith(tuple(f"{room}/" for room in ROOMS))):
            continue
        if quoted in OTHERS_PATHS or any(re.fullmatch(r"[A-Z]+", part) for part in quoted.split("/")):
            continue
        stem, braces, _ = quoted.partition("{h,cc}")
        for path in (stem + "h", stem + "cc") if braces else (quoted.removeprefix("./").rstrip("/"),):
            if "/" + path not in known and not (source and any(one.endswith("/" + path) for one in known)):
                missing.append(path)
    return missing


def known_paths():
    return {f"/{path.relative_to(REPO)}" for room in ROOMS for path in (REPO / room).rglob("*")} | {f"/{p.name}" for p in REPO.iterdir()}


def test_backticked_paths_of_the_documents_exist():
    known = known_paths()
    missing = {str(page.relative_to(REPO)): found for page in PAGES if (found := missing_paths(page.read_text(), known))}
    assert not missing, missing


def test_a_backticked_path_that_does_not_exist_is_found():
    known = known_paths()
    right = "`proto/version.h`, `version.h`, `worker/train/config/`, `proto/version.{h,cc}`, `torch/torch.h`, `worker/NAME`, `a.b(c)`"
    assert missing_paths(right, {*known, "/proto/version.cc"}) == []
    wrong = "`proto/versions.h`, `versions.h`, `worker/confg/`, `proto/version.{h,cc}`, `config/version.h`"
    assert missing_paths(wrong, known) == ["proto/versions.h", "versions.h", "worker/confg", "proto/version.cc", "config/version.h"]


def names_not_held(text):
    """(task, name) of CONTRIBUTING's tasks ("**A flag** ... - `file`: `Name` ...") for each backticked name of the code that no file of
    the same task holds."""
    files = {f"/{path.relative_to(REPO)}": path for room in ROOMS for path in (REPO / room).rglob("*") if path.is_file()}
    wrong = []
    for task, body in re.findall(r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|\Z)", text, re.MULTILINE | re.DOTALL):
        quoted = re.findall(r"`([^`\n]+)`", body)
        named = {path for one in quoted for path in (one.replace("{h,cc}", "h"), one.replace("{h,cc}", "cc"), one.replace(".h", ".cc"))}
        held = [path.read_text() for name, path in files.items() if any("." in one and name.endswith("/" + one) for one in named)]
        for name in quoted:
            word = re.fullmatch(r"(?:\w+(?:::|\.))?([A-Za-z]\w+)(\(\))?", name)
            if word and (word[2] or re.search(r"[a-z][A-Z]", word[1])) and not any(re.search(rf"\b{word[1]}\b", one) for one in held):
                wrong.append((task, name))
    return wrong


def test_files_named_for_a_task_hold_the_names_given():
    tasks = (REPO / "CONTRIBUTING.md").read_text().partition("## Adding things")[2]
    assert tasks.count("\n**") >= 10
    assert not names_not_held(tasks)
    wrong = "**A version**\n- `proto/version.h`: `kProtocolVersion`, `kProtocolAge`, `Says()`\n**B**\n- `CheckJoin()`"
    assert names_not_held(wrong) == [("A version", "kProtocolAge"), ("A version", "Says()"), ("B", "CheckJoin()")]


def test_mutants_still_apply():
    """Whether the simulation catches them is a nightly test (tests/simulation/mutants.py)."""
    sys.path.insert(0, str(REPO / "tests" / "simulation"))
    import mutants

    for path in sorted((REPO / "tests" / "simulation" / "mutants").glob("*.txt")):
        mutant = mutants.read(path)
        count = (REPO / mutant["file"]).read_text().count(mutant["old"])
        assert count == 1, f"the text of {path.name} is found {count} times in {mutant['file']}"


def test_files_with_nightly_tests_are_registered_as_such():
    registered = set(re.findall(r"ddprun_add_pytest\((\w+)[^)]*MARKED_NIGHTLY", (REPO / "tests/e2e/CMakeLists.txt").read_text()))
    marked = re.compile(r"pytest\.mark\.nightly|@each_version\(")
    found = {path.stem.removeprefix("test_") for path in (REPO / "tests/e2e").glob("test_*.py") if marked.search(path.read_text())}
    assert found - {"tree"} == registered


def test_every_guarantee_of_the_readme_has_a_row():
    text = (REPO / "README.md").read_text().partition("Guaranteed, each by a test:\n")[2].partition("Not guaranteed:")[0]
    guarantees = len(re.findall(r"^- ", text, re.MULTILINE))
    table = (REPO / "tests/NIGHTLY.md").read_text().partition("## Guarantees")[2]
    rows = [line.split(" | ") for line in table.splitlines() if re.match(r"\| \d+[a-z]? ", line)]
    assert {int(re.match(r"\| (\d+)", row[0])[1]) for row in rows} == set(range(1, guarantees + 1))
    listed = "\n".join(path.read_text() for path in (REPO / "tests").rglob("CMakeLists.txt"))
    suites = "\n".join(path.read_text() for folder in ("unit", "integration") for path in (REPO / "tests" / folder).rglob("*.cc"))
    for row in rows:
        assert re.search(r"`\w+\.\w+`", row[2]), f"no CI test: {row[1]}"
        for label, name in re.findall(r"`(\w+)\.(\w+)`", row[2] + row[3]):
            where = suites if label in ("unit", "integration") and name != "tree" else listed
            assert re.search(rf"\b{name}\b", where), f"there is no test {label}.{name}"


def test_every_file_of_tests_is_run():
    listed = (REPO / "tests/e2e/CMakeLists.txt").read_text()
    names = [path.stem.removeprefix("test_") for path in (REPO / "tests/e2e").glob("test_*.py")]
    assert [name for name in names if not re.search(rf"\b{name}\b", listed)] == []
