// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_run.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/dry_run.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/doctor/doctor_exchange.h"
#include "launcher/doctor/doctor_facts.h"
#include "launcher/doctor/doctor_probe.h"
#include "launcher/doctor/doctor_rules.h"
#include "launcher/node/network.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/bounded_call.h"

namespace ddprun {
namespace {

std::string Key(const char* what, int index) { return absl::StrCat("doctor/", what, "/", index); }

// Sends the head's signals to this process, and SIGTERM when the head has ended. The doctor has no
// state to clean up, and its own waits may be long.
void FollowHead(ControlPipe control_pipe) {
  RunDetached([pipe = std::make_shared<ControlPipe>(std::move(control_pipe))] {
    for (bool ended = false; !ended;) {
      pollfd polled{.fd = pipe->fd(), .events = POLLIN, .revents = 0};
      poll(&polled, 1, -1);
      for (const PassSignal& passed : pipe->TakeSignals(true, ended)) kill(getpid(), passed.signal);
    }
    kill(getpid(), SIGTERM);
  });
}

// One run of the doctor on one node.
class Doctor {
 public:
  explicit Doctor(DoctorCall call)
      : options_(std::move(call.options)), token_(std::move(call.token_variable)) {
    facts_.host = call.host.empty() || call.host == "localhost" ? HostName() : call.host;
    facts_.node = options_.node_rank.value_or(0);
    checkup_.timeout = options_.doctor->timeout;
    checkup_.nodes_wanted = std::max(options_.nodes_min, options_.doctor->nodes_wanted);
    checkup_.numbered = options_.node_rank.has_value();
    checkup_.by_head = call.control_pipe.has_value();
    if (checkup_.by_head) FollowHead(*std::move(call.control_pipe));
    // Before the service raises a limit or the certificates change what this process may read.
    CollectMachineFacts(options_, call.own_folder, facts_);
  }

  int Run() {
    if (!UsesNetwork(options_)) {
      CollectNetworkFacts(options_, facts_);
    } else if (const absl::Status status = MeetOthers(); !status.ok()) {
      checkup_.rendezvous_error = std::string(status.message());
    }
    const DoctorReport report = exchange_ != nullptr ? Agree() : ReportAlone();
    // Under -H only the first node prints the report, which is the same on all.
    if (exchange_ == nullptr || !checkup_.by_head || exchange_->index() == 0) Print(report);
    Send(report.exit_code == 0 ? NodeMessage(Finished{.run_id = options_.run_id}) : NodeVerdict{});
    exchange_.reset();
    return report.exit_code;
  }

 private:
  void Send(const NodeMessage& message) {
    if (!checkup_.by_head) return;
    Show(ToLine(message) + "\n");
  }

  void Note(const std::string& sentence) {
    const std::string line = absl::StrCat("ddprun doctor: ", sentence);
    if (checkup_.by_head) {
      Show(MarkLine(true, line) + "\n");
    } else {
      std::fprintf(stderr, "%s\n", line.c_str());
    }
  }

  void Print(const DoctorReport& report) {
    const bool json = options_.doctor->json;
    if (json && report.json.empty()) return Note("the JSON is too large to send; see node 0");
    const std::string& text = json ? report.json : report.text;
    if (!checkup_.by_head) {
      Show(text);
      return;
    }
    for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n'))
      Show(MarkLine(false, line) + "\n");
  }

  // As Agent does it. On failure the checkup covers this node alone.
  absl::Status MeetOthers() {
    facts_.secret = SecretText(options_, token_.has_value(), ReadVariable);
    prctl(PR_SET_DUMPABLE, 0);  // keeps the secret out of core files
    absl::StatusOr<Security> security =
        Security::Open(options_.security, std::move(token_), ReadVariable);
    if (!security.ok()) {
      facts_.secret_error = std::string(security.status().message());
      CollectNetworkFacts(options_, facts_);
      return absl::FailedPreconditionError("this node's secret cannot be used (see below)");
    }
    absl::StatusOr<RendezvousEndpoint> rendezvous = Meet(*security);
    if (!rendezvous.ok()) {
      CollectNetworkFacts(options_, facts_);
      return rendezvous.status();
    }
    const NodeId node_id = MakeNodeId(facts_.host);
    auto credentials = security->ForNode(DoctorRunId(options_), node_id.value);
    if (!credentials.ok()) return credentials.status();
    const absl::StatusOr<std::string> address =
        options_.local_addr.empty() ? AdvertisedAddress(rendezvous->host, rendezvous->port)
                                    : options_.local_addr;
    facts_.address = address.value_or("");
    CollectNetworkFacts(options_, facts_);
    if (!address.ok()) return address.status();
    auto server = ProbeServer::Start(*address);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    facts_.probe_port = server_->port();
    facts_.probe_key = server_->key();
    auto exchange = DoctorExchange::Open(
        options_, facts_, node_id, [this](const std::string& why) { Note(why); },
        *std::move(rendezvous), *credentials);
    if (!exchange.ok()) return exchange.status();
    exchange_ = *std::move(exchange);
    Send(Joined{});
    if (!options_.node_rank.has_value()) facts_.node = exchange_->index();
    return absl::OkStatus();
  }

  absl::StatusOr<RendezvousEndpoint> Meet(const Security& security) {
    // If the port is fixed, the process that uses it is named.
    const bool must_host = !options_.endpoint.has_value() && options_.node_rank == 0;
    if (must_host) facts_.service_port = options_.master_port.value_or(kPortDefault);
    facts_.hosts_service = must_host;
    absl::StatusOr<RendezvousEndpoint> rendezvous = OpenRendezvous(options_, security, "doctor");
    if (rendezvous.ok() && rendezvous->server != nullptr) {
      facts_.service_port = rendezvous->port;
      facts_.hosts_service = true;
      Send(Serving{rendezvous->port});
    }
    if (!must_host || !absl::IsAlreadyExists(rendezvous.status())) return rendezvous;
    facts_.service_port_holder = PortHolder(facts_.service_port);
    // If that process is a ddprun, the nodes can still meet at its service.
    Options elsewhere = options_;
    elsewhere.endpoint = Endpoint{*options_.master_addr, facts_.service_port};
    elsewhere.is_host = false;
    return OpenRendezvous(elsewhere, security, "doctor");
  }

  // ---- After the nodes have met

  absl::StatusOr<NodeFacts> FactsOf(int index) {
    if (index == exchange_->index()) return facts_;
    return exchange_->Get<NodeFacts>(Key("facts", index), kDoctorStepTimeout);
  }

  std::vector<PairFacts> TryWays() {
    std::vector<ProbePeer> peers;
    int next = -1;
    for (const int index : PlanPeers(exchange_->index(), exchange_->count())) {
      const absl::StatusOr<NodeFacts> facts = FactsOf(index);
      if (!facts.ok()) continue;  // node 0 reports that for all
      peers.push_back({facts->node, facts->address, facts->probe_port, facts->probe_key});
      if (index == RingPeer(exchange_->index(), exchange_->count())) next = facts->node;
    }
    Probe probe(facts_.node, peers);
    exchange_->Meet("doctor/asked", kDoctorStepTimeout);
    probe.Send(next);
    return probe.pairs();
  }

  absl::StatusOr<DoctorReport> Exchange() {
    const int index = exchange_->index();
    absl::Status status = exchange_->Set(Key("facts", index), Encode(facts_));
    if (status.ok()) status = exchange_->Set(Key("pairs", index), Encode(TryWays()));
    if (!status.ok()) return status;
    if (index == 0) {
      Gather();
      const DoctorReport report = MakeReport();
      exchange_->Set("doctor/report", Encode(report)).IgnoreError();
      return report;
    }
    // Node 0 may have to wait for other nodes first.
    return exchange_->Get<DoctorReport>("doctor/report", 3 * kDoctorStepTimeout);
  }

  DoctorReport Agree() {
    const absl::StatusOr<DoctorReport> report = Exchange();
    if (report.ok()) return *report;
    checkup_.rendezvous_error =
        absl::StrCat("the exchange with them failed: ", report.status().message());
    return ReportAlone();
  }

  absl::Status GatherFrom(int index, std::string& who) {
    const absl::StatusOr<NodeFacts> facts = FactsOf(index);
    if (!facts.ok()) return facts.status();
    who = absl::StrCat("node ", facts->node, " (", facts->host, ")");
    checkup_.nodes.push_back(*facts);
    const auto pairs =
        exchange_->Get<std::vector<PairFacts>>(Key("pairs", index), kDoctorStepTimeout);
    if (!pairs.ok()) return pairs.status();
    checkup_.pairs.insert(checkup_.pairs.end(), pairs->begin(), pairs->end());
    return absl::OkStatus();
  }

  void Gather() {
    for (int index = 0; index < exchange_->count(); ++index) {
      std::string who = "one of the nodes";
      const absl::Status status = GatherFrom(index, who);
      if (status.ok()) continue;
      checkup_.silences.push_back(
          absl::StrCat(who, " came and then failed: ", status.message(), "; see its output"));
    }
    // With --nnodes MIN:MAX more than MIN may have come.
    checkup_.nodes_wanted =
        std::max(checkup_.nodes_wanted, static_cast<int>(checkup_.nodes.size()));
    std::sort(checkup_.nodes.begin(), checkup_.nodes.end(),
              [](const NodeFacts& a, const NodeFacts& b) { return a.node < b.node; });
  }

  DoctorReport ReportAlone() {
    checkup_.nodes = {facts_};
    return MakeReport();
  }

  DoctorReport MakeReport() const {
    const std::vector<Finding> findings = Diagnose(checkup_);
    return {.exit_code = ExitCodeOf(findings),
            .text = DoctorText(checkup_, findings),
            .json = DoctorJson(checkup_, findings)};
  }

  const Options options_;
  std::optional<absl::StatusOr<Token>> token_;
  NodeFacts facts_;
  Checkup checkup_;
  std::unique_ptr<ProbeServer> server_;
  std::unique_ptr<DoctorExchange> exchange_;
};

}  // namespace

int RunDoctor(DoctorCall call) {
  Doctor doctor(std::move(call));
  return doctor.Run();
}

}  // namespace ddprun
