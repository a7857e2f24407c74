// SPDX-License-Identifier: Apache-2.0
// The parts of CollectMachineFacts(), each in a file of its own.
#pragma once

#include <string>

#include "launcher/base/small_file.h"
#include "launcher/doctor/doctor_facts.h"

namespace ddprun {

// doctor_machine.cc
void CollectLimitsAndKernel(NodeFacts& facts);
void CollectWorkers(const Options& options, NodeFacts& facts);

// doctor_software.cc
void CollectGpusAndLibraries(const std::string& own_folder, NodeFacts& facts);
// `python`: a program; what it has installed goes to `facts.packages`.
void CollectPackages(const std::string& python, NodeFacts& facts);

// 16 digits of SHA-256; "" on failure.
std::string HashOfText(absl::string_view text);
std::string HashOfFile(const std::string& path);

}  // namespace ddprun
