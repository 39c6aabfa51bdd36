// doctor: says for each transport whether it works here, why not, and what to run. See commands.h.
#include <algorithm>
#include <cstdio>

#include "bench/figure.h"
#include "commands.h"
#include "common/json.h"
#include "common/version.h"
#include "doctor_checks.h"

namespace stagewire::tools {

namespace {

const char* mark_of(Health health) {
  switch (health) {
    case Health::works:
      return "✓";
    case Health::limited:
      return "!";
    case Health::broken:
      return "✗";
    case Health::absent:
      return "-";
  }
  return " ";
}

const char* word_of(const CheckGroup& group) {
  switch (group.health()) {
    case Health::works:
      return "works";
    case Health::limited:
      return "works, with limits";
    case Health::broken:
      return "does not work";
    case Health::absent:
      return "not used";
  }
  return "";
}

// Breaks text into lines of at most `width` columns, the later ones indented.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out;
  std::string line;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t stop = std::min(text.find(' ', start), text.size());
    const std::string word = text.substr(start, stop - start);
    if (!line.empty() && columns(line) + 1 + columns(word) > width - indent) {
      out += line + '\n' + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    start = stop + 1;
  }
  return out + line;
}

void print_text(const std::vector<CheckGroup>& groups) {
  constexpr std::size_t kName = 28;
  constexpr std::size_t kIndent = 4 + kName;
  constexpr std::size_t kWidth = 100;
  for (const CheckGroup& group : groups) {
    std::printf("%s %s: %s\n", mark_of(group.health()), group.name.c_str(), word_of(group));
    for (const Check& check : group.checks) {
      std::printf("  %s %s%s\n", mark_of(check.health), padded(check.name, kName).c_str(),
                  wrapped(check.finding, kIndent, kWidth).c_str());
      if (!check.fix.empty()) {
        std::printf("%s%s\n", std::string(kIndent, ' ').c_str(),
                    wrapped("→ " + check.fix, kIndent, kWidth).c_str());
      }
    }
  }
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  const Result<NodeConfig> config = node_config(options.node);
  if (!config.ok()) return report_error(config.error());
  const std::vector<CheckGroup> groups = run_checks(*config);
  const bool broken = std::any_of(groups.begin(), groups.end(),
                                  [](const CheckGroup& g) { return g.health() == Health::broken; });
  if (options.json) {
    Json list = Json::list();
    for (const CheckGroup& group : groups) {
      Json checks = Json::list();
      for (const Check& check : group.checks) {
        checks.push(Json::object()
                        .set("name", check.name)
                        .set("state", to_string(check.health))
                        .set("finding", check.finding)
                        .set("fix", check.fix));
      }
      list.push(Json::object()
                    .set("name", group.name)
                    .set("state", to_string(group.health()))
                    .set("checks", checks));
    }
    Json json = Json::object();
    json.set("version", version_number()).set("healthy", !broken).set("parts", std::move(list));
    std::printf("%s\n", json.text().c_str());
  } else {
    print_text(groups);
  }
  return broken ? kExitFailed : kExitOk;
}

}  // namespace stagewire::tools
