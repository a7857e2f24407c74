// SPDX-License-Identifier: Apache-2.0
// Collects the facts of `ddprun doctor` about its own machine. Nothing here waits for another node;
// facts that cannot be determined keep their defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/doctor/doctor_rules.h"
#include "launcher/options/options.h"

namespace ddprun {

// Limits, kernel, GPUs and libraries, environment, program. `own_folder`: the folder of ddprun.
// Runs the Python of --python, if it is given.
void CollectMachineFacts(const Options& options, const std::string& own_folder, NodeFacts& facts);

// Interfaces and names. Needs `facts.address`.
void CollectNetworkFacts(const Options& options, NodeFacts& facts);

// In the order of the kernel; `up`: with a link.
std::vector<InterfaceFacts> ReadInterfaces();

// The process that listens at that TCP port: "python3 (pid 4711)", or "a program of another user".
std::string PortHolder(int port);

// ---- Parts of CollectMachineFacts()

void CollectGpusAndLibraries(const std::string& own_folder, NodeFacts& facts);
// Lists what `python`, a program, has installed in `facts.packages`.
void CollectPackages(const std::string& python, NodeFacts& facts);

// The bytes of a regular file, at most kHashedBytesMax of them; empty on failure. Only the pages
// that are used are read: libraries are large.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  absl::string_view bytes() const { return bytes_; }

 private:
  absl::string_view bytes_;
};

// ---- Pure parts

// How many default routes share the lowest metric, in /proc/net/route and /proc/net/ipv6_route.
int CountDefaultRoutes(absl::string_view route, absl::string_view ipv6_route);

// The inode of the socket that listens at the port, in /proc/net/tcp or tcp6.
std::optional<std::string> ListeningInode(absl::string_view table, int port);

// "2.27.7" from the bytes of the library; empty: not found.
std::string NcclVersionIn(absl::string_view bytes);

// "580.95.05" from /proc/driver/nvidia/version; empty: not found.
std::string DriverVersionIn(absl::string_view text);

// A variable as it is sent to other nodes: its value if it configures libraries, else kHashMark and
// a hash. Absent: its value differs between hosts by nature.
std::optional<std::string> ShownVariable(absl::string_view name, absl::string_view value);

}  // namespace ddprun
