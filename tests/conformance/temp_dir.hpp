#pragma once

// TempDir: a folder that lives as long as the object, for tests.

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace fenceguard::test {

class TempDir {
 public:
  // In memory where there is such a place, for what needs no disk and is done very often.
  enum class Place { disk, memory };

  explicit TempDir(Place place = Place::disk) {
    const std::filesystem::path memory{"/dev/shm"};
    const bool is_in_memory = place == Place::memory && std::filesystem::is_directory(memory);
    const auto parent = is_in_memory ? memory : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "fenceguard-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error{"mkdtemp failed"};
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace fenceguard::test
