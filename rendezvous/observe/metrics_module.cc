// SPDX-License-Identifier: Apache-2.0
// Serves metrics with prometheus-cpp. A separate library, since loading prometheus-cpp and its web
// server would cost every run start time.
#include "rendezvous/observe/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/limits.h"
#include "rendezvous/observe/civet_end.h"

namespace ddprun {
namespace {

prometheus::MetricType TypeOf(MetricSeries::Type type) {
  switch (type) {
    case MetricSeries::Type::kCounter:
      return prometheus::MetricType::Counter;
    case MetricSeries::Type::kSummary:
      return prometheus::MetricType::Summary;
    case MetricSeries::Type::kGauge:
      break;
  }
  return prometheus::MetricType::Gauge;
}

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(std::function<std::vector<MetricSeries>()> collect)
      : collect_(std::move(collect)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const MetricSeries& series : collect_()) {
      prometheus::MetricFamily& family = families.emplace_back();
      family.name = series.name;
      family.help = series.help;
      family.type = TypeOf(series.type);
      for (const MetricSample& sample : series.samples) {
        prometheus::ClientMetric& metric = family.metric.emplace_back();
        for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
        metric.gauge.value = metric.counter.value = sample.value;
        metric.summary.sample_sum = sample.value;
        metric.summary.sample_count = sample.count;
      }
    }
    return families;
  }

 private:
  const std::function<std::vector<MetricSeries>()> collect_;
};

class Exporter final : public MetricsExporter {
 public:
  Exporter(const std::string& bind_address, std::function<std::vector<MetricSeries>()> collect)
      : collector_(std::make_shared<Collector>(std::move(collect))),
        address_(bind_address.substr(0, bind_address.rfind(':'))) {
    const std::vector<std::string> options = {
        "listening_ports",    bind_address,
        "num_threads",        std::to_string(kScrapeThreads),
        "request_timeout_ms", std::to_string(kScrapeTimeout.count())};
    exposer_ = std::make_unique<prometheus::Exposer>(options);
    exposer_->RegisterCollectable(collector_);
  }
  ~Exporter() override {
    EndCivet(address_, exposer_->GetListeningPorts().at(0), [this] { exposer_.reset(); });
  }

 private:
  const std::shared_ptr<Collector> collector_;
  const std::string address_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace

extern "C" MetricsExporter* ddprun_start_metrics(
    const std::string& bind_address, std::function<std::vector<MetricSeries>()>* collect,
    std::string* error) {
  try {
    return new Exporter(bind_address, std::move(*collect));
  } catch (const std::exception& failure) {
    *error = failure.what();
    return nullptr;
  }
}

}  // namespace ddprun
