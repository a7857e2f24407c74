# SPDX-License-Identifier: Apache-2.0
# What trains: models, data, the loop. main.cc is the program `train`.
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(ZLIB REQUIRED)

set(TRAINING_SOURCES
  augment.cc
  checksum.cc
  cifar10.cc
  command_line.cc
  config.cc
  config_file.cc
  dataset.cc
  evaluate.cc
  idx.cc
  loader.cc
  models.cc
  netresdeep.cc
  reporter.cc
  resnet.cc
  sampler.cc
  schedule.cc
  synthetic.cc
  trainer.cc)
set(TRAINING_LIBRARIES CLI11::CLI11 yaml-cpp ZLIB::ZLIB)
