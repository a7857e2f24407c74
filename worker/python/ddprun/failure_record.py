# SPDX-License-Identifier: Apache-2.0
"""Says why a worker failed, in torchelastic's format: the launcher's verdict then has the exception and its traceback."""

import contextlib
import faulthandler
import functools
import json
import os
import time
import traceback

_CHARACTERS_MAX = 65536  # of each text; the agent reads 1 MiB in all, and a character takes up to 6 bytes


def record(main):
    """As torch.distributed.elastic.multiprocessing.errors.record, without torch: an exception that leaves `main` is written to the
    file that the launcher names in TORCHELASTIC_ERROR_FILE, and raised again. A crash (SIGSEGV) prints the Python stack.

        @ddprun.record
        def main(): ...
    """

    @functools.wraps(main)
    def wrapper(*args, **kwargs):
        with contextlib.suppress(Exception):  # stderr may be no file
            faulthandler.enable(all_threads=True)
        try:
            return main(*args, **kwargs)
        except Exception as error:
            path = os.environ.get("TORCHELASTIC_ERROR_FILE")
            if path:
                with contextlib.suppress(OSError):  # the exception counts, not its record
                    _write(path, error)
            raise

    return wrapper


def _write(path, error):
    extra = {"py_callstack": _text(traceback.format_exc()[-_CHARACTERS_MAX:]), "timestamp": str(int(time.time()))}
    message = {"message": _text(f"{type(error).__name__}: {error}"[:_CHARACTERS_MAX]), "extraInfo": extra}
    part = f"{path}.{os.getpid()}"
    with open(part, "w") as file:
        json.dump({"message": message}, file)
    os.replace(part, path)  # there whole, or not at all


def _text(text):
    """Without the lone surrogates of odd file names, which readers of JSON reject."""
    return text.encode(errors="replace").decode()
