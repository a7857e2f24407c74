# SPDX-License-Identifier: Apache-2.0
# Precompiled headers for what does not include LibTorch (worker/torch_pch.cmake has that one): a file of the launcher
# spends a third of its compile time on Abseil, one of the service half of it on gRPC. One header for each kind of file:
#   ddprun_use_pch(TARGET core|grpc|test)
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows that each file includes what it uses; the preset dev has it.

# A precompiled header is valid for files with the same options only; programs would have -fPIE otherwise.
add_library(ddprun_pch_options INTERFACE)
target_compile_options(ddprun_pch_options INTERFACE -fPIC -pthread)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(ddprun_pch_options INTERFACE
    # ccache needs it to see what the header stands for.
    -fpch-preprocess
    # g++ 12 forgets in a precompiled header that std::string is a system's, and warns of what is not there (PR 105651).
    -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
endif()

set(DDPRUN_CORE_HEADERS
  <algorithm> <chrono> <functional> <map> <memory> <optional> <string> <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/match.h> <absl/strings/numbers.h>
  <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_split.h>
  <absl/synchronization/mutex.h>)

# ddprun_add_pch(KIND LIBS ... HEADERS ...)
function(ddprun_add_pch kind)
  cmake_parse_arguments(ARG "" "" "LIBS;HEADERS" ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${kind}_pch.cc)
  file(GENERATE OUTPUT ${source} CONTENT "// Carries the precompiled header; has nothing of its own.\n")
  add_library(ddprun_${kind}_pch OBJECT ${source})
  target_link_libraries(ddprun_${kind}_pch PRIVATE ddprun_warnings ddprun_pch_options ${ARG_LIBS})
  target_precompile_headers(ddprun_${kind}_pch PRIVATE ${ARG_HEADERS})
endfunction()

function(ddprun_use_pch target kind)
  target_link_libraries(${target} PRIVATE ddprun_pch_options)
  target_precompile_headers(${target} REUSE_FROM ddprun_${kind}_pch)
endfunction()
