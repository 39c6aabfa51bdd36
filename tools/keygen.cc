// keygen: prints a new shared secret, or writes it to a new file that only its owner can read. See
// commands.h.
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "commands.h"
#include "common/json.h"
#include "session/handshake.h"

namespace stagewire::tools {

namespace {

Status write_secret(const std::string& path, const std::string& secret) {
  // O_EXCL: a secret that is in use must not be lost by a slip.
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) {
    Error error = Error::from_errno(errno, "creating '" + path + "'");
    if (errno == EEXIST)
      return Error(ErrorKind::invalid_argument,
                   "'" + path + "' exists already; name a new file, or remove it first");
    return error;
  }
  const std::string line = secret + "\n";
  const ssize_t written = ::write(file.get(), line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size()) || ::fsync(file.get()) != 0) {
    Error error = Error::from_errno(errno, "writing '" + path + "'");
    ::unlink(path.c_str());
    return error;
  }
  return {};
}

}  // namespace

int run_keygen(const KeygenOptions& options) {
  const std::string secret = generate_secret();
  if (!options.output.empty()) {
    if (const Status written = write_secret(options.output, secret); !written.ok())
      return report_error(written.error());
    if (options.json) {
      std::printf("%s\n", Json::object().set("secret_file", options.output).text().c_str());
    } else {
      std::printf("wrote a new secret to %s\n", options.output.c_str());
    }
    return kExitOk;
  }
  std::printf("%s\n", options.json ? Json::object().set("secret", secret).text().c_str() : secret.c_str());
  return kExitOk;
}

}  // namespace stagewire::tools
