// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/accelerators.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/base/small_file.h"

namespace ddprun {

std::vector<std::string> SortedEntries(const std::string& path) {
  std::vector<std::string> names;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

int NumberBehind(const std::string& prefix, const std::string& name) {
  absl::string_view digits = name;
  int number = -1;
  const bool is_one = absl::ConsumePrefix(&digits, prefix) && !digits.empty() &&
                      std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
                      absl::SimpleAtoi(digits, &number);
  return is_one ? number : -1;
}

int NodeOfPciDevice(const std::string& root, const std::string& address) {
  const std::string text =
      ReadSmallFile(absl::StrCat(root, "/sys/bus/pci/devices/", address, "/numa_node"));
  int node = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &node)) node = 0;
  return std::max(node, 0);
}

namespace {

bool MayUse(const std::string& path) { return access(path.c_str(), R_OK | W_OK) == 0; }

// The numbers of the files `prefix`0, `prefix`1 and so on, ascending.
std::vector<int> Numbers(const std::string& folder, const std::string& prefix) {
  std::vector<int> numbers;
  for (const std::string& name : SortedEntries(folder)) {
    if (const int number = NumberBehind(prefix, name); number >= 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The last part of what a link points to.
std::string NameOfTarget(const std::string& link) {
  std::array<char, 4096> target;
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  if (size <= 0) return "";
  const absl::string_view path(target.data(), static_cast<std::size_t>(size));
  const std::size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

// ---- AMD

// "name value" lines.
std::map<std::string, std::uint64_t> ParseProperties(const std::string& text) {
  std::map<std::string, std::uint64_t> properties;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    std::uint64_t value = 0;
    if (absl::SimpleAtoi(pair.second, &value)) properties.emplace(pair.first, value);
  }
  return properties;
}

// The kernel shows bus, device and function as one number. The parts of a divided GPU (MI300 in CPX
// mode) differ in functions that are no devices of the bus.
std::string PciAddress(std::uint64_t domain, std::uint64_t location) {
  return absl::StrFormat("%04x:%02x:%02x.0", domain, location >> 8 & 0xFF, location >> 3 & 0x1F);
}

}  // namespace

std::vector<Gpu> ReadRocmGpus(const std::string& root) {
  std::vector<Gpu> gpus;
  if (!MayUse(root + "/dev/kfd")) return gpus;
  const std::string folder = root + "/sys/class/kfd/kfd/topology/nodes";
  for (const int number : Numbers(folder, "")) {
    // A container's devices cgroup makes those of others unreadable.
    std::map<std::string, std::uint64_t> properties =
        ParseProperties(ReadSmallFile(absl::StrCat(folder, "/", number, "/properties")));
    if (properties["simd_count"] == 0) continue;  // a CPU
    const std::uint64_t minor = properties["drm_render_minor"];
    if (minor > 0 && !MayUse(absl::StrCat(root, "/dev/dri/renderD", minor))) continue;
    const std::uint64_t id = properties["unique_id"];
    gpus.push_back({.uuid = id == 0 ? "" : absl::StrFormat("GPU-%016x", id),
                    .node = NodeOfPciDevice(
                        root, PciAddress(properties["domain"], properties["location_id"]))});
  }
  return gpus;
}

// ---- Intel

namespace {

struct XpuCard {
  std::string address;
  int tiles = 1;
  // The processor's own is always here; its virtual functions are beside it.
  bool integrated() const { return absl::StartsWith(address, "0000:00:02."); }
};

int CountTiles(const std::string& device, const std::string& driver) {
  std::size_t tiles = 0;
  if (driver == "xe") {
    tiles = Numbers(device, "tile").size();
  } else {
    for (const int card : Numbers(device + "/drm", "card"))
      tiles = std::max(tiles, Numbers(absl::StrCat(device, "/drm/card", card, "/gt"), "gt").size());
  }
  return std::max(1, static_cast<int>(tiles));
}

}  // namespace

std::vector<Gpu> ReadXpus(const std::string& root, const XpuScope& scope) {
  std::vector<XpuCard> cards;
  for (const int number : Numbers(root + "/dev/dri", "renderD")) {
    if (!MayUse(absl::StrCat(root, "/dev/dri/renderD", number))) continue;
    const std::string device = absl::StrCat(root, "/sys/class/drm/renderD", number, "/device");
    const std::string driver = NameOfTarget(device + "/driver");
    if (driver != "xe" && driver != "i915") continue;
    XpuCard card{.address = NameOfTarget(device)};
    // An integrated one may have a second "gt" for media.
    if (scope.tiles && !card.integrated()) card.tiles = CountTiles(device, driver);
    cards.push_back(std::move(card));
  }
  const bool any_discrete = std::any_of(cards.begin(), cards.end(),
                                        [](const XpuCard& card) { return !card.integrated(); });
  std::erase_if(cards, [&](const XpuCard& card) {
    return card.integrated() && (any_discrete || !scope.integrated);
  });
  std::sort(cards.begin(), cards.end(),
            [](const XpuCard& a, const XpuCard& b) { return a.address < b.address; });
  std::vector<Gpu> gpus;
  for (const XpuCard& card : cards) {
    gpus.insert(gpus.end(), static_cast<std::size_t>(card.tiles),
                Gpu{.uuid = "", .node = NodeOfPciDevice(root, card.address)});
  }
  return gpus;
}

// ---- Ascend

namespace {

constexpr absl::string_view kHuawei = "0x19e5";
constexpr absl::string_view kAcceleratorClass = "0x1200";

// -1: on several. Which of them is /dev/davinci0 is only known to the driver's own tools.
int NodeOfAllNpus(const std::string& root) {
  int node = -1;
  for (const std::string& address : SortedEntries(root + "/sys/bus/pci/devices")) {
    const std::string folder = absl::StrCat(root, "/sys/bus/pci/devices/", address);
    if (!absl::StartsWith(ReadSmallFile(folder + "/vendor"), kHuawei) ||
        !absl::StartsWith(ReadSmallFile(folder + "/class"), kAcceleratorClass)) {
      continue;
    }
    const int own = NodeOfPciDevice(root, address);
    if (node >= 0 && node != own) return -1;
    node = own;
  }
  return node;
}

}  // namespace

std::vector<Gpu> ReadNpus(const std::string& root) {
  std::size_t count = 0;
  if (MayUse(root + "/dev/davinci_manager")) {
    for (const int number : Numbers(root + "/dev", "davinci"))
      count += MayUse(absl::StrCat(root, "/dev/davinci", number));
  }
  if (count == 0) return {};
  return std::vector<Gpu>(count, Gpu{.uuid = "", .node = NodeOfAllNpus(root)});
}

}  // namespace ddprun
