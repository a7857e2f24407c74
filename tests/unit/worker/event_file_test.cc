// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/event_file.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ddprun {
namespace {

// Bit by bit, from the polynomial.
std::uint32_t Crc32c(const std::string& bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

std::uint32_t Masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <typename Number>
Number At(const std::string& bytes, std::size_t position) {
  Number number;
  std::memcpy(&number, bytes.data() + position, sizeof number);
  return number;
}

TEST(EventFile, TheTestsChecksumIsCrc32c) { EXPECT_EQ(Crc32c("123456789"), 0xe3069283u); }

TEST(EventFile, RecordCarriesLengthPayloadAndBothChecksums) {
  for (const std::string& payload :
       {std::string(), std::string("123456789"), std::string(300, 'x')}) {
    const std::string record = TfRecord(payload);
    ASSERT_EQ(record.size(), payload.size() + 16);
    EXPECT_EQ(At<std::uint64_t>(record, 0), payload.size());
    EXPECT_EQ(At<std::uint32_t>(record, 8), Masked(Crc32c(record.substr(0, 8))));
    EXPECT_EQ(record.substr(12, payload.size()), payload);
    EXPECT_EQ(At<std::uint32_t>(record, 12 + payload.size()), Masked(Crc32c(payload)));
  }
}

// What TensorBoard's own generated classes give: Event(wall_time=1.5, step=300,
// ...).SerializeToString().
TEST(EventFile, EventsAreTensorBoardsBytes) {
  const std::string head("\x09\0\0\0\0\0\0\xf8\x3f\x10\xac\x02", 12);
  EXPECT_EQ(StartEvent(300, 1.5), head + "\x3a\x02\x08\x01");
  EXPECT_EQ(ScalarsEvent(300, 1.5, {{"a", 0.5}, {"b/c", -2}}),
            head + std::string("\x2a\x16"
                               "\x0a\x08\x0a\x01"
                               "a\x15\0\0\0\x3f"
                               "\x0a\x0a\x0a\x03"
                               "b/c\x15\0\0\0\xc0",
                               24));
  EXPECT_EQ(FileVersionEvent(1.5),
            std::string("\x09\0\0\0\0\0\0\xf8\x3f\x10\0\x1a\x0d", 13) + "brain.Event:2");
}

TEST(EventFile, NameSortsBehindAllThatAreThere) {
  EXPECT_EQ(EventFileName({}, 1763000000, "host", 7), "events.out.tfevents.1763000000.host.7.0");
  // Two of one second, and a clock that was set back.
  EXPECT_EQ(
      EventFileName({"events.out.tfevents.1763000000.host.9.0", "other"}, 1763000000, "host", 7),
      "events.out.tfevents.1763000001.host.7.0");
  EXPECT_EQ(EventFileName({"events.out.tfevents.1763000500.host.9.0"}, 1763000000, "host", 7),
            "events.out.tfevents.1763000501.host.7.0");
}

}  // namespace
}  // namespace ddprun
