// SPDX-License-Identifier: Apache-2.0
// The frame of a program that trains as one rank of several.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "ddprun/world.h"

namespace ddprun {

struct MainOptions {
  World::Options world = {};
  // On a CPU under ddprun: when another rank ends, this process goes on in the next round instead
  // of being started anew (`--spares`, `--max-restarts`, `--nnodes MIN:MAX`). `train` is called
  // again then, with another world; Checkpoints::Resume() gives it the state of the latest step.
  bool keep = true;
  // malloc keeps freed memory instead of returning it to the kernel, as `train` has it: a step's
  // tensors are used again in the next one. The process then holds what it held at its peak.
  bool keep_freed_memory = false;
};

// Joins the world that the environment says (see World::Join()), calls `train` and leaves the
// world. Returns the program's exit code: 0, or what ended it, told in one sentence on stderr and
// in TORCHELASTIC_ERROR_FILE, where launchers look for it: 1 after an exception, 2 after
// std::invalid_argument, 128 + signal after a signal that Checkpoints has obeyed.
//
// All ranks return from `train` after the same collectives. Where one has returned, and another
// waits in a collective that it has not called, the other one ends within seconds and says so.
//
// `argv[0]` names the program in its messages; nothing else of the arguments is read. Reports to
// the agent where this rank is and where it waits, by two threads of its own. With `keep` a third
// one listens to the agent, and SIGPIPE is ignored, because Gloo writes to connections that were
// shut down. Throws nothing. Once in a process, on its first thread.
int Main(int argc, char** argv, const std::function<void(World&)>& train, MainOptions options = {});

// For a program without Main(): one sentence, a failure record for the launcher, an exit code.

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitSignal = 128;  // + its number

// Writes "PROGRAM: SENTENCE" to stderr and the sentence to TORCHELASTIC_ERROR_FILE, if that is set.
// Returns `code`. Throws nothing of its own; from any thread.
int ReportFailure(const std::string& program, const std::string& sentence, int code);

// The same of an exception, by Main()'s rules: what() up to its first line's end, and
// kExitUsage of std::invalid_argument, kExitSignal + signal of an end that a signal has asked for,
// else kExitFailure.
int ReportFailure(const std::string& program, const std::exception_ptr& error);

}  // namespace ddprun
