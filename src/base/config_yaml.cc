// Reads configuration from YAML with libyaml's event interface, in this file alone. Events are checked one by
// one, so that anchors, deep nesting and other things a configuration has no use for are refused before they
// cost anything. No state; any thread.
#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include <stagewire/base/config.h>

#include "base/config_settings.h"
#include "base/fd.h"

namespace stagewire {

namespace {

using config::config_error;
using config::Setting;
using config::shown;

// Options are a mapping of scalars and lists, depth 2. Up to here wrong nesting is reported for what it is at
// its option; beyond it the file is not a configuration.
constexpr int kMaxDepth = 4;

// One libyaml event, freed with its scope.
class Event {
 public:
  Event() = default;
  ~Event() {
    if (filled_) yaml_event_delete(&event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool parse(yaml_parser_t& parser) {
    filled_ = yaml_parser_parse(&parser, &event_) != 0;
    return filled_;
  }
  yaml_event_type_t type() const noexcept { return event_.type; }
  std::size_t line() const noexcept { return event_.start_mark.line + 1; }

  std::string scalar() const {
    const auto& data = event_.data.scalar;
    return {reinterpret_cast<const char*>(data.value), data.length};
  }
  // An empty value that is not written in quotes, or one of YAML's words for nothing.
  bool is_null() const {
    if (event_.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    const std::string text = scalar();
    return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
  }
  bool has_anchor() const noexcept {
    switch (event_.type) {
      case YAML_SCALAR_EVENT:
        return event_.data.scalar.anchor != nullptr;
      case YAML_SEQUENCE_START_EVENT:
        return event_.data.sequence_start.anchor != nullptr;
      case YAML_MAPPING_START_EVENT:
        return event_.data.mapping_start.anchor != nullptr;
      default:
        return event_.type == YAML_ALIAS_EVENT;
    }
  }
  bool has_tag() const noexcept {
    switch (event_.type) {
      case YAML_SCALAR_EVENT:
        return event_.data.scalar.tag != nullptr;
      case YAML_SEQUENCE_START_EVENT:
        return event_.data.sequence_start.tag != nullptr;
      case YAML_MAPPING_START_EVENT:
        return event_.data.mapping_start.tag != nullptr;
      default:
        return false;
    }
  }

 private:
  yaml_event_t event_{};
  bool filled_ = false;
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view source)
      : source_(source), ready_(yaml_parser_initialize(&parser_) != 0) {
    if (!ready_) return;
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Reader() {
    if (ready_) yaml_parser_delete(&parser_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  Result<std::vector<Setting>> read() {
    if (!ready_) return config_error(source_, "the YAML parser could not be started: out of memory");
    for (;;) {
      Event event;
      STAGEWIRE_TRY(next(event));
      STAGEWIRE_TRY(take(event));
      // More settings than there are options: one is unknown or repeated, and will be reported as that.
      if (event.type() == YAML_STREAM_END_EVENT || settings_.size() > config_options().size()) {
        return std::move(settings_);
      }
    }
  }

 private:
  std::string where(std::size_t line) const { return source_ + ", line " + std::to_string(line); }

  Status next(Event& event) {
    if (!event.parse(parser_)) {
      const char* const problem = parser_.problem != nullptr ? parser_.problem : "out of memory";
      return config_error(where(parser_.problem_mark.line + 1), std::string("not valid YAML: ") + problem);
    }
    if (event.has_anchor()) {
      return config_error(where(event.line()), "anchors and aliases are not allowed; write the value out");
    }
    if (event.has_tag()) {
      return config_error(where(event.line()), "tags are not allowed; write the plain value");
    }
    return {};
  }

  Status take(const Event& event) {
    switch (event.type()) {
      case YAML_DOCUMENT_START_EVENT:
        if (++documents_ > 1) {
          return config_error(where(event.line()), "a second document starts here; keep one");
        }
        return {};
      case YAML_SCALAR_EVENT:
        return take_scalar(event);
      case YAML_MAPPING_START_EVENT:
      case YAML_SEQUENCE_START_EVENT:
        return take_start(event);
      case YAML_MAPPING_END_EVENT:
      case YAML_SEQUENCE_END_EVENT:
        return take_end();
      default:
        return {};
    }
  }

  Status take_scalar(const Event& event) {
    if (depth_ == 0) {
      if (event.is_null()) return {};  // a document of comments alone
      return not_a_mapping(event, "a single value");
    }
    if (depth_ == 1 && !option_) {
      option_ = Setting{event.scalar(), std::string(), where(event.line())};
      return {};
    }
    if (event.is_null()) {
      return config_error(where(event.line()), "option " + shown(option_->name) +
                                                   ": the value is missing; write it, '' for an empty text, "
                                                   "or remove the line");
    }
    if (depth_ == 1) {
      option_->value = event.scalar();
      finish_option();
    } else {
      std::get<std::vector<std::string>>(option_->value).push_back(event.scalar());
    }
    return {};
  }

  Status take_start(const Event& event) {
    const bool mapping = event.type() == YAML_MAPPING_START_EVENT;
    if (++depth_ > kMaxDepth) return too_deep(event);
    if (depth_ == 1) return mapping ? Status() : not_a_mapping(event, "a list");
    if (!option_)
      return config_error(where(event.line()), "expected the name of an option, got a list or mapping");
    if (depth_ == 2 && !mapping) {
      option_->value = std::vector<std::string>();
      return {};
    }
    const Error fault = config_error(where(event.line()), "option " + shown(option_->name) +
                                                              ": expected a value or a list, got " +
                                                              (mapping ? "a mapping" : "a list in a list"));
    STAGEWIRE_TRY(skip_nested());  // nesting without end is reported as that
    return fault;
  }

  // Reads on to the end of the list or mapping that was just entered.
  Status skip_nested() {
    for (const int outer = depth_ - 1; depth_ > outer;) {
      Event event;
      STAGEWIRE_TRY(next(event));
      const yaml_event_type_t type = event.type();
      if (type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT) {
        if (++depth_ > kMaxDepth) return too_deep(event);
      } else if (type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT) {
        --depth_;
      }
    }
    return {};
  }

  Status take_end() {
    if (--depth_ == 1) finish_option();
    return {};
  }

  void finish_option() {
    settings_.push_back(std::move(*option_));
    option_.reset();
  }

  Error too_deep(const Event& event) const {
    return config_error(where(event.line()), "nested deeper than " + std::to_string(kMaxDepth) +
                                                 " levels; a configuration is a mapping of options");
  }

  Error not_a_mapping(const Event& event, std::string_view what) const {
    return config_error(where(event.line()),
                        "expected a mapping such as 'ttl: 300 s', got " + std::string(what));
  }

  std::string source_;
  yaml_parser_t parser_{};
  bool ready_ = false;
  int documents_ = 0;
  int depth_ = 0;
  std::optional<Setting> option_;
  std::vector<Setting> settings_;
};

Error too_large(std::string_view source) {
  return config_error(source, "larger than 1 MiB, which is the most that a configuration may have");
}

// The file's bytes; refuses what is not a regular file, so that a FIFO or a device cannot make this wait.
Result<std::string> read_file(const std::string& path, const std::string& source) {
  const auto fault = [&source](const char* what) {
    return config_error(source, Error::from_errno(errno, what).message());
  };
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return fault("cannot be opened");
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fault("cannot be examined");
  if (!S_ISREG(status.st_mode)) return config_error(source, "not a regular file; expected a YAML file");
  std::string text;
  std::array<char, 16384> buffer{};
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fault("cannot be read");
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > kMaxConfigFileSize) return too_large(source);
  }
}

}  // namespace

Status apply_yaml(NodeConfig& config, std::string_view text, std::string_view source) {
  if (text.size() > kMaxConfigFileSize) return too_large(source);
  STAGEWIRE_ASSIGN(const auto settings, Reader(text, source).read());
  return config::apply_settings(config, settings);
}

Status apply_yaml_file(NodeConfig& config, const std::string& path) {
  const std::string source = "file " + shown(path);
  STAGEWIRE_ASSIGN(const std::string text, read_file(path, source));
  return apply_yaml(config, text, source);
}

}  // namespace stagewire
