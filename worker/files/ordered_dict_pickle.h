// SPDX-License-Identifier: Apache-2.0
// Python's state_dict() is an OrderedDict with an attribute (_metadata). LibTorch's C++ Unpickler
// turns every OrderedDict into nothing, since it knows them only as tensors' unused hooks, and
// cannot apply attributes.
#pragma once

#include <string>

namespace ddprun {

// A pickle of an OrderedDict, rewritten to be of the pair (nothing, plain dict) without attributes,
// which the Unpickler can read; any other as it was. Throws std::runtime_error at an instruction
// that no state dict contains.
std::string WithPlainDict(std::string pickle);

}  // namespace ddprun
