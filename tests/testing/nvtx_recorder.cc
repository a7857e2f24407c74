// SPDX-License-Identifier: Apache-2.0
// What Nsight Systems is to a program: a library that NVTX loads by NVTX_INJECTION64_PATH. It
// writes down the ranges ("+forward", "-forward") for the test to read.
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string>& Events() {
  static std::vector<std::string> events;
  return events;
}

// A range's number is its place here, counted from 1.
std::vector<std::string>& Names() {
  static std::vector<std::string> names;
  return names;
}

nvtxRangeId_t Start(const char* name) {
  Names().emplace_back(name);
  Events().push_back(std::string("+") + name);
  return Names().size();
}

void End(nvtxRangeId_t range) { Events().push_back("-" + Names().at(range - 1)); }

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangeEnd) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangeStartA] = reinterpret_cast<NvtxFunctionPointer>(Start);
  *table[NVTX_CBID_CORE_RangeEnd] = reinterpret_cast<NvtxFunctionPointer>(End);
  return 1;
}

// Events so far, and the text of one.
extern "C" __attribute__((visibility("default"))) unsigned nvtx_recorder_size() {
  return static_cast<unsigned>(Events().size());
}
extern "C" __attribute__((visibility("default"))) const char* nvtx_recorder_event(unsigned index) {
  return Events()[index].c_str();
}
