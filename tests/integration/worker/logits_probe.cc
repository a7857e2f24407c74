// SPDX-License-Identifier: Apache-2.0
// Reads a saved model and images, writes the scores: for tests that compare them with another
// program's.
//   logits_probe MODEL shared|unshared STATE.pth IMAGES.f32 LOGITS.f32 [STEM]
// Images are N x 3 x 32 x 32 floats of this machine's byte order, scores N x 10.
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "worker/library/files/state_dict.h"
#include "worker/train/models/models.h"

namespace ddprun {
namespace {

at::Tensor ReadImages(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  constexpr std::size_t kImageBytes = 3 * 32 * 32 * sizeof(float);
  TORCH_CHECK(!bytes.empty() && bytes.size() % kImageBytes == 0, path,
              " does not hold whole images");
  const auto count = static_cast<std::int64_t>(bytes.size() / kImageBytes);
  return at::from_blob(const_cast<char*>(bytes.data()), {count, 3, 32, 32}, at::kFloat).clone();
}

void Run(const std::vector<std::string>& arguments) {
  const at::NoGradGuard no_grad;
  auto model = MakeModel(arguments[1], {.shared_blocks = arguments[2] == "shared",
                                        .stem = arguments.size() > 6 ? arguments[6] : "cifar"});
  LoadStateDict(*model, arguments[3]);
  model->eval();
  const at::Tensor scores = model->forward(ReadImages(arguments[4])).contiguous();
  std::ofstream file(arguments[5], std::ios::binary);
  file.write(static_cast<const char*>(scores.const_data_ptr()),
             static_cast<std::streamsize>(scores.nbytes()));
  TORCH_CHECK(file.flush(), "cannot write ", arguments[5]);
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) {
    std::fputs("usage: logits_probe MODEL shared|unshared STATE.pth IMAGES.f32 LOGITS.f32 [STEM]\n",
               stderr);
    return 2;
  }
  try {
    ddprun::Run({argv, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "logits_probe: %s\n", error.what());
    return 1;
  }
  return 0;
}
