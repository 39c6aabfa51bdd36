// Sets, checks and prints a NodeConfig by the table of options. No state; any thread.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <unistd.h>

#include <stagewire/base/config.h>

#include "base/config_settings.h"
#include "base/config_table.h"
#include "base/host_port.h"
#include "base/units.h"

namespace stagewire {

namespace config {

namespace {

// Longest text and list that an option may have: far above any sensible value, far below what hurts.
constexpr std::size_t kMaxTextLength = 4096;
constexpr std::size_t kMaxListLength = 64;

bool is_control(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20U || byte == 0x7fU;
}

std::string_view trim(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string kind_of(const ConfigValue& value) {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return "the number " + std::to_string(v); }
    std::string operator()(double v) const { return "the number " + std::to_string(v); }
    std::string operator()(const std::string& v) const { return shown(v); }
    std::string operator()(const std::vector<std::string>&) const { return "a list"; }
  };
  return std::visit(Visitor{}, value);
}

Error mismatch(const Row& row, const ConfigValue& value) {
  // A secret that was pasted wrongly is a secret still.
  const std::string got = row.secret ? "something else" : kind_of(value);
  return config_error("", "expected " + expectation(row) + ", got " + got);
}

Error from_units(const Error& error) {
  return config_error("", error.message());
}

Result<std::uint64_t> check_range(const Row& row, std::uint64_t number, const ConfigValue& value) {
  if (number < row.minimum || number > row.maximum) return mismatch(row, value);
  return number;
}

Status check_text(std::string_view text) {
  if (text.size() > kMaxTextLength) {
    return config_error("", "the text has " + std::to_string(text.size()) + " bytes; at most " +
                                std::to_string(kMaxTextLength) + " are allowed");
  }
  if (std::any_of(text.begin(), text.end(), is_control)) {
    return config_error("", "the text has a control character (a line break, tab or NUL); remove it");
  }
  return {};
}

Result<bool> to_boolean(const Row& row, const ConfigValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* text = std::get_if<std::string>(&value)) {
    static constexpr std::array<std::string_view, 4> kTrue{"true", "yes", "on", "1"};
    static constexpr std::array<std::string_view, 4> kFalse{"false", "no", "off", "0"};
    std::string folded(trim(*text));
    std::transform(folded.begin(), folded.end(), folded.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    if (std::find(kTrue.begin(), kTrue.end(), folded) != kTrue.end()) return true;
    if (std::find(kFalse.begin(), kFalse.end(), folded) != kFalse.end()) return false;
  }
  return mismatch(row, value);
}

Result<std::uint64_t> to_count(const Row& row, const ConfigValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    if (*number < 0) return mismatch(row, value);
    return check_range(row, static_cast<std::uint64_t>(*number), value);
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    const std::string_view digits = trim(*text);
    std::uint64_t number = 0;
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (fault == std::errc() && end == digits.data() + digits.size()) return check_range(row, number, value);
  }
  return mismatch(row, value);
}

Result<std::uint64_t> to_size(const Row& row, const ConfigValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    if (*number < 0) return mismatch(row, value);
    return check_range(row, static_cast<std::uint64_t>(*number), value);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    constexpr double kExact = 9007199254740992.0;  // 2^53: whole numbers up to here are exact in a double
    if (!(*number >= 0 && *number <= kExact) || std::trunc(*number) != *number) return mismatch(row, value);
    return check_range(row, static_cast<std::uint64_t>(*number), value);
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    auto parsed = parse_size(*text, row.minimum, row.maximum);
    if (!parsed) return from_units(parsed.error());
    return parsed;
  }
  return mismatch(row, value);
}

Result<std::uint64_t> to_duration(const Row& row, const ConfigValue& value) {
  constexpr double kNanoseconds = 1e9;
  if (const auto* text = std::get_if<std::string>(&value)) {
    const auto as_duration = [](std::uint64_t bound) {
      return std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(bound));
    };
    const auto parsed = parse_duration(*text, as_duration(row.minimum), as_duration(row.maximum));
    if (!parsed) return from_units(parsed.error());
    return static_cast<std::uint64_t>(parsed->count());
  }
  double seconds = -1;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) seconds = static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value)) seconds = *number;
  // Compared as seconds first: the product of a huge number would not fit, and NaN compares false.
  if (!(seconds >= 0 && seconds <= static_cast<double>(row.maximum) / kNanoseconds))
    return mismatch(row, value);
  return check_range(row, static_cast<std::uint64_t>(std::llround(seconds * kNanoseconds)), value);
}

Status check_choice(const Row& row, const std::string& choice) {
  if (row.choices.empty() || std::find(row.choices.begin(), row.choices.end(), choice) != row.choices.end()) {
    return {};
  }
  return mismatch(row, choice);
}

Result<std::string> to_text(const Row& row, const ConfigValue& value) {
  const auto* const text = std::get_if<std::string>(&value);
  if (text == nullptr) return mismatch(row, value);
  STAGEWIRE_TRY(check_text(*text));
  STAGEWIRE_TRY(check_choice(row, *text));
  return *text;
}

Status check_list(const Row& row, const std::vector<std::string>& items) {
  if (items.size() > kMaxListLength) {
    return config_error("", "the list has " + std::to_string(items.size()) + " items; at most " +
                                std::to_string(kMaxListLength) + " are allowed");
  }
  for (const std::string& item : items) {
    if (item.empty()) return config_error("", "the list has an empty item; expected " + expectation(row));
    STAGEWIRE_TRY(check_text(item));
    STAGEWIRE_TRY(check_choice(row, item));
  }
  return {};
}

Result<std::vector<std::string>> to_list(const Row& row, const ConfigValue& value) {
  std::vector<std::string> items;
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    items = *list;
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    STAGEWIRE_TRY(check_text(*text));
    std::string_view rest = trim(*text);
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      items.emplace_back(trim(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
      if (rest.empty()) items.emplace_back();  // a comma at the end: an empty item, refused below
    }
  } else {
    return mismatch(row, value);
  }
  STAGEWIRE_TRY(check_list(row, items));
  return items;
}

// Converts `value` and stores it in the field of the row.
struct Assign {
  NodeConfig& config;
  const Row& row;
  const ConfigValue& value;

  Status operator()(bool NodeConfig::* field) const { return store(field, to_boolean(row, value)); }
  Status operator()(std::uint32_t NodeConfig::* field) const {
    STAGEWIRE_ASSIGN(const std::uint64_t number, to_count(row, value));
    config.*field = static_cast<std::uint32_t>(number);  // every row's maximum fits
    return {};
  }
  Status operator()(std::uint64_t NodeConfig::* field) const { return store(field, to_size(row, value)); }
  Status operator()(std::chrono::nanoseconds NodeConfig::* field) const {
    STAGEWIRE_ASSIGN(const std::uint64_t number, to_duration(row, value));
    config.*field = std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(number));
    return {};
  }
  Status operator()(std::string NodeConfig::* field) const { return store(field, to_text(row, value)); }
  Status operator()(std::vector<std::string> NodeConfig::* field) const {
    return store(field, to_list(row, value));
  }

  template <typename T>
  Status store(T NodeConfig::* field, Result<T> converted) const {
    if (!converted) return std::move(converted).error();
    config.*field = std::move(converted).value();
    return {};
  }
};

// Checks a field that may have been filled by hand.
struct Check {
  const NodeConfig& config;
  const Row& row;

  Status operator()(bool NodeConfig::*) const { return {}; }
  Status operator()(std::uint32_t NodeConfig::* field) const { return number(config.*field, true); }
  Status operator()(std::uint64_t NodeConfig::* field) const { return number(config.*field, true); }
  Status operator()(std::chrono::nanoseconds NodeConfig::* field) const {
    const auto count = (config.*field).count();
    return number(static_cast<std::uint64_t>(count), count >= 0);
  }
  Status operator()(std::string NodeConfig::* field) const {
    STAGEWIRE_TRY(check_text(config.*field));
    return check_choice(row, config.*field);
  }
  Status operator()(std::vector<std::string> NodeConfig::* field) const {
    return check_list(row, config.*field);
  }

  Status number(std::uint64_t value, bool positive) const {
    if (positive && value >= row.minimum && value <= row.maximum) return {};
    return config_error("", "expected " + expectation(row) + ", got " + value_text(row, config));
  }
};

Error about_option(std::string_view where, std::string_view name, const Error& error) {
  return config_error(where, "option '" + std::string(name) + "': " + error.message());
}

Status set_named(NodeConfig& config, std::string_view name, const ConfigValue& value,
                 std::string_view where) {
  const Row* const row = find_row(name);
  if (row == nullptr) {
    std::string message = "there is no option " + shown(name);
    const std::string_view nearest = nearest_name(name);
    if (nearest.empty()) {
      message += "; docs/configuration.md lists all options";
    } else {
      (message += "; did you mean '") += nearest;
      message += "'?";
    }
    return config_error(where, std::move(message));
  }
  if (const Status status = std::visit(Assign{config, *row, value}, row->field); !status) {
    return about_option(where, name, status.error());
  }
  return {};
}

Status check_addresses(const char* option, const std::vector<std::string>& addresses, bool may_choose_port) {
  std::set<std::string> seen;
  for (const std::string& text : addresses) {
    const auto address = parse_host_port(text);
    if (!address) return about_option("", option, address.error());
    if (address->port == 0) {
      if (may_choose_port) continue;
      return about_option("", option,
                          config_error("", shown(text) + " needs the port that peers are to dial"));
    }
    if (!seen.insert(to_string(*address)).second) {
      return about_option("", option, config_error("", shown(text) + " is there twice; remove one"));
    }
  }
  return {};
}

Status check_routes(const std::vector<std::string>& routes) {
  const auto fault = [](std::string what) {
    return about_option("", "routes", config_error("", std::move(what)));
  };
  if (routes.empty()) return fault("the list is empty; name a transport, or auto");
  const std::set<std::string> distinct(routes.begin(), routes.end());
  if (distinct.size() != routes.size()) return fault("a transport is there twice; remove one");
  if (distinct.size() > 1 && distinct.contains("auto")) {
    return fault("auto stands for all transports; give it alone, or name the transports without it");
  }
  return {};
}

Status check_security(const NodeConfig& config) {
  if (!config.secret.empty() && !config.secret_file.empty()) {
    return config_error("", "options 'secret' and 'secret_file' are both set; keep one of them");
  }
  if (config.insecure && !(config.secret.empty() && config.secret_file.empty())) {
    return config_error("", "option 'insecure' contradicts the secret that is set; remove one of the two");
  }
  return {};
}

Status check_times(const NodeConfig& config) {
  if (config.lease < 3 * config.heartbeat) {
    return config_error(
        "", "option 'lease' (" + exact_duration(config.lease) + ") must be at least 3 × 'heartbeat' (" +
                exact_duration(config.heartbeat) +
                "), so that one lost heartbeat ends nothing; raise the lease or lower the heartbeat");
  }
  if (config.max_lifetime < config.ttl) {
    return config_error("", "option 'max_lifetime' (" + exact_duration(config.max_lifetime) +
                                ") must be at least 'ttl' (" + exact_duration(config.ttl) + ")");
  }
  return {};
}

Status check_rdma(const NodeConfig& config) {
  if (config.rdma_window >= config.rdma_chunk) return {};
  return about_option("", "rdma_window",
                      config_error("", "it is smaller than rdma_chunk, of which at least one has to fit"));
}

// What the kernel or a file system bounds.
Status check_names(const NodeConfig& config) {
  constexpr std::size_t kMaxName = 64;
  // sockaddr_un holds 107 characters; "/stagewire-node-<32 digits>.sock" has 53 of them (session/address.cc).
  constexpr std::size_t kMaxSocketDir = 54;
  constexpr std::size_t kMaxCongestion = 15;  // TCP_CA_NAME_MAX of linux/tcp.h, less the terminator
  constexpr std::uint64_t kLeastBuffer = 4096;
  const auto fault = [](const char* option, std::string what) {
    return about_option("", option, config_error("", std::move(what)));
  };
  if (config.name.size() > kMaxName) return fault("name", "at most 64 bytes are allowed");
  if (config.socket_dir.size() > kMaxSocketDir) {
    return fault("socket_dir", "at most 54 bytes are allowed, because the path of a Unix socket is short");
  }
  if (!config.socket_dir.empty() && config.socket_dir.front() != '/') {
    return fault("socket_dir", shown(config.socket_dir) + " is not an absolute path");
  }
  if (config.tcp_congestion.size() > kMaxCongestion)
    return fault("tcp_congestion", "at most 15 bytes are allowed");
  if (config.tcp_buffer != 0 && config.tcp_buffer < kLeastBuffer) {
    return fault("tcp_buffer", "expected 0 or at least 4 KiB, got " + exact_size(config.tcp_buffer));
  }
  return {};
}

// Double-quoted YAML.
std::string yaml_quoted(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      (quoted += '\\') += c;
    } else if (is_control(c)) {
      const auto byte = static_cast<unsigned char>(c);
      ((quoted += "\\x") += kDigits[byte >> 4U]) += kDigits[byte & 15U];
    } else {
      quoted += c;
    }
  }
  return quoted += '"';
}

std::string yaml_value(const Row& row, const NodeConfig& config) {
  if (const auto* text = std::get_if<std::string NodeConfig::*>(&row.field)) {
    const std::string& value = config.**text;
    return yaml_quoted(row.secret && !value.empty() ? "(redacted)" : value);
  }
  if (const auto* list = std::get_if<std::vector<std::string> NodeConfig::*>(&row.field)) {
    std::string text = "[";
    for (const std::string& item : config.**list) (text += text.size() > 1 ? ", " : "") += yaml_quoted(item);
    return text += ']';
  }
  return value_text(row, config);
}

}  // namespace

Error config_error(std::string_view where, std::string what) {
  return Error(ErrorKind::config, where.empty() ? std::move(what) : std::string(where) + ": " + what);
}

std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string result = "'";
  for (const char c : text.substr(0, kShown)) result += is_control(c) ? '?' : c;
  if (text.size() > kShown) result += "…";
  return result += '\'';
}

Status apply_settings(NodeConfig& config, const std::vector<Setting>& settings) {
  NodeConfig changed = config;
  std::set<std::string_view> seen;
  for (const Setting& setting : settings) {
    if (!seen.insert(setting.name).second) {
      return config_error(setting.where, "option " + shown(setting.name) + " is set twice; remove one");
    }
  }
  // The two ways to give the secret are one choice: a stronger source that makes it undoes the weaker one's.
  if (seen.contains("secret") != seen.contains("secret_file")) {
    (seen.contains("secret") ? changed.secret_file : changed.secret).clear();
  }
  for (const Setting& setting : settings) {
    STAGEWIRE_TRY(set_named(changed, setting.name, setting.value, setting.where));
  }
  config = std::move(changed);
  return {};
}

}  // namespace config

Status set_option(NodeConfig& config, std::string_view name, const ConfigValue& value) {
  return config::apply_settings(config, {{std::string(name), value, ""}});
}

Status apply_dict(NodeConfig& config, const ConfigDict& values) {
  std::vector<config::Setting> settings;
  settings.reserve(values.size());
  for (const auto& [name, value] : values) settings.push_back({name, value, ""});
  return config::apply_settings(config, settings);
}

Status apply_environment(NodeConfig& config, std::span<const std::string> variables) {
  constexpr std::string_view kPrefix = "STAGEWIRE_";
  std::vector<config::Setting> settings;
  for (const std::string& variable : variables) {
    if (!variable.starts_with(kPrefix)) continue;
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = variable.substr(0, equals);
    const auto& rows = config::rows();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const config::Row& candidate) {
      return config::environment_name(candidate.name) == name;
    });
    if (row != rows.end()) {
      settings.push_back(
          {std::string(row->name), variable.substr(equals + 1), "environment variable " + name});
      continue;
    }
    const std::string_view nearest = config::nearest_name(std::string_view(name).substr(kPrefix.size()));
    if (!nearest.empty()) {
      return config::config_error("environment variable " + config::shown(name),
                                  "sets no option; did you mean " + config::environment_name(nearest) + "?");
    }
  }
  return config::apply_settings(config, settings);
}

Status apply_environment(NodeConfig& config) {
  std::vector<std::string> variables;
  for (char** variable = ::environ; variable != nullptr && *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return apply_environment(config, variables);
}

Result<NodeConfig> load_config(const ConfigSources& sources) {
  NodeConfig config;
  if (sources.file) STAGEWIRE_TRY(apply_yaml_file(config, *sources.file));
  if (sources.environment) STAGEWIRE_TRY(apply_environment(config));
  STAGEWIRE_TRY(apply_dict(config, sources.values));
  STAGEWIRE_TRY(validate(config));
  return config;
}

Status validate(const NodeConfig& config) {
  for (const config::Row& row : config::rows()) {
    if (const Status status = std::visit(config::Check{config, row}, row.field); !status) {
      return config::about_option("", row.name, status.error());
    }
  }
  STAGEWIRE_TRY(config::check_security(config));
  STAGEWIRE_TRY(config::check_addresses("listen", config.listen, true));
  STAGEWIRE_TRY(config::check_addresses("advertise", config.advertise, false));
  STAGEWIRE_TRY(config::check_routes(config.routes));
  STAGEWIRE_TRY(config::check_times(config));
  STAGEWIRE_TRY(config::check_rdma(config));
  return config::check_names(config);
}

std::string describe(const NodeConfig& config) {
  std::string text;
  for (const config::Row& row : config::rows()) {
    ((text += row.name) += ": ") += config::yaml_value(row, config);
    text += '\n';
  }
  return text;
}

}  // namespace stagewire
