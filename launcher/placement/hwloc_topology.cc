// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/topology.h"

#include <dlfcn.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// The name that goes with the headers: another one means another layout of hwloc's structs.
constexpr char kLibrary[] = "libhwloc.so.15";
static_assert(HWLOC_API_VERSION >= 0x20100 && HWLOC_API_VERSION < 0x30000,
              "kLibrary must name the library of hwloc.h's version");

// hwloc's functions, found by name when they are wanted.
struct Hwloc {
  decltype(&hwloc_topology_init) init;
  decltype(&hwloc_topology_set_flags) set_flags;
  decltype(&hwloc_topology_set_components) set_components;
  decltype(&hwloc_topology_load) load;
  decltype(&hwloc_topology_destroy) destroy;
  decltype(&hwloc_get_type_depth) depth_of;
  decltype(&hwloc_get_obj_by_depth) object;
  decltype(&hwloc_get_nbobjs_by_depth) count;
  decltype(&hwloc_bitmap_isset) is_set;
  decltype(&hwloc_bitmap_first) first;
};

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool FindAll(void* library, Hwloc& hwloc) {
  return Find(library, "hwloc_topology_init", hwloc.init) &&
         Find(library, "hwloc_topology_set_flags", hwloc.set_flags) &&
         Find(library, "hwloc_topology_set_components", hwloc.set_components) &&
         Find(library, "hwloc_topology_load", hwloc.load) &&
         Find(library, "hwloc_topology_destroy", hwloc.destroy) &&
         Find(library, "hwloc_get_type_depth", hwloc.depth_of) &&
         Find(library, "hwloc_get_obj_by_depth", hwloc.object) &&
         Find(library, "hwloc_get_nbobjs_by_depth", hwloc.count) &&
         Find(library, "hwloc_bitmap_isset", hwloc.is_set) &&
         Find(library, "hwloc_bitmap_first", hwloc.first);
}

// hwloc opens every plugin it finds, and those of CUDA and NVML load the driver, which takes longer
// than all the rest. A user's own choice stays.
class WithoutPlugins {
 public:
  WithoutPlugins() : set_(std::getenv(kVariable) == nullptr) {
    if (set_) setenv(kVariable, "/nonexistent", 0);
  }
  ~WithoutPlugins() {
    if (set_) unsetenv(kVariable);
  }
  WithoutPlugins(const WithoutPlugins&) = delete;
  WithoutPlugins& operator=(const WithoutPlugins&) = delete;

 private:
  static constexpr char kVariable[] = "HWLOC_PLUGINS_PATH";
  const bool set_;
};

// The lowest CPU below `object`; -1 for none.
int LowestCpu(const Hwloc& hwloc, hwloc_obj_t object) {
  return object == nullptr ? -1 : hwloc.first(object->cpuset);
}

// The ancestor of a PU that is of this type; null if the machine shows none.
hwloc_obj_t Ancestor(hwloc_obj_t pu, hwloc_obj_type_t type) {
  hwloc_obj_t object = pu;
  while (object != nullptr && object->type != type) object = object->parent;
  return object;
}

hwloc_obj_t LastLevelCache(hwloc_obj_t pu) {
  hwloc_obj_t last = nullptr;
  for (hwloc_obj_t object = pu->parent; object != nullptr; object = object->parent) {
    if (object->type >= HWLOC_OBJ_L1CACHE && object->type <= HWLOC_OBJ_L5CACHE) last = object;
  }
  return last;
}

// Where several nodes hold the same CPUs (main memory and HBM), the one with the lowest number is
// main memory.
int NodeOf(const Hwloc& hwloc, hwloc_topology_t topology, hwloc_obj_t pu) {
  int node = -1;
  const unsigned count = hwloc.count(topology, HWLOC_TYPE_DEPTH_NUMANODE);
  for (unsigned i = 0; i < count; ++i) {
    const hwloc_obj_t object = hwloc.object(topology, HWLOC_TYPE_DEPTH_NUMANODE, i);
    if (hwloc.is_set(object->cpuset, pu->os_index) == 0) continue;
    const int index = static_cast<int>(object->os_index);
    if (node < 0 || index < node) node = index;
  }
  return std::max(node, 0);
}

Topology Collect(const Hwloc& hwloc, hwloc_topology_t topology, const CpuSet& allowed) {
  Topology cpus;
  const int depth = hwloc.depth_of(topology, HWLOC_OBJ_PU);
  const unsigned count = hwloc.count(topology, depth);
  for (unsigned i = 0; i < count; ++i) {
    const hwloc_obj_t pu = hwloc.object(topology, depth, i);
    const int id = static_cast<int>(pu->os_index);
    if (!std::binary_search(allowed.begin(), allowed.end(), id)) continue;
    const hwloc_obj_t package = Ancestor(pu, HWLOC_OBJ_PACKAGE);
    const int core = LowestCpu(hwloc, Ancestor(pu, HWLOC_OBJ_CORE));
    cpus.push_back({.id = id,
                    .core = core < 0 ? id : core,
                    .cache = LowestCpu(hwloc, LastLevelCache(pu)),
                    .node = NodeOf(hwloc, topology, pu),
                    .package = package == nullptr ? 0 : static_cast<int>(package->os_index)});
  }
  std::sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) { return a.id < b.id; });
  return cpus;
}

}  // namespace

absl::StatusOr<Topology> ReadTopology(const CpuSet& allowed) {
  const std::unique_ptr<void, int (*)(void*)> library(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL),
                                                      &dlclose);
  Hwloc hwloc{};
  if (library == nullptr || !FindAll(library.get(), hwloc)) {
    return absl::NotFoundError(absl::StrCat("hwloc (", kLibrary,
                                            ") to know this machine's CPUs, and it is not "
                                            "installed here; install libhwloc15 (Debian, Ubuntu) "
                                            "or hwloc-libs, or leave the flag out"));
  }
  const WithoutPlugins without_plugins;
  hwloc_topology_t topology = nullptr;
  if (hwloc.init(&topology) != 0) return absl::ResourceExhaustedError("memory for hwloc");
  // CPUs that may not be used are asked for too: they say where a core or a cache begins. The x86
  // component would move this thread over all CPUs to learn what Linux has reported already.
  hwloc.set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc.set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  Topology cpus;
  if (hwloc.load(topology) == 0) cpus = Collect(hwloc, topology, allowed);
  hwloc.destroy(topology);
  if (cpus.empty()) {
    return absl::UnavailableError(
        "to know this machine's CPUs, and hwloc cannot read them; see what `lstopo` says, or leave "
        "the flag out");
  }
  return cpus;
}

}  // namespace ddprun
