// SPDX-License-Identifier: Apache-2.0
#include "worker/library/rounds/round_end.h"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <utility>

#include "ddprun/errors.h"
#include "rendezvous/values/first_cause.h"
#include "worker/library/base/first_line.h"

namespace ddprun {
namespace {

// Agents send at once that a round is broken; a peer's connections may break a little sooner.
constexpr std::chrono::milliseconds kBrokenLimit{300};

bool SaysPeerIsGone(const std::exception& error) {
  Failure failure;
  failure.message = FirstLine(error);
  return NatureOf(failure) == Nature::kSymptom;
}

std::string Sentence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    return FirstLine(failure);
  }
}

}  // namespace

Cause CauseOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RoundOver&) {
    return Cause::kPeer;
  } catch (const PeerError&) {
    return Cause::kPeer;
  } catch (const c10::DistNetworkError&) {
    return Cause::kPeer;
  } catch (const OwnError&) {
    return Cause::kOwn;
  } catch (const std::invalid_argument&) {
    return Cause::kOwn;
  } catch (const c10::OutOfMemoryError&) {
    return Cause::kOwn;
  } catch (const std::bad_alloc&) {
    return Cause::kOwn;
  } catch (const std::exception& other) {
    return SaysPeerIsGone(other) ? Cause::kPeer : Cause::kOther;
  } catch (...) {
    return Cause::kOwn;
  }
}

bool EndsRoundOnly(const std::exception_ptr& error, RoundListener& listener, bool& by_itself,
                   std::optional<CollectivePlace> place) {
  by_itself = false;
  const Cause cause = CauseOf(error);
  if (cause == Cause::kOwn) return false;
  if (listener.AwaitBroken(kBrokenLimit)) return true;
  if (cause != Cause::kPeer) return false;
  by_itself = true;
  listener.Leave(Sentence(error), std::move(place));
  return true;
}

}  // namespace ddprun
