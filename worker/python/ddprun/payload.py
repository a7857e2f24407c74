# SPDX-License-Identifier: Apache-2.0
"""How a call travels from launch() to the workers, and their results back: pickles in files of one private folder.

    FOLDER/call               what a worker needs before it loads the call, and the call
    FOLDER/results/ROUND/RANK what the function returned
"""

import contextlib
import importlib.util
import os
import pickle
import sys

_MAIN = b"_main__"  # in a pickle: something in it belongs to the main module, in a worker by the name of __mp_main__

# The main program that this worker imports now, from which launch() must not be called; None: it imports none.
importing = None


def write_call(folder, function, args):
    """pickle.PicklingError: the call cannot be sent; the text says why, and what to do."""
    source = None
    try:
        data = pickle.dumps((function, args))
    except Exception as error:  # of any class: objects have a say in how they are pickled
        data = _by_value(function, args, str(error))
    if _MAIN in data:
        source = _source_of_main()
        if hasattr(sys, "ps1") and importlib.util.find_spec("cloudpickle"):
            # An interactive session, and be it one that has a file: what was typed is not in it (`python -i FILE`, VS Code's cells).
            source = None
        if source is None:
            data = _by_value(function, args, "it is of a notebook or an interactive session, from which no other process can import it")
    path = [os.path.abspath(entry) for entry in sys.path]  # "" is the current folder
    with _created(os.path.join(folder, "call"), "the call") as file:
        pickle.dump({"sys_path": path, "sys_argv": sys.argv, **(source or {})}, file)
        file.write(data)


def read_call(folder):
    """(function, args). In a worker, whose main module becomes that of the caller where the call needs it."""
    global importing
    from multiprocessing import spawn

    path = os.path.join(folder, "call")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} is not on this host: ddprun.launch() starts the ranks of one node alone; call it on each node")
    with open(path, "rb") as file:
        preparation = pickle.load(file)
        main = importing = preparation.get("init_main_from_path") or preparation.get("init_main_from_name")
        spawn.prepare(preparation)
        importing = None
        try:
            return pickle.load(file)
        except AttributeError as error:
            if main is None:
                raise
            raise AttributeError(f"{error}; what the workers need must be at the top level of {main}, and not under "
                                 '`if __name__ == "__main__":`') from None


def write_result(folder, value):
    """pickle.PicklingError: the value cannot be sent."""
    rank, round_number = os.environ["RANK"], os.environ["DDPRUN_ROUND"]
    results = os.path.join(folder, "results", round_number)
    os.makedirs(results, exist_ok=True)
    part = os.path.join(results, f".{rank}")
    with _created(part, f"the result of rank {rank}") as file:
        _dump(value, file, rank)
    os.replace(part, os.path.join(results, rank))  # there whole, or not at all


def read_results(folder, round_number):
    """{rank: value} of the ranks of this node that returned in that round."""
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])  # its name in workers that imported it
    results = os.path.join(folder, "results", str(round_number))
    ranks = [int(name) for name in os.listdir(results) if name.isdigit()] if os.path.isdir(results) else []
    values = {}
    for rank in sorted(ranks):
        with open(os.path.join(results, str(rank)), "rb") as file:
            values[rank] = pickle.load(file)
    return values


@contextlib.contextmanager
def _created(path, what):
    try:
        with open(path, "wb") as file:
            yield file
    except OSError as error:
        raise OSError(error.errno, f"cannot write {what} to {path}: {error.strerror}; name a folder with more room by TMPDIR") from error


def _source_of_main():
    """How another process imports the main module, as multiprocessing has it. None: there is no file, or it is a package's
    __main__, which runs the program when it is imported."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return None if name.rpartition(".")[2] == "__main__" else {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    return {"init_main_from_path": os.path.abspath(path)} if path and os.path.isfile(path) else None


def _by_value(function, args, reason):
    name = getattr(function, "__qualname__", type(function).__name__)
    fact = f"ddprun.launch cannot send the call of {name} to the workers"
    try:
        import cloudpickle
    except ImportError:
        raise pickle.PicklingError(f"{fact}: {reason}; put functions at the top level of a .py file and import them, or install "
                                   "cloudpickle: pip install cloudpickle") from None
    try:
        return cloudpickle.dumps((function, args))
    except Exception as error:
        raise pickle.PicklingError(f"{fact}: {error}; open files, locks and connections within the function") from error


def _dump(value, file, rank):
    try:
        pickle.dump(value, file)
        return
    except OSError:
        raise  # a full disk
    except Exception as error:
        reason = error
    file.seek(0)
    file.truncate()
    try:
        import cloudpickle

        cloudpickle.dump(value, file)
    except ImportError:
        raise _unsendable(value, rank, reason) from None
    except OSError:
        raise
    except Exception as error:
        raise _unsendable(value, rank, error) from None


def _unsendable(value, rank, error):
    return pickle.PicklingError(f"the result of rank {rank}, a {type(value).__name__}, cannot be sent to the caller: {error}; return plain "
                                "data")
