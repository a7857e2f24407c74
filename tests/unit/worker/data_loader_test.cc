// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/unit/worker/temp_files.h"
#include "worker/train/data/damaged_samples.h"
#include "worker/train/data/fixed_size_images.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kCount = 100;

// Image i is all of byte i, and its label is i % 10.
LabelledImages Numbered() {
  return {
      at::arange(kCount, at::kByte).view({kCount, 1, 1, 1}).expand({kCount, 1, 8, 8}).contiguous(),
      at::arange(kCount, at::kLong) % 10};
}

std::vector<Batch> Rest(Loader& loader) {
  std::vector<Batch> batches;
  while (auto batch = loader.Next()) batches.push_back(std::move(*batch));
  return batches;
}

class LoaderTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  std::vector<Batch> All(const std::vector<std::int64_t>& indices, std::int64_t batch_size,
                         LoaderOptions options = {}) {
    options.threads = GetParam();
    Loader loader(set_, indices, batch_size, options);
    return Rest(loader);
  }

  std::vector<Batch> Planned(const EpochPlan::Options& plan, LoaderOptions options = {}) {
    options.threads = GetParam();
    Loader loader(set_, EpochPlan(plan), options);
    return Rest(loader);
  }

  const FixedSizeImages set_{{Numbered()},
                             {.shape = {3, 8, 8}, .mean = {0, 0, 0}, .std = {1, 1, 1}}};
};

// A batch may be shared by several threads.
INSTANTIATE_TEST_SUITE_P(Threads, LoaderTest, ::testing::Values(1, 2, 7));

TEST_P(LoaderTest, GivesTheIndicesInOrderAndAShortLastBatch) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < 250; ++i) indices.push_back((i * 37) % kCount);
  const auto batches = All(indices, 80);
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[3].labels.size(0), 10);
  std::size_t position = 0;
  for (const auto& batch : batches) {
    for (std::int64_t i = 0; i < batch.labels.size(0); ++i, ++position) {
      EXPECT_EQ(std::lround(batch.images[i][2][4][4].item<double>() * 255), indices[position]);
      EXPECT_EQ(batch.labels[i].item<std::int64_t>(), indices[position] % 10);
    }
  }
  EXPECT_EQ(position, indices.size());
}

TEST_P(LoaderTest, GivesAPlansBatches) {
  const EpochPlan::Options options{.size = kCount, .shard = {1, 2}, .batch_size = 7, .seed = 5};
  const EpochPlan plan(options);
  const auto batches = Planned(options);
  ASSERT_EQ(batches.size(), static_cast<std::size_t>(plan.batches()));
  for (std::int64_t i = 0; i < plan.batches(); ++i) {
    const auto samples = plan.Samples(i);
    const Batch& batch = batches[static_cast<std::size_t>(i)];
    ASSERT_EQ(batch.labels.size(0), static_cast<std::int64_t>(samples.size()));
    for (std::int64_t k = 0; k < batch.labels.size(0); ++k) {
      EXPECT_EQ(std::lround(batch.images[k][0][0][0].item<double>() * 255),
                samples[static_cast<std::size_t>(k)].index);
    }
  }
}

TEST_P(LoaderTest, ARankWithoutASampleGetsOneThatDoesNotCount) {
  const EpochPlan::Options options{.size = kCount, .shard = {3, 4}, .consumed = kCount - 2};
  const auto batches = Planned(options);
  ASSERT_EQ(batches.size(), 1u);
  ASSERT_TRUE(EpochPlan(options).Samples(0).empty());
  ASSERT_EQ(batches[0].images.size(0), 1);
  EXPECT_EQ(std::lround(batches[0].images[0][0][0][0].item<double>() * 255),
            EpochPlan(options).First(0).index);
}

TEST_P(LoaderTest, EndsAtOnceWithoutIndices) { EXPECT_TRUE(All({}, 4).empty()); }

// Holds every thread that writes a sample until all have come, or the deadline has.
class MeetingSet : public SampleSet {
 public:
  explicit MeetingSet(int expected) : expected_(expected) {}
  std::int64_t size() const override { return 1000; }
  SampleShape shape() const override { return {1, 1, 1}; }
  std::int64_t Label(std::int64_t) const override { return 0; }
  void Write(std::int64_t, const Draw*, bool, float* out) const override {
    *out = 0;
    std::unique_lock lock(mutex_);
    most_ = std::max(most_, ++present_);
    all_came_.notify_all();
    all_came_.wait_for(lock, std::chrono::seconds(20), [this] { return most_ >= expected_; });
    --present_;
  }
  int most() const {
    const std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  const int expected_;
  mutable std::mutex mutex_;
  mutable std::condition_variable all_came_;
  mutable int present_ = 0;
  mutable int most_ = 0;
};

TEST(Loader, AllThreadsWorkOnSmallBatchesToo) {
  constexpr int kThreads = 12;
  const MeetingSet set(kThreads);
  Loader loader(set, std::vector<std::int64_t>(24), 8, {.threads = kThreads});
  EXPECT_TRUE(loader.Next().has_value());
  EXPECT_EQ(set.most(), kThreads);
}

TEST_P(LoaderTest, StaysAtTheEnd) {
  Loader loader(set_, {1}, 4, {.threads = GetParam()});
  EXPECT_TRUE(loader.Next().has_value());
  EXPECT_FALSE(loader.Next().has_value());
  EXPECT_FALSE(loader.Next().has_value());
}

TEST_P(LoaderTest, MayBeLeftInTheMiddleOrAtOnce) {
  const std::vector<std::int64_t> many(10'000, 7);
  for (int taken = 0; taken < 20; ++taken) {
    Loader loader(set_, many, 1 + taken % 3, {.threads = GetParam()});
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(loader.Next().has_value());
  }
}

TEST_P(LoaderTest, AugmentsTheSameWayEachTimeAndAnotherInTheNextEpoch) {
  const std::vector<std::int64_t> indices(32, 99);
  LoaderOptions options{.augment = true, .seed = 4, .epoch = 1};
  const at::Tensor first = All(indices, 32, options)[0].images;
  EXPECT_TRUE(first.equal(All(indices, 32, options)[0].images));
  options.epoch = 2;
  EXPECT_FALSE(first.equal(All(indices, 32, options)[0].images));
}

TEST_P(LoaderTest, BatchSizeDoesNotChangeTheAugmentation) {
  const std::vector<std::int64_t> indices(32, 99);
  const auto whole = All(indices, 32, {.augment = true});
  const auto halves = All(indices, 16, {.augment = true});
  EXPECT_TRUE(whole[0].images.equal(at::cat({halves[0].images, halves[1].images})));
}

// The augmentation of one sample, however many ranks there are and whichever has it.
TEST_P(LoaderTest, TheNumberOfRanksDoesNotChangeTheAugmentation) {
  const LoaderOptions loading{.augment = true, .seed = 3, .epoch = 2};
  std::vector<at::Tensor> by_index(kCount);
  for (const int world : {1, 3}) {
    for (int rank = 0; rank < world; ++rank) {
      const EpochPlan::Options options{
          .size = kCount, .shard = {rank, world}, .batch_size = 5, .seed = 3, .epoch = 2};
      const EpochPlan plan(options);
      const auto batches = Planned(options, loading);
      for (std::int64_t i = 0; i < plan.batches(); ++i) {
        const auto samples = plan.Samples(i);
        for (std::size_t k = 0; k < samples.size(); ++k) {
          const at::Tensor image =
              batches[static_cast<std::size_t>(i)].images[static_cast<std::int64_t>(k)];
          at::Tensor& known = by_index[static_cast<std::size_t>(samples[k].index)];
          if (world == 1) {
            known = image;
          } else {
            EXPECT_TRUE(image.equal(known));
          }
        }
      }
    }
  }
}

TEST_P(LoaderTest, ChannelsLastBatchesHaveThatLayout) {
  const auto batch = All({1, 2, 3}, 3, {.channels_last = true})[0];
  EXPECT_TRUE(batch.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(batch.images.equal(All({1, 2, 3}, 3)[0].images));
}

// Fails for one of its samples, as a damaged file does.
class Faulty : public SampleSet {
 public:
  explicit Faulty(std::int64_t bad) : bad_(bad) {}
  std::int64_t size() const override { return kCount; }
  std::int64_t Label(std::int64_t) const override { return 0; }
  SampleShape shape() const override { return {1, 1, 1}; }
  void Write(std::int64_t index, const Draw*, bool, float* out) const override {
    if (index == bad_) throw DataError("sample " + std::to_string(index) + " is damaged");
    *out = static_cast<float>(index);
  }

 private:
  const std::int64_t bad_;
};

TEST_P(LoaderTest, AFaultComesWhenItsBatchIsDueAndStays) {
  const Faulty set(57);
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < kCount; ++i) indices.push_back(i);
  Loader loader(set, indices, 10, {.threads = GetParam()});
  for (int i = 0; i < 5; ++i) {
    const auto batch = loader.Next();
    ASSERT_TRUE(batch.has_value());
    EXPECT_EQ(batch->images[9].item<float>(), static_cast<float>(10 * i + 9));
  }
  EXPECT_THAT(MessageOf<DataError>([&] { loader.Next(); }), HasSubstr("sample 57"));
  EXPECT_THAT(MessageOf<DataError>([&] { loader.Next(); }), HasSubstr("sample 57"));
}

// A set whose samples come when the test says so.
class Gated : public Faulty {
 public:
  Gated() : Faulty(-1) {}
  void Write(std::int64_t index, const Draw* draw, bool last, float* out) const override {
    open_.wait(false);
    Faulty::Write(index, draw, last, out);
  }
  void Open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_ = false;
};

TEST_P(LoaderTest, TellsHowLongItWaited) {
  Gated set;
  Loader loader(set, {1, 2}, 1, {.threads = GetParam()});
  constexpr std::chrono::milliseconds kWait{20};
  std::thread opener([&] {
    std::this_thread::sleep_for(kWait);  // what is measured
    set.Open();
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto batch = loader.Next();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  opener.join();
  EXPECT_GT(batch->waited_seconds, 0);
  EXPECT_LE(batch->waited_seconds, passed.count());
}

// No more address space than for a few threads' stacks.
void LimitMemory() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{32} << 20);
  const rlimit limit{most, most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

TEST(LoaderThreads, ThatCannotBeStartedAreToldAndTheOthersEnd) {
  const auto start_too_many = [] {
    LimitMemory();
    try {
      Faulty set(-1);
      Loader loader(set, {1, 2}, 1, {.threads = 100});
    } catch (const std::system_error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(0);
    }
    std::_Exit(1);
  };
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(0),
              "no more than [1-9][0-9]? of 100 loader threads can be started; lower "
              "--loader-threads");
}

// Sample i is all i, and those of `damaged` cannot be read.
class PartlyDamaged : public SampleSet {
 public:
  PartlyDamaged(std::int64_t size, std::vector<std::int64_t> damaged)
      : size_(size), damaged_(std::move(damaged)) {}

  std::int64_t size() const override { return size_; }
  std::int64_t Label(std::int64_t index) const override { return 1000 + index; }
  SampleShape shape() const override { return {2, 1, 1}; }
  void Write(std::int64_t index, const Draw*, bool, float* out) const override {
    if (std::count(damaged_.begin(), damaged_.end(), index) > 0)
      throw DamagedSample(std::to_string(index) + ".jpg: is damaged", "replace it");
    out[0] = out[1] = static_cast<float>(index);
  }

 private:
  const std::int64_t size_;
  const std::vector<std::int64_t> damaged_;
};

class DamagedTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  std::vector<std::int64_t> Labels(Loader loader) {
    std::vector<std::int64_t> labels;
    for (const Batch& batch : Rest(loader)) {
      EXPECT_EQ(batch.images.size(0), batch.labels.size(0));
      for (std::int64_t i = 0; i < batch.labels.size(0); ++i) {
        labels.push_back(batch.labels[i].item<std::int64_t>() - 1000);
        EXPECT_EQ(batch.images[i][1][0][0].item<float>(), static_cast<float>(labels.back()));
      }
    }
    return labels;
  }
  LoaderOptions Options() {
    return {.channels_last = true, .threads = GetParam(), .damaged = &damaged_};
  }

  std::vector<std::string> told_;
  DamagedSamples damaged_{[this](const std::string& line) { told_.push_back(line); }};
};

INSTANTIATE_TEST_SUITE_P(Threads, DamagedTest, ::testing::Values(1, 3));

// On any number of ranks, and from any place of the epoch on.
TEST_P(DamagedTest, ThePlaceOfADamagedSampleIsFilledByTheNextWholeOne) {
  const PartlyDamaged set(10, {3, 4, 9});
  const std::vector<std::int64_t> filled_by = {0, 1, 2, 5, 5, 5, 6, 7, 8, 0};
  for (const Shard shard : {Shard{0, 1}, Shard{1, 2}}) {
    for (const std::int64_t consumed : {0, 4}) {
      const EpochPlan plan({.size = 10,
                            .shard = shard,
                            .batch_size = 2,
                            .seed = 1,
                            .epoch = 3,
                            .consumed = consumed});
      std::vector<std::int64_t> expected;
      std::int64_t filled = 0;
      for (std::int64_t batch = 0; batch < plan.batches(); ++batch) {
        for (const Sample& sample : plan.Samples(batch)) {
          expected.push_back(filled_by[static_cast<std::size_t>(sample.index)]);
          filled += expected.back() == sample.index ? 0 : 1;
        }
      }
      EXPECT_EQ(Labels({set, plan, Options()}), expected);
      EXPECT_EQ(damaged_.TakeFilled(), filled);
      EXPECT_EQ(damaged_.TakeFilled(), 0);
    }
  }
  std::sort(told_.begin(), told_.end());
  EXPECT_EQ(told_, (std::vector<std::string>{"skips 3.jpg: is damaged", "skips 4.jpg: is damaged",
                                             "skips 9.jpg: is damaged"}))
      << "each once";
}

TEST_P(DamagedTest, AnEvaluationLeavesThemOut) {
  const PartlyDamaged set(7, {1, 2, 3, 6});
  EXPECT_EQ(Labels({set, {0, 1, 2, 3, 4, 5, 6}, 2, Options()}),
            (std::vector<std::int64_t>{0, 4, 5}));
  Loader loader(set, {2, 3, 4}, 2, Options());
  EXPECT_EQ(loader.Next()->labels.size(0), 0) << "a batch is there, but empty";
  EXPECT_EQ(loader.Next()->labels.size(0), 1);
  EXPECT_FALSE(loader.Next());
}

TEST_P(DamagedTest, WithoutLeaveTheyAreErrors) {
  const PartlyDamaged set(3, {1});
  Loader loader(set, {0, 1, 2}, 3, {.threads = GetParam()});
  EXPECT_THAT(MessageOf<DamagedSample>([&] { loader.Next(); }),
              ::testing::StrEq("1.jpg: is damaged; replace it"));
}

TEST_P(DamagedTest, ASetOfDamagedSamplesIsAnError) {
  const auto fault = [this](std::int64_t size) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < size - 1; ++i) all.push_back(i);
    const PartlyDamaged set(size, all);
    Loader loader(set, EpochPlan({.size = size, .batch_size = 500}), Options());
    return MessageOf<DataError>([&] { loader.Next(); });
  };
  EXPECT_THAT(fault(kDamagedInARowMax + 2), HasSubstr("100 files in a row are damaged"));
  EXPECT_EQ(told_.size(), kDamagedNamedMax + 1);
  EXPECT_THAT(told_.back(), HasSubstr("train check names all of them"));
}

}  // namespace
}  // namespace ddprun
