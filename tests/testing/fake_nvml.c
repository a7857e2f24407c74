// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library (libnvidia-ml.so.1), which shows the GPUs of the file FAKE_NVML, a
// line each:
//
//   UUID USED_PERCENT ECC_ERRORS REPAIR_PENDING REPAIR_FAILED        or        UUID lost
//
// `hang` instead of them: no call returns. The file is read at each nvmlInit_v2(), so that a test
// can repair a GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
enum {
  kSuccess = 0,
  kNotFound = 6,
  kDriverNotLoaded = 9,
  kLost = 15,
  kGpusMax = 16,
  kGiB = 1 << 30
};

struct gpu {
  char uuid[96];
  unsigned used, errors, pending, failed;
  int lost;
};
struct memory {
  unsigned long long total, free, used;
};
struct pci {
  char old_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};

static struct gpu gpus[kGpusMax];
static unsigned count;

SHOWN int nvmlInit_v2(void) {
  const char* path = getenv("FAKE_NVML");
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  char line[256];
  if (file == NULL) return kDriverNotLoaded;
  count = 0;
  while (count < kGpusMax && fgets(line, sizeof(line), file) != NULL) {
    struct gpu* gpu = &gpus[count];
    memset(gpu, 0, sizeof(*gpu));
    while (strncmp(line, "hang", 4) == 0) pause();
    if (sscanf(line, "%95s %u %u %u %u", gpu->uuid, &gpu->used, &gpu->errors, &gpu->pending,
               &gpu->failed) < 1)
      continue;
    gpu->lost = strstr(line, " lost") != NULL;
    ++count;
  }
  fclose(file);
  return kSuccess;
}

SHOWN int nvmlShutdown(void) { return kSuccess; }

SHOWN const char* nvmlErrorString(int error) {
  return error == kLost ? "GPU is lost" : "Unknown Error";
}

SHOWN int nvmlDeviceGetCount_v2(unsigned* devices) {
  *devices = count;
  return kSuccess;
}

SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu** device) {
  if (index >= count) return kNotFound;
  *device = &gpus[index];
  return gpus[index].lost ? kLost : kSuccess;
}

SHOWN int nvmlDeviceGetUUID(struct gpu* device, char* uuid, unsigned bytes) {
  snprintf(uuid, bytes, "%s", device->uuid);
  return kSuccess;
}

SHOWN int nvmlDeviceGetPciInfo_v3(struct gpu* device, struct pci* info) {
  memset(info, 0, sizeof(*info));
  info->bus = 0x3b + (unsigned)(device - gpus);
  return kSuccess;
}

SHOWN int nvmlDeviceGetMemoryInfo(struct gpu* device, struct memory* memory) {
  memory->total = 80ull * kGiB;
  memory->used = memory->total / 100 * device->used;
  memory->free = memory->total - memory->used;
  return kSuccess;
}

SHOWN int nvmlDeviceGetTotalEccErrors(struct gpu* device, int kind, int since,
                                      unsigned long long* errors) {
  (void)since;
  *errors = kind == 1 ? device->errors : 0;
  return kSuccess;
}

SHOWN int nvmlDeviceGetRemappedRows(struct gpu* device, unsigned* corrected, unsigned* uncorrected,
                                    unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = 0;
  *pending = device->pending;
  *failed = device->failed;
  return kSuccess;
}
