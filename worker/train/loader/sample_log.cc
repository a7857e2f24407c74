// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loader/sample_log.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "worker/library/files/atomic_file.h"

namespace ddprun {
namespace {

std::string PathOf(const std::string& output_dir, int rank) {
  return std::filesystem::path(output_dir) / ("samples-" + std::to_string(rank) + ".jsonl");
}

// Lines of the steps up to `steps`; a last one that was cut off is none.
void KeepSteps(const std::string& path, std::int64_t steps) {
  std::error_code error;
  // To open a FIFO would wait for a writer, for ever.
  if (std::filesystem::is_other(std::filesystem::status(path, error)))
    throw std::runtime_error("cannot write " + path +
                             ": it is not a regular file; remove it, or leave out --log-samples");
  std::string kept;
  {
    std::ifstream file(path);
    std::string line;
    long long step = 0;
    while (std::getline(file, line) && !file.eof()) {
      if (std::sscanf(line.c_str(), "{\"step\": %lld,", &step) == 1 && step <= steps)
        kept += line + "\n";
    }
  }
  WriteFile(path, kept);
}

}  // namespace

SampleLog::SampleLog(const Options& options) {
  const std::string path = PathOf(options.output_dir, options.rank);
  KeepSteps(path, options.steps);
  if (options.rank == 0) {
    for (int rank = options.world_size; std::filesystem::exists(PathOf(options.output_dir, rank));
         ++rank)
      KeepSteps(PathOf(options.output_dir, rank), options.steps);
  }
  file_ = std::fopen(path.c_str(), "ae");
  if (file_ == nullptr)
    throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
}

SampleLog::~SampleLog() { std::fclose(file_); }

void SampleLog::Add(std::int64_t step, std::int64_t epoch, const std::vector<Sample>& samples) {
  std::string line = "{\"step\": " + std::to_string(step) +
                     ", \"epoch\": " + std::to_string(epoch) + ", \"images\": [";
  for (std::size_t i = 0; i < samples.size(); ++i)
    line += (i == 0 ? "" : ", ") + std::to_string(samples[i].index);
  line += "]}\n";
  std::fwrite(line.data(), 1, line.size(), file_);
  std::fflush(file_);
}

}  // namespace ddprun
