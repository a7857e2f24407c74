// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/kubernetes_env.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

std::string Text(const GetVariable& get_variable, const char* name) {
  return get_variable(name).value_or("");
}

// `missing`: of a variable that is not set, or of a label that the pod does not have.
std::optional<int> Number(const std::string& text, int least, int missing) {
  int number = missing;
  if (text.empty()) return missing;
  if (!absl::SimpleAtoi(text, &number) || number < least || number > kNodesMax) return std::nullopt;
  return number;
}

// A pod of a JobSet has the labels of its Job, too.
void NameByJobSet(const GetVariable& get_variable, const std::string& job_set, KubernetesPod& pod) {
  const std::string replicated_job = Text(get_variable, "DDPRUN_JOBSET_REPLICATEDJOB_NAME");
  const std::string uid = Text(get_variable, "DDPRUN_JOBSET_UID");
  std::string service = Text(get_variable, "DDPRUN_JOBSET_SUBDOMAIN");
  if (service.empty()) service = job_set;
  if (!replicated_job.empty())
    pod.first_host = absl::StrCat(job_set, "-", replicated_job, "-0-0.", service);
  if (uid.empty()) return;
  const std::string attempt = Text(get_variable, "DDPRUN_JOBSET_RESTART_ATTEMPT");
  pod.run_id = absl::StrCat("jobset-", uid, "-", attempt.empty() ? "0" : attempt);
}

void NameByJob(const GetVariable& get_variable, KubernetesPod& pod) {
  const std::string job = Text(get_variable, "DDPRUN_JOB_NAME");
  const std::string uid = Text(get_variable, "DDPRUN_JOB_UID");
  const std::string service = Text(get_variable, "DDPRUN_SERVICE");
  if (!job.empty() && !service.empty()) pod.first_host = absl::StrCat(job, "-0.", service);
  if (!uid.empty()) pod.run_id = absl::StrCat("job-", uid);
}

// The number of this node; absent: it is none of the run's, which the reader says.
std::optional<int> RankOf(const KubernetesPod& pod, int nodes, Reader& reader) {
  if (nodes % pod.jobs != 0) {
    reader.FailWith(absl::StrCat("--nnodes ", nodes, " cannot be divided by the ", pod.jobs,
                                 " replicas of the replicatedJob (DDPRUN_JOBSET_JOBS); set "
                                 "PET_NNODES to replicas times completions"));
    return std::nullopt;
  }
  const int completions = nodes / pod.jobs;
  if (pod.index >= completions || pod.job_index >= pod.jobs) {
    reader.FailWith(absl::StrCat("JOB_COMPLETION_INDEX is ", pod.index, " and --nnodes ", nodes,
                                 " leaves ", completions,
                                 " pods for each Job; set PET_NNODES and the Job's completions "
                                 "to the same number"));
    return std::nullopt;
  }
  return pod.job_index * completions + pod.index;
}

}  // namespace

std::optional<KubernetesPod> ReadKubernetesPod(const GetVariable& get_variable) {
  const std::string index_text = Text(get_variable, "JOB_COMPLETION_INDEX");
  if (index_text.empty()) return std::nullopt;
  const auto index = Number(index_text, 0, 0);
  const auto job_index = Number(Text(get_variable, "DDPRUN_JOBSET_JOB_INDEX"), 0, 0);
  const auto jobs = Number(Text(get_variable, "DDPRUN_JOBSET_JOBS"), 1, 1);
  if (!index.has_value() || !job_index.has_value() || !jobs.has_value()) return std::nullopt;
  KubernetesPod pod{.index = *index, .job_index = *job_index, .jobs = *jobs};
  const std::string job_set = Text(get_variable, "DDPRUN_JOBSET_NAME");
  if (job_set.empty()) {
    NameByJob(get_variable, pod);
  } else {
    NameByJobSet(get_variable, job_set, pod);
  }
  return pod;
}

void FollowKubernetesPod(const GetVariable& get_variable, Reader& reader, Options& options) {
  if (options.standalone || options.hosts.asked() || !UsesNetwork(options)) return;
  const std::optional<KubernetesPod> pod = ReadKubernetesPod(get_variable);
  if (!pod.has_value()) return;
  // With MIN:MAX nodes the service assigns the ranks, and any pod may be missing.
  const bool fixed = options.nodes == options.nodes_min;
  if (fixed && !options.node_rank.has_value())
    options.node_rank = RankOf(*pod, options.nodes, reader);
  if (options.run_id.empty()) options.run_id = pod->run_id;
  if (options.endpoint.has_value()) return;
  const std::string host = options.master_addr.value_or(pod->first_host);
  if (host.empty()) return;
  options.endpoint = Endpoint{host, options.master_port.value_or(kPortDefault)};
  if (!options.is_host.has_value()) {
    options.is_host = fixed && options.node_rank.has_value()
                          ? *options.node_rank == 0
                          : pod->index == 0 && pod->job_index == 0;
  }
}

void FollowTerminationMessage(const GetVariable& get_variable, Options& options) {
  if (!options.verdict.termination_log.empty() || get_variable("TORCHELASTIC_RUN_ID").has_value() ||
      Text(get_variable, "KUBERNETES_SERVICE_HOST").empty()) {
    return;
  }
  options.verdict.termination_log = "/dev/termination-log";
  options.verdict.in_pod = true;
}

}  // namespace ddprun
