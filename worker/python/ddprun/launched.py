# SPDX-License-Identifier: Apache-2.0
"""The program that ddprun runs for launch():  launched.py FOLDER

Calls the function of that folder, and writes what it returns there."""

import os
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    # The package's folder is found, and its modules are not found as if they were no part of it.
    sys.path[:] = [os.path.dirname(here), *(entry for entry in sys.path if os.path.abspath(entry) != here)]

    from ddprun.failure_record import record
    from ddprun.payload import read_call, write_result

    @record
    def main(folder):
        function, args = read_call(folder)
        write_result(folder, function(*args))

    main(sys.argv[1])
