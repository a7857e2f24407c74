// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/rgb_image.h"

namespace ddprun {

void CheckImageSize(ImageSize size, double bytes_per_pixel) {
  const std::string is = std::to_string(size.width) + "x" + std::to_string(size.height) + " pixels";
  if (size.height <= 0 || size.width <= 0) throw ImageError("claims to be " + is);
  const double bytes =
      static_cast<double>(size.height) * static_cast<double>(size.width) * bytes_per_pixel;
  if (bytes <= static_cast<double>(kImageBytesMax)) return;
  throw ImageError("is " + is + ", which take " +
                       std::to_string(static_cast<long>(bytes / 0x1p20)) +
                       " MiB of memory to decode, and at most " +
                       std::to_string(kImageBytesMax >> 20) + " MiB are used for an image",
                   "make the image smaller, remove the file, or pass --skip-damaged");
}

}  // namespace ddprun
