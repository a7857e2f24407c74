// SPDX-License-Identifier: Apache-2.0
// Checkpoints with right checksums whose header is not what train writes.
#include "worker/library/checkpoint/header_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/worker/small_snapshot.h"
#include "tests/unit/worker/temp_files.h"
#include "worker/library/files/crc32c.h"
#include "worker/library/files/safetensors.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Json = nlohmann::json;

// What train writes.
Json GoodHeader() {
  return {{"version", "1.2.3"},
          {"training", "t"},
          {"step", 12},
          {"epoch", 3},
          {"consumed", 64},
          {"reached_target", false},
          {"evaluation_due", true},
          {"best", {{"step", 9}, {"accuracy", 0.75}, {"loss", -0.5}, {"since", 2}}},
          {"world_size", 2},
          {"batch_size", 16},
          {"scaler", {{"scale", 0.5}, {"steps_since_growth", 7}}},
          {"config", {{"model", "linear"}, {"amp", "fp16"}}},
          {"data",
           {{"classes", 10},
            {"channels", 3},
            {"height", 32},
            {"width", 32},
            {"images", 64},
            {"mean", {0.5, 0.5, 0}},
            {"std", {0.25, 1, 0.25}},
            {"class_names", {"cat", "dog"}}}},
          {"buckets", {{1, 0}}},
          {"of_a_newer_version", {1, "x"}}};
}

std::string WriteWith(const TempFiles& files, const Json& about, std::int64_t step = 12) {
  CheckpointImage image;
  image.Fill({.tensors = {{"model/weight", at::ones({2})}}, .about = about});
  return files.Write(CheckpointName(step), std::string(image.bytes(), image.size()));
}

struct Damage {
  const char* place;  // a JSON pointer
  const char* value;
  const char* fact;  // with both, the end of the sentence
};

constexpr Damage kDamages[] = {
    {"/step", "-1",
     "'step' in its metadata is -1, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/step", "1e300",
     "'step' in its metadata is 1e+300, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/step", "1.5",
     "'step' in its metadata is 1.5, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/step", "\"12\"",
     "'step' in its metadata is \"12\", but must be a whole number from 0 to "
     "1000000000000000"},
    {"/step", "null",
     "'step' in its metadata is null, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/step", "true",
     "'step' in its metadata is true, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/step", "18446744073709551615",
     "'step' in its metadata is 18446744073709551615, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/step", "9223372036854775807",
     "'step' in its metadata is 9223372036854775807, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/epoch", "1000000001",
     "'epoch' in its metadata is 1000000001, but must be a whole number "
     "from 0 to 1000000000"},
    {"/consumed", "-64",
     "'consumed' in its metadata is -64, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/consumed", "65", "'consumed' in its metadata is 65, but its training data are 64 images"},
    {"/version", "1", "'version' in its metadata is 1, but must be a string"},
    {"/training", "[]", "'training' in its metadata is [], but must be a string"},
    {"/reached_target", "0", "'reached_target' in its metadata is 0, but must be true or false"},
    {"/best/loss", "null", "'best.loss' in its metadata is null, but must be a number up to 3e+38"},
    {"/best/step", "-1",
     "'best.step' in its metadata is -1, but must be a whole number from 0 to 1000000000000000"},
    {"/evaluation_due", "\"no\"",
     "'evaluation_due' in its metadata is \"no\", but must be true or false"},
    {"/world_size", "0",
     "'world_size' in its metadata is 0, but must be a whole number from 1 to "
     "1000000000"},
    {"/batch_size", "{}",
     "'batch_size' in its metadata is {}, but must be a whole number from 1 "
     "to 1000000000"},
    {"/scaler", "65536", "'scaler' in its metadata is 65536, but must be an object"},
    {"/scaler/scale", "null",
     "'scaler.scale' in its metadata is null, but must be a number from 0 "
     "to 3e+38"},
    {"/scaler/scale", "1e300",
     "'scaler.scale' in its metadata is 1e+300, but must be a number "
     "from 0 to 3e+38"},
    {"/scaler/steps_since_growth", "-1",
     "'scaler.steps_since_growth' in its metadata is -1, but must be a whole number from 0 to "
     "1000000000000000"},
    {"/config", "\"linear\"", "'config' in its metadata is \"linear\", but must be an object"},
    {"/config/model", "7", "'config.model' in its metadata is 7, but must be a string"},
    {"/config/a\nb\x01", "7", "'config.a\\nb\\u0001' in its metadata is 7, but must be a string"},
    {"/data", "[1]", "'data' in its metadata is [1], but must be an object"},
    {"/data/classes", "0",
     "'data.classes' in its metadata is 0, but must be a whole number from "
     "1 to 1000000000"},
    {"/data/channels", "1e6",
     "'data.channels' in its metadata is 1000000.0, but must be a whole "
     "number from 1 to 10000"},
    {"/data/height", "-32",
     "'data.height' in its metadata is -32, but must be a whole number from "
     "1 to 100000"},
    {"/data/width", "\"32\"",
     "'data.width' in its metadata is \"32\", but must be a whole number "
     "from 1 to 1000000000"},
    {"/data/images", "0.5",
     "'data.images' in its metadata is 0.5, but must be a whole number from "
     "0 to 1000000000000000"},
    {"/data/mean", "0.5",
     "'data.mean' in its metadata is 0.5, but must be an array of numbers up "
     "to 3e+38"},
    {"/data/std", "[1, null]",
     "'data.std' in its metadata is [1,null], but must be an array of "
     "numbers up to 3e+38"},
    {"/data/class_names", "[1]",
     "'data.class_names' in its metadata is [1], but must be an array of strings"},
};

TEST(HeaderFieldsTest, WhatTrainWritesIsRead) {
  const TempFiles files;
  EXPECT_EQ(ReadCheckpoint(WriteWith(files, GoodHeader())).about, GoodHeader());
  // A program of its own has fewer fields, and some are as old as their version.
  EXPECT_NO_THROW(ReadCheckpoint(WriteWith(files, Json::object())));
}

TEST(HeaderFieldsTest, EveryWrongFieldIsNamedWithItsValue) {
  const TempFiles files;
  for (const Damage& damage : kDamages) {
    Json about = GoodHeader();
    about[Json::json_pointer(damage.place)] = Json::parse(damage.value);
    const std::string path = WriteWith(files, about);
    EXPECT_EQ(MessageOf<CheckpointError>([&] { ReadCheckpoint(path); }),
              "checkpoint " + path + " is damaged or none: " + damage.fact);
    EXPECT_EQ(
        MessageOf<CheckpointError>([&] { OpenCheckpoint(path, [](const auto&) {}); }),
        "checkpoint " + path + " is damaged or none: " + damage.fact + "; name another checkpoint");
  }
}

TEST(HeaderFieldsTest, AHeaderThatIsNoObjectIsNamed) {
  const TempFiles files;
  for (const char* header : {"null", "[]", "7", "\"step\""}) {
    const std::string path = WriteWith(files, Json::parse(header));
    EXPECT_EQ(MessageOf<CheckpointError>([&] { ReadCheckpoint(path); }),
              "checkpoint " + path + " is damaged or none: 'ddprun' in its metadata is " + header +
                  ", but must be an object");
  }
}

TEST(HeaderFieldsTest, ALongValueIsCut) {
  const TempFiles files;
  Json about = GoodHeader();
  about["step"] = std::string(10000, 'x');
  EXPECT_LT(MessageOf<CheckpointError>([&] { ReadCheckpoint(WriteWith(files, about)); }).size(),
            files.folder().size() + 250);
}

TEST(HeaderFieldsTest, AnOlderCheckpointIsTakenInPlaceOfAWrongOne) {
  const TempFiles files;
  WriteWith(files, GoodHeader(), 12);
  Json about = GoodHeader();
  about["step"] = -1;
  const std::string wrong = WriteWith(files, about, 13);
  std::vector<std::string> told;
  const auto found =
      FindNewest(files.folder(), "t", [&](const std::string& text) { told.push_back(text); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, files.Path(CheckpointName(12)));
  EXPECT_THAT(told, ElementsAre(HasSubstr(wrong + " is damaged or none: 'step' in its metadata")));
}

// A whole checkpoint whose `crc32c` is this text.
std::string WriteWithChecksums(const TempFiles& files, const std::string& checksums) {
  const NamedTensors tensors = {{"model/weight", at::ones({2})},
                                {"checksum", at::zeros({4}, at::kByte)}};
  const SafetensorsLayout layout = LayOutSafetensors(
      tensors, {{"format", "ddprun-checkpoint-1"}, {"ddprun", "{}"}, {"crc32c", checksums}});
  std::string bytes(layout.file_bytes, '\0');
  std::memcpy(bytes.data(), layout.head.data(), layout.head.size());
  std::memcpy(bytes.data() + layout.places[0].offset, tensors[0].second.const_data_ptr(),
              layout.places[0].bytes);
  const std::uint32_t sum = Crc32c(layout.head.data(), layout.head.size());
  std::memcpy(bytes.data() + layout.places[1].offset, &sum, sizeof sum);
  return files.Write("a.safetensors", bytes);
}

TEST(HeaderFieldsTest, ChecksumsThatAreNoneAreNamed) {
  const TempFiles files;
  for (const auto& [checksums, fact] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "'crc32c' in its metadata is [], but must be an object"},
           {"{}", "its metadata have no 'crc32c.model/weight'"},
           {"{\"model/weight\": 7}",
            "'crc32c.model/weight' in its metadata is 7, but must be a string"},
           {"{", "its metadata is not JSON"}}) {
    const std::string path = WriteWithChecksums(files, checksums);
    EXPECT_EQ(MessageOf<CheckpointError>([&] { ReadCheckpoint(path); }),
              "checkpoint " + path + " is damaged or none: " + fact);
  }
}

TEST(HeaderFieldsTest, AFieldThatATrainingNeedsIsMissed) {
  for (const char* key : {"step", "epoch", "consumed"}) {
    FoundCheckpoint found{.path = "a", .snapshot = {.tensors = {}, .about = GoodHeader()}};
    EXPECT_EQ(ReadHeader(found, PositionIn),
              (TrainingPosition{.step = 12, .epoch = 3, .consumed = 64}));
    found.snapshot.about.erase(key);
    EXPECT_EQ(MessageOf<CheckpointError>([&] { ReadHeader(found, PositionIn); }),
              std::string("checkpoint a is damaged or none: its metadata have no '") + key +
                  "'; name another checkpoint");
  }
}

}  // namespace
}  // namespace ddprun
