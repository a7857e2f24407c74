// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ddprun {

// Throws std::runtime_error, with one sentence that does not name the path, unless every entry of
// the zip archive is stored without compression and lies within the file, and all entries together
// claim no more bytes than the file has. Then no reader of the archive can be made to allocate more
// than that. torch.save() writes such archives only. Format: PKWARE's APPNOTE.TXT 4.3.12 to 4.3.16,
// with the ZIP64 records.
void CheckStoredZip(const std::string& path);

}  // namespace ddprun
