# SPDX-License-Identifier: Apache-2.0
"""In place of docker, sbatch and srun, for commands of the book: checks the flags, and what the command would start is dry-run.
What really starts is tested in test_containers.py, test_slurm.py and test_train_slurm.py."""

import os
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]


def take_flags(words, with_value, without_value):
    """([(flag, value)], the words after them); a flag that is not in the lists ends the command."""
    flags, words = [], list(words)
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if name in with_value:
            flags.append((name, value if equals else words.pop(0)))
        elif name in without_value:
            flags.append((name, ""))
        else:
            sys.exit(f"book_stand_in: {name} is not known here")
    return flags, words


def check_train(arguments, *config):
    subprocess.run(["train", *config, *arguments, "--print-config"], check=True, stdout=subprocess.DEVNULL)


def docker(words):
    if words[0] == "build":
        flags, rest = take_flags(words[1:], {"-f", "-t"}, set())
        assert (pathlib.Path(dict(flags)["-f"])).is_file() and len(rest) == 1, words
        return
    assert words[0] == "run", words
    flags, rest = take_flags(words[1:], {"-e", "-v", "-p", "--gpus", "--network", "--user"}, {"--rm"})
    image, *arguments = rest
    assert image == "ddprun", image
    if arguments[:1] == ["fetch-data"]:
        assert (REPO / "deploy" / "fetch-data.sh").is_file()
        return
    env = {name: os.environ[name] for name in ("PATH", "HOME")}
    env["DDPRUN_DEVICES"] = "/nowhere"  # where GPUs are looked for
    for flag, value in flags:
        if flag == "-e":
            name, equals, text = value.partition("=")
            env[name] = text if equals else os.environ[name]
    check_train(arguments)
    subprocess.run([REPO / "deploy" / "entrypoint.sh", *arguments], env={**env, "PET_DRY_RUN": "1"}, check=True)


def sbatch(words):
    flags, (script, *arguments) = take_flags(words, {"--nodes", "--time", "--partition", "--gpus-per-node"}, {"--test-only"})
    subprocess.run(["bash", "-n", script], check=True)
    check_train(arguments, "--config", os.environ.get("CONFIG", str(REPO / "deploy" / "config.yaml")))


def srun(words):
    _, command = take_flags(words, {"--nodes", "--ntasks-per-node", "--ntasks", "-n", "-N", "--gpus-per-task"}, set())
    if os.path.basename(command[0]) == "train":
        check_train(command[1:])
    else:
        subprocess.run(command, env={**os.environ, "PET_DRY_RUN": "1"}, check=True)


if __name__ == "__main__":
    {"docker": docker, "sbatch": sbatch, "srun": srun}[sys.argv[1]](sys.argv[2:])
