// SPDX-License-Identifier: Apache-2.0
// Where the versions of LibTorch that ddprun is built with part (deploy/common.sh names them): each
// difference once, so that no other file asks for a version.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <utility>

namespace ddprun {

#define DDPRUN_TORCH_IS_FROM(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// What owns a node of autograd's graph.
#if DDPRUN_TORCH_IS_FROM(13)
template <class Node>
using NodePtr = c10::intrusive_ptr<Node>;
template <class Node, class... Arguments>
NodePtr<Node> MakeNode(Arguments&&... arguments) {
  return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
}
#else
template <class Node>
using NodePtr = std::shared_ptr<Node>;
template <class Node, class... Arguments>
NodePtr<Node> MakeNode(Arguments&&... arguments) {
  return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
}
#endif

// All ranks begin to count their collectives at the same number. From 2.14 on they do anyhow, and
// the call does nothing but print a warning.
template <class Backend>
void SetSequenceNumber([[maybe_unused]] Backend& backend) {
#if !DDPRUN_TORCH_IS_FROM(14)
  backend.setSequenceNumberForGroup();
#endif
}

}  // namespace ddprun
