# SPDX-License-Identifier: Apache-2.0
"""The program that ddprun runs for pytorch_launcher_tests.py where a test gives a Python function, or arguments and
variables that differ by rank: `pytorch_launcher_worker.py JOB`. JOB is the folder of the pickled job."""

import importlib
import os
import pathlib
import pickle
import sys


def write(path, content):
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.rename(path)


def main():
    folder = pathlib.Path(sys.argv[1])
    job = pickle.loads((folder / "job").read_bytes())
    rank, local_rank = os.environ["RANK"], int(os.environ["LOCAL_RANK"])
    write(folder / f"pid{local_rank}", str(os.getpid()).encode())
    os.environ.update(job["envs"].get(local_rank, {}))
    arguments = job["args"][local_rank] if job["by_rank"] else job["args"]
    if job["command"]:
        os.execv(job["command"], [job["command"], *map(str, arguments)])
    sys.path.insert(0, job["folder"])
    function = getattr(importlib.import_module(job["module"]), job["function"])
    if job["module"] != "time":  # whose test is about the time
        from torch.distributed.elastic.multiprocessing.errors import record

        function = record(function)
    write(folder / f"value{rank}", pickle.dumps(function(*arguments)))


if __name__ == "__main__":
    main()
