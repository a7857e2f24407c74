// SPDX-License-Identifier: Apache-2.0
// What Nsight Systems is to a program: a library that NVTX loads by NVTX_INJECTION64_PATH. It
// writes down the ranges ("+forward", "-") for the test to read.
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string>& Events() {
  static std::vector<std::string> events;
  return events;
}

int Push(const char* name) {
  Events().push_back(std::string("+") + name);
  return 0;
}

int Pop() {
  Events().push_back("-");
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(Push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(Pop);
  return 1;
}

// Events so far, and the text of one.
extern "C" __attribute__((visibility("default"))) unsigned nvtx_recorder_size() {
  return static_cast<unsigned>(Events().size());
}
extern "C" __attribute__((visibility("default"))) const char* nvtx_recorder_event(unsigned index) {
  return Events()[index].c_str();
}
