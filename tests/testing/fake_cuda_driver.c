// SPDX-License-Identifier: Apache-2.0
// A driver of NVIDIA's (libcuda.so.1) that shows the devices of FAKE_CUDA_DEVICES and can do nothing
// with them, or does not start, with the error of FAKE_CUDA_ERROR: "3,a1" is two, whose UUIDs begin with 0x03 and 0xa1 and are zero otherwise. As the real
// one it reads its variable once, in cuInit().
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kInvalidValue = 1, kNoDevice = 100, kDevicesMax = 64 };

static unsigned char first_bytes[kDevicesMax];
static int count = 0;
static int initialised = 0;

__attribute__((visibility("default"))) int cuInit(unsigned flags) {
  (void)flags;
  const char* error = getenv("FAKE_CUDA_ERROR");
  if (error != NULL) return atoi(error);
  if (!initialised) {
    const char* next = getenv("FAKE_CUDA_DEVICES");
    while (next != NULL && *next != '\0' && count < kDevicesMax) {
      char* end = NULL;
      first_bytes[count++] = (unsigned char)strtoul(next, &end, 16);
      next = *end == ',' ? end + 1 : "";
    }
    initialised = 1;
  }
  return count > 0 ? kSuccess : kNoDevice;
}

__attribute__((visibility("default"))) int cuGetErrorString(int error, const char** text) {
  *text = error == 802 ? "system not yet initialized" : NULL;
  return *text == NULL ? kInvalidValue : kSuccess;
}

__attribute__((visibility("default"))) int cuDeviceGetCount(int* devices) {
  *devices = count;
  return kSuccess;
}

__attribute__((visibility("default"))) int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < count ? kSuccess : kInvalidValue;
}

__attribute__((visibility("default"))) int cuDeviceGetUuid(unsigned char* uuid, int device) {
  if (device < 0 || device >= count) return kInvalidValue;
  memset(uuid, 0, 16);
  uuid[0] = first_bytes[device];
  return kSuccess;
}
