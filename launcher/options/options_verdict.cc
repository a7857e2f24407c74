// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/options_verdict.h"

namespace ddprun {

const std::vector<Flag> kVerdictFlags = {
    {"--verdict", 0, "text|json", "Format of a failed run's verdict (text); json: one line."},
    {"--verdict-file", 0, "FILE", "Also write the verdict to FILE as JSON, on success too."},
};

VerdictOptions ReadVerdictOptions(Reader& reader) {
  VerdictOptions options;
  const std::string form = reader.Text("--verdict", "text or json", "text");
  if (form == "json") {
    options.form = VerdictForm::kJson;
  } else if (form != "text") {
    reader.Fail(*reader.Find("--verdict"), "text or json");
  }
  options.file = reader.Text("--verdict-file", "a file", "");
  return options;
}

}  // namespace ddprun
