// A file with given contents that is gone at the end of a test.
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace stagewire {

class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view contents) : path_(testing::TempDir() + "stagewire_test_XXXXXX") {
    const int file = ::mkstemp(path_.data());
    EXPECT_GE(file, 0);
    EXPECT_EQ(::write(file, contents.data(), contents.size()), static_cast<ssize_t>(contents.size()));
    ::close(file);
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace stagewire
