// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files, as far as scalars need them: TFRecord framing
// (tensorflow/core/lib/io/record_writer.h) around Event messages
// (tensorboard/compat/proto/event.proto, summary.proto). The messages have five fields in use, so
// they are encoded here, by the wire format of Protocol Buffers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

struct Scalar {
  std::string name;  // as TensorBoard groups them: "loss/train"
  double value = 0;
};

// `payload` as a record: its length, the length's masked CRC32C, itself, its masked CRC32C.
std::string TfRecord(std::string_view payload);

// The first event of each file. Times are seconds since 1970.
std::string FileVersionEvent(double time);

// Says that a run begins whose first event will be of `step`: what earlier files hold of it and of
// later steps is void. What SummaryWriter(purge_step=...) writes.
std::string StartEvent(std::int64_t step, double time);

// TensorBoard keeps values as 32-bit floats.
std::string ScalarsEvent(std::int64_t step, double time, const std::vector<Scalar>& scalars);

// A name that sorts behind all of `present` (names in the folder): TensorBoard reads the files of a
// folder in the order of their names, and of two in one second the process id could decide wrongly.
std::string EventFileName(const std::vector<std::string>& present, std::int64_t seconds,
                          const std::string& host, int process);

}  // namespace ddprun
