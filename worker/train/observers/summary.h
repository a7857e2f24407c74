// SPDX-License-Identifier: Apache-2.0
// The results of a training: a table for people, summary.json for programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/distributed_data_parallel.h"
#include "proto/rank_time.h"
#include "worker/train/evaluation/metric_sums.h"
#include "worker/train/step/best_evaluation.h"
#include "worker/train/step/step_counter.h"

namespace ddprun {

// What the test images of each class were taken for, by the model after `step`.
struct ClassResults {
  std::int64_t step = -1;  // -1: it is not known
  ClassCounts counts = {};
};

struct Summary {
  std::optional<Evaluation> evaluation;  // of the written model
  BestEvaluation best;                   // of all evaluations
  std::string best_description;          // of it, as Describe() has it
  std::string best_file;                 // its checkpoint; empty: none was kept
  ClassResults best_by_class;            // of the best evaluation, if it was made by this process
  ClassResults by_class;                 // of the best model if its file is kept, else of the last
  std::vector<std::string> class_names;
  double loss = 0;             // of rank 0's last batch
  std::int64_t steps = 0;      // of this program's run
  std::int64_t images = 0;     // of all ranks in these steps
  double warm_up_seconds = 0;  // on a GPU, before training
  double training_seconds = 0;
  double evaluation_seconds = 0;     // of the last one
  double total_seconds = 0;          // since the program started
  double first_step_seconds = 0;     // from there to the end of the first step
  double first_step_time = 0;        // that moment, in seconds since 1970
  double data_wait_seconds = 0;      // how long rank 0's steps waited for batches
  double gradient_wait_seconds = 0;  // and, after their backward, for the other ranks
  GradientTraffic gradients;         // of rank 0
  RankTime rank_time;                // of rank 0, since the program started
  int world_size = 1;
  std::string backend;
  std::string device;          // of rank 0: "cpu", "cuda:0"
  bool cuda_graph = false;     // steps were replays of one
  bool deterministic = false;  // what LibTorch was told
  std::string model_file;
  std::map<std::string, std::string> settings;  // by name

  // The program's first step has ended.
  void CountFirstStep(std::chrono::steady_clock::time_point program_start);
  void Count(const StepCounter::Counts& counts);

  // `last`: the step of the last evaluation.
  void ChooseClasses(std::int64_t last);

  // Its end: what followed the last section was writing the results.
  void SetTotal(double seconds);

  double steps_per_second() const {
    return training_seconds > 0 ? static_cast<double>(steps) / training_seconds : 0;
  }
  double images_per_second() const {
    return training_seconds > 0 ? static_cast<double>(images) / training_seconds : 0;
  }
};

std::string ToTable(const Summary& summary);

// Accuracy by class, and where it is small the confusion matrix; empty if there was no evaluation,
// or there are very many classes.
std::string ToClassTable(const Summary& summary);

// Keys as the members; "gradients_hidden_share" and "gradient_bytes" are there if other ranks are,
// "test_accuracy", "test_loss" and "by_class" are there if it was evaluated.
std::string ToJson(const Summary& summary);

}  // namespace ddprun
