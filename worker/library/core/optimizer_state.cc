// SPDX-License-Identifier: Apache-2.0
#include "worker/library/core/optimizer_state.h"

#include <torch/torch.h>

#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "ddprun/errors.h"
#include "proto/json_text.h"
#include "worker/library/files/tensor_list.h"

namespace ddprun {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

constexpr char kRate[] = "lr";
constexpr char kGroup[] = "group";

// A field in the states of one kind of optimizer: how it is read and written, by name.
struct Field {
  const char* name;
  std::function<at::Tensor(const OptimizerParamState&)> read;
  std::function<void(OptimizerParamState&, const at::Tensor&)> write;
};
struct Kind {
  std::function<bool(const Optimizer&)> is;
  std::function<std::unique_ptr<OptimizerParamState>()> make;
  std::vector<Field> fields;
};

template <typename State>
Field TensorField(const char* name, const at::Tensor& (State::*read)() const noexcept,
                  at::Tensor& (State::*write)() noexcept) {
  return {name,
          [read](const OptimizerParamState& state) {
            return (static_cast<const State&>(state).*read)();
          },
          [write](OptimizerParamState& state, const at::Tensor& value) {
            (static_cast<State&>(state).*write)() = value;
          }};
}

template <typename State>
Field StepField() {
  return {"step",
          [](const OptimizerParamState& state) {
            return at::scalar_tensor(static_cast<const State&>(state).step(), at::kLong);
          },
          [](OptimizerParamState& state, const at::Tensor& value) {
            static_cast<State&>(state).step(value.item<std::int64_t>());
          }};
}

template <typename Type, typename State>
Kind KindOf(std::vector<Field> fields) {
  return {
      [](const Optimizer& optimizer) { return dynamic_cast<const Type*>(&optimizer) != nullptr; },
      [] { return std::make_unique<State>(); }, std::move(fields)};
}

#define DDPRUN_FIELD(State, name) TensorField<State>(#name, &State::name, &State::name)

const std::vector<Kind>& Kinds() {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  static const std::vector<Kind> kinds = {
      KindOf<SGD, SGDParamState>({DDPRUN_FIELD(SGDParamState, momentum_buffer)}),
      KindOf<AdamW, AdamWParamState>({StepField<AdamWParamState>(),
                                      DDPRUN_FIELD(AdamWParamState, exp_avg),
                                      DDPRUN_FIELD(AdamWParamState, exp_avg_sq),
                                      DDPRUN_FIELD(AdamWParamState, max_exp_avg_sq)}),
      KindOf<Adam, AdamParamState>(
          {StepField<AdamParamState>(), DDPRUN_FIELD(AdamParamState, exp_avg),
           DDPRUN_FIELD(AdamParamState, exp_avg_sq), DDPRUN_FIELD(AdamParamState, max_exp_avg_sq)}),
      KindOf<RMSprop, RMSpropParamState>({StepField<RMSpropParamState>(),
                                          DDPRUN_FIELD(RMSpropParamState, square_avg),
                                          DDPRUN_FIELD(RMSpropParamState, momentum_buffer),
                                          DDPRUN_FIELD(RMSpropParamState, grad_avg)}),
      KindOf<Adagrad, AdagradParamState>(
          {StepField<AdagradParamState>(), DDPRUN_FIELD(AdagradParamState, sum)}),
  };
  return kinds;
}

#undef DDPRUN_FIELD

const Kind& FindKind(const Optimizer& optimizer) {
  for (const Kind& kind : Kinds()) {
    if (kind.is(optimizer)) return kind;
  }
  throw std::invalid_argument(
      "only the state of SGD, Adam, AdamW, RMSprop and Adagrad is known; give another optimizer's "
      "tensors by Checkpoints::Track(name, read, write)");
}

std::vector<at::Tensor> ParametersOf(const Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  return parameters;
}

// "3/exp_avg" is {3, "exp_avg"}; "group1/lr" {1, "lr"} of a group.
struct Name {
  bool of_group = false;
  std::size_t place = 0;
  std::string field;
};

Name Parse(const std::string& text) {
  Name name;
  const std::size_t slash = text.find('/');
  name.of_group = text.starts_with(kGroup);
  const char* begin = text.data() + (name.of_group ? sizeof kGroup - 1 : 0);
  const char* end = text.data() + std::min(slash, text.size());
  const auto [read, error] = std::from_chars(begin, end, name.place);
  if (slash == std::string::npos || error != std::errc() || read != end)
    throw CheckpointError("an optimizer has no state named " + text);
  name.field = text.substr(slash + 1);
  return name;
}

void WriteRate(Optimizer& optimizer, const Name& name, const at::Tensor& value) {
  if (name.place >= optimizer.param_groups().size() || name.field != kRate)
    throw CheckpointError("the optimizer has no parameter group " + std::to_string(name.place));
  optimizer.param_groups()[name.place].options().set_lr(value.item<double>());
}

}  // namespace

NamedTensors ReadOptimizerState(const Optimizer& optimizer) {
  const Kind& kind = FindKind(optimizer);
  NamedTensors state;
  std::size_t place = 0;
  for (const at::Tensor& parameter : ParametersOf(optimizer)) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found != optimizer.state().end()) {
      for (const Field& field : kind.fields) {
        const at::Tensor value = field.read(*found->second);
        if (value.defined())
          state.emplace_back(std::to_string(place) + "/" + field.name, value.detach());
      }
    }
    ++place;
  }
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    const double rate = optimizer.param_groups()[i].options().get_lr();
    state.emplace_back(kGroup + std::to_string(i) + "/" + kRate,
                       at::scalar_tensor(rate, at::kDouble));
  }
  return state;
}

void WriteOptimizerState(Optimizer& optimizer, const NamedTensors& state) {
  const Kind& kind = FindKind(optimizer);
  const std::vector<at::Tensor> parameters = ParametersOf(optimizer);
  optimizer.state().clear();
  for (const auto& [text, value] : state) {
    const Name name = Parse(text);
    if (name.of_group) {
      WriteRate(optimizer, name, value);
      continue;
    }
    const auto field = std::find_if(kind.fields.begin(), kind.fields.end(),
                                    [&](const Field& each) { return each.name == name.field; });
    if (name.place >= parameters.size() || field == kind.fields.end())
      throw CheckpointError("the optimizer has no state " + text +
                            "; it is of another optimizer or model");
    const at::Tensor& parameter = parameters[name.place];
    auto& of_parameter = optimizer.state()[parameter.unsafeGetTensorImpl()];
    if (!of_parameter) of_parameter = kind.make();
    const bool number = value.dim() == 0 && value.scalar_type() == at::kLong;
    field->write(*of_parameter, number ? value : at::empty_like(parameter).copy_(value).detach());
  }
}

NamedTensors GatherOptimizerState(ShardedOptimizer& optimizer) {
  World& world = optimizer.world();
  NamedTensors all;
  bool has_groups = false;
  for (int rank = 0; rank < world.size(); ++rank) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
      if (optimizer.owner(i) == rank) places.push_back(i);
    }
    NamedTensors part;
    if (rank == world.rank() && optimizer.local() != nullptr)
      part = ReadOptimizerState(*optimizer.local());
    const auto list = nlohmann::json::parse(world.BroadcastText(JsonText(TensorList(part)), rank));
    for (std::size_t i = 0; i < list.size(); ++i) {
      at::Tensor value = rank == world.rank() ? part[i].second.to(world.device()).clone()
                                              : EmptyOf(list[i], world.device());
      world.Broadcast(value, rank);
      if (world.rank() != 0) continue;
      const Name name = Parse(list[i].at(0).get<std::string>());
      if (name.of_group && has_groups) continue;  // alike in every part
      const std::string prefix = name.of_group ? kGroup + std::to_string(name.place)
                                               : std::to_string(places.at(name.place));
      all.emplace_back(prefix + "/" + name.field, world.ToHost(value));
    }
    has_groups = has_groups || !list.empty();
  }
  return all;
}

void WriteOptimizerState(ShardedOptimizer& optimizer, const NamedTensors& state) {
  if (optimizer.local() == nullptr) return;
  std::vector<std::size_t> place_of(optimizer.parameters().size());
  std::size_t own = 0;
  for (std::size_t i = 0; i < place_of.size(); ++i) {
    if (optimizer.owner(i) == optimizer.world().rank()) place_of[i] = own++;
  }
  NamedTensors part;
  for (const auto& [text, value] : state) {
    const Name name = Parse(text);
    if (name.of_group) {
      part.emplace_back(text, value);
      continue;
    }
    if (name.place >= place_of.size())
      throw CheckpointError("the optimizer has no state " + text + "; it is of another model");
    if (optimizer.owner(name.place) == optimizer.world().rank())
      part.emplace_back(std::to_string(place_of[name.place]) + "/" + name.field, value);
  }
  WriteOptimizerState(*optimizer.local(), part);
}

}  // namespace ddprun
