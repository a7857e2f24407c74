// SPDX-License-Identifier: Apache-2.0
// One lambda for each kind of a variant, for std::visit.
#pragma once

namespace ddprun {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace ddprun
