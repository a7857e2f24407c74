# SPDX-License-Identifier: Apache-2.0
"""The commands of the book's pages, and how a page is run from its first command to its last.

Blocks that begin with ```sh or ```console are run, page by page in one shell and one folder, in which the repository's folders
and the page's programs are. What a block of ```console shows below a command must be in the command's output, numbers apart (`…` in a
word, and lines of `...` alone, are anything). A comment before a block says what is different there:

    <!-- run: exit N -->                  its last command ends with N
    <!-- run: together -->                each line is a node of one run: all at the same time
    <!-- run: dry-run, REASON -->         ddprun only says what it would start
    <!-- run: stand-in, REASON -->        docker, sbatch and srun are book_stand_in.py, which checks the flags
    <!-- run: by TEST, REASON -->         another test runs it
"""

import dataclasses
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys

from conftest import BIN, BUILD, PYTHON, REPO, clean_environment

BOOK = REPO / "deploy" / "book"
PAGES = BOOK / "pages"
RUN = ("sh", "console")
# Blocks of other languages are shown only.
SHOWN = ("text", "python", "cpp", "yaml", "json", "cmake", "ini")
BLOCK = re.compile(r"(?:^<!-- run: (?P<mark>[^>]*?) -->\n+)?^```(?P<language>\S*).*\n(?P<text>(?:.*\n)*?)^```$", re.MULTILINE)
FILE = re.compile(r"^<!-- include: (\S+) as (\S+) -->$", re.MULTILINE)
# The address of the first machine in the pages; there is one such in the page's network.
FIRST_MACHINE = "10.0.0.1"


@dataclasses.dataclass
class Command:
    text: str
    shown: list  # lines of its output
    line: int  # in the page
    mark: str  # exit, together, dry-run, stand-in, by; or nothing
    about: str  # of the mark
    last: bool  # of its block


def blocks_of(page):
    text = (PAGES / page).read_text()
    for match in BLOCK.finditer(text):
        yield match, text.count("\n", 0, match.start("text")) + 1


def split_console(text):
    """(command, [lines of output]) of a block of ```console."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and line.startswith("> ") and not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0] + "\n" + line[2:], [])
        elif found:
            found[-1][1].append(line)
    return found


def commands_of(page):
    found = []
    for match, line in blocks_of(page):
        if match["language"] not in RUN:
            continue
        mark, _, about = (match["mark"] or "").partition(" ")
        mark = mark.rstrip(",")
        pieces = split_console(match["text"]) if match["language"] == "console" else [(match["text"], [])]
        for index, (command, shown) in enumerate(pieces):
            found.append(Command(command, shown, line, mark, about, index == len(pieces) - 1))
    return found


def in_background(text):
    """Each command of a block started at once, and all of them waited for."""
    lines = [line for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(["nodes=", *[f"{line} &\nnodes=\"$nodes $!\"" for line in lines], "for node in $nodes; do wait $node; done"])


def script_of(commands):
    lines = []
    for number, command in enumerate(commands):
        if command.mark == "by":
            continue
        text = in_background(command.text) if command.mark == "together" else command.text
        lines += [f"echo; echo @@ {number} begins; failed=0; trap 'failed=$?' ERR"]
        if command.mark == "dry-run":
            lines += ["export PET_DRY_RUN=1"]
        if command.mark == "stand-in":
            lines += ["before=$PATH; PATH=$STAND_INS:$PATH"]
        # (A command that fails before && is none to the trap.)
        lines += [text, "last=$?; [ $failed != 0 ] || failed=$last"]
        if command.mark == "stand-in":
            lines += ["PATH=$before"]
        lines += [f"trap - ERR; unset PET_DRY_RUN; echo; echo @@ {number} ends $failed"]
    return "\n".join([*lines, "kill $(jobs -p) 2>/dev/null; wait", ""])


def make_folder(page, folder):
    """What a reader has: the clone's folders, and the page's programs under the names that it gives them."""
    for name in ("deploy", "launcher", "worker", "tests"):
        (folder / name).symlink_to(REPO / name)
    (folder / "build").mkdir()
    (folder / "build" / "bin").symlink_to(BIN)
    for source, name in FILE.findall((PAGES / page).read_text()):
        (folder / name).symlink_to(REPO / source)


def make_cifar10(folder):
    """Records of the binary version, of noise: 500 images to train with."""
    folder.mkdir(parents=True)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        noise = os.urandom(3072)
        (folder / name).write_bytes(b"".join(bytes([i % 10]) + noise for i in range(100)))


def own_network():
    """What runs a command in a network of its own that has FIRST_MACHINE, where that is allowed; else nothing."""
    prefix = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--"]
    set_up = "ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip link set eth0 up"
    set_up += f" && ip addr add {FIRST_MACHINE}/24 dev eth0"
    if shutil.which("unshare") is None or subprocess.run([*prefix, "sh", "-c", set_up], capture_output=True).returncode != 0:
        return None
    return [*prefix, "bash", "-c", f'{set_up} && exec "$@"', "bash"]


def on_two_cpus():
    """Of a process before it becomes the shell: `--nproc-per-node auto` starts two workers on every machine."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, random.sample(cpus, min(2, len(cpus))))


def environment_of(folder, tmp_path):
    stand_ins = tmp_path / "stand-ins"
    stand_ins.mkdir()
    for name in ("docker", "sbatch", "srun"):
        words = shlex.join([sys.executable, f"{REPO}/tests/e2e/book_stand_in.py", name])
        (stand_ins / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (stand_ins / name).chmod(0o755)
    make_cifar10(tmp_path / "cache" / "data" / "cifar-10-batches-bin")
    home = tmp_path / "home"
    home.mkdir()
    env = clean_environment(STAND_INS=str(stand_ins), HOME=str(home), DDPRUN_CACHE_DIR=str(tmp_path / "cache"))
    del env["DDPRUN_TOKEN"]  # readers have none, until a page makes one
    env.update(PATH=f"{BIN}:{env['PATH']}", OMP_NUM_THREADS="1", LC_ALL="C.UTF-8", DDPRUN_BUILD_DIR=str(BUILD))
    env["CUDA_VISIBLE_DEVICES"] = ""  # the pages show what a machine without GPUs prints
    # What mpirun's flags --allow-run-as-root, --oversubscribe and --bind-to none say.
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    env.update(OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none")
    # Python's frameworks ask no server for anything.
    env.update(HF_HUB_OFFLINE="1", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore", PYTHONPATH=PYTHON)
    return env


def pattern_of(line):
    """The line with any other numbers: a word that has a digit, or "…" in it, is any word, and "(…)" any words in parentheses."""
    words = [r"\(.*\)" if word == "(…)" else r"\S+" if re.search(r"[\d…]", word) else re.escape(word) for word in line.split()]
    return re.compile(r"\s*" + r"\s+".join(words))


def missing_lines(command, output):
    lines = output.splitlines()
    wanted = [line for line in command.shown if line.strip() and line.strip() != "..."]
    return [line for line in wanted if not any(pattern_of(line).match(said) for said in lines)]


def run_page(page, tmp_path, timeout):
    """Runs all commands of a page. Returns what was wrong, a text for each."""
    commands = commands_of(page)
    folder = tmp_path / "here"
    folder.mkdir()
    make_folder(page, folder)
    script = script_of(commands)
    network = own_network()
    if network is None:
        script = script.replace(FIRST_MACHINE, "127.0.0.1")
    path = tmp_path / "page.sh"
    path.write_text(script)
    log = tmp_path / "output.txt"
    with log.open("w") as output:
        done = subprocess.run(
            [*(network or []), "timeout", "--kill-after=5", str(timeout), "bash", str(path)],
            preexec_fn=on_two_cpus, cwd=folder, env=environment_of(folder, tmp_path), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )
    said = log.read_text(errors="replace")
    return judge(page, commands, said, done.returncode)


def judge(page, commands, said, code):
    wrong = []
    for number, command in enumerate(commands):
        if command.mark == "by":
            continue
        part = re.search(rf"^@@ {number} begins\n(.*?)^@@ {number} ends (\d+)$", said, re.MULTILINE | re.DOTALL)
        where = f"{page}:{command.line}: {command.text.strip()}"
        if not part:
            return [*wrong, f"{where}\ndid not end (the shell: {code}):\n{said[-4000:]}"]
        wanted = int(command.about) if command.mark == "exit" and command.last else 0
        if int(part.group(2)) != wanted:
            wrong.append(f"{where}\nended with {part.group(2)} and not {wanted}:\n{part.group(1)[-4000:]}")
        elif missing := missing_lines(command, part.group(1)):
            wrong.append(f"{where}\ndid not print {missing} but\n{part.group(1)[-4000:]}")
    return wrong


def pages():
    return sorted(str(pathlib.PurePosixPath(path.relative_to(PAGES))) for path in PAGES.rglob("*.md"))
