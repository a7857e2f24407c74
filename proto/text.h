// SPDX-License-Identifier: Apache-2.0
// Small text functions that several rooms need.
#pragma once

#include <cstddef>
#include <string>

namespace ddprun {

// "10.0.0.1:29500", "node-0:29500" or "[::1]:29500".
std::string HostPort(const std::string& host, int port);

// The first `bytes_max` bytes, or up to three fewer: never within a UTF-8 character, so that text
// that was valid stays valid, and cutting it again changes nothing.
std::string CutText(std::string text, std::size_t bytes_max);

// Line ends become spaces.
std::string OneLine(std::string text);

// A word as a shell reads it back, quoted if needed.
std::string ShellQuote(const std::string& word);

}  // namespace ddprun
