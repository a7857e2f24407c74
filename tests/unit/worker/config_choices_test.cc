// SPDX-License-Identifier: Apache-2.0
#include "worker/train/config/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/train/config/config.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(ChoicesTest, EveryNameIsReadAndWritten) {
  int chosen = 0;
  for (const Setting& setting : Settings()) {
    for (const std::string& name : setting.choices) {
      Config config;
      SetFromText(config, setting, name, "--" + setting.key);
      EXPECT_EQ(ToText(config, setting), name) << setting.key;
      ++chosen;
    }
  }
  EXPECT_GT(chosen, 30);
}

TEST(ChoicesTest, NamesStandForTheirEnumerators) {
  Config config;
  const auto set = [&config](const char* key, const char* text) {
    SetFromText(config, *FindSetting(key), text, key);
  };
  set("padding-mode", "reflect");
  EXPECT_EQ(config.padding_mode, Padding::kReflect);
  set("flip", "alternating");
  EXPECT_EQ(config.flip, Flip::kAlternating);
  set("schedule", "constant");
  EXPECT_EQ(config.schedule, ScheduleKind::kConstant);
  set("amp", "fp16");
  EXPECT_EQ(config.amp, Amp::kFp16);
  set("precision", "fp16-pure");  // the setting's second name
  EXPECT_EQ(config.amp, Amp::kFp16Pure);
  set("compress", "bf16");
  EXPECT_EQ(config.compress, GradientFormat::kBFloat16);
  set("pipeline-schedule", "gpipe");
  EXPECT_EQ(config.pipeline_schedule, PipelineSchedule::kGpipe);
  set("tta", "mirror-translate");
  EXPECT_EQ(config.tta, TestTimeAugmentation::kMirrorTranslate);
  set("device", "cuda");
  EXPECT_EQ(config.device, DeviceChoice::kCuda);
  set("backend", "nccl");
  EXPECT_EQ(config.backend, BackendChoice::kNccl);
}

TEST(ChoicesTest, AnUnknownNameIsRefusedWithThoseThatAreKnown) {
  Config config;
  try {
    SetFromText(config, *FindSetting("backend"), "glo", "--backend");
    FAIL() << "glo was taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("--backend 'glo' is not known; choose one of auto, gloo, nccl"));
  }
}

}  // namespace
}  // namespace ddprun
