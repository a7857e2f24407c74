// SPDX-License-Identifier: Apache-2.0
// The element types of tensors: as PyTorch's flight recorder names them (c10::toString()), and as
// ddprun's messages do.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace ddprun {

struct ElementType {
  std::string_view recorded;
  std::string_view name;
  std::int64_t bytes;
};

// Null: it is not one of these.
inline const ElementType* FindElementType(std::string_view recorded) {
  static constexpr std::array<ElementType, 10> kTypes = {{{"Float", "float32", 4},
                                                          {"Double", "float64", 8},
                                                          {"Half", "float16", 2},
                                                          {"BFloat16", "bfloat16", 2},
                                                          {"Long", "int64", 8},
                                                          {"Int", "int32", 4},
                                                          {"Short", "int16", 2},
                                                          {"Byte", "uint8", 1},
                                                          {"Char", "int8", 1},
                                                          {"Bool", "bool", 1}}};
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(),
                   [recorded](const ElementType& type) { return type.recorded == recorded; });
  return found == kTypes.end() ? nullptr : &*found;
}

}  // namespace ddprun
